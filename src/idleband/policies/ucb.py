"""MP-UCB: mean reward + sqrt(L ln t / T_k), the M largest; unplayed channels first.

Chen, Wang and Yuan, "Combinatorial multi-armed bandit: general framework, results and applications", ICML 2013; their
width has L = 3/2.
"""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.base import AtLeast, Floats, Ints, Known, Rng, Slot, explain_mean


class Params(NamedTuple):
    L: Annotated[float, AtLeast(0.0), "width of the confidence interval, sqrt(L ln t / T_k)"] = 1.5


class State(NamedTuple):
    total: Floats  # (K,) rewards earned
    plays: Floats  # (K,)


def init(params: Params, known: Known) -> State:
    return State(np.zeros(known.K), np.zeros(known.K))


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    log_t = params.L * math.log(slot.t)
    for k in range(known.K):
        plays = max(state.plays[k], 1.0)
        bound = state.total[k] / plays + known.span * math.sqrt(log_t / plays)
        slot.indices[k] = bound if state.plays[k] > 0.0 else np.inf
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    state.total[k] += r
    state.plays[k] += 1.0


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    explain_mean(state.total, state.plays, slot, k, terms)


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    return "mean reward", "width of its confidence interval"
