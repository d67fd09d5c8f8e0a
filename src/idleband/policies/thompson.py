"""MP-TS: Thompson sampling with a Beta(1, 1) prior; the M largest draws.

Komiyama, Honda and Nakagawa, "Optimal regret analysis of Thompson sampling in stochastic multi-armed bandit problem
with multiple plays", ICML 2015. Rewards are rescaled from the scenario's range to [0, 1]; a fractional reward counts as
a fraction of a success. Difference: unplayed channels come first, as in the other policies here, instead of being drawn
from their prior.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.policies.protocol import ESTIMATE, WIDTH, Feedback, Setup, Slot, to_unit


class Params(NamedTuple):
    pass


class State(NamedTuple):
    successes: Floats  # (K,) of the Beta posterior, prior included
    failures: Floats  # (K,)


def init(setup: Setup) -> State:
    return State(np.ones(setup.K), np.ones(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    for k in range(setup.K):
        unplayed = state.successes[k] + state.failures[k] == 2.0
        slot.indices[k] = np.inf if unplayed else beta(slot.rng, state.successes[k], state.failures[k])
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, r = feedback.channel, feedback.reward
    share = to_unit(setup, r)
    state.successes[k] += share
    state.failures[k] += 1.0 - share


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        a, b = state.successes[k], state.failures[k]
        terms[k, ESTIMATE] = a / (a + b)
        terms[k, WIDTH] = math.sqrt(a * b / (a + b + 1.0)) / (a + b)


def terms(setup: Setup) -> tuple[str, str]:
    return "posterior mean on [0, 1]", "standard deviation of its posterior, of which the index is a draw"
