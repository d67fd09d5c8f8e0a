"""Selection of the M largest of K values. Ties go to the channel with the lowest index.

Quickselect without unpredictable branches: it takes some tens of nanoseconds for ten channels and is linear in K for
thousands. `scratch` must have 2 K elements.
"""

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit

_SMALL = 16  # up to this number of values, comparing all pairs is faster than partitioning


@jit
def gather(values: Floats, allowed: Flags, scratch: Floats) -> int:
    """Copy the allowed values to the front of `scratch` and return their number."""
    n = 0
    for k in range(values.size):
        scratch[n] = values[k]
        n += allowed[k]
    return n


@jit
def mth_largest(a: Floats, n: int, m: int) -> float:
    """Return the m-th largest of a[:n], 1 <= m <= n; reorders a[:n] and overwrites a[n : n + 16]."""
    first, last, want = 0, n, m - 1
    while last - first > _SMALL:
        x, y, z = a[first], a[(first + last) >> 1], a[last - 1]
        pivot = max(min(x, y), min(max(x, y), z))
        larger = first
        for i in range(first, last):
            value = a[i]
            a[i] = a[larger]
            a[larger] = value
            larger += value > pivot
        if want < larger:
            last = larger
            continue
        equal = larger
        for i in range(larger, last):
            value = a[i]
            a[i] = a[equal]
            a[equal] = value
            equal += value == pivot
        if want < equal or equal == first:  # the second only with a nan: no result is right, but terminate
            return pivot
        first = equal
    rank = n - first  # the rank of a[i] among a[first:last] is kept in a[rank + i]
    for i in range(first, last):
        above = 0
        for j in range(first, i):
            ahead = a[j] >= a[i]
            above += ahead
            a[rank + j] += 1 - ahead
        a[rank + i] = above
    for i in range(first, last):
        if a[rank + i] == want - first:
            return a[i]
    return a[first]


@jit
def top_m(index: Floats, allowed: Flags, m: int, scratch: Floats, picks: Ints) -> int:
    """Select the m allowed channels with the largest index.

    Parameters
    ----------
    index : array of float, shape (K,)
        Index of each channel.
    allowed : array of bool, shape (K,)
        Channels that may be selected, such as ``slot.available``.
    m : int
        Number of channels to select.
    scratch : array of float, shape (2 * K,)
        Working array, such as ``slot.scratch``.
    picks : array of int, shape (K,)
        Receives the selected channels in increasing order.

    Returns
    -------
    int
        Number of selected channels: m, or less if fewer are allowed.

    Examples
    --------
    >>> import numpy as np
    >>> picks = np.zeros(4, np.int64)
    >>> top_m(np.array([0.1, 0.9, 0.9, 0.9]), np.ones(4, np.bool_), 2, np.zeros(8), picks), picks[:2].tolist()
    (2, [1, 2])
    """
    n = gather(index, allowed, scratch)
    m = min(m, n)
    if m <= 0:
        return 0
    threshold = mth_largest(scratch, n, m)
    ties = m
    for k in range(index.size):
        ties -= allowed[k] & (index[k] > threshold)
    count = 0
    for k in range(index.size):
        tie = allowed[k] & (index[k] == threshold) & (ties > 0)
        ties -= tie
        picks[count] = k
        count += tie | (allowed[k] & (index[k] > threshold))
    return count


@jit
def mark_top_m(values: Floats, allowed: Flags, m: int, scratch: Floats) -> None:
    """Replace the values of the channels that `top_m` would select by 1, and all others by 0."""
    n = gather(values, allowed, scratch)
    m = min(m, n)
    threshold = mth_largest(scratch, n, m) if m > 0 else np.inf
    ties = m
    for k in range(values.size):
        ties -= allowed[k] & (values[k] > threshold)
    for k in range(values.size):
        tie = m > 0 and allowed[k] and values[k] == threshold and ties > 0
        ties -= tie
        values[k] = 1.0 if tie or (allowed[k] and values[k] > threshold) else 0.0


@jit
def top_sum(values: Floats, allowed: Flags, m: int, scratch: Floats) -> float:
    """Return the sum of the m largest allowed values (of all of them if fewer are allowed)."""
    n = gather(values, allowed, scratch)
    m = min(m, n)
    if m <= 0:
        return 0.0
    threshold = mth_largest(scratch, n, m)
    total = 0.0
    for k in range(values.size):
        if allowed[k] and values[k] > threshold:
            total += values[k]
            m -= 1
    return total + m * threshold
