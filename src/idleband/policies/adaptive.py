"""MP-Adaptive: ranking by P(idle) from a mixture of predictors that learns which of them are right.

Recorded spectrum is not a set of independent two-state chains: idle periods are not geometric, many channels change at
once, neighbours behave alike, and there is little time to learn many channels. MP-Adaptive combines the belief of
mp-belief with frequencies by the length of idle periods, recent shares, and what neighbouring and all other channels
showed in the last slot (`idle_predictors.py`, `mixture.py`), and ranks channels by the result (`adaptive_index.py`). In
a world of two-state chains it trusts the chain and ranks as mp-belief does. No parameter needs tuning.

Contexts are not used. The reward of a state is learned as in mp-belief, with a Beta prior around the mean over all
channels instead of Beta(1, 1) (`state_rewards.py`).
"""

from typing import NamedTuple

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import adaptive_index, belief_state, state_rewards
from idleband.policies.adaptive_index import AdaptiveIndex
from idleband.policies.protocol import BELIEF, ESTIMATE, Feedback, Setup, Slot
from idleband.policies.state_rewards import StateRewards


class Params(NamedTuple):
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    adaptive: AdaptiveIndex
    chains: belief_state.Chains
    rewards: StateRewards


def init(setup: Setup) -> State:
    chains = belief_state.new_chains(setup)
    adaptive = adaptive_index.new_adaptive_index(setup, chains.pairs.shape[2])
    return State(adaptive, chains, state_rewards.new_state_rewards(setup))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    adaptive, chains, rewards = state.adaptive, state.chains, state.rewards
    adaptive_index.begin_slot(setup, adaptive, chains, slot)
    for k in range(setup.K):
        if belief_state.redrawn(setup, chains, k, slot.t):
            state_rewards.draw_rewards(setup, rewards, slot.rng, k)
        slot.indices[k] = adaptive_index.play_index(setup, adaptive, chains, slot, k, rewards.pays)
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    adaptive_index.remember(setup, adaptive, slot, picks, count)
    return count


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    adaptive_index.observe(setup, state.adaptive, state.chains, feedback.channel, feedback.state, slot.t)
    state_rewards.learn_reward(setup, state.rewards, feedback)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        total, weight = 0.0, 0.0
        for s in range(setup.states[k]):
            total += state.rewards.earned[k, s, 0]
            weight += state.rewards.earned[k, s, 0] + state.rewards.earned[k, s, 1]
        if weight > 0.0:
            terms[k, ESTIMATE] = setup.low + (setup.high - setup.low) * total / weight
        terms[k, BELIEF] = adaptive_index.idle_probability(setup, state.adaptive, k)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
