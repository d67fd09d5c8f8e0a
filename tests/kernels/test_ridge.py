"""Ridge estimates and widths compared with numpy.linalg, after up to ten million updates."""

import numpy as np
import pytest

from idleband.kernels.compile import jit
from idleband.kernels.ridge import learn, predict, width_squared
from idleband.kernels.rng import POLICY, fill_uniform, stream


@jit
def feed(rng, A_inv, theta, A, b, x, v, truth, updates):  # type: ignore[no-untyped-def]
    """Learn from random samples with the kernels, and add them to the matrix A and vector b of the normal equations."""
    for _ in range(updates):
        fill_uniform(rng, x[0])
        y = x[0, 0] * x[0, 0] - 0.3  # a part that is not linear
        for i in range(truth.size):
            y += truth[i] * x[0, i]
        q = width_squared(A_inv, 0, x, 0, v, 0)
        learn(A_inv, theta, 0, v, 0, q, y - predict(theta, 0, x, 0))
        for i in range(truth.size):
            b[i] += y * x[0, i]
            for j in range(truth.size):
                A[i, j] += x[0, i] * x[0, j]


@pytest.mark.parametrize(
    ("d", "updates", "ridge"), [(1, 50, 1.0), (3, 0, 2.0), (5, 200, 0.01), (8, 10**6, 1.0), (8, 10**7, 1.0)]
)
def test_estimates_and_widths_equal_numpy_linalg(d: int, updates: int, ridge: float) -> None:
    A_inv, theta = np.eye(d)[None] / ridge, np.zeros((1, d))
    A, b = np.eye(d) * ridge, np.zeros(d)
    x, v = np.zeros((1, d)), np.zeros((1, d))
    rng = stream(0, 0, POLICY)
    feed(rng, A_inv, theta, A, b, x, v, np.linspace(-1, 1, d), updates)
    assert np.array_equal(A_inv[0], A_inv[0].T)
    np.testing.assert_allclose(theta[0], np.linalg.solve(A, b), rtol=0, atol=1e-9)
    for _ in range(20):
        fill_uniform(rng, x[0])
        exact = float(x[0] @ np.linalg.solve(A, x[0]))
        q = width_squared(A_inv, 0, x, 0, v, 0)
        assert abs(np.sqrt(q) - np.sqrt(exact)) < 1e-9  # the width
        assert abs(q - exact) < 1e-9 * max(exact, 1e-6)
        assert abs(predict(theta, 0, x, 0) - float(x[0] @ np.linalg.solve(A, b))) < 1e-9


def test_width_is_never_negative() -> None:
    """A^-1 is set to a negative matrix, as rounding errors could produce."""
    assert width_squared(-np.eye(2)[None] * 1e-18, 0, np.ones((1, 2)), 0, np.zeros((1, 2)), 0) == 0.0
