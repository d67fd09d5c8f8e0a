"""MP-Belief-NUCB: the beliefs of MP-Belief (`belief_state.py`) and the network of MP-NUCB (`nucb.py`).

Like MP-Belief-LUCB, with a network per channel instead of the linear model, for perturbations that are not linear. The
variance of a prediction is proportional to g' A^-1 g / D. Where the perturbation is not measured, the network learns
the probability that a good slot fails.
"""

import math
from typing import Annotated, NamedTuple

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.covariance import DIAGONAL, width_squared
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies import belief_state, nucb, perturbation_aware, success_probability
from idleband.policies.parameters import AtLeast
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


class Params(NamedTuple):
    lambda_: nucb.Ridge = 1.0
    L: nucb.Layers = 2
    # More than in MP-NUCB: under the cosine model 48 units close 93.5% of the gap in S2, 16 units 92.0%.
    D: nucb.Units = 48
    learning_rate: nucb.LearningRate = 0.005
    dropout: nucb.Dropout = 0.0
    batch: nucb.Batch = 16
    memory: nucb.Memory = 1000
    train_every: nucb.TrainEvery = 1
    centre: nucb.Centre = True
    constant: nucb.Constant = True
    covariance: nucb.CovarianceKind = DIAGONAL
    shared: perturbation_aware.Shared = False
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    # Applies to the chains; the network forgets through its `memory` only.
    forget: Annotated[
        float, AtLeast(0.0), "slots after which an observation of a state has weight 1/e; 0: no forgetting"
    ] = 0.0


class State(NamedTuple):
    chains: belief_state.Chains
    net: nucb.State
    success: SuccessEstimates


check = nucb.check


def init(setup: Setup) -> State:
    net = nucb.init(setup)
    return State(belief_state.new_chains(setup), net, new_success_estimates(setup, len(net.nets.W)))


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    nucb.predict(setup, state.net, contexts, n_hat)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    net, success, estimates = state.net, state.success, state.net.estimates
    belief_state.carry(setup, state.chains, slot)
    nucb.begin_slot(setup, net, slot)
    for k in range(setup.K):
        if belief_state.redrawn(setup, state.chains, k, slot.t):
            success.deviate[k] = normal(slot.rng)
        m = 0 if setup.params.shared else k
        nucb.differentiate(setup, net, k)
        # Divided by D, because A contains g g' / D for each sample.
        estimates.q[k] = width_squared(net.covariance, m, net.vectors, k) / setup.params.D
        estimates.ranked[k] = slot.t
        if measures(setup):
            fill_pays(setup, success, m, k, estimates.n_hat[k], estimates.q[k])
        else:
            perturbed = estimates.n_hat[k] + success.deviate[k] * math.sqrt(success.square[m] * estimates.q[k])
            good = 1.0 - min(1.0, max(0.0, perturbed))
            fill_at_random(setup, success, k, good, spared_probability(success, k))
        slot.indices[k] = belief_state.play_index(setup, state.chains, k, slot.sensed[k], success.pays)
    net.awaited[0] = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    return net.awaited[0]


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    belief_state.observe(setup, state.chains, k, s, slot.t)
    net = state.net
    y = regression_target(setup, state.success, k, s, r, n)
    if not math.isnan(y):
        nucb.ensure_prediction(setup, net, slot, k)
        if net.estimates.ranked[k] != slot.t:  # the feedback is late: q belongs to another context
            nucb.differentiate(setup, net, k)
            net.estimates.q[k] = (
                width_squared(net.covariance, 0 if setup.params.shared else k, net.vectors, k) / setup.params.D
            )
            net.estimates.ranked[k] = slot.t
        error = y - net.estimates.n_hat[k]
        observe_error(state.success, 0 if setup.params.shared else k, error, net.estimates.q[k])
        nucb.add_sample(setup, net, slot, k, y)
    nucb.train_if_due(setup, net, slot.rng, k)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        terms[k, ESTIMATE] = state.net.estimates.n_hat[k]
        terms[k, WIDTH] = math.sqrt(state.success.square[0 if setup.params.shared else k] * state.net.estimates.q[k])
        terms[k, BELIEF] = belief_state.good_probability(setup, state.chains, k)


terms = success_probability.terms
