"""Mixture of predictions: the regression against a fit of all samples, and trust by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from idleband.policies.mixture import (
    MARGIN,
    PRIOR_VARIANCE,
    RATE,
    SHARE,
    learn,
    learn_trust,
    log_loss,
    mix,
    new_mixture,
)


def test_weights_are_close_to_those_of_a_fit_of_all_samples() -> None:
    """Within a quarter of a standard deviation, of which the variance regained since takes the larger part."""
    rng = np.random.default_rng(1)
    prior = np.array([[0.5, 0.0, 0.2], [0.0, 0.0, 0.0]])
    mixture = new_mixture(1, prior, 1)
    x = rng.normal(size=(400, 3))
    y = (rng.random(400) < expit(x @ [1.0, -0.5, 0.3])).astype(float)
    for i in range(400):
        learn(mixture, 0, x[i : i + 1], 0, y[i])

    def minus_posterior(theta: np.ndarray) -> float:
        z = x @ theta
        fitted = np.logaddexp(0, np.where(y > 0, -z, z)).sum()
        return float(fitted + 0.5 * np.square(theta - prior[0]).sum() / PRIOR_VARIANCE)

    best = minimize(minus_posterior, prior[0]).x
    deviations = np.sqrt(np.diagonal(mixture.A_inv[0]))
    assert np.all(np.abs(mixture.theta[0] - best) < 0.5 * deviations)
    assert np.array_equal(mixture.theta[1], prior[1])


def test_logits_are_limited() -> None:
    mixture = new_mixture(1, np.array([[100.0]]), 1)
    assert [mix(mixture, 0, np.array([[x]]), 0) for x in (-1.0, 0.01, 1.0)] == [-7.0, 1.0, 7.0]


def test_trust_follows_the_log_losses() -> None:
    mixture = new_mixture(1, np.zeros((1, 1)), 1)
    learn_trust(mixture, 1.0, 2.0, 1.0, 5)
    evidence = RATE * ((1 + MARGIN) * log_loss(1.0, 1.0) - log_loss(2.0, 1.0))
    assert mixture.trust[0] == pytest.approx((1 - SHARE / 5) * expit(evidence) + 0.5 * SHARE / 5)
    for _ in range(10_000):
        learn_trust(mixture, 3.0, -3.0, 1.0, 1)
    assert 0.0 < mixture.trust[0] < 0.001
    for _ in range(20):
        learn_trust(mixture, -3.0, 3.0, 1.0, 1)
    assert mixture.trust[0] > 0.99


def test_log_loss_is_that_of_the_logistic_probability() -> None:
    assert log_loss(0.0, 1.0) == pytest.approx(np.log(2))
    assert log_loss(2.0, 0.0) == pytest.approx(-np.log(1 - expit(2.0)))
