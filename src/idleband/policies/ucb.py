"""MP-UCB: the M largest values of mean reward + sqrt(L ln t / T_k); unplayed channels first.

Chen, Wang and Yuan, "Combinatorial multi-armed bandit: general framework, results and applications", ICML 2013. Their
confidence width has L = 3/2.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot, explain_mean


class Params(NamedTuple):
    L: Annotated[float, AtLeast(0.0), "scale L of the confidence width sqrt(L ln t / T_k)"] = 1.5


class State(NamedTuple):
    total: Floats  # (K,) rewards earned
    plays: Floats  # (K,)


def init(setup: Setup) -> State:
    return State(np.zeros(setup.K), np.zeros(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    log_t = setup.params.L * math.log(slot.t)
    for k in range(setup.K):
        plays = max(state.plays[k], 1.0)
        bound = state.total[k] / plays + setup.span * math.sqrt(log_t / plays)
        slot.indices[k] = bound if state.plays[k] > 0.0 else np.inf
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, r = feedback.channel, feedback.reward
    state.total[k] += r
    state.plays[k] += 1.0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean(state.total, state.plays, slot, k, terms)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "width of its confidence interval"
