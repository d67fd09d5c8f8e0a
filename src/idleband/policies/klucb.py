"""MP-KLUCB: the M largest values of max{q : T_k kl(mean, q) <= ln t}; unplayed channels first.

Garivier and Cappe, "The KL-UCB algorithm for bounded stochastic bandits and beyond", COLT 2011; multiple plays as in
Komiyama, Honda and Nakagawa, ICML 2015. Rewards are rescaled from the scenario's range to [0, 1].

KL-UCB is defined for one play per slot, where t is both the number of slots and the number of plays. With `clock` =
slots, the default, t is the slot number, as in the indices of mp-ucb and in the paper of Komiyama, Honda and Nakagawa
(from memory). With `clock` = plays it is the number of plays so far, M (t - 1) if all were reported: so counts the
multiple-play code of SMPyBandits (`BasePolicy.getReward` and `CentralizedMultiplePlay`, looked up), whose clock moves
on with every reward. The second explores more.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.kl import kl_upper, negative_entropy
from idleband.kernels.selection import top_m
from idleband.policies.parameters import OneOf
from idleband.policies.protocol import Feedback, Setup, Slot, explain_mean, to_unit

CLOCKS = ("slots", "plays")
SLOTS, PLAYS = range(2)


class Params(NamedTuple):
    clock: Annotated[int, OneOf(*CLOCKS), "what t counts in ln t: slots, or plays so far"] = SLOTS


class State(NamedTuple):
    total: Floats  # (K,) rewards earned, each on [0, 1]
    plays: Floats  # (K,)
    entropy: Floats  # (K,) negative entropy of the mean, the part of kl that only changes with a play
    last: Floats  # (K,) last index, where the next search starts


def init(setup: Setup) -> State:
    return State(np.zeros(setup.K), np.zeros(setup.K), np.zeros(setup.K), np.ones(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    t = float(slot.t)
    if setup.params.clock == PLAYS:
        t = 0.0
        for k in range(setup.K):
            t += state.plays[k]
    log_t = math.log(max(t, 1.0))
    for k in range(setup.K):
        if state.plays[k] == 0.0:
            slot.indices[k] = np.inf
        else:
            mean = state.total[k] / state.plays[k]
            state.last[k] = kl_upper(mean, log_t / state.plays[k], state.last[k], state.entropy[k])
            slot.indices[k] = state.last[k]
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, r = feedback.channel, feedback.reward
    state.total[k] += to_unit(setup, r)
    state.plays[k] += 1.0
    state.entropy[k] = negative_entropy(state.total[k] / state.plays[k])


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean(state.total, state.plays, slot, k, terms)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward on [0, 1]", "width of its confidence interval"
