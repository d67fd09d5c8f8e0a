"""MP-Whittle: Whittle's index with transition probabilities learned on the way.

Liu and Zhao's closed form (IEEE-IT 2010) of probabilities drawn in every slot from Beta posteriors that neighbouring
observations feed, the usual way to learn a chain: Thompson sampling with Whittle's index, as in Akbarzadeh and Mahajan,
"On learning Whittle index policy for restless bandits with scalable regret", IEEE Transactions on Control of Network
Systems 2024. Departure: there the state is observed of every channel, and probabilities are drawn in episodes.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import binary_whittle
from idleband.policies.binary_whittle import Sides, explain_sides, index, new_sides, observe, side_of
from idleband.policies.last_observation import NEVER, age_of
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    sides: Sides
    moves: Floats  # (K, 2, 2) how often a side was followed by a side in the next slot, plus 1


def init(setup: Setup) -> State:
    return State(new_sides(setup), np.ones((setup.K, 2, 2)))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    for k in range(setup.K):
        p01 = beta(slot.rng, state.moves[k, 0, 1], state.moves[k, 0, 0])
        p10 = beta(slot.rng, state.moves[k, 1, 0], state.moves[k, 1, 1])
        slot.indices[k] = index(setup, state.sides, k, slot.t, slot.sensed[k], p01, p10)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    side, last_observation = side_of(setup, k, s), state.sides.last_observation
    if last_observation.state[k] != NEVER and age_of(last_observation, k, slot.t) == 1:
        state.moves[k, last_observation.state[k], side] += 1.0
    observe(state.sides, k, side, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_sides(state.sides, k, terms)


terms = binary_whittle.terms
