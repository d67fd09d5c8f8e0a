"""MP-Belief-NUCB: MP-Belief's beliefs (`chains.py`), and MP-NUCB's network for the perturbation (`nucb.py`).

As MP-Belief-LUCB, with a network per channel in the place of the linear model, for laws that are not lines. Its doubt
at a context is g' A^-1 g / D. Where the perturbation cannot be had, the network learns the chance that a good slot is
spoilt.
"""

import math
from typing import Annotated, NamedTuple

from idleband.kernels.compile import jit
from idleband.kernels.covariance import DIAGONAL, width_squared
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies import chains, clearness, nucb
from idleband.policies import perturbation_aware as aware
from idleband.policies.base import BELIEF, ESTIMATE, WIDTH, AtLeast, Floats, Ints, Known, Rng, Slot
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


class Params(NamedTuple):
    lambda_: nucb.Ridge = 1.0
    L: nucb.Layers = 2
    # More than MP-NUCB has: under the cosine law it closes 93.5% of the gap in S2 where 16 units close 92.0%.
    D: nucb.Units = 48
    learning_rate: nucb.LearningRate = 0.005
    dropout: nucb.Dropout = 0.0
    batch: nucb.Batch = 16
    memory: nucb.Memory = 1000
    train_every: nucb.TrainEvery = 1
    centre: nucb.Centre = True
    constant: nucb.Constant = True
    covariance: nucb.CovarianceKind = DIAGONAL
    shared: aware.Shared = False
    redraw: chains.Redraw = 10
    look_ahead: chains.LookAhead = True
    # The network forgets by its `memory` alone.
    forget: Annotated[
        float, AtLeast(0.0), "slots after which what was seen of a chain counts 1/e; 0: nothing is forgotten"
    ] = 0.0


class State(NamedTuple):
    chains: chains.Chains
    net: nucb.State
    clearness: Clearness


check = nucb.check


def init(params: Params, known: Known) -> State:
    net = nucb.init(params, known)
    return State(chains.new_chains(known), net, new_clearness(known, len(net.nets.W)))


@jit
def predict(known: Known, params: Params, state: State, x: Floats, n_hat: Floats) -> None:
    """The perturbation of every channel as its network has it now; x (K, d), n_hat (K,)."""
    nucb.predict(known, params, state.net, x, n_hat)


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    net, clear, estimates = state.net, state.clearness, state.net.estimates
    chains.carry(known, params, state.chains, rng, slot)
    nucb.begin_slot(known, params, net, rng, slot)
    for k in range(known.K):
        if chains.redrawn(params, state.chains, k, slot.t):
            clear.doubt[k] = normal(rng)
        m = 0 if params.shared else k
        nucb.differentiate(params, net, k)
        # Divided by D, the weights' doubt is in the units of the errors: A has g g' / D for each of them.
        estimates.q[k] = width_squared(net.covariance, m, net.vectors, k) / params.D
        estimates.ranked[k] = slot.t
        if measures(known):
            fill_pays(known, clear, m, k, estimates.n_hat[k], estimates.q[k])
        else:
            spoilt = estimates.n_hat[k] + clear.doubt[k] * math.sqrt(clear.square[m] * estimates.q[k])
            good = 1.0 - min(1.0, max(0.0, spoilt))
            fill_by_chance(known, clear, k, good, chance_spared(clear, k))
        slot.indices[k] = chains.worth(known, params, state.chains, k, slot.sensed[k], clear.pays)
    net.awaited[0] = top_m(slot.indices, slot.available, known.M, slot.scratch, picks)
    return net.awaited[0]


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    chains.observe(known, params, state.chains, k, s, slot.t)
    net = state.net
    y = lesson(known, state.clearness, k, s, r, n)
    if not math.isnan(y):
        nucb.recall(known, params, net, slot, k)
        if net.estimates.ranked[k] != slot.t:  # feedback is late: its doubt was that of another context
            nucb.differentiate(params, net, k)
            net.estimates.q[k] = width_squared(net.covariance, 0 if params.shared else k, net.vectors, k) / params.D
            net.estimates.ranked[k] = slot.t
        error = y - net.estimates.n_hat[k]
        observe_error(state.clearness, 0 if params.shared else k, error, net.estimates.q[k])
        nucb.take_in(params, net, slot, k, y)
    nucb.train_if_due(params, net, rng, k)


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    terms[k, ESTIMATE] = state.net.estimates.n_hat[k]
    terms[k, WIDTH] = math.sqrt(state.clearness.square[0 if params.shared else k] * state.net.estimates.q[k])
    terms[k, BELIEF] = chains.chance_good(known, state.chains, k)


terms = clearness.terms
