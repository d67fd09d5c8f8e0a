"""MP-KLUCB: the largest q with T_k kl(mean, q) <= ln t, the M largest; unplayed channels first.

Garivier and Cappe, "The KL-UCB algorithm for bounded stochastic bandits and beyond", COLT 2011; several plays as in
Komiyama, Honda and Nakagawa, ICML 2015. Rewards are rescaled from the scenario's range to [0, 1].
"""

import math
from typing import Any, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.kl import kl_upper, negative_entropy
from idleband.kernels.selection import top_m
from idleband.policies.base import Floats, Ints, Known, Rng, Slot, explain_mean, to_unit


class Params(NamedTuple):
    pass


class State(NamedTuple):
    total: Floats  # (K,) rewards earned, each on [0, 1]
    plays: Floats  # (K,)
    entropy: Floats  # (K,) negative entropy of the mean: the part of kl that changes only with a play
    last: Floats  # (K,) last index, where the next search starts


def init(params: Params, known: Known) -> State:
    return State(np.zeros(known.K), np.zeros(known.K), np.zeros(known.K), np.ones(known.K))


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    log_t = math.log(slot.t)
    for k in range(known.K):
        if state.plays[k] == 0.0:
            slot.indices[k] = np.inf
        else:
            mean = state.total[k] / state.plays[k]
            state.last[k] = kl_upper(mean, log_t / state.plays[k], state.last[k], state.entropy[k])
            slot.indices[k] = state.last[k]
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    state.total[k] += to_unit(known, r)
    state.plays[k] += 1.0
    state.entropy[k] = negative_entropy(state.total[k] / state.plays[k])


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    explain_mean(state.total, state.plays, slot, k, terms)


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    return "mean reward on [0, 1]", "width of its confidence interval"
