"""MP-Adaptive: ranking by P(idle) from a mixture of predictors that learns which of them are right.

Recorded spectrum is not a set of independent two-state chains: idle periods are not geometric, many channels change at
once, neighbours behave alike, and there is little time to learn many channels. MP-Adaptive combines the belief of
mp-belief with frequencies by the length of idle periods, recent shares, and what neighbouring and all other channels
showed in the last slot (`idle_predictors.py`, `mixture.py`), and ranks channels by the result (`adaptive_index.py`). In
a world of two-state chains it trusts the chain and ranks as mp-belief does. There is nothing to tune.

Contexts are not used. The reward of a state is learned as in mp-belief, with a Beta prior around the mean over all
channels instead of Beta(1, 1).
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import adaptive_index, belief_state
from idleband.policies.adaptive_index import AdaptiveIndex
from idleband.policies.protocol import BELIEF, ESTIMATE, Feedback, Setup, Slot, to_unit

PRIOR = 2.0  # weight of the mean over all channels in the reward of a state, in plays


class Params(NamedTuple):
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    adaptive: AdaptiveIndex
    chains: belief_state.Chains
    rewards: Floats  # (K, S, 2) sum of the rewards earned in a state, on [0, 1], and of 1 minus them
    pooled: Floats  # (2, 2) the same over the busy and the good states of all channels, prior included
    pays: Floats  # (K, S) draw from the posterior of the reward in a state


def init(setup: Setup) -> State:
    shape = setup.h.shape
    return State(
        adaptive=adaptive_index.new_adaptive_index(setup),
        chains=belief_state.new_chains(setup),
        rewards=np.zeros((*shape, 2)),
        pooled=np.ones((2, 2)),
        pays=np.zeros(shape),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    adaptive, chains, rewards = state.adaptive, state.chains, state.rewards
    adaptive_index.begin_slot(setup, adaptive, chains, slot)
    for k in range(setup.K):
        if belief_state.redrawn(setup, chains, k, slot.t):
            for s in range(setup.states[k]):
                f = 1 if setup.good[k, s] else 0
                mean = state.pooled[f, 0] / (state.pooled[f, 0] + state.pooled[f, 1])
                share = beta(slot.rng, rewards[k, s, 0] + PRIOR * mean, rewards[k, s, 1] + PRIOR * (1.0 - mean))
                state.pays[k, s] = setup.low + (setup.high - setup.low) * share
        slot.indices[k] = adaptive_index.play_index(setup, adaptive, chains, slot, k, state.pays)
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    adaptive_index.remember(setup, adaptive, slot, picks, count)
    return count


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s = feedback.channel, feedback.state
    adaptive_index.observe(setup, state.adaptive, state.chains, k, s, slot.t)
    f = 1 if setup.good[k, s] else 0
    share = to_unit(setup, feedback.reward)
    state.rewards[k, s, 0] += share
    state.rewards[k, s, 1] += 1.0 - share
    state.pooled[f, 0] += share
    state.pooled[f, 1] += 1.0 - share


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        total, weight = 0.0, 0.0
        for s in range(setup.states[k]):
            total += state.rewards[k, s, 0]
            weight += state.rewards[k, s, 0] + state.rewards[k, s, 1]
        if weight > 0.0:
            terms[k, ESTIMATE] = setup.low + (setup.high - setup.low) * total / weight
        terms[k, BELIEF] = adaptive_index.idle_probability(setup, state.adaptive, k)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
