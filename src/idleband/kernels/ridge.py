"""Ridge regression, one sample at a time: A = lambda I + sum x x', theta = A^-1 b.

A^-1 and theta are stored. With v = A^-1 x, one sample (x, y) changes them by
    A^-1 -= v v' / (1 + x'v)            (Sherman and Morrison)
    theta += v (y - x'theta) / (1 + x'v)
so the vector v, which ranking needs for the width, is all that the update needs too. The first axis of the arrays is
the model `m`; `k` is the channel of the context and `row` the place of its v.
"""

import math

from idleband.arrays import Floats
from idleband.kernels.compile import jit

# Whether only the lower triangle of A^-1 is read and written, with the same results. On a GPU, where memory is the
# limit, it is: `simulation/gpu/device_code.py`.
LOWER_TRIANGLE = False


@jit
def width_squared(A_inv: Floats, m: int, x: Floats, k: int, v: Floats, row: int) -> float:
    """Return x' A^-1 x for the context x[k] under model m; writes A^-1 x into v[row]."""
    d = x.shape[1]
    for i in range(d):
        v[row, i] = 0.0
    # By columns (A^-1 is symmetric), so that the inner loops are vectorised, and four columns at a time, so that
    # v[row] is loaded and stored a quarter as often.
    fours = d - d % 4
    for j in range(0, fours, 4):
        x0, x1, x2, x3 = x[k, j], x[k, j + 1], x[k, j + 2], x[k, j + 3]
        for i in range(d):
            v[row, i] += (entry(A_inv, m, j, i) * x0 + entry(A_inv, m, j + 1, i) * x1) + (
                entry(A_inv, m, j + 2, i) * x2 + entry(A_inv, m, j + 3, i) * x3
            )
    for j in range(fours, d):
        x0 = x[k, j]
        for i in range(d):
            v[row, i] += entry(A_inv, m, j, i) * x0
    q = 0.0
    for i in range(d):
        q += v[row, i] * x[k, i]
    return max(q, 0.0)


@jit
def entry(A_inv: Floats, m: int, i: int, j: int) -> float:
    """Return an entry of A^-1, or the one opposite of the diagonal that equals it."""
    return A_inv[m, j, i] if LOWER_TRIANGLE and i < j else A_inv[m, i, j]


@jit
def predict(theta: Floats, m: int, x: Floats, k: int) -> float:
    """Return theta . x for the context x[k] under model m."""
    y = 0.0
    for i in range(x.shape[1]):
        y += theta[m, i] * x[k, i]
    return y


@jit
def learn(A_inv: Floats, theta: Floats, m: int, v: Floats, row: int, q: float, error: float) -> None:
    """Update model m with one sample; v[row] and q are from width_squared, error = y - predict; overwrites v[row]."""
    d = v.shape[1]
    gain = error / (1.0 + q)
    scale = 1.0 / math.sqrt(1.0 + q)
    for i in range(d):
        theta[m, i] += gain * v[row, i]
        v[row, i] *= scale
    for i in range(d):  # u u' with u = v / sqrt(1 + q) is exactly symmetric
        u_i = v[row, i]
        for j in range(i + 1 if LOWER_TRIANGLE else d):
            A_inv[m, i, j] -= u_i * v[row, j]
