"""Discrete distributions below and above that of the perturbation."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.level_brackets import INTEGRATION_ERROR, Levels, bracket, mean_of_largest

MODELS = ["linear", "quadratic", "cosine", {"kind": "linear", "theta": [0.9, -0.4, 0.8, 0.3, -0.6, 0.2, 0.5, 0.1]}]


def points(levels: Levels) -> tuple[np.ndarray, np.ndarray]:
    """Return the perturbations of channel 0 and their probabilities; its rewards are those of state reward 0."""
    return -levels.pay[0, :, 0], levels.probability[0]


@pytest.mark.parametrize("model", MODELS, ids=["linear", "quadratic", "cosine", "negative"])
def test_convex_functions_are_between_both_distributions(model: Any) -> None:
    """Means of max(c - n, 0) over contexts are between those of the two distributions, up to five standard errors.

    The distance falls about as the square of the number of bins.
    """
    scenario = ib.scenario(p01=[0.5], p10=[0.5], users=1, rewards=[0.0, 1.0], reward="additive", perturbation=model)
    theta = scenario.theta(0, 0)
    n = scenario.perturbation.model.values(theta[0], np.random.default_rng(0).random((100_000, 8)))
    widths = []
    for bins in (4, 16, 64):
        found = bracket(scenario, theta, bins)
        assert not found.exact
        gaps = []
        for c in np.quantile(n, [0.1, 0.3, 0.5, 0.7, 0.9]):
            low, high = (float(q @ np.maximum(c - at, 0.0)) for at, q in (points(found.lower), points(found.upper)))
            sampled = np.maximum(c - n, 0.0)
            error = 5 * sampled.std() / math.sqrt(len(n)) + INTEGRATION_ERROR
            assert low - error <= sampled.mean() <= high + error
            gaps.append(high - low)
        widths.append(max(gaps))
        for at, q in (points(found.lower), points(found.upper)):
            assert q.sum() == pytest.approx(1.0, abs=1e-9)
            assert q @ at == pytest.approx(scenario.perturbation.model.mean(theta[0], 8)[0], abs=INTEGRATION_ERROR)
    assert widths[2] < widths[1] / 4 < widths[0] / 16
    assert widths[2] > 0


def test_threshold_reward_has_its_own_levels() -> None:
    scenario = ib.scenario("S1", sensing_time=0.1)
    found = bracket(scenario, scenario.theta(0, 0), 4)
    assert found.exact
    assert found.lower is found.upper
    assert found.sampling_error == 0.0
    np.testing.assert_allclose(found.lower.probability, [[0.7, 0.3]] * 10, atol=1e-9)
    np.testing.assert_allclose(found.lower.pay[0], 0.9 * np.array([[0.1, 1.0], [0.1, 0.1]]))


@pytest.mark.parametrize("perturbation", ["none", {"kind": "linear", "theta": [0.0] * 8}])
def test_constant_perturbation_is_one_level(perturbation: Any) -> None:
    scenario = ib.scenario("S1", reward="additive", perturbation=perturbation)
    found = bracket(scenario, scenario.theta(0, 0), 16)
    for levels in (found.lower, found.upper):
        assert (levels.probability > 0).sum(axis=1).tolist() == [1] * 10


@pytest.mark.parametrize("M", [1, 2, 3])
def test_mean_of_largest_by_enumeration(M: int) -> None:
    """All combinations of two levels and two states of three channels."""
    rng = np.random.default_rng(M)
    levels = Levels(rng.dirichlet(np.ones(2), 3), rng.random((3, 2, 2)))
    stationary = rng.dirichlet(np.ones(2), 3)
    weights = levels.probability[:, :, None] * stationary[:, None, :]
    exact = 0.0
    for chosen in itertools.product(itertools.product(range(2), repeat=2), repeat=3):
        probability = math.prod(weights[k][at] for k, at in enumerate(chosen))
        exact += probability * sum(sorted(levels.pay[k][at] for k, at in enumerate(chosen))[-M:])
    assert mean_of_largest(levels, stationary, M) == pytest.approx(exact, abs=1e-12)
