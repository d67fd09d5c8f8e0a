"""RHO-RAND: each user plays the channel with the rank-th largest KL-UCB index and draws a new rank after a collision.

Anandkumar, Michael, Tang and Swami, "Distributed algorithms for learning and cognitive medium access with logarithmic
regret", IEEE-JSAC 2011, with the index of Besson and Kaufmann (ALT 2018). Users know how many they are. What a channel
pays is learned from its observed state on a collision, too.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.user_statistics import (
    UserStatistics,
    fill_indices,
    learn_alone,
    new_statistics,
    rank_threshold,
)
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    statistics: UserStatistics
    rank: Ints  # (1,) from 1; 0 before the first slot


def init(setup: Setup) -> State:
    return State(new_statistics(setup.K), np.zeros(1, np.int64))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if not slot.available.any():
        return 0
    if state.rank[0] == 0:
        state.rank[0] = draw_rank(setup, slot)
    fill_indices(state.statistics, slot.t, slot.rng, slot.indices)
    least = rank_threshold(slot.indices, slot.available, state.rank[0], slot.scratch)
    for k in range(setup.K):  # the channel with exactly this index
        if slot.available[k] and slot.indices[k] == least:
            picks[0] = k
    return 1


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    learn_alone(state.statistics, setup, feedback)
    if feedback.collision == 1:
        state.rank[0] = draw_rank(setup, slot)


@jit
def draw_rank(setup: Setup, slot: Slot) -> int:
    return 1 + int(setup.users * uniform(slot.rng))
