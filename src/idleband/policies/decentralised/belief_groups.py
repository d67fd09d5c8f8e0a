"""BELIEF-GROUPS: each user follows the states of a group of channels of its own, without messages.

After the start phase (`start_phase.py`) all users sweep over the channels for `look` slots, without collisions.
Then the user with rank 0 partitions the channels into one group per user (`channel_groups.py`), with the chains that it
has learned, and tells the others the group of each channel by collisions. Each user plays its group like MP-BELIEF
(`belief.py`) with its own observations. The groups rotate: between two partitions, each user has each group for the
same number of slots. The next partition is made when the number of slots has grown by the factor GROWTH, and sent if it
is expected to earn more than telling it costs.

Telling: in the first slots, one per follower, rank 0 tells whether the groups change; if they do, it tells to one
follower after another the number of the group of each channel in binary. In its slots a follower stays on a channel
that rank 0 knows, and rank 0 plays it as well for a 1. The others play as before.

With `guests`, a user may also play a channel of another group that it believes to be good and not used (`guests.py`),
and leaves it after a collision. A user never leaves a channel of its own group because of a collision.

Users must start together. A user who arrives later gets a wrong rank and number of users. If seating does not end, or
the user collides in a share of MAX_COLLISIONS of about the last MEMORY slots on channels that should be its own, it has
no group from then on: it does not tell or listen, plays as a guest everywhere, and keeps a channel while it is good and
no other user plays it. Users whom it has met often do the same, so that arrivals end the groups. No user takes over the
group of a user who leaves.
"""

from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic
from idleband.kernels.compile import jit
from idleband.policies import belief, belief_state
from idleband.policies.decentralised.channel_groups import (
    Grouping,
    new_grouping,
    partition,
    prepare,
    total_value,
)
from idleband.policies.decentralised.guests import Guests, forget_guests, learn_occupied, new_guests, occupied
from idleband.policies.decentralised.start_phase import (
    StartPhase,
    counts,
    learn_start,
    new_start_phase,
    start_channel,
    start_is_over,
)
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

DWELL = 4  # slots on a channel while sweeping
GROWTH = 4
MAX_COLLISIONS, MEMORY = 0.3, 50.0
LOST = -1.0
MAX_ROUNDS = 10  # of seating; more are very unlikely if all users start together
NONE = -1
SEATING = 0  # until everyone has a channel


class Params(NamedTuple):
    redraw: belief_state.Redraw = 50
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0
    look: Annotated[int, AtLeast(4, 10**9), "slots of sweeping over all channels before the first partition"] = 300
    guests: Annotated[bool, "whether users play channels of other groups that seem to be free"] = True
    margin: Annotated[float, AtLeast(0.0), "what such a play must be expected to earn in addition"] = 0.05
    harm: Annotated[float, AtLeast(0.0), "weight of the reward that another user loses by such a play"] = 0.7


class State(NamedTuple):
    start: StartPhase
    own: belief.State
    guests: Guests
    grouping: Grouping  # of rank 0
    label: Ints  # (K,) group of each channel as all users know it
    sent: Ints  # (K,) the same while it is sent
    clock: Ints  # (1,) slots of sweeping and playing
    epoch: Ints  # (2,) values of the clock at the present partition and at the next one
    talk: Ints  # (1,) slots of telling since the present partition, NONE outside
    changes: Ints  # (1,) whether the groups change
    collisions: Floats  # (1,) recent share of collisions where there should be none; LOST: the user has no group
    seat: Ints  # (1,) channel that such a user has played alone, NONE: none


def init(setup: Setup) -> State:
    K = setup.K
    return State(
        start=new_start_phase(),
        own=belief.init(setup),
        guests=new_guests(K),
        grouping=new_grouping(K, K),
        label=np.full(K, NONE, np.int64),
        sent=np.zeros(K, np.int64),
        clock=np.zeros(1, np.int64),
        epoch=np.array([0, setup.params.look]),
        talk=np.full(1, NONE, np.int64),
        changes=np.zeros(1, np.int64),
        collisions=np.zeros(1),
        seat=np.full(1, NONE, np.int64),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if not has_no_group(state) and not start_is_over(setup, state.start, SEATING):
        picks[0] = start_channel(setup, state.start, slot, SEATING)
        return int(picks[0] >= 0)
    belief.fill_indices(setup, state.own, slot)
    k = NONE
    sequence = not has_no_group(state)  # whether the user takes part in sweeping and telling
    if sequence and counts(slot):
        pass_slot(setup, state, slot)
        if state.talk[0] >= 0:
            k = channel_while_telling(setup, state)
        if k == NONE and state.label[0] == NONE:
            k = swept(setup, state, state.start.rank[0])
    elif sequence and (state.label[0] == NONE or state.talk[0] >= 0):
        return 0  # silent in a slot that does not count
    picks[0] = k if k != NONE else best_channel(setup, state, slot)
    return int(picks[0] >= 0)


@jit
def has_no_group(state: State) -> bool:
    return state.collisions[0] == LOST


@jit
def pass_slot(setup: Setup, state: State, slot: Slot) -> None:
    """Begin a slot: of the clock, or of telling."""
    if state.talk[0] >= 0:
        return
    state.clock[0] += 1
    if state.start.users[0] == 1:
        state.label[:] = 0  # there is no other user
    elif state.clock[0] > state.epoch[1]:
        state.epoch[0], state.epoch[1] = state.epoch[1], GROWTH * state.epoch[1]
        state.talk[0] = 0
        state.clock[0] -= 1
        state.changes[0] = 0
        if state.start.rank[0] == 0:
            regroup(setup, state, slot)


@jit
def regroup(setup: Setup, state: State, slot: Slot) -> None:
    """Partition the channels anew, and decide whether to tell that."""
    grouping, users = state.grouping, state.start.users[0]
    for k in range(setup.K):
        fit_channel(setup, state, k)
        grouping.label[k] = state.label[k]
    prepare(grouping, slot.rng)
    before, after = 0.0, 0.0
    for step in range(2):
        before = after
        if step == 1:
            partition(grouping, users, slot.rng)
        after = total_value(grouping, users)
    gain = (after - before) * (state.epoch[1] - state.epoch[0])
    if state.label[0] == NONE or gain > (users - 1) * setup.K * label_bits(state):
        state.changes[0] = 1
    for k in range(setup.K):
        state.sent[k] = grouping.label[k]


@jit
def fit_channel(setup: Setup, state: State, k: int) -> None:
    """Write p01, p10 and the rewards of channel k as rank 0 knows them; with more than two states, good and not."""
    own, grouping = state.own, state.grouping
    low, high = mean_pay(setup, own, k, 0), mean_pay(setup, own, k, setup.states[k] - 1)
    p01, p10 = 0.5, 0.5
    if setup.states[k] == 2:
        p01, p10 = logistic.probability(own.chains.mode[k, 0]), logistic.probability(own.chains.mode[k, 1])
    elif setup.states[k] > 2:
        low, high = 0.0, 0.0
        stays, leaves, comes, waits, good, bad = 1.0, 1.0, 1.0, 1.0, 0.0, 0.0
        for i in range(setup.states[k]):
            if setup.good[k, i]:
                high += mean_pay(setup, own, k, i)
                good += 1.0
            else:
                low += mean_pay(setup, own, k, i)
                bad += 1.0
            for j in range(setup.states[k]):
                n = own.chains.rows[k, i, j]
                if setup.good[k, i]:
                    stays, leaves = (stays + n, leaves) if setup.good[k, j] else (stays, leaves + n)
                else:
                    waits, comes = (waits, comes + n) if setup.good[k, j] else (waits + n, comes)
        p01, p10 = comes / (comes + waits), leaves / (leaves + stays)
        high = high / good if good > 0.0 else setup.low
        low = low / bad if bad > 0.0 else high
    if high < low:
        low, high, p01, p10 = high, low, p10, p01
    grouping.low[k], grouping.high[k], grouping.p01[k], grouping.p10[k] = low, high, p01, p10


@jit
def mean_pay(setup: Setup, own: belief.State, k: int, s: int) -> float:
    """Return the mean reward of channel k in state s."""
    share = own.successes[k, s] / (own.successes[k, s] + own.failures[k, s])
    return setup.low + (setup.high - setup.low) * share


@jit
def swept(setup: Setup, state: State, rank: int) -> int:
    """Return the channel of a user while it sweeps over the channels."""
    return (rank + state.clock[0] // DWELL) % setup.K


@jit
def group_of(state: State, rank: int) -> int:
    """Return the group that a user has in this slot."""
    users = state.start.users[0]
    passed = state.clock[0] - state.epoch[0] - 1  # -1 while telling, with the group of the slots before
    length = state.epoch[1] - state.epoch[0]
    return (rank + passed * users // length) % users


@jit
def label_bits(state: State) -> int:
    """Return the bits of a label: of a group, or of no group."""
    bits = 1
    while (1 << bits) <= state.start.users[0]:
        bits += 1
    return bits


@jit
def addressed(setup: Setup, state: State) -> int:
    """Return the rank of the follower to whom rank 0 tells something in this slot."""
    followers = state.start.users[0] - 1
    if state.talk[0] < followers:
        return state.talk[0] + 1
    return (state.talk[0] - followers) // (setup.K * label_bits(state)) + 1


@jit
def bit_position(setup: Setup, state: State) -> int:
    """Return which bit of the labels is sent in this slot, NONE for whether they change."""
    followers = state.start.users[0] - 1
    return NONE if state.talk[0] < followers else (state.talk[0] - followers) % (setup.K * label_bits(state))


@jit
def channel_while_telling(setup: Setup, state: State) -> int:
    """Return the channel on which something is sent, for rank 0 and the follower; NONE to play as before."""
    rank, follower = state.start.rank[0], addressed(setup, state)
    if rank != follower and (rank != 0 or own_bit(setup, state) == 0):
        return NONE
    if state.label[0] == NONE:
        return swept(setup, state, follower)
    for k in range(setup.K):
        if state.label[k] == group_of(state, follower):
            return k
    return NONE


@jit
def own_bit(setup: Setup, state: State) -> int:
    """Return what rank 0 tells in this slot."""
    position, bits = bit_position(setup, state), label_bits(state)
    if position == NONE:
        return state.changes[0]
    return (state.sent[position // bits] >> (position % bits)) & 1


@jit
def best_channel(setup: Setup, state: State, slot: Slot) -> int:
    """Return the channel with the largest index, of the own group or, as a guest, of another one; NONE: none."""
    group, best, largest = group_of(state, state.start.rank[0]), NONE, -np.inf
    for k in range(setup.K):
        if not slot.available[k]:
            continue
        index = slot.indices[k]
        if has_no_group(state) or state.label[k] != group:
            if not has_no_group(state) and (not setup.params.guests or state.talk[0] >= 0):
                continue
            q = occupied(state.guests, k, slot.t)
            index = (1.0 - q) * index - q * setup.params.harm * expected_pay(setup, state.own, k)
            index = slot.indices[k] if k == state.seat[0] else index - setup.params.margin
        if index > largest:
            best, largest = k, index
    return best


@jit
def expected_pay(setup: Setup, own: belief.State, k: int) -> float:
    """Return the expected reward of channel k in this slot."""
    total = 0.0
    for s in range(setup.states[k]):
        total += own.chains.belief[k, s] * own.pays[k, s]
    return total


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    if feedback.collision == 1:
        belief_state.observe(setup, state.own.chains, feedback.channel, feedback.state, slot.t)
    else:
        belief.update(setup, state.own, slot, feedback)
    if has_no_group(state):
        sit(setup, state, slot, feedback)
    elif not start_is_over(setup, state.start, SEATING):
        learn_start(setup, state.start, feedback, SEATING)
        if state.start.rounds[0] > MAX_ROUNDS:
            state.collisions[0] = LOST
    elif state.talk[0] >= 0:
        if counts(slot):
            learn_sent(setup, state, feedback)
    elif state.label[0] != NONE and state.label[feedback.channel] != group_of(state, state.start.rank[0]):
        learn_occupied(setup, state.guests, feedback, slot.t)
    else:
        state.collisions[0] += (feedback.collision - state.collisions[0]) / MEMORY
        if state.collisions[0] > MAX_COLLISIONS:
            state.collisions[0] = LOST


@jit
def sit(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    """Learn, without a group, who plays a channel: the user who was there first keeps it on a collision."""
    if feedback.channel != state.seat[0]:
        learn_occupied(setup, state.guests, feedback, slot.t)
        state.seat[0] = feedback.channel if feedback.collision == 0 else NONE


@jit
def learn_sent(setup: Setup, state: State, feedback: Feedback) -> None:
    """Note what rank 0 has sent in this slot, and end the telling after the last one."""
    followers, bits = state.start.users[0] - 1, label_bits(state)
    if state.start.rank[0] == addressed(setup, state):
        position = bit_position(setup, state)
        if position == NONE:
            state.changes[0] = feedback.collision
        else:
            k = position // bits
            sent = state.sent[k] if position % bits > 0 else 0
            state.sent[k] = sent | (feedback.collision << (position % bits))
    state.talk[0] += 1
    if state.talk[0] < followers + state.changes[0] * followers * setup.K * bits and state.talk[0] != followers:
        return
    if state.talk[0] == followers and state.changes[0] == 1:
        return
    if state.changes[0] == 1:
        for k in range(setup.K):
            state.label[k] = state.sent[k]
        forget_guests(state.guests)
    state.talk[0] = NONE
