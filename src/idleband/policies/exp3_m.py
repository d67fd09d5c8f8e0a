"""Exp3.M: exponential weights for several plays, without an assumption on how rewards come about.

Uchiya, Nakamura and Kudo, "Algorithms for adversarial bandit problems with multiple plays", ALT 2010. Of n channels M
are selected, channel k with probability

    p_k = M ((1 - gamma) w'_k / sum of w' + gamma / n)

where w' are the weights, those above a cap reduced to it. The cap is the value at which p_k of reduced channels is 1;
it is found exactly: while channels with p_k >= 1 are found, they are capped and the sum is computed anew. A set with
these probabilities is drawn by dependent rounding (Gandhi, Khuller, Parthasarathy and Srinivasan, Journal of the ACM
2006). The weight of a selected channel that was not capped is then multiplied by exp(M gamma r / (n p_k)), r its reward
on [0, 1]. The regret against the best fixed set is of order sqrt(M T n ln(n / M)), whatever the rewards are.

The equations are from memory; they agree with two implementations by others that were looked up. With gamma = 0 it is
that of the theorem for a horizon of T slots (from memory),

    gamma = min(1, sqrt(n ln(n / M) / ((e - 1) M T)))

Our own: n counts the available channels, and weights of the others stay; probabilities are kept for MEMORY slots, and
later feedback is ignored.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import ESTIMATE, Feedback, Setup, Slot, to_unit

MEMORY = 64  # slots
MIN_GAMMA = 1e-6  # keeps probabilities and the cap away from 0
MIN_LOG_WEIGHT = -600.0


class Params(NamedTuple):
    slots: Annotated[int, AtLeast(1, 10**9), "number of slots T in the formula for gamma"] = 100_000
    gamma: Annotated[float, AtLeast(0.0, 1.0), "share of uniform exploration; 0: by the formula"] = 0.0


class State(NamedTuple):
    log_weight: Floats  # (K,)
    weight: Floats  # (K,) working array: weights relative to the largest
    capped: Flags  # (K,) working array
    chosen: Flags  # (K,) working array
    p: Floats  # (MEMORY, K) probability with which a channel was selected; slot t is in row t % MEMORY
    rate: Floats  # (MEMORY,) M gamma / n
    slot_of: Ints  # (MEMORY,) slot of a row


def init(setup: Setup) -> State:
    return State(
        log_weight=np.zeros(setup.K),
        weight=np.zeros(setup.K),
        capped=np.zeros(setup.K, np.bool_),
        chosen=np.zeros(setup.K, np.bool_),
        p=np.zeros((MEMORY, setup.K)),
        rate=np.zeros(MEMORY),
        slot_of=np.full(MEMORY, -1, np.int64),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    n = 0
    for k in range(setup.K):
        n += slot.available[k]
    M, row = min(setup.M, n), slot.t % MEMORY
    state.slot_of[row] = slot.t
    state.rate[row] = 0.0
    if 0 < M < n:
        gamma = exploration(setup, n, M)
        set_probabilities(state, slot, row, n, M, gamma)
        state.rate[row] = M * gamma / n
    else:
        for k in range(setup.K):
            state.p[row, k] = 1.0 if slot.available[k] and M > 0 else 0.0
    for k in range(setup.K):
        slot.indices[k] = state.p[row, k]
    round_dependently(state.p, row, slot.rng, state.chosen)
    count = 0
    for k in range(setup.K):
        picks[count] = k
        count += state.chosen[k]
    return count


@jit
def exploration(setup: Setup, n: int, M: int) -> float:
    """Return gamma: the parameter, or the value of the theorem."""
    if setup.params.gamma > 0.0:
        return max(setup.params.gamma, MIN_GAMMA)
    gamma = math.sqrt(n * math.log(n / M) / ((math.e - 1.0) * M * setup.params.slots))
    return min(1.0, max(gamma, MIN_GAMMA))


@jit
def set_probabilities(state: State, slot: Slot, row: int, n: int, M: int, gamma: float) -> None:
    """Write the probability of every channel into state.p[row], given n available channels, 0 < M < n."""
    largest = -np.inf
    for k in range(slot.available.size):
        if slot.available[k]:
            largest = max(largest, state.log_weight[k])
    for k in range(slot.available.size):
        state.capped[k] = False
        log_weight = max(state.log_weight[k] - largest, MIN_LOG_WEIGHT)
        state.weight[k] = math.exp(log_weight) if slot.available[k] else 0.0
    # p_k >= 1 where (1 - gamma) w_k >= room * (sum of w'). With c capped channels and a sum `rest` of the others, the
    # cap solves (1 - gamma) cap = room * (c cap + rest). Capping a channel only raises p_k of the others. At most M - 1
    # channels are capped, because every other channel has a probability above 0.
    room = 1.0 / M - gamma / n
    cap, total = 0.0, 0.0
    number, found = 0, True
    while found:
        found = False
        rest = 0.0
        for k in range(slot.available.size):
            if not state.capped[k]:
                rest += state.weight[k]
        cap = room * rest / (1.0 - gamma - number * room) if number > 0 else np.inf
        total = rest + (number * cap if number > 0 else 0.0)
        for k in range(slot.available.size):
            above = (1.0 - gamma) * state.weight[k] >= room * total
            if above and slot.available[k] and not state.capped[k] and number < M - 1:
                state.capped[k] = True
                number += 1
                found = True
    for k in range(slot.available.size):
        if state.capped[k]:
            state.p[row, k] = 1.0
        elif slot.available[k]:
            state.p[row, k] = min(1.0, M * ((1.0 - gamma) * state.weight[k] / total + gamma / n))
        else:
            state.p[row, k] = 0.0


@jit
def round_dependently(p: Floats, row: int, rng: Rng, chosen: Flags) -> None:
    """Choose each channel with probability p[row, k], exactly as many as the sum of these, a whole number.

    Two fractions f and q at a time are replaced so that their sum and their expectations stay and one becomes 0 or 1;
    the other one is carried on.
    """
    carried, f = -1, 0.0
    for k in range(chosen.size):
        q = p[row, k]
        chosen[k] = q >= 1.0
        if q <= 0.0 or q >= 1.0:
            continue
        if carried < 0:
            carried, f = k, q
        elif f + q <= 1.0:
            if uniform(rng) * (f + q) >= f:
                carried = k
            f += q
        else:
            if uniform(rng) * (2.0 - f - q) < 1.0 - q:
                chosen[carried] = True
                carried = k
            else:
                chosen[k] = True
            f += q - 1.0
    if carried >= 0 and f > 0.5:  # 1, or 0, except for rounding errors
        chosen[carried] = True


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, row = feedback.channel, slot.t % MEMORY
    p = state.p[row, k]
    if state.slot_of[row] != slot.t or p <= 0.0 or p >= 1.0:  # too late, or capped
        return
    state.log_weight[k] += state.rate[row] * to_unit(setup, feedback.reward) / p


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        terms[k, ESTIMATE] = state.p[slot.t % MEMORY, k]


@jit
def propensities(setup: Setup, state: State, slot: Slot, out: Floats) -> None:
    for k in range(setup.K):
        out[k] = state.p[slot.t % MEMORY, k]


def terms(setup: Setup) -> tuple[str, str]:
    return "probability of selection", "-"
