"""Partition of channels into groups of which each is played by one user who observes its own plays only.

The value of a group is the mean reward of a user who plays, in every slot, the channel of the group with the largest
Whittle index given the belief. It is found by simulating SLOTS slots; all groups are simulated on the same states, and
the expected instead of the drawn reward is counted, so that differences of groups are more precise than their values.

With up to MAX_EXACT channels, the groups of at most MAX_SIZE channels with the largest sum of values are found exactly,
by dynamic programming over sets of channels: the best m groups from a set S consist of the best group that contains the
first channel of S and m - 1 groups from the rest of S, or do not contain this channel. That takes about 3^K steps. With
more channels, a search exchanges and moves random channels as long as that increases the sum.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.kernels.two_state_chain import later
from idleband.kernels.whittle import whittle

MAX_SIZE = 4
MAX_EXACT = 15
SLOTS = 12000
MAX_AGE = 100  # slots since an observation; later the belief does not change any more
SEARCH = 3000  # exchanges and moves that are tried where a search replaces dynamic programming
NOT_ALLOWED = -1e300
UNSEEN = 2  # instead of the state of a channel that was not observed yet


class Grouping(NamedTuple):
    p01: Floats  # (K,) of the better state
    p10: Floats  # (K,)
    low: Floats  # (K,) reward in the worse state
    high: Floats  # (K,)
    label: Ints  # (K,) group of each channel, M: none
    expected: Floats  # (K, 3, MAX_AGE + 1) reward by last state and age of its observation
    indices: Floats  # (K, 3, MAX_AGE + 1)
    path: Ints  # (SLOTS, K) states
    members: Ints  # (MAX_SIZE,) channels of a group
    last: Ints  # (MAX_SIZE,) last observed states of them
    age: Ints  # (MAX_SIZE,)
    value: Floats  # (2^K,) of each set of channels; (M + 1,) of each group where a search is used
    best: Floats  # (M + 1, 2^K) largest sum of values of m groups of a set
    choice: Ints  # (M + 1, 2^K) group in it that contains the first channel; 0: none


def new_grouping(K: int, users: int) -> Grouping:
    """Return working memory for K channels and at most this number of users."""
    sets = 2**K if K <= MAX_EXACT else 0
    table = (K, 3, MAX_AGE + 1)
    return Grouping(
        p01=np.full(K, 0.5),
        p10=np.full(K, 0.5),
        low=np.zeros(K),
        high=np.ones(K),
        label=np.zeros(K, np.int64),
        expected=np.zeros(table),
        indices=np.zeros(table),
        path=np.zeros((SLOTS, K), np.int64),
        members=np.zeros(MAX_SIZE, np.int64),
        last=np.zeros(MAX_SIZE, np.int64),
        age=np.zeros(MAX_SIZE, np.int64),
        value=np.zeros(sets if sets else users + 1),
        best=np.zeros((users + 1, sets)),
        choice=np.zeros((users + 1, sets), np.int64),
    )


@jit
def prepare(grouping: Grouping, rng: Rng) -> None:
    """Compute indices and expected rewards of the present p01, p10, low and high, and draw states."""
    for k in range(grouping.label.size):
        p01, p10 = grouping.p01[k], grouping.p10[k]
        low, span = grouping.low[k], grouping.high[k] - grouping.low[k]
        settled = p01 / (p01 + p10)
        for s in range(3):
            for age in range(MAX_AGE + 1):
                w = settled if s == UNSEEN else later(p01, p10, float(s), age)
                grouping.expected[k, s, age] = low + span * w
                grouping.indices[k, s, age] = low + span * whittle(p01, p10, w)
        state = uniform(rng) < settled
        for t in range(SLOTS):
            u = uniform(rng)
            state = u >= p10 if state else u < p01
            grouping.path[t, k] = int(state)


@jit
def group_value(grouping: Grouping, count: int) -> float:
    """Return the value of the group of the first `count` of the members."""
    members, last, age = grouping.members, grouping.last, grouping.age
    if count == 1:
        k = members[0]
        return grouping.low[k] + (grouping.high[k] - grouping.low[k]) * grouping.p01[k] / (
            grouping.p01[k] + grouping.p10[k]
        )
    for i in range(count):
        last[i], age[i] = UNSEEN, 1
    total = 0.0
    for t in range(SLOTS):
        best, largest = 0, -np.inf
        for i in range(count):
            value = grouping.indices[members[i], last[i], age[i]]
            if value > largest:
                best, largest = i, value
        total += grouping.expected[members[best], last[best], age[best]]
        for i in range(count):
            age[i] = min(age[i] + 1, MAX_AGE)
        last[best], age[best] = grouping.path[t, members[best]], 1
    return total / SLOTS


@jit
def value_of_label(grouping: Grouping, g: int) -> float:
    """Return the value of the channels with a label; 0 if there are none, NOT_ALLOWED if there are too many."""
    count = 0
    for k in range(grouping.label.size):
        if grouping.label[k] == g:
            if count == MAX_SIZE:
                return NOT_ALLOWED
            grouping.members[count] = k
            count += 1
    return group_value(grouping, count) if count > 0 else 0.0


@jit
def total_value(grouping: Grouping, users: int) -> float:
    """Return the sum of the values of the groups with labels 0 to users - 1."""
    total = 0.0
    for g in range(users):
        total += value_of_label(grouping, g)
    return total


@jit
def partition(grouping: Grouping, users: int, rng: Rng) -> None:
    """Write the label of every channel in the best partition; `prepare` comes first."""
    if grouping.best.shape[1] > 0:
        partition_exactly(grouping, users)
    else:
        search_partition(grouping, users, rng)


@jit
def partition_exactly(grouping: Grouping, users: int) -> None:
    K = grouping.label.size
    value, best, choice = grouping.value, grouping.best, grouping.choice
    for group in range(1, value.size):
        count = 0
        for k in range(K):
            if (group >> k) & 1 == 1:
                if count < MAX_SIZE:
                    grouping.members[count] = k
                count += 1
        value[group] = group_value(grouping, count) if count <= MAX_SIZE else NOT_ALLOWED
    for m in range(users + 1):
        for available in range(value.size):
            best[m, available], choice[m, available] = 0.0 if m == 0 else NOT_ALLOWED, 0
            if m == 0 or available == 0:
                continue
            first = available & -available
            rest = available ^ first
            best[m, available] = best[m, rest]
            more = rest  # the group is `first` and a subset of the rest
            while True:
                total = value[first | more] + best[m - 1, rest ^ more]
                if total > best[m, available]:
                    best[m, available], choice[m, available] = total, first | more
                if more == 0:
                    break
                more = (more - 1) & rest
    for k in range(K):
        grouping.label[k] = users
    m, available = users, value.size - 1
    while m > 0 and available > 0:
        group = choice[m, available]
        if group == 0:
            available &= available - 1
            continue
        for k in range(K):
            if (group >> k) & 1 == 1:
                grouping.label[k] = m - 1
        available ^= group
        m -= 1


@jit
def search_partition(grouping: Grouping, users: int, rng: Rng) -> None:
    K = grouping.label.size
    label, value = grouping.label, grouping.value
    deal(grouping, users)
    value[users] = 0.0
    for g in range(users):
        value[g] = value_of_label(grouping, g)
    for _ in range(SEARCH):
        k, other = int(K * uniform(rng)), int(K * uniform(rng))
        g, h = label[k], label[other]
        exchange = uniform(rng) < 0.5
        if g == h:
            continue
        label[k] = h
        if exchange:
            label[other] = g
        g_value, h_value = 0.0, 0.0
        for _ in range(2):
            g_value, h_value = h_value, g_value
            g, h = h, g
            g_value = value_of_label(grouping, g) if g < users else 0.0
        if g_value + h_value > value[g] + value[h] and (exchange or g == users or g_value > 0.0):
            value[g], value[h] = g_value, h_value
        else:
            label[k], label[other] = g, h


@jit
def deal(grouping: Grouping, users: int) -> None:
    """Deal the channels to the groups: the best ones in the order of the groups, the next ones in reverse, ..."""
    K = grouping.label.size
    grouping.label[:] = -1
    for n in range(K):
        best, largest = 0, -np.inf
        for k in range(K):
            if grouping.label[k] < 0 and grouping.expected[k, UNSEEN, 0] > largest:
                best, largest = k, grouping.expected[k, UNSEEN, 0]
        turn, place = n // users, n % users
        g = place if turn % 2 == 0 else users - 1 - place
        grouping.label[best] = g if turn < MAX_SIZE else users
