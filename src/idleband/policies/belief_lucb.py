"""MP-Belief-LUCB: the beliefs of MP-Belief (`belief_state.py`) and the linear perturbation model of MP-LUCB.

Channels are ranked by the value of a play given the belief and the context. The probability that a good channel pays is
P(n < 1 | x), from the prediction and its measured errors (`success_probability.py`); there is no width to tune. Where
the perturbation is not measured, that probability is learned by logistic regression from the rewards of good slots.

A constant is appended to contexts, so that the model may have an offset.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic, ridge
from idleband.kernels.compile import jit
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies import belief_state, perturbation_aware
from idleband.policies.protocol import BELIEF, ESTIMATE, WIDTH, Feedback, Setup, Slot
from idleband.policies.success_probability import (
    SuccessEstimates,
    fill_at_random,
    fill_pays,
    measures,
    new_success_estimates,
    observe_error,
    regression_target,
    spared_probability,
)
from idleband.policies.success_probability import terms as success_terms


class Params(NamedTuple):
    lambda_: perturbation_aware.Lambda = 0.01
    shared: perturbation_aware.Shared = False
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    chains: belief_state.Chains
    A_inv: Floats  # (K or 1, d + 1, d + 1) inverse of A, one model per channel or one for all
    theta: Floats  # (K or 1, d + 1)
    last_update: Floats  # (K or 1,) slot of the last update of a model
    success: SuccessEstimates
    x: Floats  # (K, d + 1) contexts of the slot, and 1
    v: Floats  # (K, d + 1) A^-1 x
    q: Floats  # (K,) x' A^-1 x
    score: Floats  # (K,) theta . x
    ranked: Ints  # (K,) slot of the last four
    grow: Floats  # (d + 1,) working array


def init(setup: Setup) -> State:
    models, d = 1 if setup.params.shared else setup.K, setup.d + 1
    return State(
        chains=belief_state.new_chains(setup),
        A_inv=np.tile(np.eye(d) / setup.params.lambda_, (models, 1, 1)),
        theta=np.zeros((models, d)),
        last_update=np.zeros(models),
        success=new_success_estimates(setup, models),
        x=np.ones((setup.K, d)),
        v=np.zeros((setup.K, d)),
        q=np.zeros(setup.K),
        score=np.zeros(setup.K),
        ranked=np.zeros(setup.K, np.int64),
        grow=np.zeros(d),
    )


@jit
def consider(setup: Setup, state: State, slot: Slot, k: int) -> None:
    """Compute score, v and q of the context of channel k."""
    m = 0 if setup.params.shared else k
    for i in range(setup.d):
        state.x[k, i] = slot.contexts[k, i]
    state.ranked[k] = slot.t
    state.score[k] = ridge.predict(state.theta, m, state.x, k)
    state.q[k] = ridge.width_squared(state.A_inv, m, state.x, k, state.v, k)


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    for k in range(setup.K):
        m = 0 if setup.params.shared else k
        n_hat[k] = state.theta[m, setup.d] + ridge.predict(state.theta, m, contexts, k)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    belief_state.carry(setup, state.chains, slot)
    for k in range(setup.K):
        expect_rewards(setup, state, slot, k)
        slot.indices[k] = belief_state.play_index(setup, state.chains, k, slot.sensed[k], state.success.pays)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def expect_rewards(setup: Setup, state: State, slot: Slot, k: int) -> None:
    """Write the expected reward of each state of channel k in this slot into success.pays[k]."""
    success = state.success
    if belief_state.redrawn(setup, state.chains, k, slot.t):
        success.deviate[k] = normal(slot.rng)
    consider(setup, state, slot, k)
    if measures(setup):
        fill_pays(setup, success, 0 if setup.params.shared else k, k, state.score[k], state.q[k])
    else:
        score = state.score[k] + success.deviate[k] * math.sqrt(state.q[k])
        fill_at_random(setup, success, k, 1.0 - logistic.probability(score), spared_probability(success, k))


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    belief_state.observe(setup, state.chains, feedback.channel, feedback.state, slot.t)
    learn_perturbation(setup, state, slot, feedback)


@jit
def learn_perturbation(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    """Update the perturbation model of the played channel."""
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    y = regression_target(setup, state.success, k, s, r, n)
    if math.isnan(y):
        return
    m = 0 if setup.params.shared else k
    faded = setup.params.forget > 0.0 and fade(setup, state, m, slot.t)
    # Reuse the values from ranking unless the model has changed since; a shared model changes within the slot.
    if faded or setup.params.shared or state.ranked[k] != slot.t:
        consider(setup, state, slot, k)
    state.ranked[k] = 0
    if measures(setup):
        error = y - state.score[k]
        observe_error(state.success, m, error, state.q[k])
        ridge.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], error)
    else:
        logistic.learn(state.A_inv, state.theta, m, state.v, k, state.q[k], state.score[k], y)


@jit
def fade(setup: Setup, state: State, m: int, t: int) -> bool:
    """Discount what model m has learned for the slots that have passed, and return whether A^-1 changed.

    A^-1 grows. The variance of a weight, on the diagonal, grows at most to that of the prior; otherwise it would grow
    without bound in directions that contexts do not have.
    """
    passed = t - state.last_update[m]
    if passed <= 0.0:
        return False
    state.last_update[m] = t
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
        explain_perturbation(setup, state, k, terms)
        terms[k, BELIEF] = belief_state.good_probability(setup, state.chains, k)


@jit
def explain_perturbation(setup: Setup, state: State, k: int, terms: Floats) -> None:
    """Write the predicted perturbation of channel k, or probability of failure, and its uncertainty into `terms`."""
    if measures(setup):
        terms[k, ESTIMATE] = state.score[k]
        terms[k, WIDTH] = math.sqrt(state.success.square[0 if setup.params.shared else k] * state.q[k])
    else:
        terms[k, ESTIMATE] = logistic.probability(state.score[k])
        terms[k, WIDTH] = math.sqrt(state.q[k])


def terms(setup: Setup) -> tuple[str, str]:
    estimate, width = success_terms(setup)
    return estimate, width if setup.measured or not setup.threshold else f"{width}, in logits"
