"""A, its inverse and g' A^-1 g compared with numpy.linalg: full, block and diagonal, after up to a million updates."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idleband.kernels.compile import jit
from idleband.kernels.covariance import (
    BLOCK,
    DIAGONAL,
    FULL,
    REFRESH,
    Covariance,
    Vectors,
    invert,
    learn,
    new_covariance,
    new_vectors,
    width_squared,
)
from idleband.kernels.rng import POLICY, Rng, stream, uniform

Floats = npt.NDArray[np.float64]

every_kind = pytest.mark.parametrize("kind", [FULL, BLOCK, DIAGONAL])


def put(vectors: Vectors, k: int, g: Floats) -> None:
    """Set the vector of channel k to g, given with all its entries."""
    blocks, S = vectors.g.shape[1:]
    vectors.g[k] = g.reshape(blocks, S)
    for block in range(blocks):
        filled = np.flatnonzero(vectors.g[k, block])
        vectors.rows[k, block, : filled.size] = filled
        vectors.filled[k, block] = filled.size


def whole(matrices: Floats, kind: int, *, lower: bool) -> Floats:
    """Return the full matrix of one model, stored as (blocks, S, S) or (1, 1, S).

    With `lower` only the lower triangles are read.
    """
    if kind == DIAGONAL:
        return np.diag(matrices[0, 0])
    blocks, S = matrices.shape[:2]
    found = np.zeros((blocks * S, blocks * S))
    for block, matrix in enumerate(matrices):
        at = slice(block * S, block * S + S)
        found[at, at] = np.tril(matrix) + np.tril(matrix, -1).T if lower else matrix
    return found


def kept(kind: int, units: int, per_unit: int) -> Floats:
    """Return a matrix with 1 at the entries of A that a kind of covariance keeps, and 0 elsewhere."""
    size = units * per_unit
    if kind == FULL:
        return np.ones((size, size))
    if kind == DIAGONAL:
        return np.eye(size)
    return np.asarray(np.kron(np.eye(units), np.ones((per_unit, per_unit))), np.float64)


def sparse(rng: np.random.Generator, size: int, share: float) -> Floats:
    """Return a random vector in which about this share of the entries is not zero."""
    return rng.normal(0, 1, size) * (rng.uniform(0, 1, size) < share)


@given(
    kind=st.sampled_from([FULL, BLOCK, DIAGONAL]),
    units=st.integers(1, 5),
    per_unit=st.integers(1, 7),
    share=st.sampled_from([0.1, 0.5, 1.0]),
    lambda_=st.sampled_from([1.0, 0.03, 20.0]),
    D=st.integers(2, 16),
    seed=st.integers(0, 10**6),
)
def test_covariance_equals_dense_linear_algebra(
    kind: int, units: int, per_unit: int, share: float, lambda_: float, D: int, seed: int
) -> None:
    """A = lambda I + sum g g' / D, its exactly symmetric inverse, v = A^-1 g and q = g' v equal those of NumPy."""
    rng = np.random.default_rng(seed)
    size, m = units * per_unit, 1
    covariance, vectors = new_covariance(kind, 3, units, per_unit, lambda_), new_vectors(kind, 4, units, per_unit)
    A, mask = lambda_ * np.eye(size), kept(kind, units, per_unit)
    for _ in range(25):
        k, g = int(rng.integers(4)), sparse(rng, size, share)
        put(vectors, k, g)
        q = width_squared(covariance, m, vectors, k)
        v = np.linalg.solve(A, g)
        assert q == pytest.approx(float(g @ v), rel=1e-9, abs=1e-12)
        if kind != DIAGONAL:
            parts = (g * v).reshape(-1, vectors.g.shape[2]).sum(axis=1)
            np.testing.assert_allclose(vectors.q[k], parts, rtol=1e-9, atol=1e-12)
            filled = vectors.filled[k] > 0
            np.testing.assert_allclose(vectors.v[k][filled], v.reshape(vectors.v[k].shape)[filled], rtol=0, atol=1e-9)
        learn(covariance, m, vectors, k, float(D))
        A += np.outer(g, g) * mask / D
        np.testing.assert_allclose(whole(covariance.A[m], kind, lower=True), A, rtol=1e-12, atol=1e-14)
        inverse = whole(covariance.A_inv[m], kind, lower=False)
        assert np.array_equal(inverse, inverse.T)
        np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=0, atol=1e-9 / lambda_)
    untouched = new_covariance(kind, 3, units, per_unit, lambda_)
    for found, start in zip(covariance[2:], untouched[2:], strict=True):
        assert np.array_equal(found[[0, 2]], start[[0, 2]])


@every_kind
def test_only_rows_of_the_vector_change(kind: int) -> None:
    """Rows of A in which g is zero, and blocks in which g is zero, do not change at all."""
    rng = np.random.default_rng(2)
    covariance, vectors = new_covariance(kind, 1, 4, 3, 0.5), new_vectors(kind, 1, 4, 3)
    for _ in range(50):
        before = [array.copy() for array in covariance[2:]]
        g = sparse(rng, 12, 0.3)
        put(vectors, 0, g)
        width_squared(covariance, 0, vectors, 0)
        learn(covariance, 0, vectors, 0, 4.0)
        zero = g == 0
        old, new = (whole(A[0], kind, lower=True) for A in (before[0], covariance.A))
        assert np.array_equal(old[zero], new[zero])
        assert (new.diagonal()[~zero] > old.diagonal()[~zero]).all()
        if kind == BLOCK:
            for block in np.flatnonzero(~g.reshape(4, 3).any(axis=1)):
                for array, earlier in zip(covariance[2:], before, strict=True):
                    assert np.array_equal(array[0, block], earlier[0, block])


def test_zero_vector_has_zero_width_and_does_not_change_A() -> None:
    for kind in (FULL, BLOCK, DIAGONAL):
        covariance, vectors = new_covariance(kind, 1, 2, 3, 0.5), new_vectors(kind, 1, 2, 3)
        put(vectors, 0, np.arange(1.0, 7))
        width_squared(covariance, 0, vectors, 0)
        learn(covariance, 0, vectors, 0, 2.0)
        before = [array.copy() for array in covariance[2:]]
        put(vectors, 0, np.zeros(6))
        assert width_squared(covariance, 0, vectors, 0) == 0.0
        learn(covariance, 0, vectors, 0, 2.0)
        assert all(np.array_equal(now, then) for now, then in zip(covariance[2:], before, strict=True))


@pytest.mark.parametrize("kind", [FULL, BLOCK])
def test_width_is_never_negative(kind: int) -> None:
    """One block of A^-1 is set to a wrong, negative matrix; the width is zero there and the block is recomputed."""
    covariance, vectors = new_covariance(kind, 1, 2, 2, 1.0), new_vectors(kind, 1, 2, 2)
    put(vectors, 0, np.array([1.0, 2.0, 0.0, 3.0]))
    covariance.A_inv[0, 0] *= -1e-18
    assert width_squared(covariance, 0, vectors, 0) == (9.0 if kind == BLOCK else 0.0)
    assert (vectors.q >= 0).all()
    learn(covariance, 0, vectors, 0, 2.0)
    exact = np.linalg.inv(whole(covariance.A[0], kind, lower=True))
    np.testing.assert_allclose(whole(covariance.A_inv[0], kind, lower=False), exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [FULL, BLOCK])
def test_inverse_is_recomputed_on_schedule(kind: int) -> None:
    """It is recomputed from A after exactly REFRESH S vectors of a block, which corrects an error made before."""
    rng = np.random.default_rng(4)
    covariance, vectors = new_covariance(kind, 2, 2, 3, 0.2), new_vectors(kind, 1, 2, 3)
    S = vectors.g.shape[2]

    def feed(g: Floats) -> None:
        put(vectors, 0, g)
        width_squared(covariance, 1, vectors, 0)
        learn(covariance, 1, vectors, 0, 4.0)

    feed(np.array([0.0, 0, 0, 1, 2, 3]))  # zero in the first of two blocks, which does not count it
    blockwise = kind == BLOCK
    for _ in range(REFRESH * S - 2 + blockwise):
        feed(rng.normal(0, 1, 6))
    assert covariance.learned[1].tolist() == ([REFRESH * S - 1, 0] if blockwise else [REFRESH * S - 1])
    assert covariance.learned[0].tolist() == [0] * (1 + blockwise)
    covariance.A_inv[1, 0] += 0.1
    for learned in (0, 1):
        feed(rng.normal(0, 1, 6))
        assert covariance.learned[1, 0] == learned
        inverse, exact = covariance.A_inv[1, 0], np.linalg.inv(whole(covariance.A[1], kind, lower=True))[:S, :S]
        np.testing.assert_allclose(inverse, exact, rtol=1e-9, atol=1e-12)
        assert np.array_equal(inverse, inverse.T)


@given(st.integers(1, 24), st.sampled_from([1.0, 1e-3]), st.integers(0, 10**6))
def test_inversion_reads_the_lower_triangle_only(S: int, lambda_: float, seed: int) -> None:
    """The error is within the bound given by the condition number of A."""
    rng = np.random.default_rng(seed)
    root = rng.normal(0, 1, (S, max(1, S // 2)))
    exact = lambda_ * np.eye(S) + root @ root.T
    A, A_inv = np.full((2, 2, S, S), np.nan), np.full((2, 2, S, S), np.nan)
    A[1, 0][np.tril_indices(S)] = exact[np.tril_indices(S)]
    invert(A, A_inv, 1, 0, lambda_)
    error = np.abs(A_inv[1, 0] - np.linalg.inv(exact)).max() / np.abs(A_inv[1, 0]).max()
    assert error < 1e-14 * S * np.linalg.cond(exact)
    np.testing.assert_allclose(A_inv[1, 0] @ exact, np.eye(S), rtol=0, atol=1e-9)
    assert np.array_equal(A_inv[1, 0], A_inv[1, 0].T)
    assert np.isnan(A_inv[0]).all()
    assert np.isnan(A_inv[1, 1]).all()


def test_inversion_stays_finite_when_lambda_is_lost_to_rounding() -> None:
    """If A is no longer positive definite, the computed inverse is, with entries of the order of 1/lambda."""
    A, A_inv = np.full((1, 1, 3, 3), 1e6), np.zeros((1, 1, 3, 3))
    A[0, 0] -= np.diag([0, 1e-7, 1e-7])
    invert(A, A_inv, 0, 0, 1e-6)
    assert np.abs(A_inv).max() < 4e6
    g = np.ones(3)
    assert g @ A_inv[0, 0] @ g >= 0


def test_inversion_compiled_equals_interpreted() -> None:
    """They are equal bit for bit; no other comparison of compiled and interpreted runs is long enough to invert."""
    root = np.random.default_rng(9).normal(0, 1, (1, 1, 7, 7))
    A = np.eye(7) + root @ root.swapaxes(2, 3)
    compiled, interpreted = np.zeros_like(A), np.zeros_like(A)
    invert(A, compiled, 0, 0, 1.0)
    getattr(invert, "py_func", invert)(A, interpreted, 0, 0, 1.0)
    assert np.array_equal(compiled, interpreted)


# --- many updates ----------------------------------------------------------------------------------------------------


@jit
def gradient(rng: Rng, W: Floats, w: Floats, moving: float, x: Floats, vectors: Vectors, blockwise: bool) -> None:
    """Compute the gradient of sum w_i relu(W_i . x) at a random x with last entry 1.

    The weights are perturbed by up to `moving` / 2. With `moving` 0 the last entry of a unit follows from its others,
    and units with the same activity are dependent: g stays in a subspace, and A^-1 keeps entries of about 1/lambda
    outside of it, which must not affect widths.
    """
    units, inputs = W.shape
    for j in range(inputs - 1):
        x[j] = 2.0 * uniform(rng) - 1.0
    x[inputs - 1] = 1.0
    count = 0
    for i in range(units):
        block = i if blockwise else 0
        first = 0 if blockwise else i * (inputs + 1)
        if blockwise:
            count = 0
        out, down = moving * (uniform(rng) - 0.5), w[i] + moving * (uniform(rng) - 0.5)
        for j in range(inputs):
            out += W[i, j] * x[j]
        for j in range(inputs + 1):
            slope = (down * x[j] if j < inputs else out) if out > 0.0 else 0.0
            vectors.g[0, block, first + j] = slope
            if slope != 0.0:
                vectors.rows[0, block, count] = first + j
                count += 1
        vectors.filled[0, block] = count


@jit
def feed(
    rng: Rng,
    covariance: Covariance,
    vectors: Vectors,
    W: Floats,
    w: Floats,
    moving: float,
    x: Floats,
    lowest: Floats,
    updates: int,
) -> None:
    """Learn from random gradients and keep the lowest quadratic form, before it is clipped at zero, in `lowest`."""
    for _ in range(updates):
        gradient(rng, W, w, moving, x, vectors, covariance.kind == BLOCK)
        width_squared(covariance, 0, vectors, 0)
        for block in range(vectors.g.shape[1]):
            if vectors.filled[0, block] > 0:
                q = 0.0
                for i in range(vectors.g.shape[2]):
                    q += vectors.v[0, block, i] * vectors.g[0, block, i]
                lowest[0] = min(lowest[0], q)
        learn(covariance, 0, vectors, 0, float(w.size))


@pytest.mark.parametrize(
    ("moving", "lambda_"), [(moving, lambda_) for moving in (0.1, 0.0) for lambda_ in (1.0, 1e-3, 1e-6)]
)
@pytest.mark.parametrize(
    ("kind", "units", "inputs", "updates"),
    [
        (FULL, 4, 2, 10**6),
        (BLOCK, 4, 3, 10**6),
        (FULL, 16, 9, 10**5),  # the default size of MP-NUCB
        (BLOCK, 16, 9, 10**5),
    ],
)
def test_widths_are_exact_after_many_updates(
    kind: int, units: int, inputs: int, updates: int, moving: float, lambda_: float
) -> None:
    """No quadratic form is negative, and sqrt(g' A^-1 g) is within 1e-6 of an exact solution.

    The relative error is below 1e-6 too, unless g stays in a subspace. This also holds just before the inverse is
    recomputed.
    """
    draw = np.random.default_rng(6)
    W, w = draw.normal(0, 0.7, (units, inputs)), draw.normal(0, 0.5, units)
    W[:, -1] = np.abs(W[:, -1])  # every unit is active sometimes
    covariance, vectors = new_covariance(kind, 1, units, inputs + 1, lambda_), new_vectors(kind, 1, units, inputs + 1)
    x, lowest, rng = np.zeros(inputs), np.full(1, np.inf), stream(0, 0, POLICY)
    for more in (updates, None, 1):
        if more is None:  # until the inverse of at least one block is due
            more = REFRESH * vectors.g.shape[2] - 1 - int(covariance.learned.max())
        feed(rng, covariance, vectors, W, w, moving, x, lowest, more)
        A = whole(covariance.A[0], kind, lower=True)
        found = []
        for _ in range(20):
            gradient(rng, W, w, moving, x, vectors, kind == BLOCK)
            found.append((vectors.g[0].flatten(), width_squared(covariance, 0, vectors, 0)))
        g, q = np.array([g for g, _ in found]), np.array([q for _, q in found])
        exact = np.sqrt((g * np.linalg.solve(A, g.T).T).sum(axis=1))
        assert (np.abs(np.sqrt(q) - exact) < 1e-6 * (np.minimum(1.0, exact) if moving else 1.0)).all()
    assert lowest[0] >= 0


def test_A_is_exact_after_a_million_updates() -> None:
    """A equals one matrix product of all samples."""
    covariance, vectors = new_covariance(FULL, 1, 2, 3, 0.1), new_vectors(FULL, 1, 2, 3)
    samples = np.random.default_rng(8).normal(0, 1, (10**6, 6))
    vectors.rows[0, 0], vectors.filled[0] = np.arange(6), 6
    feed_all(covariance, vectors, samples)
    expected = 0.1 * np.eye(6) + samples.T @ samples / 3
    np.testing.assert_allclose(whole(covariance.A[0], FULL, lower=True), expected, rtol=0, atol=1e-12 * 10**6)


@jit
def feed_all(covariance: Covariance, vectors: Vectors, samples: Floats) -> None:
    """Learn from all samples, in order."""
    for n in range(samples.shape[0]):
        for i in range(samples.shape[1]):
            vectors.g[0, 0, i] = samples[n, i]
        width_squared(covariance, 0, vectors, 0)
        learn(covariance, 0, vectors, 0, 3.0)


@pytest.mark.parametrize("lambda_", [1.0, 1e-6])
def test_diagonal_is_exact_after_many_updates(lambda_: float) -> None:
    """Only A accumulates rounding errors with a diagonal: it is within 1e-12 for every lambda."""
    covariance, vectors = new_covariance(DIAGONAL, 1, 2, 3, lambda_), new_vectors(DIAGONAL, 1, 2, 3)
    samples = np.random.default_rng(7).normal(0, 1, (5000, 6)) * (np.arange(6) != 4)
    for g in samples:
        put(vectors, 0, g)
        learn(covariance, 0, vectors, 0, 2.0)
    exact = lambda_ + (samples**2).sum(axis=0) / 2
    np.testing.assert_allclose(covariance.A[0, 0, 0], exact, rtol=1e-12)
    put(vectors, 0, np.ones(6))
    assert width_squared(covariance, 0, vectors, 0) == pytest.approx(float((1 / exact).sum()), rel=1e-12)
