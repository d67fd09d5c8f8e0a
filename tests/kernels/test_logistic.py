"""Sequential logistic regression: comparison with a fit of all samples, calibration, and extreme inputs."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from idleband.kernels.compile import jit
from idleband.kernels.logistic import learn, probability, settle
from idleband.kernels.ridge import predict, width_squared

Floats = npt.NDArray[np.float64]

TRUTHS = {
    "even": np.array([1.5, -2.0, 0.5, 0.0]),
    "rare": np.array([1.0, -1.0, 0.5, -3.0]),
    "steep": np.array([6.0, -5.0, 0.0, 0.5]),
}  # the last entry belongs to the constant


@jit
def feed(A_inv, theta, x, v, y):  # type: ignore[no-untyped-def]
    """Learn from all samples, in order."""
    for t in range(y.size):
        q = width_squared(A_inv, 0, x, t, v, t)
        learn(A_inv, theta, 0, v, t, q, predict(theta, 0, x, t), y[t])


def sample(truth: Floats, n: int, seed: int) -> tuple[Floats, Floats]:
    """Return n random contexts with a constant, and outcomes under the true parameters."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.random((n, truth.size - 1)), np.ones(n)])
    return x, (rng.random(n) < expit(x @ truth)).astype(float)


def learned(x: Floats, y: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return covariance and estimate of the sequential regression."""
    d = x.shape[1]
    A_inv, theta = np.eye(d)[None] / ridge, np.zeros((1, d))
    feed(A_inv, theta, x, np.zeros_like(x), y)
    return A_inv[0], theta[0]


def fitted(x: Floats, y: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return covariance and mode of the Laplace approximation, with a normal prior of variance 1 / ridge."""

    def cost(theta: Floats) -> tuple[float, Floats]:
        score = x @ theta
        value = np.logaddexp(0, score).sum() - y @ score + 0.5 * ridge * theta @ theta
        return float(value), x.T @ (expit(score) - y) + ridge * theta

    mode = minimize(cost, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    p = expit(x @ mode)
    return np.linalg.inv((x.T * (p * (1 - p))) @ x + ridge * np.eye(x.shape[1])), mode


@pytest.mark.parametrize("name", TRUTHS)
def test_sequential_fit_is_close_to_the_batch_fit(name: str) -> None:
    """After 20,000 samples the estimate is within a standard deviation of the mode and each variance within 20%.

    They differ because each sample is weighted at the estimate of its time, which is inexact for the first ones.
    """
    x, y = sample(TRUTHS[name], 20_000, seed=0)
    A_inv, theta = learned(x, y, 1.0)
    covariance, mode = fitted(x, y, 1.0)
    error = theta - mode
    assert error @ np.linalg.solve(covariance, error) < x.shape[1]
    np.testing.assert_allclose(np.diag(A_inv), np.diag(covariance), rtol=0.2)


@pytest.mark.parametrize(("ridge", "y"), [(0.5, 1.0), (1e-4, 1.0), (0.01, 0.0), (1e3, 0.0)])
def test_fit_of_one_sample_is_exact(ridge: float, y: float) -> None:
    """After a single sample mode and covariance equal those of the batch fit."""
    x = np.array([[0.3, -0.7, 1.0]])
    A_inv, theta = learned(x, np.array([y]), ridge)
    covariance, mode = fitted(x, np.array([y]), ridge)
    np.testing.assert_allclose(theta, mode, rtol=1e-5)
    np.testing.assert_allclose(A_inv, covariance, rtol=1e-5)


def test_settled_score_balances_prior_and_sample() -> None:
    """The score moves to the point where prior and sample balance, for every start and variance q.

    At a score of -3.05 and these q Newton's method alone would oscillate.
    """
    rng = np.random.default_rng(0)
    inputs = [(-30.0, 100.0), (-1e3, 1e6), (-2.0, 1e-3), (-3.0, 2e4), (-3.05, 1.5e5), (3.0, 0.0)]
    inputs += zip(rng.normal(size=5000) * 10 ** rng.uniform(-1, 2, 5000), 10 ** rng.uniform(-4, 6, 5000), strict=True)
    for score, q in inputs:
        settled = settle(score, q, 1.0)
        p = probability(settled)
        assert score <= settled <= score + q
        assert abs(settled - score - q * (1 - p)) < 1e-9 * (1 + abs(settled)) * (1 + q * p * (1 - p))
        assert settle(-score, q, 0.0) == pytest.approx(-settled, rel=1e-9, abs=1e-9)


def test_fit_of_few_samples_is_close_to_the_batch_fit() -> None:
    """Nine entries and a prior of 0.01, as in the first slots of the policies.

    In each of twenty runs of 50 samples the estimate is within two standard deviations of the batch fit, in the mean
    over directions.
    """
    truth = np.array([2.0] * 8 + [-9.5])
    for seed in range(20):
        x, y = sample(truth, 50, seed)
        covariance, mode = fitted(x, y, 0.01)
        error = learned(x, y, 0.01)[1] - mode
        assert error @ np.linalg.solve(covariance, error) < truth.size * 2.0**2


@pytest.mark.parametrize("name", TRUTHS)
def test_posterior_covers_the_true_parameters(name: str) -> None:
    """In 100 runs the error of theta in standard deviations has a mean square near 1.

    For a normal distribution in d = 4 directions the mean square of a run has variance 2 / 4, so that the mean of 100
    runs has standard deviation 0.07. The bounds 0.75 and 1.4 are more than three of these from 1.
    """
    truth, squares = TRUTHS[name], []
    for run in range(100):
        x, y = sample(truth, 1500, seed=100 + run)
        A_inv, theta = learned(x, y, 0.1)
        error = theta - truth
        squares.append(error @ np.linalg.solve(A_inv, error) / truth.size)
    assert 0.75 < np.mean(squares) < 1.4


@pytest.mark.parametrize("name", TRUTHS)
def test_predicted_probabilities_are_calibrated(name: str) -> None:
    """In each decile of predictions the observed rate is within five standard deviations plus 0.02 for the fit."""
    x, y = sample(TRUTHS[name], 5000, seed=1)
    _, theta = learned(x, y, 0.01)
    fresh, outcomes = sample(TRUTHS[name], 50_000, seed=2)
    predicted = np.array([probability(score) for score in fresh @ theta])
    for part in np.array_split(np.argsort(predicted), 10):
        p = predicted[part]
        assert abs(outcomes[part].mean() - p.mean()) < 5 * np.sqrt((p * (1 - p)).mean() / len(part)) + 0.02


def test_matrix_stays_positive_definite_after_a_million_samples() -> None:
    """A^-1 is also exactly symmetric; the prior is that of the policies, 0.01."""
    x, y = sample(TRUTHS["steep"], 1_000_000, seed=3)
    A_inv, theta = learned(x, y, 0.01)
    assert np.array_equal(A_inv, A_inv.T)
    assert np.linalg.eigvalsh(A_inv).min() > 0
    error = theta - TRUTHS["steep"]
    assert (
        error @ np.linalg.solve(A_inv, error) < 40
    )  # exceeded with probability 10^-7 by a chi-square variable of 4 degrees


@pytest.mark.parametrize("ridge", [1e-6, 0.01, 1.0])
def test_separable_outcomes_give_finite_values(ridge: float) -> None:
    """Separable data has no finite maximum; scores grow slowly without bound."""
    x, _ = sample(TRUTHS["even"], 20_000, seed=4)
    for y in (np.ones(len(x)), np.zeros(len(x)), (x[:, 0] > 0.5).astype(float)):
        A_inv, theta = learned(x, y, ridge)
        assert np.isfinite(theta).all()
        assert np.isfinite(A_inv).all()
        assert np.array_equal(A_inv, A_inv.T)
        assert np.linalg.eigvalsh(A_inv).min() > 0


def test_probability_at_extreme_scores() -> None:
    assert [probability(score) for score in (-1e9, -50.0, 0.0, 50.0, 1e9)] == pytest.approx([0, expit(-50), 0.5, 1, 1])
