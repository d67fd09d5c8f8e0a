"""GLR-klUCB: KL-UCB that forgets a channel when a test finds that its mean has changed.

Besson, Kaufmann, Maillard and Seznec, "Efficient change-point detection for tackling piecewise-stationary bandits",
Journal of Machine Learning Research 23, 2022 (Besson and Kaufmann 2019, "The generalized likelihood ratio test meets
klUCB"). The rewards of channel k since its last restart, n of them on [0, 1], are split in two, s before and n - s
after. It restarts if for some split

    s kl(mean before, mean of all) + (n - s) kl(mean after, mean of all) >= ln(3 n^(3/2) / delta)

and with `restart` = global all channels restart with it. Channels are ranked by KL-UCB since the restart in slot tau_k,
the largest q with n_k kl(mean, q) <= ln(t - tau_k), channels without plays first. So that changes of channels that are
not played are found, one of the M plays is given to channel i in the i-th slot of every ceil(K / a) slots, counted from
the last restart of any channel, with a = alpha sqrt((1 + restarts) K ln T / T).

The test, its threshold, this order of exploration and alpha = 0.1 were looked up in the code of the first authors
(SMPyBandits, `GLR_UCB.py`: `GLR_IndexPolicy.detect_change`, `threshold_BernoulliGLR`,
`GLR_IndexPolicy_WithDeterministicExploration`, `ALPHA0_SCALE_FACTOR`), and so is that the test is done at every tenth
play of a channel only. That a grows with the number of restarts, and delta = 1 / sqrt(T), are from memory of the paper;
where the code uses ln t_k with a factor of 3 (`klUCB_forGLR`), the index has ln(t - tau_k), as in the paper's
experiments (from memory).

Differences. The papers keep all rewards since the restart and try every split, or every tenth. Here rewards are kept as
sums of 1, 2, 4, ... successive rewards, up to SIZE sums of a length, and only the splits between them are tried: those
near the end are tried exactly, one that is m plays ago within m / (SIZE - 1). So a play takes bounded time, and a
channel LEVELS x SIZE numbers; after SIZE 2^LEVELS plays the oldest rewards are dropped. Several plays are our own: one
of the M plays explores. The test is for independent rewards: states that last look like changes.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.kl import kl_upper, negative_entropy
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast, OneOf
from idleband.policies.protocol import Feedback, Setup, Slot, explain_mean, to_unit

LEVELS, SIZE = 20, 8
RESTARTS = ("local", "global")
LOCAL, GLOBAL = range(2)


class Params(NamedTuple):
    slots: Annotated[int, AtLeast(2, 10**9), "number of slots T in the formulas of alpha and delta"] = 100_000
    alpha: Annotated[float, AtLeast(0.0), "scale of forced exploration"] = 0.1
    delta: Annotated[float, AtLeast(0.0, 1.0), "probability of a false alarm; 0: 1 / sqrt(T)"] = 0.0
    restart: Annotated[int, OneOf(*RESTARTS), "forget the channel that has changed, or all channels"] = LOCAL
    every: Annotated[int, AtLeast(1, 10**6), "plays of a channel between two tests"] = 10


class State(NamedTuple):
    total: Floats  # (K,) rewards since the restart, each on [0, 1]
    plays: Floats  # (K,)
    entropy: Floats  # (K,) negative entropy of their mean, for kl_upper
    last: Floats  # (K,) last index, where the next search starts
    since: Ints  # (K,) slot of the last restart
    restarts: Ints  # (2,) their number, and the slot of the last one of any channel
    sums: Floats  # (K, LEVELS, SIZE) sums of 2^level successive rewards, the oldest first
    used: Ints  # (K, LEVELS) how many there are


def init(setup: Setup) -> State:
    return State(
        total=np.zeros(setup.K),
        plays=np.zeros(setup.K),
        entropy=np.zeros(setup.K),
        last=np.ones(setup.K),
        since=np.zeros(setup.K, np.int64),
        restarts=np.zeros(2, np.int64),
        sums=np.zeros((setup.K, LEVELS, SIZE)),
        used=np.zeros((setup.K, LEVELS), np.int64),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    for k in range(setup.K):
        if state.plays[k] == 0.0:
            slot.indices[k] = np.inf
        else:
            mean = state.total[k] / state.plays[k]
            log_t = math.log(max(slot.t - state.since[k], 1))
            state.last[k] = kl_upper(mean, log_t / state.plays[k], state.last[k], state.entropy[k])
            slot.indices[k] = state.last[k]
    explored = forced(setup, state, slot.t)
    if explored >= 0:
        slot.indices[explored] = np.inf
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def forced(setup: Setup, state: State, t: int) -> int:
    """Return the channel that must be explored in slot t, or -1."""
    T = float(setup.params.slots)
    share = setup.params.alpha * math.sqrt((1.0 + state.restarts[0]) * setup.K * math.log(T) / T)
    if share <= 0.0:
        return -1
    place = (t - state.restarts[1]) % int(math.ceil(setup.K / min(share, 1.0)))  # noqa: RUF046 - a float on a GPU
    return place if place < setup.K else -1


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k = feedback.channel
    if slot.t <= state.since[k]:  # late feedback of a slot before the restart
        return
    reward = to_unit(setup, feedback.reward)
    state.total[k] += reward
    state.plays[k] += 1.0
    dropped = append(state.sums, state.used, k, reward)
    if dropped >= 0.0:
        state.total[k] -= dropped
        state.plays[k] -= float(1 << LEVELS)
    if int(state.plays[k]) % setup.params.every == 0 and changed(setup, state, k):
        state.restarts[0] += 1
        state.restarts[1] = slot.t
        for j in range(setup.K):
            if j == k or setup.params.restart == GLOBAL:
                restart(state, j, slot.t)
    elif state.plays[k] > 0.0:
        state.entropy[k] = negative_entropy(state.total[k] / state.plays[k])


@jit
def append(sums: Floats, used: Ints, k: int, reward: float) -> float:
    """Store a reward; return the sum of the oldest 2^LEVELS if these are dropped, else -1.

    Where a level is full, its two oldest sums become one of the next level.
    """
    value = reward
    for level in range(LEVELS):
        if used[k, level] < SIZE:
            sums[k, level, used[k, level]] = value
            used[k, level] += 1
            return -1.0
        oldest = sums[k, level, 0] + sums[k, level, 1]
        for i in range(2, SIZE):
            sums[k, level, i - 2] = sums[k, level, i]
        sums[k, level, SIZE - 2] = value
        used[k, level] = SIZE - 1
        value = oldest
    return value


@jit
def changed(setup: Setup, state: State, k: int) -> bool:
    """Return whether the test finds a change in the rewards of channel k."""
    n, total = state.plays[k], state.total[k]
    delta = setup.params.delta if setup.params.delta > 0.0 else 1.0 / math.sqrt(setup.params.slots)
    threshold = math.log(3.0 * n * math.sqrt(n) / delta) + n * negative_entropy(total / n)
    later, sum_later = 0.0, 0.0
    for level in range(LEVELS):
        for i in range(state.used[k, level] - 1, -1, -1):
            later += float(1 << level)
            sum_later += state.sums[k, level, i]
            before = n - later
            if before > 0.0:
                # s kl(mean before, mean) + (n - s) kl(mean after, mean), without the terms that add up to those of n.
                evidence = before * negative_entropy((total - sum_later) / before)
                evidence += later * negative_entropy(sum_later / later)
                if evidence >= threshold:
                    return True
    return False


@jit
def restart(state: State, k: int, t: int) -> None:
    """Forget channel k, from slot t on."""
    state.total[k] = 0.0
    state.plays[k] = 0.0
    state.entropy[k] = 0.0
    state.last[k] = 1.0
    state.since[k] = t
    for level in range(LEVELS):
        state.used[k, level] = 0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean(state.total, state.plays, slot, k, terms)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward on [0, 1] since the last restart", "width of its confidence interval"
