"""MP-Whittle: Whittle index with transition probabilities learned online.

The closed form of Liu and Zhao (IEEE-IT 2010) is evaluated at probabilities drawn in every slot from Beta posteriors of
transitions between consecutive slots. This is Thompson sampling with the Whittle index, as in Akbarzadeh and Mahajan,
"On learning Whittle index policy for restless bandits with scalable regret", IEEE Transactions on Control of Network
Systems, 2024. Differences: in the paper the state of every channel is observed, and probabilities are drawn once per
episode.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import binary_whittle
from idleband.policies.binary_whittle import (
    BinaryChannels,
    binary_state,
    explain_mean_reward,
    index,
    new_binary_channels,
    observe,
)
from idleband.policies.last_observation import NEVER, age_of
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    channels: BinaryChannels
    moves: Floats  # (K, 2, 2) number of transitions between consecutive slots, plus 1


def init(setup: Setup) -> State:
    return State(new_binary_channels(setup), np.ones((setup.K, 2, 2)))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    for k in range(setup.K):
        p01 = beta(slot.rng, state.moves[k, 0, 1], state.moves[k, 0, 0])
        p10 = beta(slot.rng, state.moves[k, 1, 0], state.moves[k, 1, 1])
        slot.indices[k] = index(setup, state.channels, k, slot.t, slot.sensed[k], p01, p10)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    good, last_observation = binary_state(setup, k, s), state.channels.last_observation
    if last_observation.state[k] != NEVER and age_of(last_observation, k, slot.t) == 1:
        state.moves[k, last_observation.state[k], good] += 1.0
    observe(state.channels, k, good, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean_reward(state.channels, k, terms)


terms = binary_whittle.terms
