"""MP-NUCB: a small neural network instead of MP-LUCB's linear model of the perturbation.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, section IV-B, after NeuralUCB (Zhou, Li and Gu, ICML 2020). With f the network of
channel k, x its context and g the gradient of f(x) in all weights:

    n_hat = f(x)          delta = gamma sqrt(g' A_k^-1 g)          index = base - n_hat + delta
    A_k = lambda I + sum g g' / D over the slots in which k was played

All else is MP-LUCB's: perturbation_aware.py. The paper does not say how the network is trained; here it takes one step
of Adam on the squared error against what was measured, after each slot in which it got a sample, on the new samples and
others drawn from a store of bounded size. A unit that put out nothing has no gradient, so about half of g is zero.

Two more settings are peers that predict the reward, with nothing known of states, ranked every slot: `neural-ucb`
(NeuralUCB itself) and `neural-ts` (Zhang, Zhou, Li and Gu, "Neural Thompson sampling", ICLR 2021), whose width is
multiplied by a standard normal draw for each channel. Their formulas have gamma / sqrt(D) and, with lambda = 1,
nu / sqrt(D) where gamma stands here. Departures: one network a channel instead of one for all arms, no factor sqrt(D)
at its output, A in blocks, and training as above.
"""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from idleband.errors import InputError
from idleband.kernels import mlp
from idleband.kernels.compile import jit
from idleband.kernels.covariance import (
    BLOCK,
    COVARIANCES,
    DIAGONAL,
    FULL,
    Covariance,
    Vectors,
    learn,
    new_covariance,
    new_vectors,
    width_squared,
)
from idleband.kernels.rng import uniform
from idleband.policies import perturbation_aware as aware
from idleband.policies.base import MOST_BYTES, AtLeast, Flags, Floats, Ints, Known, OneOf, Rng, Slot

# MP-Belief-NUCB has these parameters too. Below 1e-6 for lambda rounding is as large as the narrowest widths.
Ridge = Annotated[float, AtLeast(1e-6), "lambda in A = lambda I + sum g g' / D"]
Layers = Annotated[int, AtLeast(2, 16), "layers of the network, the output included"]
Units = Annotated[int, AtLeast(2, 1024), "units in each hidden layer"]
LearningRate = Annotated[float, AtLeast(0.0, 1.0), "of Adam"]
Dropout = Annotated[float, AtLeast(0.0, 0.9), "chance of a hidden unit to be left out of a step"]
Batch = Annotated[int, AtLeast(1, 1024), "samples in a step of training"]
Memory = Annotated[int, AtLeast(1, 10**6), "samples that a network keeps to train on again"]
TrainEvery = Annotated[int, AtLeast(1, 10**6), "slots with samples of a network between two steps"]
Centre = Annotated[bool, "contexts on [-1, 1] instead of [0, 1]"]
Constant = Annotated[bool, "1 as one more input"]
CovarianceKind = Annotated[int, OneOf(*COVARIANCES), "A whole, one block a hidden unit, or its diagonal"]


class Params(NamedTuple):
    gamma: Annotated[float, AtLeast(0.0), "width of the confidence interval of the perturbation"] = 1.0
    lambda_: Ridge = 1.0
    L: Layers = 2
    D: Units = 16
    learning_rate: LearningRate = 0.005
    # Departure: the paper has 0.1, with which the error of the cosine law stays at half its spread.
    dropout: Dropout = 0.0
    batch: Batch = 16
    memory: Memory = 1000
    train_every: TrainEvery = 1
    # Departure: without biases and with contexts on [0, 1] no network can represent a law with an offset.
    centre: Centre = True
    constant: Constant = True
    covariance: CovarianceKind = FULL
    target: aware.Target = aware.PERTURBATION
    base: aware.Base = aware.MEAN
    width: aware.Width = aware.OPTIMISTIC
    estimate: aware.Estimate = aware.SUBTRACT
    frame: aware.Frame = aware.SLOT
    explore_first: aware.ExploreFirst = False
    replace: aware.Replace = aware.BY_INDICATOR
    shared: aware.Shared = False
    base_L: aware.BaseWidth = 1.5
    synchronous: aware.Synchronous = False


# The functions below whose `params` may be of any kind are MP-Belief-NUCB's too, which names its fields alike.


class Samples(NamedTuple):
    inputs: Floats  # (models, memory, inputs) the newest replaces the oldest
    y: Floats  # (models, memory)
    seen: Ints  # (models,) samples ever stored
    untrained: Ints  # (models,) of them since the last step
    slots: Ints  # (models,) slots in which there were some since the last step


class State(NamedTuple):
    nets: mlp.Nets  # one a channel, or one for all
    covariance: Covariance
    samples: Samples
    passes: mlp.Passes  # of each channel, in the slot in estimates.predicted
    vectors: Vectors  # gradients of each channel, in the slot in estimates.ranked
    batch: mlp.Batch
    started: Flags  # (1,) whether the weights have been drawn
    awaited: Ints  # (1,) picks of this slot that have not come back yet
    estimates: aware.Estimates


def check(params: Any, known: Known) -> None:
    """Refuse sizes that no machine has the memory for."""
    models, inputs, units, per_unit = sizes(params, known)
    entries = {FULL: (units * per_unit) ** 2, BLOCK: units * per_unit**2, DIAGONAL: units * per_unit}
    for setting, words, cure in (
        (
            f"covariance = {COVARIANCES[params.covariance]}",
            2 * entries[params.covariance],
            "a smaller D or L" + ", or diagonal" * (params.covariance != DIAGONAL),
        ),
        (f"memory = {params.memory}", params.memory * (inputs + 1), "a smaller one"),
    ):
        size = 8 * words * models
        if size > MOST_BYTES:
            raise InputError(
                f"{setting} would take {size / 2**30:,.0f} GiB with D = {params.D}, L = {params.L} and"
                f" {'one network' if models == 1 else f'{models} networks'}; must be at most {MOST_BYTES // 2**30} GiB:"
                f" choose {cure}" + ", or shared = true" * (models > 1)
            )


def sizes(params: Any, known: Known) -> tuple[int, int, int, int]:
    """How many networks, inputs, hidden units, and weights of a unit."""
    inputs = known.d + params.constant
    units = (params.L - 1) * params.D
    return 1 if params.shared else known.K, inputs, units, mlp.rows(inputs, params.L, params.D)


def init(params: Any, known: Known) -> State:
    check(params, known)
    L, D = params.L, params.D
    models, inputs, units, per_unit = sizes(params, known)
    return State(
        nets=mlp.new_nets(models, inputs, L, D),
        covariance=new_covariance(params.covariance, models, units, per_unit, params.lambda_),
        samples=Samples(
            inputs=np.zeros((models, params.memory, inputs)),
            y=np.zeros((models, params.memory)),
            seen=np.zeros(models, np.int64),
            untrained=np.zeros(models, np.int64),
            slots=np.zeros(models, np.int64),
        ),
        passes=mlp.new_passes(known.K, inputs, L, D),
        vectors=new_vectors(params.covariance, known.K, units, per_unit),
        batch=mlp.new_batch(params.batch, inputs, L, D),
        started=np.zeros(1, np.bool_),
        awaited=np.zeros(1, np.int64),
        estimates=aware.new_estimates(known.K),
    )


@jit
def predict(known: Known, params: Any, state: State, x: Floats, n_hat: Floats) -> None:
    """The perturbation of every channel as its network has it now; x (K, d), n_hat (K,)."""
    inputs = state.samples.inputs.shape[2]
    a = state.passes.a
    for k in range(known.K):
        state.estimates.predicted[k] = 0  # what was kept for this slot's feedback is overwritten
        for i in range(known.d):
            a[k, 0, i] = 2.0 * x[k, i] - 1.0 if params.centre else x[k, i]
        if params.constant:
            a[k, 0, known.d] = 1.0
        m = 0 if params.shared else k
        mlp.forward(state.nets.W, m, inputs, a, k, k + 1)
        n_hat[k] = mlp.output(state.nets.W, m, inputs, a, k)


@jit
def differentiate(params: Any, state: State, k: int) -> None:
    """vectors.g[k], the gradient of channel k's prediction in all weights, unit by unit, from the pass in passes[k]."""
    W, a, delta = state.nets.W, state.passes.a, state.passes.delta
    inputs = state.samples.inputs.shape[2]
    layers, per_unit, D = W.shape[1], W.shape[2], W.shape[3]
    mlp.backward(W, 0 if params.shared else k, inputs, state.passes, k, 1.0)
    g, rows, filled = state.vectors.g, state.vectors.rows, state.vectors.filled
    count = 0
    for layer in range(layers):
        fan = inputs if layer == 0 else D
        for i in range(D):
            unit = layer * D + i
            block = unit if params.covariance == BLOCK else 0
            first = 0 if params.covariance == BLOCK else unit * per_unit
            if params.covariance == BLOCK:
                count = 0
            slope = delta[k, layer, i]
            if a[k, layer + 1, i] > 0.0:
                for j in range(fan):
                    g[k, block, first + j] = slope * a[k, layer, j]
                    rows[k, block, count] = first + j
                    count += a[k, layer, j] != 0.0
                if layer == layers - 1:
                    g[k, block, first + fan] = a[k, layers, i]
                    rows[k, block, count] = first + fan
                    count += 1
            else:
                for j in range(per_unit):
                    g[k, block, first + j] = 0.0
            filled[k, block] = count


@jit
def train(params: Any, state: State, m: int, rng: Rng) -> None:
    """One step for network m, on its new samples and others drawn from its store."""
    samples, batch = state.samples, state.batch
    size, memory, inputs = batch.y.size, samples.y.shape[1], samples.inputs.shape[2]
    stored = min(samples.seen[m], memory)
    new = min(samples.untrained[m], stored)
    for b in range(size):
        if b < new:
            place = (samples.seen[m] - 1 - b) % memory
        else:
            place = int(uniform(rng) * stored)
        for j in range(inputs):
            batch.passes.a[b, 0, j] = samples.inputs[m, place, j]
        batch.y[b] = samples.y[m, place]
    samples.untrained[m] = 0
    samples.slots[m] = 0
    mlp.train(state.nets, m, inputs, batch, params.learning_rate, params.dropout, rng)


@jit
def begin_slot(known: Known, params: Any, state: State, rng: Rng, slot: Slot) -> None:
    """Predict the perturbation of every channel, into estimates.n_hat."""
    if not state.started[0]:
        state.started[0] = True
        for m in range(state.nets.W.shape[0]):
            mlp.initialise(state.nets.W, m, state.samples.inputs.shape[2], rng)
    if params.shared and state.awaited[0] > 0:  # of the last slot, and now they are too late
        end_slot(params, state, rng)
    predict(known, params, state, slot.x, state.estimates.n_hat)
    for k in range(known.K):
        state.estimates.predicted[k] = slot.t


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    estimates = state.estimates
    begin_slot(known, params, state, rng, slot)
    places = aware.places_to_fill(known, params, estimates, slot)
    for k in range(known.K):
        if places > 0 and aware.contends(params, estimates, k):
            differentiate(params, state, k)
            estimates.q[k] = width_squared(state.covariance, 0 if params.shared else k, state.vectors, k)
            estimates.ranked[k] = slot.t
    count = aware.choose(known, params, params.base_L, params.gamma, estimates, rng, slot, places, picks)
    state.awaited[0] = count
    return count


@jit
def end_slot(params: Any, state: State, rng: Rng) -> None:
    """A shared network takes its step when all channels of a slot have reported, not after each."""
    state.awaited[0] = 0
    if state.samples.untrained[0] > 0:
        state.samples.slots[0] += 1
        if state.samples.slots[0] >= params.train_every:
            train(params, state, 0, rng)
            for k in range(state.estimates.predicted.size):
                state.estimates.predicted[k] = 0


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    aware.observe_play(known, params, state.estimates, k, s, slot.t)
    recall(known, params, state, slot, k)
    y = aware.lesson(known, params, k, s, r, n, state.estimates.n_hat[k])
    if not math.isnan(y):
        take_in(params, state, slot, k, y)
    train_if_due(params, state, rng, k)


@jit
def train_if_due(params: Any, state: State, rng: Rng, k: int) -> None:
    """Channel k has reported: a step of its network, if it is time."""
    if params.shared:
        state.awaited[0] -= 1
        if state.awaited[0] <= 0:
            end_slot(params, state, rng)
    elif state.samples.untrained[k] >= params.train_every:
        train(params, state, k, rng)


@jit
def recall(known: Known, params: Any, state: State, slot: Slot, k: int) -> None:
    """Make sure that estimates.n_hat[k] and the pass behind it are of this slot."""
    estimates = state.estimates
    if estimates.predicted[k] != slot.t:
        predict(known, params, state, slot.x, estimates.n_hat)
        for j in range(known.K):
            estimates.predicted[j] = slot.t
            estimates.ranked[j] = 0


@jit
def take_in(params: Any, state: State, slot: Slot, k: int, y: float) -> None:
    """Take what was measured on channel k into A and into the store."""
    estimates, samples = state.estimates, state.samples
    m = 0 if params.shared else k
    if params.shared or estimates.ranked[k] != slot.t:
        if estimates.ranked[k] != slot.t:
            differentiate(params, state, k)
        width_squared(state.covariance, m, state.vectors, k)  # a shared A has changed within the slot
    estimates.ranked[k] = 0
    learn(state.covariance, m, state.vectors, k, float(params.D))

    place = samples.seen[m] % samples.y.shape[1]
    for j in range(samples.inputs.shape[2]):
        samples.inputs[m, place, j] = state.passes.a[k, 0, j]
    samples.y[m, place] = y
    samples.seen[m] += 1
    samples.untrained[m] += 1


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    aware.explain_estimates(state.estimates, params.gamma, k, terms)


terms = aware.terms
