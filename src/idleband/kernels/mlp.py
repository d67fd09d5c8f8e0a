"""Small ReLU networks without biases, trained by Adam in batches.

    f(u) = w . relu(W_{L-1} ... relu(W_1 u))          L - 1 hidden layers of D units each

`W[m, l, j, i]` is the weight of network m into unit i of hidden layer l from the j-th input of that layer. The last
hidden layer has one more row: the weight w_i from its unit i to the output. So every weight belongs to one hidden unit,
a column, and the inner loops run over units, which are adjacent in memory, and are vectorised. Rows that a layer has no
inputs for stay zero and are not read.

`a[b, l, :]` are the inputs of hidden layer l in pass b: `a[b, 0, :]` is the input of the network and `a[b, l + 1, :]`
the output of layer l. `delta[b, l, :]` are derivatives of the output, or of a loss, with respect to the inputs of the
units of layer l.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.memory import aligned
from idleband.kernels.rng import Rng, normal, uniform

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # the usual constants of Kingma and Ba

# Running means below this are set to zero. Those of a unit that is never active decay to subnormal numbers, with which
# arithmetic takes many times as long; their steps are too small to change a weight either way.
NEGLIGIBLE = 1e-280


class Nets(NamedTuple):
    W: Floats  # (models, L-1, rows, D)
    mean: Floats  # the same shape: running mean of the gradient
    square: Floats  # the same shape: running mean of its square
    decayed: Floats  # (models, 2) BETA1 and BETA2 to the power of the number of steps


class Passes(NamedTuple):
    a: Floats  # (passes, L, max(inputs, D))
    delta: Floats  # (passes, L-1, D)


class Batch(NamedTuple):
    passes: Passes  # one per sample
    y: Floats  # (batch,) targets, then derivatives of the loss with respect to the outputs
    slope: Floats  # (rows, D) working array: derivatives of the loss with respect to the weights of one layer


def rows(inputs: int, L: int, D: int) -> int:
    """Return the number of rows of W: the largest number of weights of a unit."""
    return inputs + 1 if L == 2 else max(inputs, D + 1)


def new_nets(models: int, inputs: int, L: int, D: int) -> Nets:
    shape = (models, L - 1, rows(inputs, L, D), D)
    return Nets(W=aligned(shape), mean=aligned(shape), square=aligned(shape), decayed=np.ones((models, 2)))


def new_passes(count: int, inputs: int, L: int, D: int) -> Passes:
    return Passes(a=aligned((count, L, max(inputs, D))), delta=aligned((count, L - 1, D)))


def new_batch(size: int, inputs: int, L: int, D: int) -> Batch:
    return Batch(passes=new_passes(size, inputs, L, D), y=np.zeros(size), slope=aligned((rows(inputs, L, D), D)))


@jit
def initialise(W: Floats, m: int, inputs: int, rng: Rng) -> None:
    """Initialise the weights as in the paper, after Zhou, Li and Gu (ICML 2020).

    Every hidden layer contains the same block of N(0, 4/D) entries twice, the output is (w, -w) with N(0, 2/D). For an
    odd number of inputs or units the second half is one shorter.
    """
    layers, D = W.shape[1], W.shape[3]
    half = (D + 1) // 2
    for l in range(layers):  # noqa: E741
        fan = inputs if l == 0 else D
        half_fan = (fan + 1) // 2
        for j in range(half_fan):
            for i in range(half):
                w = math.sqrt(4.0 / D) * normal(rng)
                W[m, l, j, i] = w
                if half_fan + j < fan and half + i < D:
                    W[m, l, half_fan + j, half + i] = w
    out = inputs if layers == 1 else D
    for i in range(half):
        w = math.sqrt(2.0 / D) * normal(rng)
        W[m, layers - 1, out, i] = w
        if half + i < D:
            W[m, layers - 1, out, half + i] = -w


@jit
def forward(W: Floats, m: int, inputs: int, a: Floats, first: int, last: int) -> None:
    """Compute the outputs of all layers of network m in passes first to last - 1, from the inputs in a[:, 0]."""
    layers, D = W.shape[1], W.shape[3]
    for l in range(layers):  # noqa: E741
        feed(W, m, inputs, a, first, last, l)
        for b in range(first, last):
            for i in range(D):
                a[b, l + 1, i] = a[b, l + 1, i] if a[b, l + 1, i] > 0.0 else 0.0


@jit
def feed(W: Floats, m: int, inputs: int, a: Floats, first: int, last: int, l: int) -> None:  # noqa: E741
    """Compute the inputs of the units of layer l, into a[:, l + 1]."""
    D = W.shape[3]
    fan = inputs if l == 0 else D
    for b in range(first, last):
        for i in range(D):
            a[b, l + 1, i] = 0.0
    # Four inputs at a time, so that a[b, l + 1] is loaded and stored a quarter as often; passes alternate, so that no
    # sum depends on the one just before.
    fours = fan - fan % 4
    for j in range(0, fours, 4):
        for b in range(first, last):
            a0, a1, a2, a3 = a[b, l, j], a[b, l, j + 1], a[b, l, j + 2], a[b, l, j + 3]
            for i in range(D):
                a[b, l + 1, i] += (W[m, l, j, i] * a0 + W[m, l, j + 1, i] * a1) + (
                    W[m, l, j + 2, i] * a2 + W[m, l, j + 3, i] * a3
                )
    for j in range(fours, fan):
        for b in range(first, last):
            a0 = a[b, l, j]
            for i in range(D):
                a[b, l + 1, i] += W[m, l, j, i] * a0


@jit
def output(W: Floats, m: int, inputs: int, a: Floats, b: int) -> float:
    """Return the output of network m after pass b."""
    layers, D = W.shape[1], W.shape[3]
    out = inputs if layers == 1 else D
    y0, y1, y2, y3 = 0.0, 0.0, 0.0, 0.0  # four independent sums run in parallel
    fours = D - D % 4
    for i in range(0, fours, 4):
        y0 += W[m, layers - 1, out, i] * a[b, layers, i]
        y1 += W[m, layers - 1, out, i + 1] * a[b, layers, i + 1]
        y2 += W[m, layers - 1, out, i + 2] * a[b, layers, i + 2]
        y3 += W[m, layers - 1, out, i + 3] * a[b, layers, i + 3]
    for i in range(fours, D):
        y0 += W[m, layers - 1, out, i] * a[b, layers, i]
    return (y0 + y1) + (y2 + y3)


@jit
def backward(W: Floats, m: int, inputs: int, passes: Passes, b: int, scale: float) -> None:
    """Compute delta[b] after pass b: derivatives of the output with respect to the unit inputs, times scale."""
    layers, D = W.shape[1], W.shape[3]
    a, delta = passes.a, passes.delta
    last = layers - 1
    out = inputs if layers == 1 else D
    for i in range(D):
        delta[b, last, i] = scale * W[m, last, out, i] if a[b, layers, i] > 0.0 else 0.0
    for l in range(last - 1, -1, -1):  # noqa: E741
        for j in range(D):
            total = 0.0
            if a[b, l + 1, j] > 0.0:
                for i in range(D):
                    total += W[m, l + 1, j, i] * delta[b, l + 1, i]
            delta[b, l, j] = total


@jit
def train(nets: Nets, m: int, inputs: int, batch: Batch, learning_rate: float, dropout: float, rng: Rng) -> None:
    """Take one step of Adam on the mean squared error of a batch: inputs in batch.passes.a[:, 0], targets in batch.y.

    With dropout each hidden unit is set to zero with that probability, for one sample and this step, and the others are
    scaled up.
    """
    W, a, delta = nets.W, batch.passes.a, batch.passes.delta
    layers, D, count = W.shape[1], W.shape[3], batch.y.size
    boost = 1.0 / (1.0 - dropout)
    if dropout > 0.0:
        for l in range(layers):  # noqa: E741
            feed(W, m, inputs, a, 0, count, l)
            for b in range(count):
                for i in range(D):
                    kept = uniform(rng) >= dropout
                    a[b, l + 1, i] = boost * a[b, l + 1, i] if kept and a[b, l + 1, i] > 0.0 else 0.0
    else:
        forward(W, m, inputs, a, 0, count)
    share = 2.0 / count
    for b in range(count):
        batch.y[b] = share * (output(W, m, inputs, a, b) - batch.y[b])
    for b in range(count):
        backward(W, m, inputs, batch.passes, b, batch.y[b])
        if dropout > 0.0:  # each layer back from the output multiplies by boost once
            louder = 1.0
            for l in range(layers - 1, -1, -1):  # noqa: E741
                louder *= boost
                for i in range(D):
                    delta[b, l, i] *= louder

    nets.decayed[m, 0] *= BETA1
    nets.decayed[m, 1] *= BETA2
    rate = learning_rate / (1.0 - nets.decayed[m, 0])
    unbias = 1.0 / math.sqrt(1.0 - nets.decayed[m, 1])
    for l in range(layers):  # noqa: E741
        fan = inputs if l == 0 else D
        slopes(batch, fan, l)
        if l == layers - 1:
            for i in range(D):
                batch.slope[fan, i] = 0.0
            for b in range(count):
                error = batch.y[b]
                for i in range(D):
                    batch.slope[fan, i] += a[b, layers, i] * error
            fan += 1
        # After all slopes of the layer, because values that were just stored are slow to load.
        for j in range(fan):
            adam(nets, m, l, j, batch.slope, rate, unbias)


@jit
def slopes(batch: Batch, fan: int, l: int) -> None:  # noqa: E741
    """Sum the derivatives of the loss with respect to the input weights of layer l over the batch into batch.slope."""
    a, delta, slope = batch.passes.a, batch.passes.delta, batch.slope
    count, D = batch.y.size, slope.shape[1]
    fours = count - count % 4
    for j in range(fan):
        for i in range(D):
            slope[j, i] = 0.0
    for b in range(0, fours, 4):  # four samples at a time, so that slopes are loaded and stored a quarter as often
        for j in range(fan):
            a0, a1, a2, a3 = a[b, l, j], a[b + 1, l, j], a[b + 2, l, j], a[b + 3, l, j]
            for i in range(D):
                slope[j, i] += (delta[b, l, i] * a0 + delta[b + 1, l, i] * a1) + (
                    delta[b + 2, l, i] * a2 + delta[b + 3, l, i] * a3
                )
    for b in range(fours, count):
        for j in range(fan):
            a0 = a[b, l, j]
            for i in range(D):
                slope[j, i] += delta[b, l, i] * a0


@jit
def adam(nets: Nets, m: int, l: int, j: int, slope: Floats, rate: float, unbias: float) -> None:  # noqa: E741
    """Apply the step of Kingma and Ba to one row of weights with derivatives slope[j]."""
    for i in range(slope.shape[1]):
        mean = BETA1 * nets.mean[m, l, j, i] + (1.0 - BETA1) * slope[j, i]
        square = BETA2 * nets.square[m, l, j, i] + (1.0 - BETA2) * (slope[j, i] * slope[j, i])
        nets.mean[m, l, j, i] = mean if abs(mean) > NEGLIGIBLE else 0.0
        nets.square[m, l, j, i] = square if square > NEGLIGIBLE else 0.0
        nets.W[m, l, j, i] -= rate * mean / (math.sqrt(square) * unbias + EPSILON)
