"""BELIEF-BEACONS: users who keep one common belief over the channels, by one control bit per user and slot.

After the start phase (`start_phase.py`) every user runs the same copy of MP-BELIEF (`belief.py`): the same belief,
counts, and posterior draws, which come from a random stream that all agree on (`common_seed`). In every slot the M
channels with the largest indices are played. A user whose channel is still one of them keeps it; the others take the
remaining ones in the order of their ranks. So no two users collide.

What makes this possible is that all users learn every observed state. The user with rank r has minislot r. It sends if
it has not observed the state that the common belief holds likelier; silence tells the state exactly. A channel with S
states needs ceil(log2 S) minislots per user, for the position of the state in the order of the belief.

Rewards are not known to the others. A state is taken to pay its state reward h, unless somebody has earned another
reward in the start phase, and has sent in the last slot of it. Then every `rewards`-th slot is for rewards: a user
sends with the probability r of its last reward, rescaled to [0, 1], in which state is known, and no user learns the
states of this slot. With perturbation this policy earns about what MP-BELIEF does.

Users must start together. In every other case users collide, or one of them has left. A user who collides sends in
REQUEST successive slots, and everyone who hears as many starts again from the start phase, without any memory; so do
all as soon as the silence of a user had a probability below 1e-12. This takes some hundred slots each time.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError, counted
from idleband.kernels import rng
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.kernels.selection import top_m
from idleband.policies import belief, belief_state
from idleband.policies.decentralised.start_phase import (
    StartPhase,
    learn_start,
    new_start_phase,
    reset_start,
    start_channel,
    start_is_over,
)
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot, to_unit

REQUEST = 32  # slots; a user who reports states sends as often by coincidence with a probability of about 2^-32
GONE = -math.log(1e-12)
NONE = -1
SEATING = 0  # until everyone has a channel
PERTURBED = 1e-9  # difference of rewards above which they are different


class Params(NamedTuple):
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0
    common_seed: Annotated[int, AtLeast(0, 2**62), "seed of the random stream that all users agree on"] = 0
    rewards: Annotated[int, AtLeast(2, 10**9), "slots between two slots for rewards, if they are perturbed"] = 10


class State(NamedTuple):
    start: StartPhase
    common: belief.State
    agreed: Rng  # (4,) random stream of the draws, the same at all users, and its beginning
    channel: Ints  # (K,) channel of each rank in this slot, NONE: none
    before: Ints  # (K,) the same in the slot before
    common_state: Ints  # (K,) observed states in the slot before, by rank
    order: Ints  # (S,) states of a channel, the likeliest first
    picks: Ints  # (K,)
    clock: Ints  # (1,) slots since the start phase; 0 while it lasts
    perturbed: Ints  # (1,) whether rewards differ from h
    seen: Ints  # (1,) state of the own channel, NONE: none observed
    pending: Floats  # (2,) the own last reward on [0, 1], and that of the slot before
    request: Ints  # (1,) slots in which the user still asks all to start again
    heard: Ints  # (K,) successive slots with a message, by rank
    silence: Floats  # (K,) minus the log-probability of the silence of each rank


def state_bits(setup: Setup) -> int:
    """Return the minislots that it takes to tell a state."""
    return max(1, math.ceil(math.log2(setup.states.max())))


def init(setup: Setup) -> State:
    need = state_bits(setup)
    if setup.control_bits < need:
        raise InputError(
            f"scenario.users.control_bits = {setup.control_bits}: must be at least {need} for channels with"
            f" {counted(int(setup.states.max()), 'state')}"
        )
    K = setup.K
    return State(
        start=new_start_phase(),
        common=belief.init(setup),
        agreed=np.tile(rng.stream(setup.params.common_seed, 0, rng.POLICY), 2),
        channel=np.full(K, NONE, np.int64),
        before=np.full(K, NONE, np.int64),
        common_state=np.full(K, NONE, np.int64),
        order=np.zeros(setup.h.shape[1], np.int64),
        picks=np.zeros(K, np.int64),
        clock=np.zeros(1, np.int64),
        perturbed=np.zeros(1, np.int64),
        seen=np.full(1, NONE, np.int64),
        pending=np.zeros(2),
        request=np.zeros(1, np.int64),
        heard=np.zeros(K, np.int64),
        silence=np.zeros(K),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    state.seen[0], state.pending[1] = NONE, state.pending[0]
    if not start_is_over(setup, state.start, SEATING):
        picks[0] = start_channel(setup, state.start, slot, SEATING)
        return int(picks[0] >= 0)
    state.clock[0] += 1
    assign(setup, state, agreed_slot(state, slot))
    picks[0] = state.channel[state.start.rank[0]]
    return int(picks[0] >= 0)


@jit
def agreed_slot(state: State, slot: Slot) -> Slot:
    """Return the slot as all users see it: counted from the start phase, with the common random stream."""
    return Slot(
        state.clock[0], slot.contexts, slot.available, slot.sensed, slot.perturbations, slot.indices, slot.scratch,
        state.agreed,
    )  # fmt: skip


@jit
def assign(setup: Setup, state: State, slot: Slot) -> None:
    """Write the channel of each rank: the one it had, if it is one of the best, or else one that no user keeps."""
    belief.fill_indices(setup, state.common, slot)
    users = state.start.users[0]
    count = top_m(slot.indices, slot.available, users, slot.scratch, state.picks)
    for r in range(users):
        state.before[r], state.channel[r] = state.channel[r], NONE
        for i in range(count):
            if state.picks[i] != NONE and state.picks[i] == state.before[r]:
                state.channel[r], state.picks[i] = state.picks[i], NONE
    i = 0
    for r in range(users):
        while i < count and state.picks[i] == NONE:
            i += 1
        if state.channel[r] == NONE and i < count:
            state.channel[r] = state.picks[i]
            i += 1


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s = feedback.channel, feedback.state
    if state.clock[0] == 0:
        learn_start(setup, state.start, feedback, SEATING)
        if feedback.collision == 0 and abs(feedback.reward - setup.h[k, s]) > PERTURBED:
            state.perturbed[0] = 1
        return
    state.seen[0], state.pending[0] = s, to_unit(setup, feedback.reward)
    if feedback.collision == 1 and state.request[0] == 0:
        state.request[0] = REQUEST


@jit
def for_rewards(setup: Setup, state: State) -> bool:
    """Return whether users tell the rewards of the slot before, instead of the states of this one."""
    return state.perturbed[0] == 1 and state.clock[0] % setup.params.rewards == 0


@jit
def signal(setup: Setup, state: State, slot: Slot, minislots: Ints) -> None:
    bits = setup.control_bits
    first = state.start.rank[0] * bits
    if state.clock[0] == 0:
        # All users are in the same slot of the start phase: minislot 0 is for everyone.
        minislots[0] = state.perturbed[0] if start_is_over(setup, state.start, SEATING) else 0
    elif first >= minislots.size:
        return
    elif state.request[0] > 0:
        minislots[first] = 1
    elif for_rewards(setup, state):
        minislots[first] = int(uniform(slot.rng) < state.pending[1])
    elif state.seen[0] != NONE:
        sort_states(setup, state, state.channel[state.start.rank[0]])
        position = 0
        while state.order[position] != state.seen[0]:
            position += 1
        for i in range(bits):
            minislots[first + i] = (position >> i) & 1


@jit
def sort_states(setup: Setup, state: State, k: int) -> None:
    """Sort the states of channel k by the common belief, the likeliest first."""
    probability = state.common.chains.belief
    for s in range(setup.states[k]):
        i = s
        while i > 0 and probability[k, state.order[i - 1]] < probability[k, s]:
            state.order[i] = state.order[i - 1]
            i -= 1
        state.order[i] = s


@jit
def hear(setup: Setup, state: State, slot: Slot, minislots: Ints) -> None:
    if asked_to_restart(setup, state, minislots):
        restart(setup, state)
    elif state.clock[0] == 0:
        if start_is_over(setup, state.start, SEATING):
            state.perturbed[0] = minislots[0]
    else:
        learn_messages(setup, state, agreed_slot(state, slot), minislots)
        state.request[0] = max(0, state.request[0] - 1)


@jit
def asked_to_restart(setup: Setup, state: State, minislots: Ints) -> bool:
    """Return whether somebody has sent in REQUEST successive slots, or is silent for too long."""
    restarts = False
    for r in range(minislots.size // setup.control_bits):
        state.heard[r] = state.heard[r] + 1 if minislots[r * setup.control_bits] == 1 else 0
        restarts = restarts or state.heard[r] >= REQUEST or state.silence[r] > GONE
    return restarts


@jit
def learn_messages(setup: Setup, state: State, slot: Slot, minislots: Ints) -> None:
    """Learn the states, or the rewards, that all users have sent."""
    bits, rewards = setup.control_bits, for_rewards(setup, state)
    for r in range(min(state.start.users[0], minislots.size // bits)):
        k, before = state.channel[r], state.before[r]
        if rewards:
            if before != NONE and state.common_state[r] != NONE:
                share = float(minislots[r * bits])
                belief.learn_reward(setup, state.common, before, state.common_state[r], share, slot.t)
            state.common_state[r] = NONE
        elif k != NONE:
            position = 0
            for i in range(bits):
                position += minislots[r * bits + i] << i
            sort_states(setup, state, k)
            s = state.order[min(position, setup.states[k] - 1)]
            likely = state.common.chains.belief[k, state.order[0]]
            state.silence[r] = state.silence[r] - math.log(likely) if position == 0 else 0.0
            state.common_state[r] = s
            belief_state.observe(setup, state.common.chains, k, s, slot.t)
            if state.perturbed[0] == 0:
                share = to_unit(setup, setup.h[k, s])
                belief.learn_reward(setup, state.common, k, s, share, slot.t)
        else:
            state.common_state[r] = NONE


@jit
def restart(setup: Setup, state: State) -> None:
    """Return to the state before the first slot."""
    reset_start(state.start)
    belief.reset(setup, state.common)
    state.agreed[0], state.agreed[1] = state.agreed[2], state.agreed[3]
    state.channel[:] = NONE
    state.clock[0], state.perturbed[0], state.request[0] = 0, 0, 0
    state.heard[:] = 0
    state.silence[:] = 0.0
