"""MP-LUCB: an index with a linear model of the perturbation and its confidence width.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, Algorithm 1. With x the context of channel k and theta_k = A_k^-1 b_k:

    n_hat = theta_k . x          delta = beta sqrt(x' A_k^-1 x)          index = base - n_hat + delta

The algorithm as printed does not learn and leaves several points open. Each of them is a parameter here, explained in
perturbation_aware.py, and three policies are settings of these parameters: `mp-lucb` (Algorithm 1 as intended),
`mp-lucb-rca` (in the frame of RCA, with the pessimistic width of the text) and `mp-lucb-printed` (exactly as printed).

`c2ucb` is a fourth setting: one model of the reward for all channels and the M largest values of theta . x + delta,
with beta for the paper's alpha (Qin, Chen and Zhu, "Contextual combinatorial bandit and its application on diversified
online recommendation", SDM 2014). The paper's model is updated once per slot; a shared model here is updated for each
play after all channels of the slot are selected, which gives the same A and b.

`linucb` is the fifth: as c2ucb with a model per channel, LinUCB with disjoint models (Li, Chu, Langford and Schapire,
"A contextual-bandit approach to personalized news article recommendation", WWW 2010, Algorithm 1; from memory), again
with beta for alpha, and the M largest values instead of one. As there, the context has no constant entry.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import ridge
from idleband.kernels.compile import jit
from idleband.policies import perturbation_aware
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

# Whether n_hat, q and v of every channel are kept from ranking until the update. On a GPU, where memory is the limit,
# they are computed again, with the same results: `simulation/gpu/device_code.py`.
KEEP = True


class Params(NamedTuple):
    beta: Annotated[float, AtLeast(0.0), "scale of the confidence width of the prediction"] = 1.0
    lambda_: perturbation_aware.Lambda = 1.0
    target: perturbation_aware.Target = perturbation_aware.PERTURBATION
    base: perturbation_aware.Base = perturbation_aware.MEAN
    width: perturbation_aware.Width = perturbation_aware.OPTIMISTIC
    estimate: perturbation_aware.Estimate = perturbation_aware.SUBTRACT
    frame: perturbation_aware.Frame = perturbation_aware.SLOT
    explore_first: perturbation_aware.ExploreFirst = False
    replace: perturbation_aware.Replace = perturbation_aware.BY_INDICATOR
    shared: perturbation_aware.Shared = False
    L: perturbation_aware.BaseWidth = 1.5
    synchronous: perturbation_aware.Synchronous = False


class State(NamedTuple):
    A_inv: Floats  # (K or 1, d, d) inverse of A, one model per channel or one for all
    theta: Floats  # (K or 1, d)
    v: Floats  # (K, d) A^-1 x in slot estimates.ranked, kept from ranking for the update
    estimates: perturbation_aware.Estimates


def init(setup: Setup) -> State:
    models = 1 if setup.params.shared else setup.K
    return State(
        A_inv=np.tile(np.eye(setup.d) / setup.params.lambda_, (models, 1, 1)),
        theta=np.zeros((models, setup.d)),
        v=np.zeros((setup.K, setup.d)),
        estimates=perturbation_aware.new_estimates(setup.K),
    )


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    for k in range(setup.K):
        n_hat[k] = ridge.predict(state.theta, 0 if setup.params.shared else k, contexts, k)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    estimates = state.estimates
    places = perturbation_aware.places_to_fill(setup, estimates, slot)
    for k in range(setup.K):
        estimates.n_hat[k] = ridge.predict(state.theta, 0 if setup.params.shared else k, slot.contexts, k)
        if KEEP:
            estimates.predicted[k] = slot.t
        if places > 0 and perturbation_aware.contends(setup, estimates, k):
            m = 0 if setup.params.shared else k
            estimates.q[k] = ridge.width_squared(state.A_inv, m, slot.contexts, k, state.v, row_of(k))
            if KEEP:
                estimates.ranked[k] = slot.t
    return perturbation_aware.choose(setup, setup.params.L, setup.params.beta, estimates, slot, places, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    estimates = state.estimates
    perturbation_aware.observe_play(setup, estimates, k, s, slot.t)
    m = 0 if setup.params.shared else k
    # Reuse the values from ranking unless the model has changed since; a shared model changes within the slot.
    fresh = KEEP and not setup.params.shared and estimates.predicted[k] == slot.t
    predicted = estimates.n_hat[k] if fresh else ridge.predict(state.theta, m, slot.contexts, k)
    y = perturbation_aware.regression_target(setup, k, s, r, n, predicted)
    if math.isnan(y):
        return
    if not fresh or estimates.ranked[k] != slot.t:
        estimates.q[k] = ridge.width_squared(state.A_inv, m, slot.contexts, k, state.v, row_of(k))
    if KEEP:
        estimates.predicted[k] = 0
        estimates.ranked[k] = 0
    ridge.learn(state.A_inv, state.theta, m, state.v, row_of(k), estimates.q[k], y - predicted)


@jit
def row_of(k: int) -> int:
    """Return the row of v that belongs to channel k."""
    return k if KEEP else 0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        perturbation_aware.explain_estimates(state.estimates, setup.params.beta, k, terms)


terms = perturbation_aware.terms
