"""DPE1: a leader explores as little as possible and tells the others which M channels are the best, by collisions.

Wang, Proutiere, Ariu, Jedra and Russo, "Optimal algorithms for multiplayer multi-armed bandits", AISTATS 2020; looked
up in the code of the authors (rssalessio/DPE). After the start phase (`start_phase`) the user of rank 0 is the leader.
The users take turns on the channels `best`, first 0 to M-1: in slot t the user of rank i plays number t + i modulo M.
Only the leader learns. Every M slots it computes the KL-UCB index of each channel, with ln t + 4 ln ln t instead of
ln t, and the set B of the other channels whose index is not below the mean of the worst channel of `best`. When it is
its turn on this worst channel, it plays a random channel of B instead with probability 1/2.

When another channel has a larger mean than the worst of `best`, the leader tells that in 2M - 1 + K slots:

    notice   M - 1 slots on one of `best`: each follower meets it once, and knows from its rank when the notice began
    remove   M slots on the channel to remove, where each follower meets it once
    add      K slots on the channel to add, in which the followers move over all channels and meet it once

Departures from the authors' code: the start phase is that of SIC-MMAB with seating until everyone has a channel, for
M <= K instead of M < K (theirs alternates single slots of seating with checks of K slots). The mean of the worst
channel is computed every M slots, as in the paper, not only after a change. Equal means change nothing. Slots in which
a channel is not available do not count; in them a user plays the available channel of its rank.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Ints
from idleband.kernels.compile import jit
from idleband.kernels.kl import kl_upper
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.start_phase import (
    StartPhase,
    counts,
    learn_start,
    new_start_phase,
    nth_available,
    start_channel,
    start_is_over,
)
from idleband.policies.decentralised.user_statistics import UserStatistics, learn, new_statistics
from idleband.policies.protocol import Feedback, Setup, Slot

SEATING = 0  # until everyone has a channel


class Params(NamedTuple):
    pass


class State(NamedTuple):
    start: StartPhase
    statistics: UserStatistics
    slots: Ints  # (1,) slots since the start phase
    best: Ints  # (K,) the channels of the users, in increasing order; the elements after the first M are not used
    inside: Flags  # (K,) whether a channel is one of them
    worst: Ints  # (1,) the one of them with the smallest mean
    explored: Flags  # (K,) the set B
    talking: Ints  # (1,) 1 during a notice and what follows
    began: Ints  # (1,) its first slot
    remove: Ints  # (1,) channel that has been announced, -1: none
    add: Ints  # (1,)
    swaps: Ints  # (1,) changes of `best`


def init(setup: Setup) -> State:
    K, one = setup.K, np.zeros(1, np.int64)
    return State(
        start=new_start_phase(),
        statistics=new_statistics(K),
        slots=one,
        best=np.arange(K),
        inside=np.zeros(K, np.bool_),
        worst=one.copy(),
        explored=np.zeros(K, np.bool_),
        talking=one.copy(),
        began=one.copy(),
        remove=np.full(1, -1, np.int64),
        add=np.full(1, -1, np.int64),
        swaps=one.copy(),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    rank = state.start.rank[0]
    if not start_is_over(setup, state.start, SEATING):
        k = start_channel(setup, state.start, slot, SEATING)
    elif not counts(slot):
        k = nth_available(slot, rank)
    elif state.talking[0] == 1:
        k = channel_of_talk(setup, state)
    else:
        k = state.best[(state.slots[0] + rank) % state.start.users[0]]
        if rank == 0 and k == state.worst[0]:
            k = draw_explored(state, slot, k)
    picks[0] = k
    return int(k >= 0)


@jit
def channel_of_talk(setup: Setup, state: State) -> int:
    """Return the channel of the user while it talks or listens."""
    t, rank, users = state.slots[0], state.start.rank[0], state.start.users[0]
    s = t - state.began[0]
    if rank == 0:
        if s < users - 1:
            return state.best[(state.began[0] - 1) % users]
        return state.remove[0] if s < 2 * users - 1 else state.add[0]
    return state.best[(t + rank) % users] if s < 2 * users - 1 else (t + rank) % setup.K


@jit
def draw_explored(state: State, slot: Slot, worst: int) -> int:
    """Return the worst of the best channels or, with probability 1/2, a random one of the set B, if there is any."""
    found, count = worst, 0
    for k in range(slot.available.size):
        if state.explored[k]:
            count += 1
            if uniform(slot.rng) * count < 1.0:
                found = k
    return found if uniform(slot.rng) < 0.5 else worst


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    rank, users = state.start.rank[0], state.start.users[0]
    if rank == 0 and feedback.collision == 0:  # the leader, as far as the user knows
        learn(state.statistics, setup, feedback.channel, feedback.reward)
    if not counts(slot):
        return
    if not start_is_over(setup, state.start, SEATING):
        learn_start(setup, state.start, feedback, SEATING)
        if start_is_over(setup, state.start, SEATING):
            for k in range(state.start.users[0]):
                state.inside[k] = True
            if state.start.rank[0] == 0:
                find_explored(setup, state, slot)
        return
    t = state.slots[0]
    state.slots[0] += 1
    if state.talking[0] == 1:
        s = t - state.began[0]
        if rank > 0 and feedback.collision == 1:
            if users - 1 <= s < 2 * users - 1:
                state.remove[0] = feedback.channel
            elif s >= 2 * users - 1:
                state.add[0] = feedback.channel
        if s + 1 == 2 * users - 1 + setup.K:
            state.talking[0] = 0
            swap(setup, state)
            if rank == 0:
                find_explored(setup, state, slot)
                consider_swap(setup, state)
    elif rank > 0:
        if feedback.collision == 1:  # on the channel of the notice, number `began` - 1, in the turn of this user
            begin_talk(state, t + 1 - users + rank)
    elif state.slots[0] % users == 0:
        find_explored(setup, state, slot)
        consider_swap(setup, state)


@jit
def find_explored(setup: Setup, state: State, slot: Slot) -> None:
    """Compute the worst channel of the best ones and the set B."""
    statistics = state.statistics
    state.worst[0] = -1
    for k in range(setup.K):
        if state.inside[k] and (state.worst[0] < 0 or mean_of(state, k) < mean_of(state, state.worst[0])):
            state.worst[0] = k
    least = mean_of(state, state.worst[0])
    log_t = math.log(max(float(slot.t), 3.0))
    f = log_t + 4.0 * math.log(log_t)
    for k in range(setup.K):
        index = 2.0
        n = statistics.plays[k]
        if n > 0.0 and not state.inside[k]:
            statistics.last[k] = kl_upper(mean_of(state, k), f / n, statistics.last[k], statistics.entropy[k])
            index = statistics.last[k]
        state.explored[k] = not state.inside[k] and index >= least


@jit
def consider_swap(setup: Setup, state: State) -> None:
    """Begin to tell a change of the best channels if a channel outside has a larger mean than the worst inside."""
    add = -1
    for k in range(setup.K):
        if not state.inside[k] and (add < 0 or mean_of(state, k) > mean_of(state, add)):
            add = k
    if add < 0 or mean_of(state, add) <= mean_of(state, state.worst[0]):
        return
    begin_talk(state, state.slots[0])
    state.remove[0], state.add[0] = state.worst[0], add
    if state.start.users[0] == 1:  # no followers
        state.talking[0] = 0
        swap(setup, state)
        state.worst[0] = add


@jit
def begin_talk(state: State, first: int) -> None:
    state.talking[0], state.began[0] = 1, first
    state.remove[0], state.add[0] = -1, -1


@jit
def swap(setup: Setup, state: State) -> None:
    """Replace a channel of the best ones, if both channels have been announced."""
    if state.remove[0] < 0 or state.add[0] < 0 or state.inside[state.add[0]] or not state.inside[state.remove[0]]:
        return
    state.inside[state.remove[0]] = False
    state.inside[state.add[0]] = True
    state.swaps[0] += 1
    count = 0
    for k in range(setup.K):
        if state.inside[k]:
            state.best[count] = k
            count += 1


@jit
def mean_of(state: State, k: int) -> float:
    """Return the mean of a channel on [0, 1], 0 without plays."""
    plays = state.statistics.plays[k]
    return state.statistics.total[k] / plays if plays > 0.0 else 0.0
