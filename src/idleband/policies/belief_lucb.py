"""MP-Belief-LUCB: MP-Belief's beliefs (`chains.py`), and MP-LUCB's linear model of the perturbation.

Ranked by what a play is worth given the belief and the context. How likely the context spares a good channel is a soft
P(n < 1 | x) from the prediction and its measured errors (`clearness.py`): there is no width to tune. Where the
perturbation cannot be had, that chance is learned by logistic regression from the rewards of good slots.

Contexts get a constant as one more entry, so that a law may have an offset.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from idleband.kernels import logistic, ridge
from idleband.kernels.compile import jit
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies import chains
from idleband.policies import perturbation_aware as aware
from idleband.policies.base import BELIEF, ESTIMATE, WIDTH, Floats, Ints, Known, Rng, Slot
from idleband.policies.clearness import (
    Clearness,
    chance_spared,
    fill_by_chance,
    fill_pays,
    lesson,
    measures,
    new_clearness,
    observe_error,
)
from idleband.policies.clearness import terms as clearness_terms


class Params(NamedTuple):
    lambda_: aware.Lambda = 0.01
    shared: aware.Shared = False
    redraw: chains.Redraw = 10
    look_ahead: chains.LookAhead = True
    forget: chains.Forget = 0.0


class State(NamedTuple):
    chains: chains.Chains
    A_inv: Floats  # (K or 1, d + 1, d + 1) inverse of A, one model a channel or one for all
    theta: Floats  # (K or 1, d + 1)
    taught: Floats  # (K or 1,) the slot in which a model learned last
    clearness: Clearness
    x: Floats  # (K, d + 1) contexts of the slot, and 1
    v: Floats  # (K, d + 1) A^-1 x
    q: Floats  # (K,) x' A^-1 x
    score: Floats  # (K,) theta . x
    ranked: Ints  # (K,) the slot that the last four are of
    grow: Floats  # (d + 1,) working array


def init(params: Params, known: Known) -> State:
    models, d = 1 if params.shared else known.K, known.d + 1
    return State(
        chains=chains.new_chains(known),
        A_inv=np.tile(np.eye(d) / params.lambda_, (models, 1, 1)),
        theta=np.zeros((models, d)),
        taught=np.zeros(models),
        clearness=new_clearness(known, models),
        x=np.ones((known.K, d)),
        v=np.zeros((known.K, d)),
        q=np.zeros(known.K),
        score=np.zeros(known.K),
        ranked=np.zeros(known.K, np.int64),
        grow=np.zeros(d),
    )


@jit
def consider(known: Known, params: Params, state: State, slot: Slot, k: int) -> None:
    """score, v and q of channel k's context under its model as it is now."""
    m = 0 if params.shared else k
    for i in range(known.d):
        state.x[k, i] = slot.x[k, i]
    state.ranked[k] = slot.t
    state.score[k] = ridge.predict(state.theta, m, state.x, k)
    state.q[k] = ridge.width_squared(state.A_inv, m, state.x, state.v, k)


@jit
def predict(known: Known, params: Params, state: State, x: Floats, n_hat: Floats) -> None:
    """The perturbation of every channel as its model has it now; x (K, d), n_hat (K,)."""
    for k in range(known.K):
        m = 0 if params.shared else k
        n_hat[k] = state.theta[m, known.d] + ridge.predict(state.theta, m, x, k)


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    clearness = state.clearness
    chains.carry(known, params, state.chains, rng, slot)
    for k in range(known.K):
        if chains.redrawn(params, state.chains, k, slot.t):
            clearness.doubt[k] = normal(rng)
        consider(known, params, state, slot, k)
        if measures(known):
            fill_pays(known, clearness, 0 if params.shared else k, k, state.score[k], state.q[k])
        else:
            score = state.score[k] + clearness.doubt[k] * math.sqrt(state.q[k])
            fill_by_chance(known, clearness, k, 1.0 - logistic.chance(score), chance_spared(clearness, k))
        slot.indices[k] = chains.worth(known, params, state.chains, k, slot.sensed[k], clearness.pays)
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    chains.observe(known, params, state.chains, k, s, slot.t)
    y = lesson(known, state.clearness, k, s, r, n)
    if math.isnan(y):
        return
    m = 0 if params.shared else k
    faded = params.forget > 0.0 and fade(params, state, m, slot.t)
    # What ranking computed serves again, unless the model has changed since: a shared one does so within the slot.
    if faded or params.shared or state.ranked[k] != slot.t:
        consider(known, params, state, slot, k)
    state.ranked[k] = 0
    if measures(known):
        error = y - state.score[k]
        observe_error(state.clearness, m, error, state.q[k])
        ridge.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], error)
    else:
        logistic.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], state.score[k], y)


@jit
def fade(params: Params, state: State, m: int, t: int) -> bool:
    """What model m has learned counts less by the slots that have passed: A^-1 grows; whether it did. Each weight's own
    variance, on the diagonal, grows up to the prior's and no further: contexts that leave a direction out would have it
    grow for ever."""
    passed = t - state.taught[m]
    if passed <= 0.0:
        return False
    state.taught[m] = t
    grow = math.exp(min(700.0, passed / params.forget))
    d = state.grow.size
    for i in range(d):
        most = 1.0 / (params.lambda_ * state.A_inv[m, i, i])
        state.grow[i] = math.sqrt(max(1.0, min(most, grow)))
    for i in range(d):
        for j in range(d):
            state.A_inv[m, i, j] *= state.grow[i] * state.grow[j]
    return True


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    if measures(known):
        terms[k, ESTIMATE] = state.score[k]
        terms[k, WIDTH] = math.sqrt(state.clearness.square[0 if params.shared else k] * state.q[k])
    else:
        terms[k, ESTIMATE] = logistic.chance(state.score[k])
        terms[k, WIDTH] = math.sqrt(state.q[k])
    terms[k, BELIEF] = chains.chance_good(known, state.chains, k)


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    what, doubt = clearness_terms(values, known)
    return what, doubt if known.measured or not known.threshold else f"{doubt}, in logits"
