"""MP-Belief-LUCB: MP-Belief's beliefs (`belief_state.py`), and MP-LUCB's linear model of the perturbation.

Ranked by what a play is worth given the belief and the context. How likely the context spares a good channel is a soft
P(n < 1 | x) from the prediction and its measured errors (`clearness.py`): there is no width to tune. Where the
perturbation cannot be had, that chance is learned by logistic regression from the rewards of good slots.

Contexts get a constant as one more entry, so that a model may have an offset.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic, ridge
from idleband.kernels.compile import jit
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies import belief_state
from idleband.policies import perturbation_aware as aware
from idleband.policies.protocol import BELIEF, ESTIMATE, WIDTH, Feedback, Setup, Slot
from idleband.policies.success_probability import (
    Clearness,
    fill_at_random,
    fill_pays,
    lesson,
    measures,
    new_clearness,
    observe_error,
    spared_probability,
)
from idleband.policies.success_probability import terms as clearness_terms


class Params(NamedTuple):
    lambda_: aware.Lambda = 0.01
    shared: aware.Shared = False
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    chains: belief_state.Chains
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


def init(setup: Setup) -> State:
    models, d = 1 if setup.params.shared else setup.K, setup.d + 1
    return State(
        chains=belief_state.new_chains(setup),
        A_inv=np.tile(np.eye(d) / setup.params.lambda_, (models, 1, 1)),
        theta=np.zeros((models, d)),
        taught=np.zeros(models),
        clearness=new_clearness(setup, models),
        x=np.ones((setup.K, d)),
        v=np.zeros((setup.K, d)),
        q=np.zeros(setup.K),
        score=np.zeros(setup.K),
        ranked=np.zeros(setup.K, np.int64),
        grow=np.zeros(d),
    )


@jit
def consider(setup: Setup, state: State, slot: Slot, k: int) -> None:
    """score, v and q of channel k's context under its model as it is now."""
    m = 0 if setup.params.shared else k
    for i in range(setup.d):
        state.x[k, i] = slot.contexts[k, i]
    state.ranked[k] = slot.t
    state.score[k] = ridge.predict(state.theta, m, state.x, k)
    state.q[k] = ridge.width_squared(state.A_inv, m, state.x, state.v, k)


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """The perturbation of every channel as its model has it now; contexts (K, d), n_hat (K,)."""
    for k in range(setup.K):
        m = 0 if setup.params.shared else k
        n_hat[k] = state.theta[m, setup.d] + ridge.predict(state.theta, m, contexts, k)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    clearness = state.clearness
    belief_state.carry(setup, state.chains, slot)
    for k in range(setup.K):
        if belief_state.redrawn(setup, state.chains, k, slot.t):
            clearness.doubt[k] = normal(slot.rng)
        consider(setup, state, slot, k)
        if measures(setup):
            fill_pays(setup, clearness, 0 if setup.params.shared else k, k, state.score[k], state.q[k])
        else:
            score = state.score[k] + clearness.doubt[k] * math.sqrt(state.q[k])
            fill_at_random(setup, clearness, k, 1.0 - logistic.probability(score), spared_probability(clearness, k))
        slot.indices[k] = belief_state.worth(setup, state.chains, k, slot.sensed[k], clearness.pays)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    belief_state.observe(setup, state.chains, k, s, slot.t)
    y = lesson(setup, state.clearness, k, s, r, n)
    if math.isnan(y):
        return
    m = 0 if setup.params.shared else k
    faded = setup.params.forget > 0.0 and fade(setup, state, m, slot.t)
    # What ranking computed serves again, unless the model has changed since: a shared one does so within the slot.
    if faded or setup.params.shared or state.ranked[k] != slot.t:
        consider(setup, state, slot, k)
    state.ranked[k] = 0
    if measures(setup):
        error = y - state.score[k]
        observe_error(state.clearness, m, error, state.q[k])
        ridge.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], error)
    else:
        logistic.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], state.score[k], y)


@jit
def fade(setup: Setup, state: State, m: int, t: int) -> bool:
    """What model m has learned counts less by the slots that have passed: A^-1 grows; whether it did. Each weight's own
    variance, on the diagonal, grows up to the prior's and no further: contexts that leave a direction out would have it
    grow for ever."""
    passed = t - state.taught[m]
    if passed <= 0.0:
        return False
    state.taught[m] = t
    grow = math.exp(min(700.0, passed / setup.params.forget))
    d = state.grow.size
    for i in range(d):
        most = 1.0 / (setup.params.lambda_ * state.A_inv[m, i, i])
        state.grow[i] = math.sqrt(max(1.0, min(most, grow)))
    for i in range(d):
        for j in range(d):
            state.A_inv[m, i, j] *= state.grow[i] * state.grow[j]
    return True


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        if measures(setup):
            terms[k, ESTIMATE] = state.score[k]
            terms[k, WIDTH] = math.sqrt(state.clearness.square[0 if setup.params.shared else k] * state.q[k])
        else:
            terms[k, ESTIMATE] = logistic.probability(state.score[k])
            terms[k, WIDTH] = math.sqrt(state.q[k])
        terms[k, BELIEF] = belief_state.good_probability(setup, state.chains, k)


def terms(setup: Setup) -> tuple[str, str]:
    what, doubt = clearness_terms(setup)
    return what, doubt if setup.measured or not setup.threshold else f"{doubt}, in logits"
