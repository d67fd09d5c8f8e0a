"""MP-Belief: what was seen of a channel and how long ago, carried forward by what was learned of its chain.

Ranked by what a play is worth given the belief (`chains.py`); contexts are not used. What a state pays, perturbation
included, is learned from the rewards earned in it: a Beta(1, 1) posterior on the scenario's range, drawn anew together
with the transition probabilities.

The belief is the sufficient statistic of Smallwood and Sondik 1973; posterior sampling of the chains, held for some
slots, follows Ouyang, Gagrani, Nayyar and Jain, "Learning unknown Markov decision processes: a Thompson sampling
approach", NeurIPS 2017.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies import chains
from idleband.policies.base import BELIEF, ESTIMATE, Floats, Ints, Known, Rng, Slot, to_unit


class Params(NamedTuple):
    redraw: chains.Redraw = 10
    look_ahead: chains.LookAhead = True
    forget: chains.Forget = 0.0


class State(NamedTuple):
    chains: chains.Chains
    successes: Floats  # (K, S) of the Beta posterior of a state's reward, prior included
    failures: Floats  # (K, S)
    pays: Floats  # (K, S) the draw
    since: Floats  # (K,) the slot to which what is older has faded


def init(params: Params, known: Known) -> State:
    shape = known.h.shape
    return State(chains.new_chains(known), np.ones(shape), np.ones(shape), np.zeros(shape), np.zeros(known.K))


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    chains.carry(known, params, state.chains, rng, slot)
    for k in range(known.K):
        if chains.redrawn(params, state.chains, k, slot.t):
            if params.forget > 0.0:
                fade(known, params, state, k, slot.t)
            for s in range(known.states[k]):
                share = beta(rng, state.successes[k, s], state.failures[k, s])
                state.pays[k, s] = known.low + (known.high - known.low) * share
        slot.indices[k] = chains.worth(known, params, state.chains, k, slot.sensed[k], state.pays)
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    chains.observe(known, params, state.chains, k, s, slot.t)
    if params.forget > 0.0:
        fade(known, params, state, k, slot.t)
    share = to_unit(known, r)
    state.successes[k, s] += share
    state.failures[k, s] += 1.0 - share


@jit
def fade(known: Known, params: Params, state: State, k: int, t: int) -> None:
    """What channel k has paid counts less by the slots that have passed."""
    if t <= state.since[k]:
        return
    keep = math.exp((state.since[k] - t) / params.forget)
    state.since[k] = t
    for s in range(known.states[k]):
        state.successes[k, s] = 1.0 + keep * (state.successes[k, s] - 1.0)
        state.failures[k, s] = 1.0 + keep * (state.failures[k, s] - 1.0)


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    total, weight = 0.0, 0.0
    for s in range(known.states[k]):
        total += state.successes[k, s] - 1.0
        weight += state.successes[k, s] + state.failures[k, s] - 2.0
    if weight > 0.0:
        terms[k, ESTIMATE] = known.low + (known.high - known.low) * total / weight
    terms[k, BELIEF] = chains.chance_good(known, state.chains, k)


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    return "mean reward", "-"
