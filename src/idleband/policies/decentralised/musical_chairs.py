"""MUSICAL-CHAIRS: learn the channels and the number of users at random, then sit down on one of the best.

Rosenski, Shamir and Szlak, "Multi-player bandits: a musical chairs approach", ICML 2016. For T0 slots a user plays
channels at random and counts its collisions C: with M users a play is alone with probability (1 - 1/K)^(M-1), so that
M is estimated as 1 + ln((T0 - C) / T0) / ln(1 - 1/K), rounded. Then it plays random ones of the M best channels until a
slot without a collision, and stays on that channel for ever. The guarantee needs T0 of order 10^5 slots; `learning`
sets it.

Users who arrive and leave are met by beginning again every `epoch` slots (dynamic musical chairs). Epochs are counted
from the arrival of a user, so that those who arrive at different times do not learn at the same time.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.policies.decentralised.user_statistics import draw_available, draw_channel, rank_threshold
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    learning: Annotated[int, AtLeast(1, 10**9), "slots in which channels are played at random (T0)"] = 3000
    epoch: Annotated[int, AtLeast(0, 10**10), "slots after which a user begins again; 0: never"] = 0


class State(NamedTuple):
    total: Floats  # (K,) rewards without collision
    plays: Floats  # (K,) how many
    collisions: Ints  # (1,) while learning
    chair: Ints  # (1,) channel of the user, -1 while it has none
    users: Ints  # (1,) estimated number of users, 0 while learning


def init(setup: Setup) -> State:
    return State(
        np.zeros(setup.K), np.zeros(setup.K), np.zeros(1, np.int64), np.full(1, -1, np.int64), np.zeros(1, np.int64)
    )


@jit
def slot_of_epoch(setup: Setup, slot: Slot) -> int:
    """Return the slot since the user has begun again, from 1."""
    return (slot.t - 1) % setup.params.epoch + 1 if setup.params.epoch > 0 else slot.t


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    t = slot_of_epoch(setup, slot)
    if t == 1:
        state.total[:] = 0.0
        state.plays[:] = 0.0
        state.collisions[0], state.chair[0], state.users[0] = 0, -1, 0
    for k in range(setup.K):
        slot.indices[k] = state.total[k] / state.plays[k] if state.plays[k] > 0.0 else -np.inf
    k = state.chair[0]
    if t <= setup.params.learning:
        k = draw_available(slot)
    elif k < 0 and slot.available.any():
        if state.users[0] == 0:
            state.users[0] = estimated_users(setup, state)
        least = rank_threshold(slot.indices, slot.available, state.users[0], slot.scratch)
        k = draw_channel(slot.indices, slot.available, least, slot.rng)
    if k < 0 or not slot.available[k]:
        return 0
    picks[0] = k
    return 1


@jit
def estimated_users(setup: Setup, state: State) -> int:
    """Return the number of users from the share of plays without a collision while learning."""
    alone = state.plays.sum()
    if alone == 0.0 or setup.K == 1:
        return setup.K
    users = 1.0 + math.log(alone / (alone + state.collisions[0])) / math.log(1.0 - 1.0 / setup.K)
    return min(setup.K, int(users + 0.5))


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    if slot_of_epoch(setup, slot) > setup.params.learning:
        if feedback.collision == 0 and state.chair[0] < 0:
            state.chair[0] = feedback.channel
    elif feedback.collision == 1:
        state.collisions[0] += 1
    else:
        state.total[feedback.channel] += feedback.reward
        state.plays[feedback.channel] += 1.0
