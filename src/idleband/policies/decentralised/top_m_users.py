"""RANDTOPM and MCTOPM: each user stays on one of the M channels with the largest KL-UCB index.

Besson and Kaufmann, "Multi-player bandits revisited", ALT 2018; looked up in its source and in the code of the authors
(SMPyBandits). Users know how many they are. When its channel leaves the M best, a user moves to one of them whose index
was not larger than that of its channel in the slot before. After a collision it moves to a random one of the M best.
With MCTOPM (musical chairs), a user who has played a slot without a collision is seated: it keeps its channel on later
collisions, as long as the channel is one of the M best.

When the channel of a user without a seat leaves the M best after a collision, RANDTOPM moves to a random one of them.
So does MCTOPM in the authors' code, with which their figures agree; as printed, and here unless `collision_first` is
set, it moves to one whose index was not larger, which collides less often.
"""

from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.user_statistics import (
    UserStatistics,
    draw_channel,
    fill_indices,
    learn_alone,
    new_statistics,
    rank_threshold,
)
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    chairs: Annotated[bool, "whether a user keeps its channel on collisions after a slot without one"] = True
    collision_first: Annotated[bool, "without a seat, move to any of the M best after every collision"] = False


class State(NamedTuple):
    statistics: UserStatistics
    before: Floats  # (K,) indices of the slot before
    channel: Ints  # (1,) channel of the user, -1 before the first slot
    seated: Ints  # (1,) whether the user keeps it on a collision
    collided: Ints  # (1,) whether the last slot was a collision


FIXED = frozenset(["chairs"])


def init(setup: Setup) -> State:
    one = np.zeros(1, np.int64)
    return State(new_statistics(setup.K), np.zeros(setup.K), np.full(1, -1, np.int64), one, one.copy())


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if not slot.available.any():
        return 0
    fill_indices(state.statistics, slot.t, slot.rng, slot.indices)
    least = rank_threshold(slot.indices, slot.available, setup.users, slot.scratch)
    k = state.channel[0]
    leaves = k < 0 or not slot.available[k] or slot.indices[k] < least
    moves = state.collided[0] == 1 and state.seated[0] == 0
    if k < 0:
        k = draw_channel(slot.indices, slot.available, -np.inf, slot.rng)
    elif leaves and not (moves and setup.params.collision_first):
        k = draw_worse_before(state, slot, least)
        state.seated[0] = 0
    elif moves:
        k = draw_channel(slot.indices, slot.available, least, slot.rng)
    elif setup.params.chairs:
        state.seated[0] = 1
    state.channel[0] = k
    state.collided[0] = 0
    for i in range(setup.K):
        state.before[i] = slot.indices[i]
    picks[0] = k
    return 1


@jit
def draw_worse_before(state: State, slot: Slot, least: float) -> int:
    """Return a random one of the best channels that were not better than the user's own in the slot before."""
    found, count = -1, 0
    limit = state.before[state.channel[0]]
    for k in range(slot.available.size):
        if slot.available[k] and slot.indices[k] >= least and state.before[k] <= limit:
            count += 1
            if uniform(slot.rng) * count < 1.0:
                found = k
    return found if found >= 0 else draw_channel(slot.indices, slot.available, least, slot.rng)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    learn_alone(state.statistics, setup, feedback)
    state.collided[0] = int(feedback.collision == 1)
