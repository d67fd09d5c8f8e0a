"""MP-Belief: ranking by the belief over the state of each channel, with chains learned online.

Channels are ranked by the value of a play given the belief (`belief_state.py`); contexts are not used. The reward of a
state, perturbation included, is learned from the rewards earned in it: a Beta(1, 1) posterior on the scenario's range,
drawn together with the transition probabilities.

The belief is the sufficient statistic of Smallwood and Sondik 1973. Posterior sampling of the chains, held for some
slots, follows Ouyang, Gagrani, Nayyar and Jain, "Learning unknown Markov decision processes: a Thompson sampling
approach", NeurIPS 2017.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import belief_state
from idleband.policies.protocol import BELIEF, ESTIMATE, Feedback, Setup, Slot, to_unit


class Params(NamedTuple):
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    chains: belief_state.Chains
    successes: Floats  # (K, S) of the Beta posterior of the reward in a state, prior included
    failures: Floats  # (K, S)
    pays: Floats  # (K, S) draw from that posterior
    since: Floats  # (K,) slot to which the counts are discounted


def init(setup: Setup) -> State:
    shape = setup.h.shape
    return State(belief_state.new_chains(setup), np.ones(shape), np.ones(shape), np.zeros(shape), np.zeros(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    fill_indices(setup, state, slot)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def fill_indices(setup: Setup, state: State, slot: Slot) -> None:
    """Write the index of every channel in this slot, with new draws of some channels."""
    belief_state.carry(setup, state.chains, slot)
    for k in range(setup.K):
        if belief_state.redrawn(setup, state.chains, k, slot.t):
            if setup.params.forget > 0.0:
                fade(setup, state, k, slot.t)
            for s in range(setup.states[k]):
                share = beta(slot.rng, state.successes[k, s], state.failures[k, s])
                state.pays[k, s] = setup.low + (setup.high - setup.low) * share
        slot.indices[k] = belief_state.play_index(setup, state.chains, k, slot.sensed[k], state.pays)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    belief_state.observe(setup, state.chains, feedback.channel, feedback.state, slot.t)
    learn_reward(setup, state, feedback.channel, feedback.state, to_unit(setup, feedback.reward), slot.t)


@jit
def learn_reward(setup: Setup, state: State, k: int, s: int, share: float, t: int) -> None:
    """Learn from a reward, rescaled to [0, 1], that channel k paid in state s."""
    if setup.params.forget > 0.0:
        fade(setup, state, k, t)
    state.successes[k, s] += share
    state.failures[k, s] += 1.0 - share


@jit
def fade(setup: Setup, state: State, k: int, t: int) -> None:
    """Discount the rewards of channel k for the slots that have passed."""
    if t <= state.since[k]:
        return
    keep = math.exp((state.since[k] - t) / setup.params.forget)
    state.since[k] = t
    for s in range(setup.states[k]):
        state.successes[k, s] = 1.0 + keep * (state.successes[k, s] - 1.0)
        state.failures[k, s] = 1.0 + keep * (state.failures[k, s] - 1.0)


@jit
def reset(setup: Setup, state: State) -> None:
    """Return to the state that `init` returns."""
    belief_state.reset_chains(setup, state.chains)
    state.successes[:] = 1.0
    state.failures[:] = 1.0
    state.pays[:] = 0.0
    state.since[:] = 0.0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        total, weight = 0.0, 0.0
        for s in range(setup.states[k]):
            total += state.successes[k, s] - 1.0
            weight += state.successes[k, s] + state.failures[k, s] - 2.0
        if weight > 0.0:
            terms[k, ESTIMATE] = setup.low + (setup.high - setup.low) * total / weight
        terms[k, BELIEF] = belief_state.good_probability(setup, state.chains, k)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
