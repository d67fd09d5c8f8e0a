"""SELFISH-KLUCB: each user plays the channel with the largest KL-UCB index of its own rewards, 0 on a collision.

Besson and Kaufmann, "Multi-player bandits revisited", ALT 2018. Usually good, but in some runs two users stay on one
channel for ever, with linear regret.
"""

from typing import NamedTuple

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.policies.decentralised.user_statistics import (
    UserStatistics,
    draw_channel,
    fill_indices,
    learn,
    new_statistics,
    rank_threshold,
)
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    statistics: UserStatistics


def init(setup: Setup) -> State:
    return State(new_statistics(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if not slot.available.any():
        return 0
    fill_indices(state.statistics, slot.t, slot.rng, slot.indices)
    best = rank_threshold(slot.indices, slot.available, 1, slot.scratch)
    picks[0] = draw_channel(slot.indices, slot.available, best, slot.rng)
    return 1


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    learn(state.statistics, setup, feedback.channel, feedback.reward)
