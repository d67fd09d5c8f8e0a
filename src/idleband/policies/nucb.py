"""MP-NUCB: an index with a neural model of the perturbation instead of the linear model of MP-LUCB.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, section IV-B, after NeuralUCB (Zhou, Li and Gu, ICML 2020). With f the network of
channel k, x its context and g the gradient of f(x) with respect to all weights:

    n_hat = f(x)          delta = gamma sqrt(g' A_k^-1 g)          index = base - n_hat + delta
    A_k = lambda I + sum g g' / D over the slots in which k was played

The rest is shared with MP-LUCB: perturbation_aware.py. The paper does not describe the training. Here a network takes
one step of Adam on the squared error after each slot with a new sample, on the new samples and others drawn from a
store of bounded size. A unit with zero output has no gradient, so about half of g is zero.

Two further settings predict the reward, do not use states and rank in every slot: `neural-ucb` (NeuralUCB) and
`neural-ts` (Zhang, Zhou, Li and Gu, "Neural Thompson sampling", ICLR 2021), whose width is multiplied by a standard
normal draw for each channel. Their formulas have gamma / sqrt(D) and, with lambda = 1, nu / sqrt(D) in place of gamma.
Differences: one network per channel instead of one for all arms, no factor sqrt(D) at the output, A in blocks, and
training as described above.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
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
from idleband.kernels.rng import Rng, uniform
from idleband.policies import perturbation_aware
from idleband.policies.parameters import AtLeast, OneOf
from idleband.policies.protocol import MAX_BYTES, Feedback, Setup, Slot

# MP-Belief-NUCB has these parameters too. With lambda below 1e-6 rounding errors reach the smallest widths.
Ridge = Annotated[float, AtLeast(1e-6), "ridge parameter lambda in A = lambda I + sum g g' / D"]
Layers = Annotated[int, AtLeast(2, 16), "number of layers, output layer included"]
Units = Annotated[int, AtLeast(2, 1024), "units per hidden layer"]
LearningRate = Annotated[float, AtLeast(0.0, 1.0), "learning rate of Adam"]
Dropout = Annotated[float, AtLeast(0.0, 0.9), "probability that a hidden unit is dropped in a training step"]
Batch = Annotated[int, AtLeast(1, 1024), "samples per training step"]
Memory = Annotated[int, AtLeast(1, 10**6), "number of samples that a network keeps for training"]
TrainEvery = Annotated[int, AtLeast(1, 10**6), "slots with new samples of a network between two training steps"]
Centre = Annotated[bool, "rescale contexts from [0, 1] to [-1, 1]"]
Constant = Annotated[bool, "add a constant input of 1"]
CovarianceKind = Annotated[int, OneOf(*COVARIANCES), "form of A: full, one block per hidden unit, or diagonal"]


class Params(NamedTuple):
    gamma: Annotated[float, AtLeast(0.0), "scale of the confidence width of the prediction"] = 1.0
    lambda_: Ridge = 1.0
    L: Layers = 2
    D: Units = 16
    learning_rate: LearningRate = 0.005
    # Difference: with the paper's 0.1 the error under the cosine model stays at half its spread.
    dropout: Dropout = 0.0
    batch: Batch = 16
    memory: Memory = 1000
    train_every: TrainEvery = 1
    # Difference: without biases and with contexts on [0, 1] a network cannot represent an offset.
    centre: Centre = True
    constant: Constant = True
    covariance: CovarianceKind = FULL
    target: perturbation_aware.Target = perturbation_aware.PERTURBATION
    base: perturbation_aware.Base = perturbation_aware.MEAN
    width: perturbation_aware.Width = perturbation_aware.OPTIMISTIC
    estimate: perturbation_aware.Estimate = perturbation_aware.SUBTRACT
    frame: perturbation_aware.Frame = perturbation_aware.SLOT
    explore_first: perturbation_aware.ExploreFirst = False
    replace: perturbation_aware.Replace = perturbation_aware.BY_INDICATOR
    shared: perturbation_aware.Shared = False
    base_L: perturbation_aware.BaseWidth = 1.5
    synchronous: perturbation_aware.Synchronous = False


# MP-Belief-NUCB uses these functions too; its parameters have the same names.


class Samples(NamedTuple):
    inputs: Floats  # (models, memory, inputs) the newest replaces the oldest
    y: Floats  # (models, memory)
    seen: Ints  # (models,) samples stored so far
    untrained: Ints  # (models,) samples since the last training step
    slots: Ints  # (models,) slots with samples since the last training step


class State(NamedTuple):
    nets: mlp.Nets  # one per channel, or one for all
    covariance: Covariance
    samples: Samples
    passes: mlp.Passes  # of each channel, in slot estimates.predicted
    vectors: Vectors  # gradients of each channel, in slot estimates.ranked
    batch: mlp.Batch
    started: Flags  # (1,) whether the weights are initialised
    awaited: Ints  # (1,) plays of this slot without feedback yet
    estimates: perturbation_aware.Estimates


def check(setup: Setup) -> None:
    """Reject sizes that need too much memory."""
    models, inputs, units, per_unit = sizes(setup)
    entries = {FULL: (units * per_unit) ** 2, BLOCK: units * per_unit**2, DIAGONAL: units * per_unit}
    for setting, words, cure in (
        (
            f"covariance = {COVARIANCES[setup.params.covariance]}",
            2 * entries[setup.params.covariance],
            "a smaller D or L" + ", or diagonal" * (setup.params.covariance != DIAGONAL),
        ),
        (f"memory = {setup.params.memory}", setup.params.memory * (inputs + 1), "a smaller one"),
    ):
        size = 8 * words * models
        if size > MAX_BYTES:
            raise InputError(
                f"{setting} would take {size / 2**30:,.0f} GiB with D = {setup.params.D}, L = {setup.params.L} and"
                f" {'one network' if models == 1 else f'{models} networks'}; must be at most {MAX_BYTES // 2**30} GiB:"
                f" choose {cure}" + ", or shared = true" * (models > 1)
            )


def sizes(setup: Setup) -> tuple[int, int, int, int]:
    """Return the numbers of networks, inputs, hidden units, and weights per unit."""
    inputs = setup.d + setup.params.constant
    units = (setup.params.L - 1) * setup.params.D
    return 1 if setup.params.shared else setup.K, inputs, units, mlp.rows(inputs, setup.params.L, setup.params.D)


def init(setup: Setup) -> State:
    check(setup)
    L, D = setup.params.L, setup.params.D
    models, inputs, units, per_unit = sizes(setup)
    return State(
        nets=mlp.new_nets(models, inputs, L, D),
        covariance=new_covariance(setup.params.covariance, models, units, per_unit, setup.params.lambda_),
        samples=Samples(
            inputs=np.zeros((models, setup.params.memory, inputs)),
            y=np.zeros((models, setup.params.memory)),
            seen=np.zeros(models, np.int64),
            untrained=np.zeros(models, np.int64),
            slots=np.zeros(models, np.int64),
        ),
        passes=mlp.new_passes(setup.K, inputs, L, D),
        vectors=new_vectors(setup.params.covariance, setup.K, units, per_unit),
        batch=mlp.new_batch(setup.params.batch, inputs, L, D),
        started=np.zeros(1, np.bool_),
        awaited=np.zeros(1, np.int64),
        estimates=perturbation_aware.new_estimates(setup.K),
    )


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    inputs = state.samples.inputs.shape[2]
    a = state.passes.a
    for k in range(setup.K):
        state.estimates.predicted[k] = 0  # the values kept for the feedback of this slot are overwritten
        for i in range(setup.d):
            a[k, 0, i] = 2.0 * contexts[k, i] - 1.0 if setup.params.centre else contexts[k, i]
        if setup.params.constant:
            a[k, 0, setup.d] = 1.0
        m = 0 if setup.params.shared else k
        mlp.forward(state.nets.W, m, inputs, a, k, k + 1)
        n_hat[k] = mlp.output(state.nets.W, m, inputs, a, k)


@jit
def differentiate(setup: Setup, state: State, k: int) -> None:
    """Compute vectors.g[k], the gradient of the prediction for channel k, unit by unit, from the pass in passes[k]."""
    W, a, delta = state.nets.W, state.passes.a, state.passes.delta
    inputs = state.samples.inputs.shape[2]
    layers, per_unit, D = W.shape[1], W.shape[2], W.shape[3]
    mlp.backward(W, 0 if setup.params.shared else k, inputs, state.passes, k, 1.0)
    g, rows, filled = state.vectors.g, state.vectors.rows, state.vectors.filled
    count = 0
    for layer in range(layers):
        fan = inputs if layer == 0 else D
        for i in range(D):
            unit = layer * D + i
            block = unit if setup.params.covariance == BLOCK else 0
            first = 0 if setup.params.covariance == BLOCK else unit * per_unit
            if setup.params.covariance == BLOCK:
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
def train(setup: Setup, state: State, m: int, rng: Rng) -> None:
    """Train network m for one step on its new samples and others drawn from its store."""
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
    mlp.train(state.nets, m, inputs, batch, setup.params.learning_rate, setup.params.dropout, rng)


@jit
def begin_slot(setup: Setup, state: State, slot: Slot) -> None:
    """Predict the perturbation of every channel into estimates.n_hat; initialise the weights in the first slot."""
    if not state.started[0]:
        state.started[0] = True
        for m in range(state.nets.W.shape[0]):
            mlp.initialise(state.nets.W, m, state.samples.inputs.shape[2], slot.rng)
    if setup.params.shared and state.awaited[0] > 0:  # feedback of the previous slot is missing
        end_slot(setup, state, slot.rng)
    predict(setup, state, slot.contexts, state.estimates.n_hat)
    for k in range(setup.K):
        state.estimates.predicted[k] = slot.t


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    estimates = state.estimates
    begin_slot(setup, state, slot)
    places = perturbation_aware.places_to_fill(setup, estimates, slot)
    for k in range(setup.K):
        if places > 0 and perturbation_aware.contends(setup, estimates, k):
            differentiate(setup, state, k)
            estimates.q[k] = width_squared(state.covariance, 0 if setup.params.shared else k, state.vectors, k)
            estimates.ranked[k] = slot.t
    count = perturbation_aware.choose(setup, setup.params.base_L, setup.params.gamma, estimates, slot, places, picks)
    state.awaited[0] = count
    return count


@jit
def end_slot(setup: Setup, state: State, rng: Rng) -> None:
    """Train a shared network, once all channels of a slot have reported."""
    state.awaited[0] = 0
    if state.samples.untrained[0] > 0:
        state.samples.slots[0] += 1
        if state.samples.slots[0] >= setup.params.train_every:
            train(setup, state, 0, rng)
            for k in range(state.estimates.predicted.size):
                state.estimates.predicted[k] = 0


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r, n = feedback.channel, feedback.state, feedback.reward, feedback.perturbation
    perturbation_aware.observe_play(setup, state.estimates, k, s, slot.t)
    ensure_prediction(setup, state, slot, k)
    y = perturbation_aware.regression_target(setup, k, s, r, n, state.estimates.n_hat[k])
    if not math.isnan(y):
        add_sample(setup, state, slot, k, y)
    train_if_due(setup, state, slot.rng, k)


@jit
def train_if_due(setup: Setup, state: State, rng: Rng, k: int) -> None:
    """Train the network of channel k after its report, if a step is due."""
    if setup.params.shared:
        state.awaited[0] -= 1
        if state.awaited[0] <= 0:
            end_slot(setup, state, rng)
    elif state.samples.untrained[k] >= setup.params.train_every:
        train(setup, state, k, rng)


@jit
def ensure_prediction(setup: Setup, state: State, slot: Slot, k: int) -> None:
    """Recompute estimates.n_hat[k] and its forward pass unless they belong to this slot."""
    estimates = state.estimates
    if estimates.predicted[k] != slot.t:
        predict(setup, state, slot.contexts, estimates.n_hat)
        for j in range(setup.K):
            estimates.predicted[j] = slot.t
            estimates.ranked[j] = 0


@jit
def add_sample(setup: Setup, state: State, slot: Slot, k: int, y: float) -> None:
    """Add the sample of channel k to A and to the store."""
    estimates, samples = state.estimates, state.samples
    m = 0 if setup.params.shared else k
    if setup.params.shared or estimates.ranked[k] != slot.t:
        if estimates.ranked[k] != slot.t:
            differentiate(setup, state, k)
        width_squared(state.covariance, m, state.vectors, k)  # a shared A has changed within the slot
    estimates.ranked[k] = 0
    learn(state.covariance, m, state.vectors, k, float(setup.params.D))

    place = samples.seen[m] % samples.y.shape[1]
    for j in range(samples.inputs.shape[2]):
        samples.inputs[m, place, j] = state.passes.a[k, 0, j]
    samples.y[m, place] = y
    samples.seen[m] += 1
    samples.untrained[m] += 1


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        perturbation_aware.explain_estimates(state.estimates, setup.params.gamma, k, terms)


terms = perturbation_aware.terms
