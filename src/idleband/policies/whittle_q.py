"""Whittle-Q: Q-learning of the Whittle index of every state of a channel.

Avrachenkov and Borkar, "Whittle index based Q-learning for restless bandits with average reward", Automatica 139, 2022;
arXiv:2004.14427. The state x of a channel is its last observed state, good or not, and the age of that observation, at
most `ages` slots. Playing it (u = 1) pays the reward and leads to the state that is observed, with age 1; otherwise (u
= 0) the age grows. For each reference state y there is an index lambda(y) and a table Q_y of the problem in which a
play costs lambda(y). After every slot, with x' the next state,

    Q_y(x, u) += a (r u - lambda(y) u + max_v Q_y(x', v) - mean of Q_y - Q_y(x, u))        for every y
    lambda(y) += b (Q_y(y, 1) - Q_y(y, 0))                                                  for every y

    a = C / ceil(n / 500)         n the number of updates of (x, u)
    b = C / (1 + ceil(t ln t / 500))

In a share `epsilon` of the slots channels are selected at random, otherwise those with the largest lambda(x).

Update and step sizes, with C = 0.1, were looked up in an implementation by others (Gibson, Jacko and Nazarathy,
whittle-index-q-learning: `QWICAvrBor`), which names the paper; epsilon = 0.1 is from memory. In the paper channels are
alike and share a table, and states are observed without a play. Here channels differ, so each has its own, and the
state is what is known of a channel, as in mp-whittle. Our own:

  - The age has a limit, at which the last state leads to itself.
  - Rewards are rescaled to [0, 1], and lambda(y) is kept there: a play that costs 1 never pays, and one that costs
    nothing always does. Without this limit the indices of states that are hardly ever reached grow without bound.
  - t counts slots with a decision. Channels that were never observed come first.
  - Feedback that arrives after the next decision sets the state and is not learned from.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.kernels.selection import mark_top_m, top_m
from idleband.policies import binary_whittle
from idleband.policies.binary_whittle import (
    BinaryChannels,
    binary_state,
    explain_mean_reward,
    new_binary_channels,
    observe,
)
from idleband.policies.last_observation import NEVER, age_of
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import MAX_BYTES, Feedback, Setup, Slot, to_unit

SLOW = 500.0  # updates after which step sizes begin to fall


class Params(NamedTuple):
    ages: Annotated[int, AtLeast(1, 64), "largest age of an observation that is distinguished"] = 8
    epsilon: Annotated[float, AtLeast(0.0, 1.0), "share of slots in which channels are selected at random"] = 0.1
    C: Annotated[float, AtLeast(0.0, 1.0), "scale of the step sizes"] = 0.1


class State(NamedTuple):
    channels: BinaryChannels
    Q: Floats  # (K, X, X, 2) by reference state, state and action; X = 2 ages
    mean: Floats  # (K, X) of Q over states and actions
    indices: Floats  # (K, X) lambda of every state
    updates: Floats  # (K, X, 2) number of updates of a state and action
    x: Ints  # (K,) state in the latest slot, NEVER before the first observation
    decisions: Ints  # (2,) number of slots with a decision, and the latest


def check(setup: Setup) -> None:
    """Reject tables that need too much memory."""
    size = 8 * setup.K * 8 * setup.params.ages**2
    if size > MAX_BYTES:
        raise InputError(
            f"ages = {setup.params.ages} would take {size / 2**30:,.0f} GiB with {setup.K} channels; must be at most"
            f" {MAX_BYTES // 2**30} GiB: choose a smaller one"
        )


def init(setup: Setup) -> State:
    check(setup)
    K, X = setup.K, 2 * setup.params.ages
    return State(
        channels=new_binary_channels(setup),
        Q=np.zeros((K, X, X, 2)),
        mean=np.zeros((K, X)),
        indices=np.zeros((K, X)),
        updates=np.zeros((K, X, 2)),
        x=np.full(K, NEVER, np.int64),
        decisions=np.zeros(2, np.int64),
    )


@jit
def state_of(setup: Setup, good: int, age: int) -> int:
    """Return the number of the state of a channel that was observed good (1) or not (0) `age` slots ago."""
    return good * setup.params.ages + min(age, setup.params.ages) - 1


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    last = state.channels.last_observation
    state.decisions[0] += 1
    state.decisions[1] = slot.t
    step = index_step(setup.params.C, state.decisions[0])
    at_random = uniform(slot.rng) < setup.params.epsilon
    for k in range(setup.K):
        state.x[k] = NEVER
        if last.state[k] != NEVER:
            state.x[k] = state_of(setup, last.state[k], max(age_of(last, k, slot.t), 1))
            learn_index(state.Q, state.indices, k, step)
        slot.indices[k] = uniform(slot.rng) if at_random else index(setup, state, slot, k)
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    place = 0
    for k in range(setup.K):
        if place < count and picks[place] == k:  # learned from when its feedback arrives
            place += 1
        elif state.x[k] != NEVER:
            x = state.x[k]
            aged = x if (x + 1) % setup.params.ages == 0 else x + 1
            learn_value(setup.params.C, state, k, x, 0, 0.0, aged)
    return count


@jit
def index(setup: Setup, state: State, slot: Slot, k: int) -> float:
    """Return the index by which channel k is ranked unless channels are selected at random."""
    if slot.sensed[k] >= 0:
        good = binary_state(setup, k, slot.sensed[k])
        return to_unit(setup, state.channels.total[k, good] / state.channels.slots[k, good])
    return state.indices[k, state.x[k]] if state.x[k] != NEVER else np.inf


@jit
def propensities(setup: Setup, state: State, slot: Slot, out: Floats) -> None:
    left = 0
    for k in range(setup.K):
        left += slot.available[k]
        out[k] = index(setup, state, slot, k)
    mark_top_m(out, slot.available, setup.M, slot.scratch)
    epsilon = setup.params.epsilon
    for k in range(setup.K):
        if slot.available[k]:
            out[k] = (1.0 - epsilon) * out[k] + epsilon * min(setup.M, left) / left


@jit
def index_step(C: float, t: int) -> float:
    """Return the step size of the indices."""
    return C / (1.0 + math.ceil(t * math.log(t) / SLOW))


@jit
def learn_index(Q: Floats, indices: Floats, k: int, step: float) -> None:
    """Move the index of every state of channel k to where playing and not playing are equally good."""
    for y in range(indices.shape[1]):
        moved = indices[k, y] + step * (Q[k, y, y, 1] - Q[k, y, y, 0])
        indices[k, y] = min(max(moved, 0.0), 1.0)


@jit
def learn_value(C: float, state: State, k: int, x: int, u: int, reward: float, after: int) -> None:
    """Update Q of channel k after a slot in state x with action u and reward, which led to the state `after`."""
    Q, X = state.Q, state.indices.shape[1]
    state.updates[k, x, u] += 1.0
    step = C / math.ceil(state.updates[k, x, u] / SLOW)
    for y in range(X):
        best = max(Q[k, y, after, 0], Q[k, y, after, 1])
        change = step * (reward - u * state.indices[k, y] + best - state.mean[k, y] - Q[k, y, x, u])
        Q[k, y, x, u] += change
        state.mean[k, y] += change / (2 * X)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    good = binary_state(setup, k, s)
    if slot.t == state.decisions[1] and state.x[k] != NEVER:
        learn_value(setup.params.C, state, k, state.x[k], 1, to_unit(setup, r), state_of(setup, good, 1))
        state.x[k] = NEVER  # learned
    observe(state.channels, k, good, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean_reward(state.channels, k, terms)


terms = binary_whittle.terms
