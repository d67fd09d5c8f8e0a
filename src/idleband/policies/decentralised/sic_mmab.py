"""SIC-MMAB: users explore in turn and tell each other the sums of their rewards by collisions, bit by bit.

Boursier and Perchet, "SIC-MMAB: synchronisation involves communication in multiplayer multi-armed bandits",
NeurIPS 2019; looked up in the code of the authors (eboursier/sic-mmab). Users know the horizon T. After the start phase
(`start_phase`) with ceil(K e ln T) slots of seating there are phases p = ceil(log2 M), ceil(log2 M) + 1, ..., each with

    exploration   the M_a active users move over the K_a active channels; each plays every channel in 2^(p+1) slots
    talk          every active user sends the sum of its rewards in this phase, for every channel, to every other one:
                  p + 2 bits, lowest first. User i waits on the i-th active channel; to send a 1 to user j, it plays the
                  j-th active channel and collides. That takes M_a (M_a - 1) K_a (p + 2) slots.
    decision      with N rewards of a channel from all users, its mean is known within sqrt(2 ln T / N). A channel is
                  rejected if at least M_a others are better with certainty, accepted if at least K_a - M_a are worse.
                  The i-th accepted channel is that of the i-th active user, who stays there for ever. The others
                  continue with the remaining channels.

Our own: rewards are rescaled to [0, 1]; a sum that is not a whole number, where channels pay more than two rewards, is
rounded at random to one of its neighbours with the right mean, and the user itself uses the rounded sum, too. Slots in
which a channel is not available do not count; in them a user plays the available channel of its rank, without learning.
A single active user does not wait for a slot of talk.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.start_phase import (
    StartPhase,
    counts,
    learn_start,
    new_start_phase,
    nth_available,
    seating_slots,
    start_channel,
    start_is_over,
)
from idleband.policies.protocol import Feedback, Setup, Slot, to_unit

START, EXPLORATION, TALK, EXPLOITATION = range(4)


class Params(NamedTuple):
    pass


class State(NamedTuple):
    start: StartPhase
    seating: int
    stage: Ints  # (1,) START, EXPLORATION, TALK or EXPLOITATION
    slots: Ints  # (1,) slots of it that are over
    phase: Ints  # (1,) p
    users: Ints  # (1,) active users
    rank: Ints  # (1,) of the user among them, from 0
    channel: Ints  # (1,) accepted for the user, -1 before
    active: Ints  # (1,) active channels
    channels: Ints  # (K,) these, in increasing order; the elements after the first `active` are not used
    earned: Floats  # (K,) own rewards in this phase
    sent: Ints  # (K,) the same, as sent to the others
    total: Ints  # (K,) rewards of all users
    plays: Ints  # (K,) their number
    decision: Ints  # (K,) by active channel: 1 accepted, -1 rejected, 0 neither
    talked: Ints  # (1,) slots of talk so far


def init(setup: Setup) -> State:
    K = setup.K
    one, ints = np.zeros(1, np.int64), np.zeros(K, np.int64)
    return State(
        start=new_start_phase(),
        seating=seating_slots(K, setup.horizon),
        stage=one,
        slots=one.copy(),
        phase=one.copy(),
        users=one.copy(),
        rank=one.copy(),
        channel=np.full(1, -1, np.int64),
        active=np.full(1, K, np.int64),
        channels=np.arange(K),
        earned=np.zeros(K),
        sent=ints,
        total=ints.copy(),
        plays=ints.copy(),
        decision=ints.copy(),
        talked=one.copy(),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    stage = state.stage[0]
    if stage == START:
        k = start_channel(setup, state.start, slot, state.seating)
    elif not counts(slot):
        k = nth_available(slot, state.start.rank[0])
    elif stage == EXPLORATION:
        k = state.channels[(state.rank[0] + 1 + state.slots[0]) % state.active[0]]
    elif stage == TALK:
        k = state.channels[state.rank[0]]
        sender, receiver, i, bit = message(state)
        if sender == state.rank[0] and (state.sent[state.channels[i]] >> bit) & 1 == 1:
            k = state.channels[receiver]
    else:
        k = state.channel[0]
    picks[0] = k
    return int(k >= 0)


@jit
def message(state: State) -> tuple[int, int, int, int]:
    """Return who sends in this slot of talk to whom, about which active channel, and which bit of the sum."""
    bits, users, count = state.phase[0] + 2, state.users[0], state.active[0]
    step = state.slots[0]
    bit, step = step % bits, step // bits
    i, step = step % count, step // count
    receiver, sender = step % (users - 1), step // (users - 1)
    return sender, receiver + (receiver >= sender), i, bit


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    stage = state.stage[0]
    if stage == EXPLOITATION or not counts(slot):
        return
    if stage == START:
        learn_start(setup, state.start, feedback, state.seating)
        if start_is_over(setup, state.start, state.seating):
            state.users[0], state.rank[0] = state.start.users[0], state.start.rank[0]
            while 1 << state.phase[0] < state.users[0]:
                state.phase[0] += 1
            begin_exploration(setup, state)
        return
    if stage == EXPLORATION:
        state.slots[0] += 1
        state.earned[feedback.channel] += to_unit(setup, feedback.reward)
        if state.slots[0] == state.active[0] << (state.phase[0] + 1):
            end_exploration(state, slot)
            if state.users[0] == 1:
                decide(setup, state)
        return
    _, receiver, i, bit = message(state)
    if feedback.collision == 1 and receiver == state.rank[0]:
        state.total[state.channels[i]] += 1 << bit
    state.slots[0] += 1
    state.talked[0] += 1
    if state.slots[0] == state.users[0] * (state.users[0] - 1) * state.active[0] * (state.phase[0] + 2):
        decide(setup, state)


@jit
def begin_exploration(setup: Setup, state: State) -> None:
    state.stage[0], state.slots[0] = EXPLORATION, 0
    state.earned[:] = 0.0


@jit
def end_exploration(state: State, slot: Slot) -> None:
    """Round the own sums of this phase and begin to talk."""
    plays = 2 << state.phase[0]  # of the user on each active channel
    for i in range(state.active[0]):
        k = state.channels[i]
        state.sent[k] = min(plays, int(state.earned[k] + uniform(slot.rng)))
        state.total[k] += state.sent[k]
        state.plays[k] += plays * state.users[0]
    state.stage[0], state.slots[0] = TALK, 0


@jit
def decide(setup: Setup, state: State) -> None:
    """Accept and reject channels, and begin to exploit one of them, or the next phase."""
    users, count = state.users[0], state.active[0]
    for i in range(count):
        mean, width = mean_and_width(setup, state, i)
        better, worse = 0, 0
        for other in range(count):
            its_mean, its_width = mean_and_width(setup, state, other)
            better += its_mean - its_width > mean + width
            worse += its_mean + its_width < mean - width
        state.decision[i] = 1 if worse >= count - users else -1 if better >= users else 0
    accepted, left = 0, 0
    for i in range(count):
        k = state.channels[i]
        if state.decision[i] == 0:
            state.channels[left] = k
            left += 1
        elif state.decision[i] == 1:
            if accepted == state.rank[0]:
                state.channel[0] = k
            accepted += 1
    if state.channel[0] >= 0:
        state.stage[0] = EXPLOITATION
        return
    state.users[0] -= accepted
    state.rank[0] -= accepted
    state.active[0] = left
    state.phase[0] += 1
    begin_exploration(setup, state)


@jit
def mean_and_width(setup: Setup, state: State, i: int) -> tuple[float, float]:
    """Return the mean of an active channel over all users and the half-width of its confidence interval."""
    n = state.plays[state.channels[i]]
    return state.total[state.channels[i]] / n, math.sqrt(2.0 * math.log(setup.horizon) / n)
