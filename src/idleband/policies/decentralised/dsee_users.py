"""DSEE-USERS: deterministic sequencing of exploration and exploitation for several users of restless channels.

Liu, Liu and Zhao, "Learning in a changing world: restless multi-armed bandit with unknown dynamics", IEEE Transactions
on Information Theory 59(3), 2013, arXiv:1011.4969, and "Decentralized restless bandit with multiple players and unknown
dynamics", arXiv:1102.2975. As in `dsee`, slots form epochs whose lengths grow geometrically, in the same slots for all
users:

    exploration n     every user plays every channel in 4^(n-1) successive slots; different users different channels
    exploitation n    M parts of 2 4^(n-1) slots. In part i the user of rank j plays the one of rank (i + j) modulo M
                      among the M channels with the largest mean of its own rewards at the beginning of the epoch

After each epoch the next one is an exploration if channels were played in (4^n - 1) / 3 <= D ln t slots of exploration
each, with n explorations so far, and an exploitation otherwise.

The abstracts were looked up (interleaved epochs, users without exchange of information, logarithmic regret against the
best fixed channels); lengths, condition and parts are from memory. Our own: ranks and M come from the start phase
(`start_phase`), after which t counts; slots in which a channel is not available do not count, and in them a user plays
the available channel of its rank.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.policies.decentralised.start_phase import (
    StartPhase,
    counts,
    learn_start,
    new_start_phase,
    nth_available,
    start_channel,
    start_is_over,
)
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

MAX_EPOCH = 25  # of a kind; the last has 4^25 slots or more
UNPLAYED = 1e15  # value of a channel without plays, above all means
SEATING = 0  # until everyone has a channel


class Params(NamedTuple):
    D: Annotated[float, AtLeast(0.0), "explore while each channel was explored in at most D ln t slots"] = 10.0


class State(NamedTuple):
    start: StartPhase
    total: Floats  # (K,) rewards of plays without collision
    plays: Floats  # (K,)
    order: Ints  # (K,) channels by their means, the largest first, at the beginning of the exploitation
    value: Floats  # (K,) these means
    slots: Ints  # (1,) slots since the start phase, this one included
    explorations: Ints  # (1,) this one included
    exploitations: Ints  # (1,)
    exploring: Ints  # (1,) whether this epoch is an exploration
    at: Ints  # (1,) slots of this epoch that are over
    part: Ints  # (1,) slots on each channel in this epoch


def init(setup: Setup) -> State:
    K, one = setup.K, np.zeros(1, np.int64)
    return State(
        start=new_start_phase(),
        total=np.zeros(K),
        plays=np.zeros(K),
        order=np.arange(K),
        value=np.zeros(K),
        slots=one,
        explorations=one.copy(),
        exploitations=one.copy(),
        exploring=one.copy(),
        at=one.copy(),
        part=one.copy(),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    rank, users = state.start.rank[0], state.start.users[0]
    if not start_is_over(setup, state.start, SEATING):
        k = start_channel(setup, state.start, slot, SEATING)
    elif not counts(slot):
        k = nth_available(slot, rank)
    else:
        state.slots[0] += 1
        if state.at[0] == state.part[0] * (setup.K if state.exploring[0] == 1 else users):
            begin_epoch(setup, state)
        i = state.at[0] // state.part[0] + rank
        k = i % setup.K if state.exploring[0] == 1 else state.order[i % users]
        state.at[0] += 1
    picks[0] = k
    return int(k >= 0)


@jit
def begin_epoch(setup: Setup, state: State) -> None:
    state.at[0] = 0
    length = 1 << (2 * state.explorations[0])  # of the next exploration, on each channel
    if (length - 1) / 3 <= setup.params.D * math.log(state.slots[0]) and state.explorations[0] < MAX_EPOCH:
        state.exploring[0] = 1
        state.explorations[0] += 1
        state.part[0] = length
        return
    state.exploring[0] = 0
    state.part[0] = 2 << (2 * min(state.exploitations[0], MAX_EPOCH))
    state.exploitations[0] += 1
    for k in range(setup.K):
        state.value[k] = state.total[k] / state.plays[k] if state.plays[k] > 0.0 else UNPLAYED
        place = k  # among the channels up to k
        while place > 0 and state.value[k] > state.value[state.order[place - 1]]:
            state.order[place] = state.order[place - 1]
            place -= 1
        state.order[place] = k


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    if feedback.collision == 0:
        state.total[feedback.channel] += feedback.reward
        state.plays[feedback.channel] += 1.0
    if counts(slot) and not start_is_over(setup, state.start, SEATING):
        learn_start(setup, state.start, feedback, SEATING)
