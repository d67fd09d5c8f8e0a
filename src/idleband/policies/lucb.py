"""MP-LUCB: a linear model of the perturbation, and a bound on it, inside the index.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, Algorithm 1. With x the context of channel k, theta_k = A_k^-1 b_k:

    n_hat = theta_k . x          delta = beta sqrt(x' A_k^-1 x)          index = base - n_hat + delta

Printed as it is, the algorithm cannot learn and leaves several points open; every such point is a parameter here (their
meaning stands in perturbation_aware.py), and three names are three settings of them: `mp-lucb` (Algorithm 1 as meant),
`mp-lucb-rca` (in RCA's frame, with the text's pessimistic width) and `mp-lucb-printed` (to the letter).

Another setting is a peer: `c2ucb`, one model of the reward for all channels, the M largest of theta . x + delta, with
beta their alpha (Qin, Chen and Zhu, "Contextual combinatorial bandit and its application on diversified online
recommendation", SDM 2014). Their model learns when a slot has ended; a shared one here learns pick by pick after all
have been picked, which comes to the same A and b. It tells channels apart by their contexts alone.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import ridge
from idleband.kernels.compile import jit
from idleband.policies import perturbation_aware as aware
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    beta: Annotated[float, AtLeast(0.0), "scale of the confidence width of the prediction"] = 1.0
    lambda_: aware.Lambda = 1.0
    target: aware.Target = aware.PERTURBATION
    base: aware.Base = aware.MEAN
    width: aware.Width = aware.OPTIMISTIC
    estimate: aware.Estimate = aware.SUBTRACT
    frame: aware.Frame = aware.SLOT
    explore_first: aware.ExploreFirst = False
    replace: aware.Replace = aware.BY_INDICATOR
    shared: aware.Shared = False
    L: aware.BaseWidth = 1.5
    synchronous: aware.Synchronous = False


class State(NamedTuple):
    A_inv: Floats  # (K or 1, d, d) inverse of A, one model a channel or one for all
    theta: Floats  # (K or 1, d)
    v: Floats  # (K, d) A^-1 x of the slot in estimates.ranked, kept from ranking for learning
    estimates: aware.Estimates


def init(setup: Setup) -> State:
    models = 1 if setup.params.shared else setup.K
    return State(
        A_inv=np.tile(np.eye(setup.d) / setup.params.lambda_, (models, 1, 1)),
        theta=np.zeros((models, setup.d)),
        v=np.zeros((setup.K, setup.d)),
        estimates=aware.new_estimates(setup.K),
    )


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """The perturbation of every channel as its model has it now; contexts (K, d), n_hat (K,)."""
    for k in range(setup.K):
        n_hat[k] = ridge.predict(state.theta, 0 if setup.params.shared else k, contexts, k)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    estimates = state.estimates
    predict(setup, state, slot.contexts, estimates.n_hat)
    places = aware.places_to_fill(setup, estimates, slot)
    for k in range(setup.K):
        estimates.predicted[k] = slot.t
        if places > 0 and aware.contends(setup, estimates, k):
            m = 0 if setup.params.shared else k
            estimates.q[k] = ridge.width_squared(state.A_inv, m, slot.contexts, state.v, k)
            estimates.ranked[k] = slot.t
    return aware.choose(setup, setup.params.L, setup.params.beta, estimates, slot, places, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    estimates = state.estimates
    aware.observe_play(setup, estimates, k, s, slot.t)
    m = 0 if setup.params.shared else k
    # What ranking computed serves again, unless the model has changed since: a shared one does so within the slot.
    fresh = not setup.params.shared and estimates.predicted[k] == slot.t
    predicted = estimates.n_hat[k] if fresh else ridge.predict(state.theta, m, slot.contexts, k)
    y = aware.lesson(setup, k, s, r, n, predicted)
    if math.isnan(y):
        return
    if not fresh or estimates.ranked[k] != slot.t:
        estimates.q[k] = ridge.width_squared(state.A_inv, m, slot.contexts, state.v, k)
    estimates.predicted[k] = 0
    estimates.ranked[k] = 0
    ridge.learn(state.A_inv, state.theta, m, state.v, k, estimates.q[k], y - predicted)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        aware.explain_estimates(state.estimates, setup.params.beta, k, terms)


terms = aware.terms
