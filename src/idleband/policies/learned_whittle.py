"""MP-Whittle: Whittle's index with transition probabilities learned on the way.

Liu and Zhao's closed form (IEEE-IT 2010) of probabilities drawn in every slot from Beta posteriors that neighbouring
observations feed, the usual way to learn a chain: Thompson sampling with Whittle's index, as in Akbarzadeh and Mahajan,
"On learning Whittle index policy for restless bandits with scalable regret", IEEE Transactions on Control of Network
Systems 2024. Departure: there the state is observed of every channel, and probabilities are drawn in episodes.
"""

from typing import NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import good_or_not
from idleband.policies.base import Floats, Ints, Known, Rng, Slot
from idleband.policies.good_or_not import Sides, explain_sides, index, new_sides, observe, side_of
from idleband.policies.sight import NEVER, age_of


class Params(NamedTuple):
    pass


class State(NamedTuple):
    sides: Sides
    moves: Floats  # (K, 2, 2) how often a side was followed by a side in the next slot, plus 1


def init(params: Params, known: Known) -> State:
    return State(new_sides(known), np.ones((known.K, 2, 2)))


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    for k in range(known.K):
        p01 = beta(rng, state.moves[k, 0, 1], state.moves[k, 0, 0])
        p10 = beta(rng, state.moves[k, 1, 0], state.moves[k, 1, 1])
        slot.indices[k] = index(known, state.sides, k, slot.t, slot.sensed[k], p01, p10)
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    side, sight = side_of(known, k, s), state.sides.sight
    if sight.state[k] != NEVER and age_of(sight, k, slot.t) == 1:
        state.moves[k, sight.state[k], side] += 1.0
    observe(state.sides, k, side, r, slot.t)


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    explain_sides(state.sides, k, terms)


terms = good_or_not.terms
