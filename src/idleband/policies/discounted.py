"""MP-DUCB: MP-UCB with discounted sums; the M largest indices, unplayed channels first.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011. A play in slot s
has weight discount^(t - 1 - s) when channels are ranked in slot t, and n is the sum of plays_k over all channels:

    index = total_k / plays_k + 2 span sqrt(L ln n / plays_k)

L is called xi in the paper. The theorem requires more than 1/2; the simulations use 0.6.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot, explain_mean

# A smaller weight of plays counts as zero: denormal numbers lose precision and are slow.
FORGOTTEN = 1e-290


class Params(NamedTuple):
    discount: Annotated[float, AtLeast(0.0, 1.0), "weight of a slot relative to the following slot"] = 0.999
    L: Annotated[float, AtLeast(0.0), "scale L of the confidence width 2 sqrt(L ln n / plays_k)"] = 0.6


class State(NamedTuple):
    total: Floats  # (K,) rewards earned, discounted
    plays: Floats  # (K,) plays, discounted
    now: Ints  # (1,) the slot to which they are discounted


def init(setup: Setup) -> State:
    return State(np.zeros(setup.K), np.zeros(setup.K), np.zeros(1, np.int64))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    n = 0.0
    for k in range(setup.K):
        n += state.plays[k]
    # After slots without plays n may be less than 1; the width is then 0.
    log_n = setup.params.L * math.log(max(n, 1.0))
    for k in range(setup.K):
        plays = state.plays[k]
        if plays > FORGOTTEN:
            slot.indices[k] = state.total[k] / plays + 2.0 * setup.span * math.sqrt(log_n / plays)
            state.total[k] *= setup.params.discount  # for the next slot, in which the newest play has weight 1
            state.plays[k] = plays * setup.params.discount
        else:
            slot.indices[k] = np.inf
            state.total[k] = 0.0
            state.plays[k] = 0.0
    state.now[0] = slot.t
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, r = feedback.channel, feedback.reward
    late = state.now[0] - slot.t
    weight = 1.0 if late <= 0 else setup.params.discount**late
    state.total[k] += weight * r
    state.plays[k] += weight


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean(state.total, state.plays, slot, k, terms)


def terms(setup: Setup) -> tuple[str, str]:
    return "discounted mean reward", "width of its confidence interval"
