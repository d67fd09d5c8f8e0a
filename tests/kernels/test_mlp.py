"""Networks compared with NumPy ones, gradients with finite differences, Adam and initial weights with formulas."""

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from idleband.kernels import mlp
from idleband.kernels.rng import POLICY, stream

Floats = npt.NDArray[np.float64]

SHAPES = [(9, 2, 16), (8, 2, 16), (5, 2, 7), (1, 2, 2), (3, 3, 5), (9, 3, 4), (4, 4, 6), (7, 4, 3), (2, 5, 9)]
shapes = st.tuples(st.integers(1, 10), st.integers(2, 5), st.integers(2, 9))
batches = pytest.mark.parametrize("count", [1, 3, 4, 18])
each_shape = pytest.mark.parametrize(("inputs", "L", "D"), SHAPES)


def matrices(W: Floats, inputs: int) -> list[Floats]:
    """Return views of the weights of one network: (units, inputs) for each layer and (1, D) for the output."""
    layers, _, D = W.shape
    hidden = [W[i, : D if i else inputs].T for i in range(layers)]
    out = inputs if layers == 1 else D
    return [*hidden, W[-1, out : out + 1]]


def random_nets(seed: int, inputs: int, L: int, D: int) -> mlp.Nets:
    """Return three networks of which only the second has weights; all other values are nan, to detect wrong reads."""
    rng = np.random.default_rng(seed)
    nets = mlp.new_nets(3, inputs, L, D)
    nets.W[:] = np.nan
    for matrix in matrices(nets.W[1], inputs):
        matrix[:] = rng.normal(0, math.sqrt(2 / matrix.shape[1]), matrix.shape)
    return nets


def copy_of(nets: mlp.Nets) -> mlp.Nets:
    """Return a copy of all arrays."""
    return mlp.Nets(*(array.copy() for array in nets))


def activations(weights: list[Floats], u: Floats) -> list[Floats]:
    """Return the input of each layer for inputs (batch, inputs), and the output of the network, (batch, 1)."""
    found = [u]
    for matrix in weights[:-1]:
        found.append(np.maximum(found[-1] @ matrix.T, 0))
    return [*found, found[-1] @ weights[-1].T]


def away_from_kinks(weights: list[Floats], u: Floats, margin: float = 1e-3) -> bool:
    """Return whether no unit is close to the kink of ReLU."""
    sums = [a @ matrix.T for a, matrix in zip(activations(weights, u), weights[:-1], strict=False)]
    return min(float(np.abs(s).min()) for s in sums) > margin


def gradients(weights: list[Floats], u: Floats, y: Floats) -> list[Floats]:
    """Return the gradient of the mean squared error of a batch, per layer."""
    a = activations(weights, u)
    delta = 2 / len(u) * (a[-1] - y[:, None])
    found = [delta.T @ a[-2]]
    for i in range(len(weights) - 2, -1, -1):
        delta = (delta @ weights[i + 1]) * (a[i + 1] > 0)
        found.insert(0, delta.T @ a[i])
    return found


def passes_of(u: Floats, inputs: int, L: int, D: int) -> mlp.Passes:
    """Return memory for three passes, of which the last has the inputs u."""
    passes = mlp.new_passes(3, inputs, L, D)
    passes.a[:] = np.nan
    passes.delta[:] = np.nan
    passes.a[2, 0, :inputs] = u
    return passes


def through(W: Floats, m: int, inputs: int, a: Floats, b: int) -> float:
    """Run pass b through network m and return the output."""
    mlp.forward(W, m, inputs, a, b, b + 1)
    return mlp.output(W, m, inputs, a, b)


def batch_of(u: Floats, y: Floats, L: int, D: int) -> mlp.Batch:
    """Return a batch with inputs u and targets y."""
    count, inputs = u.shape
    batch = mlp.new_batch(count, inputs, L, D)
    batch.passes.a[:] = np.nan
    batch.passes.a[:, 0, :inputs] = u
    batch.y[:] = y
    return batch


def errors_of(batch: mlp.Batch) -> Floats:
    """Return outputs minus targets of a batch, after `train`."""
    return np.asarray(batch.y * len(batch.y) / 2)


def slopes(nets: mlp.Nets, inputs: int) -> list[Floats]:
    """Return the gradient of the first step of Adam, from its running mean, which was zero before."""
    return [matrix / 0.1 for matrix in matrices(nets.mean[1], inputs)]


# --- forward and backward --------------------------------------------------------------------------------------------


@given(shapes, st.integers(0, 10**6))
def test_forward_equals_the_numpy_network(shape: tuple[int, int, int], seed: int) -> None:
    """The outputs of every layer are stored in the given pass; padding and other networks are not read."""
    inputs, L, D = shape
    nets = random_nets(seed, inputs, L, D)
    u = np.random.default_rng(seed + 1).uniform(-1, 1, inputs)
    passes = passes_of(u, inputs, L, D)
    output = through(nets.W, 1, inputs, passes.a, 2)
    *layers, expected = activations(matrices(nets.W[1], inputs), u[None])
    assert output == pytest.approx(float(expected[0, 0]), rel=1e-12, abs=1e-12)
    for i, layer in enumerate(layers):
        np.testing.assert_allclose(passes.a[2, i, : layer.shape[1]], layer[0], rtol=1e-12, atol=1e-12)
    assert np.isnan(passes.a[:2]).all()


@each_shape
def test_parallel_passes_equal_single_passes(inputs: int, L: int, D: int) -> None:
    """They are equal bit for bit, and other passes do not change."""
    nets = random_nets(1, inputs, L, D)
    passes = mlp.new_passes(6, inputs, L, D)
    passes.a[:, 0, :inputs] = np.random.default_rng(2).uniform(-1, 1, (6, inputs))
    single = passes.a.copy()
    before = passes.a.copy()
    for b in range(1, 5):
        mlp.forward(nets.W, 1, inputs, single, b, b + 1)
    mlp.forward(nets.W, 1, inputs, passes.a, 1, 5)
    assert np.array_equal(passes.a, single)
    assert np.array_equal(passes.a[[0, 5]], before[[0, 5]])


@given(shapes, st.integers(0, 10**6), st.sampled_from([1.0, -2.5]))
def test_backward_equals_central_differences(shape: tuple[int, int, int], seed: int, scale: float) -> None:
    """Compare with central differences in every weight, which are exact up to rounding: f is linear in each weight."""
    inputs, L, D = shape
    nets = random_nets(seed, inputs, L, D)
    u = np.random.default_rng(seed + 1).uniform(-1, 1, inputs)
    weights = matrices(nets.W[1], inputs)
    assume(away_from_kinks(weights, u[None]))
    passes = passes_of(u, inputs, L, D)
    through(nets.W, 1, inputs, passes.a, 2)
    mlp.backward(nets.W, 1, inputs, passes, 2, scale)
    a, delta = passes.a[2], passes.delta[2]
    assert np.isfinite(delta).all()
    assert np.isnan(passes.delta[:2]).all()
    found = [np.outer(delta[i], a[i, : D if i else inputs]) for i in range(L - 1)]
    found.append(scale * a[L - 1 :, :D])  # for the output weights: the outputs of the last layer
    for matrix, gradient in zip(weights, found, strict=True):
        for place in np.ndindex(matrix.shape):
            expected = scale * central_difference(nets.W, matrix, place, inputs, u)
            assert gradient[place] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def central_difference(W: Floats, matrix: Floats, place: tuple[int, ...], inputs: int, u: Floats) -> float:
    """Return the central difference of the output of network 1 in matrix[place], a view of its weights."""
    layers, D = W.shape[1], W.shape[3]
    passes = passes_of(u, inputs, layers + 1, D)
    before, step = float(matrix[place]), 1e-6
    matrix[place] = before + step
    above = through(W, 1, inputs, passes.a, 2)
    matrix[place] = before - step
    below = through(W, 1, inputs, passes.a, 2)
    matrix[place] = before
    return (above - below) / (2 * step)


def test_unit_with_zero_input_has_zero_output_and_gradient() -> None:
    """The derivative of ReLU at 0 is defined as 0: zero inputs give no gradient in the hidden weights."""
    nets = random_nets(0, 3, 3, 4)
    passes = passes_of(np.zeros(3), 3, 3, 4)
    assert through(nets.W, 1, 3, passes.a, 2) == 0.0
    mlp.backward(nets.W, 1, 3, passes, 2, 1.0)
    assert not passes.delta[2].any()


# --- initial weights -------------------------------------------------------------------------------------------------


@each_shape
def test_initial_weights_have_the_structure_of_the_paper(inputs: int, L: int, D: int) -> None:
    """Hidden layers consist of two equal diagonal blocks; the output is (w, -w); odd sizes extend the first half."""
    W = mlp.new_nets(3, inputs, L, D).W
    mlp.initialise(W, 1, inputs, stream(0, 0, POLICY))
    assert not W[[0, 2]].any()
    *hidden, out = matrices(W[1], inputs)
    half = math.ceil(D / 2)
    drawn = []
    for matrix in hidden:
        half_fan = math.ceil(matrix.shape[1] / 2)
        block = matrix[:half, :half_fan]
        assert np.array_equal(matrix[half:, half_fan:], block[: D - half, : matrix.shape[1] - half_fan])
        assert not matrix[:half, half_fan:].any()
        assert not matrix[half:, :half_fan].any()
        drawn.append(block.ravel())
    assert np.array_equal(out[0, half:], -out[0, : D - half])
    drawn.append(out[0, :half])
    every = np.concatenate(drawn)
    assert len(set(every.tolist()) - {0.0}) == every.size  # all drawn separately
    counted = sum(np.count_nonzero(matrix) for matrix in matrices(W[1], inputs))
    assert np.count_nonzero(W) == counted  # padding is zero


@pytest.mark.parametrize(("inputs", "L", "D"), [(9, 2, 16), (6, 3, 7)])
def test_initial_weights_have_the_variances_of_the_paper(inputs: int, L: int, D: int) -> None:
    """Variances are 4/D in hidden layers and 2/D at the output; n squares have relative standard error sqrt(2/n)."""
    models, half = 2000, math.ceil(D / 2)
    W = mlp.new_nets(models, inputs, L, D).W
    rng = stream(1, 0, POLICY)
    for m in range(models):
        mlp.initialise(W, m, inputs, rng)
    layers: list[list[Floats]] = [[] for _ in range(L)]
    for m in range(models):
        for drawn, matrix in zip(layers, matrices(W[m], inputs), strict=True):
            rows, columns = (half, math.ceil(matrix.shape[1] / 2)) if matrix.shape[0] == D else (1, half)
            drawn.append(matrix[:rows, :columns].ravel())
    for i, drawn in enumerate(layers):
        values, variance = np.concatenate(drawn), (4 if i < L - 1 else 2) / D
        n = values.size
        assert abs(values.mean()) < 5 * math.sqrt(variance / n)
        assert abs(np.mean(values**2) - variance) < 5 * variance * math.sqrt(2 / n)


@pytest.mark.parametrize(("inputs", "L", "D"), [(8, 2, 16), (2, 2, 6), (6, 3, 8), (4, 4, 10)])
def test_initial_output_is_zero_if_both_halves_of_the_inputs_are_equal(inputs: int, L: int, D: int) -> None:
    W = mlp.new_nets(1, inputs, L, D).W
    mlp.initialise(W, 0, inputs, stream(2, 0, POLICY))
    half = np.random.default_rng(0).uniform(0, 1, inputs // 2)
    passes = mlp.new_passes(1, inputs, L, D)
    passes.a[0, 0, :inputs] = np.tile(half, 2)
    assert abs(through(W, 0, inputs, passes.a, 0)) < 1e-14
    assert passes.a[0, 1:].any()
    passes.a[0, 0, 0] += 0.5
    assert abs(through(W, 0, inputs, passes.a, 0)) > 1e-3


def test_two_initialisations_from_one_stream_differ() -> None:
    rng = stream(0, 0, POLICY)
    W = mlp.new_nets(2, 4, 2, 4).W
    for m in range(2):
        mlp.initialise(W, m, 4, rng)
    assert not np.array_equal(W[0], W[1])


# --- training --------------------------------------------------------------------------------------------------------


@batches
@each_shape
def test_gradient_of_a_training_step_equals_central_differences(inputs: int, L: int, D: int, count: int) -> None:
    """Compare the gradient of the mean squared error with central differences.

    The error is quadratic in each weight, so that the differences are exact up to rounding.
    """
    rng = np.random.default_rng(5)
    nets = random_nets(4, inputs, L, D)
    weights = matrices(nets.W[1].copy(), inputs)
    u, y = rng.uniform(-1, 1, (100 * count, inputs)), rng.uniform(0, 2, count)
    u = u[[away_from_kinks(weights, one[None]) for one in u]][:count]
    batch = batch_of(u, y, L, D)
    mlp.train(nets, 1, inputs, batch, 0.01, 0.0, stream(0, 0, POLICY))

    def loss() -> float:
        return float(np.mean((activations(weights, u)[-1][:, 0] - y) ** 2))

    np.testing.assert_allclose(errors_of(batch), activations(weights, u)[-1][:, 0] - y, rtol=1e-12, atol=1e-12)
    step = 1e-5
    for matrix, found, square in zip(weights, slopes(nets, inputs), matrices(nets.square[1], inputs), strict=True):
        for place in np.ndindex(matrix.shape):
            before = matrix[place]
            matrix[place] = before + step
            above = loss()
            matrix[place] = before - step
            below = loss()
            matrix[place] = before
            assert found[place] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-7)
        np.testing.assert_allclose(square, found**2 * 0.001, rtol=1e-12)


def adam_steps(weights: list[Floats], batches: list[tuple[Floats, Floats]], rate: float) -> None:
    """Train the weights with Algorithm 1 of Kingma and Ba, in NumPy."""
    beta1, beta2, epsilon = 0.9, 0.999, 1e-8
    means, squares = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for t, (u, y) in enumerate(batches, 1):
        for w, m, v, g in zip(weights, means, squares, gradients(weights, u, y), strict=True):
            m[:] = beta1 * m + (1 - beta1) * g
            v[:] = beta2 * v + (1 - beta2) * g**2
            w -= rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)


def some_batches(inputs: int, count: int, steps: int) -> list[tuple[Floats, Floats]]:
    """Return random inputs and targets for some steps."""
    rng = np.random.default_rng(7)
    return [(rng.uniform(-1, 1, (count, inputs)), rng.uniform(0, 2, count)) for _ in range(steps)]


@batches
@each_shape
def test_hundred_steps_equal_reference_adam(inputs: int, L: int, D: int, count: int) -> None:
    nets = random_nets(6, inputs, L, D)
    expected = [matrix.copy() for matrix in matrices(nets.W[1], inputs)]
    batches = some_batches(inputs, count, 100)
    adam_steps(expected, batches, 0.005)
    for u, y in batches:
        mlp.train(nets, 1, inputs, batch_of(u, y, L, D), 0.005, 0.0, stream(0, 0, POLICY))
    for found, correct in zip(matrices(nets.W[1], inputs), expected, strict=True):
        np.testing.assert_allclose(found, correct, rtol=0, atol=1e-10)
    np.testing.assert_allclose(nets.decayed, np.array([[1, 1], [0.9**100, 0.999**100], [1, 1]]), rtol=1e-12)


@each_shape
def test_training_changes_one_network_only(inputs: int, L: int, D: int) -> None:
    """Other networks, padding and their moments in Adam do not change."""
    nets = random_nets(8, inputs, L, D)
    [(u, y)] = some_batches(inputs, 16, 1)
    mlp.train(nets, 1, inputs, batch_of(u, y, L, D), 0.005, 0.0, stream(0, 0, POLICY))
    real = np.zeros_like(nets.W, np.bool_)
    for matrix in matrices(real[1], inputs):
        matrix[:] = True
    assert np.array_equal(np.isfinite(nets.W), real)
    assert not nets.mean[~real].any()
    assert not nets.square[~real].any()


def test_networks_have_separate_step_counts() -> None:
    """Training a network later gives the same weights as training it first."""
    nets = mlp.new_nets(2, 5, 2, 6)
    for m in range(2):
        mlp.initialise(nets.W, m, 5, stream(3, 0, POLICY))
    batches = some_batches(5, 4, 10)
    for m in range(2):
        for u, y in batches:
            mlp.train(nets, m, 5, batch_of(u, y, 2, 6), 0.005, 0.0, stream(0, 0, POLICY))
    assert np.array_equal(nets.W[0], nets.W[1])


# --- dropout ---------------------------------------------------------------------------------------------------------


def positive_nets(inputs: int, L: int, D: int) -> mlp.Nets:
    """Return networks with positive weights, whose units are all active for positive inputs."""
    nets = random_nets(9, inputs, L, D)
    for matrix in matrices(nets.W[1], inputs):
        np.abs(matrix, out=matrix)
    return nets


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("L", [2, 3])
def test_dropout_rate_and_unchanged_expectation(L: int, dropout: float) -> None:
    """Drop rates of units and the mean output are within 5 standard errors of their expectations."""
    inputs, D, count = 5, 8, 20_000
    nets = positive_nets(inputs, L, D)
    weights = [matrix.copy() for matrix in matrices(nets.W[1], inputs)]
    u = np.tile(np.random.default_rng(1).uniform(0.1, 1, inputs), (count, 1))
    batch = batch_of(u, np.zeros(count), L, D)
    mlp.train(nets, 1, inputs, batch, 0.0, dropout, stream(4, 0, POLICY))
    plain = activations(weights, u[:1])
    first = batch.passes.a[:, 1, :D]
    np.testing.assert_allclose(first[first > 0], np.broadcast_to(plain[1] / (1 - dropout), first.shape)[first > 0])
    for i in range(1, L):
        reached = (batch.passes.a[:, i - 1, : D if i > 1 else inputs] > 0).any(axis=1)
        dropped = batch.passes.a[reached, i, :D] == 0
        error = math.sqrt(dropout * (1 - dropout) / reached.sum())
        assert np.abs(dropped.mean(axis=0) - dropout).max() < 5 * error  # for each unit
        together = (dropped[:, 0] & dropped[:, 1]).mean()  # units are dropped independently
        assert abs(together - dropout**2) < 5 * math.sqrt(dropout**2 * (1 - dropout**2) / reached.sum())
    outputs = errors_of(batch)
    assert abs(outputs.mean() - plain[-1][0, 0]) < 5 * outputs.std() / math.sqrt(count)
    if L == 2:  # the variance follows from the contribution of each unit
        share = weights[1][0] * plain[1][0]
        assert outputs.var() == pytest.approx(float(share @ share) * dropout / (1 - dropout), rel=0.1)


@each_shape
def test_dropout_zero_drops_and_draws_nothing(inputs: int, L: int, D: int) -> None:
    """Nothing is drawn from the stream either."""
    nets = random_nets(10, inputs, L, D)
    weights = [matrix.copy() for matrix in matrices(nets.W[1], inputs)]
    [(u, y)] = some_batches(inputs, 6, 1)
    batch, rng = batch_of(u, y, L, D), stream(5, 0, POLICY)
    mlp.train(nets, 1, inputs, batch, 0.005, 0.0, rng)
    assert np.array_equal(rng, stream(5, 0, POLICY))
    for i, layer in enumerate(activations(weights, u)[:-1]):
        np.testing.assert_allclose(batch.passes.a[:, i, : layer.shape[1]], layer, rtol=1e-12, atol=1e-12)


@each_shape
def test_gradient_with_dropout_equals_central_differences(inputs: int, L: int, D: int) -> None:
    """Compare with central differences of the loss with the same draws, and thus the same dropped units."""
    count, dropout, step = 5, 0.3, 1e-6
    nets = random_nets(11, inputs, L, D)
    [(u, y)] = some_batches(inputs, count, 1)

    def stepped(nets: mlp.Nets) -> tuple[float, mlp.Nets]:
        """Return the loss before a training step of a copy, and the copy."""
        copy, batch = copy_of(nets), batch_of(u, y, L, D)
        mlp.train(copy, 1, inputs, batch, 0.005, dropout, stream(6, 0, POLICY))
        return float(np.mean(errors_of(batch) ** 2)), copy

    found = slopes(stepped(nets)[1], inputs)
    for matrix, slope in zip(matrices(nets.W[1], inputs), found, strict=True):
        for place in np.ndindex(matrix.shape):
            before = matrix[place]
            matrix[place] = before + step
            above = stepped(nets)[0]
            matrix[place] = before - step
            below = stepped(nets)[0]
            matrix[place] = before
            assert slope[place] == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-7)


# --- comparison with PyTorch -----------------------------------------------------------------------------------------

NO_TORCH = "PyTorch, which is an optional reference for this test, is not installed"


@each_shape
def test_gradients_and_steps_equal_pytorch(inputs: int, L: int, D: int) -> None:
    """Compare with nn.Linear without biases and a hundred steps of torch.optim.Adam, from equal initial weights."""
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    nets = mlp.new_nets(3, inputs, L, D)
    mlp.initialise(nets.W, 1, inputs, stream(7, 0, POLICY))
    sizes = [inputs, *[D] * (L - 1), 1]
    linear = [torch.nn.Linear(fan, units, bias=False, dtype=torch.float64) for fan, units in pairwise(sizes)]
    with torch.no_grad():
        for module, matrix in zip(linear, matrices(nets.W[1], inputs), strict=True):
            module.weight.copy_(torch.tensor(matrix.copy()))
    network = torch.nn.Sequential(*[part for module in linear for part in (module, torch.nn.ReLU())][:-1])

    def compare(gradients: list[Floats]) -> None:
        for module, found in zip(linear, gradients, strict=True):
            np.testing.assert_allclose(found, module.weight.grad.numpy(), rtol=1e-5, atol=1e-12)

    batches = some_batches(inputs, 16, 100)
    output = network(torch.tensor(batches[0][0][:1]))[0, 0]
    output.backward()
    passes = passes_of(batches[0][0][0], inputs, L, D)
    assert through(nets.W, 1, inputs, passes.a, 2) == pytest.approx(output.item(), rel=1e-12, abs=1e-14)
    mlp.backward(nets.W, 1, inputs, passes, 2, 1.0)
    a, delta = passes.a[2], passes.delta[2]
    compare([*(np.outer(delta[i], a[i, : D if i else inputs]) for i in range(L - 1)), a[L - 1 :, :D]])

    optimiser = torch.optim.Adam(network.parameters(), lr=0.005)
    for i, (u, y) in enumerate(batches):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(network(torch.tensor(u))[:, 0], torch.tensor(y)).backward()
        optimiser.step()
        mlp.train(nets, 1, inputs, batch_of(u, y, L, D), 0.005, 0.0, stream(0, 0, POLICY))
        if i == 0:
            compare(slopes(nets, inputs))
    for module, found in zip(linear, matrices(nets.W[1], inputs), strict=True):
        np.testing.assert_allclose(found, module.weight.detach().numpy(), rtol=1e-5, atol=1e-10)
