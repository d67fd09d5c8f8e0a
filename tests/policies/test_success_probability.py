"""Expected rewards of states from a predicted perturbation: probabilities, errors, and regression targets."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from idleband.policies.knowledge import setup_of
from idleband.policies.protocol import Setup
from idleband.policies.success_probability import (
    below,
    fill_at_random,
    fill_pays,
    measures,
    new_success_estimates,
    observe_error,
    regression_target,
    spared_probability,
)
from idleband.scenario.build import scenario

# A channel with two states and one with three; state 1 is the good one.
CHANNELS: dict[str, Any] = {
    "transition": [[[0.5, 0.5], [0.5, 0.5]], [[0.4, 0.3, 0.3]] * 3],
    "rewards": [[0.1, 1.0], [0.1, 1.0, 0.1]],
    "good": [[1], [1]],
    "context": {"dimension": 1},
    "perturbation": {"theta": [0.5]},
    "users": 1,
}


ADDITIVE_REWARDS = [[0.1, 1.0], [0.2, 0.9, 0.4]]


def setup_with(**settings: Any) -> Setup:
    """Return the setup of a scenario with CHANNELS and other settings."""
    if settings.get("reward") == "additive":
        settings["rewards"] = ADDITIVE_REWARDS
    return setup_of(scenario(**{**CHANNELS, **settings}), ())


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_below_is_the_normal_distribution_function(level: float) -> None:
    for n_hat in np.linspace(-2, 3, 41).tolist():
        for e in (0.01, 0.3, 2.0):
            assert below(level, n_hat, e) == pytest.approx(stats.norm.cdf((level - n_hat) / e), abs=2e-9)
    assert (below(level, level - 1, 1e-12), below(level, level + 1, 1e-12)) == (1.0, 0.0)


def test_expected_rewards_under_the_threshold_reward() -> None:
    """A good state has 0.1 + 0.9 P(n < 1) with n ~ N(n_hat + z e sqrt(q), e^2).

    Other states have 0.1 until one of them returned the full reward, and 0.1 + 0.9 P(n < 0) after that.
    """
    setup = setup_with()
    success = new_success_estimates(setup, 2)
    success.square[:] = [0.04, 0.09]
    success.deviate[:] = [0.0, -1.5]
    for k, m, e, z in ((0, 0, 0.2, 0.0), (1, 1, 0.3, -1.5)):
        for spared in (0.0, 1.0):
            success.spared[k] = spared
            fill_pays(setup, success, m, k, 0.9, 0.49)
            centre = 0.9 + z * e * 0.7
            good = 0.1 + 0.9 * stats.norm.cdf((1 - centre) / e)
            other = 0.1 + 0.9 * spared * stats.norm.cdf((0 - centre) / e)
            np.testing.assert_allclose(success.pays[k], [other, good, other if k == 1 else 0.0], atol=1e-9)


def test_expected_rewards_under_the_additive_reward() -> None:
    setup = setup_with(reward="additive")
    success = new_success_estimates(setup, 2)
    success.deviate[1] = 2.0
    fill_pays(setup, success, 1, 1, 0.3, 0.25)
    np.testing.assert_allclose(success.pays[1], np.array([0.2, 0.9, 0.4]) - (0.3 + 2.0 * 1.0 * 0.5))


def test_expected_rewards_from_success_probabilities() -> None:
    setup = setup_with()
    success = new_success_estimates(setup, 2)
    fill_at_random(setup, success, 1, 0.8, 0.3)
    np.testing.assert_allclose(success.pays[1], [0.1 + 0.9 * 0.3, 0.1 + 0.9 * 0.8, 0.1 + 0.9 * 0.3])


def test_mean_squared_error_is_a_mean_and_then_discounted() -> None:
    """The prior is ten errors of 1, and each error adds error^2 / (1 + q); from 200 errors on older ones lose 1/200."""
    setup = setup_with()
    success = new_success_estimates(setup, 2)
    rng = np.random.default_rng(1)
    errors, q = rng.normal(0, 0.3, 600), rng.exponential(1.0, 600)
    squares = errors**2 / (1 + q)
    for i in range(600):
        observe_error(success, 1, errors[i], q[i])
        if i + 11 <= 200:
            expected = (10 + squares[: i + 1].sum()) / (11 + i)
        else:
            expected += (squares[i] - expected) / 200
        assert success.square[1] == pytest.approx(expected, rel=1e-12)
    assert success.square[0] == 1.0
    assert success.square[1] == pytest.approx(float(np.mean(squares)), rel=0.3)


@pytest.mark.parametrize(
    ("settings", "s", "r", "n", "expected"),
    [
        ({}, 1, 1.0, 0.7, 0.7),  # measured: the perturbation, in any state
        ({}, 0, 0.1, 0.7, 0.7),
        ({"reward": "additive"}, 1, 0.5, 0.4, 0.4),
        ({"reward": "additive", "feedback": "reward"}, 1, 0.5, math.nan, 0.4),  # n = h - r
        ({"reward": "additive", "feedback": "reward"}, 2, 0.7, math.nan, -0.3),
        ({"feedback": "reward"}, 1, 1.0, math.nan, 0.0),  # a good slot with the full reward
        ({"feedback": "reward"}, 1, 0.1, math.nan, 1.0),
        ({"feedback": "reward"}, 0, 0.1, math.nan, math.nan),  # other states give no target
        ({"feedback": "reward"}, 2, 1.0, math.nan, math.nan),
    ],
)
def test_regression_target_of_a_play(settings: dict[str, Any], s: int, r: float, n: float, expected: float) -> None:
    setup = setup_with(**settings)
    success = new_success_estimates(setup, 2)
    assert regression_target(setup, success, 1, s, r, n) == pytest.approx(expected, nan_ok=True)
    assert measures(setup) == (settings != {"feedback": "reward"})
    counted = setup.threshold and s != 1
    assert success.spared.tolist() == [0, counted and r > 0.1]
    assert success.perturbed.tolist() == [0, counted and r <= 0.1]


def test_probability_of_the_full_reward_in_bad_states() -> None:
    """It is zero before any observation, because the perturbations of the paper are positive."""
    success = new_success_estimates(setup_with(), 2)
    assert spared_probability(success, 1) == 0.0
    success.spared[1], success.perturbed[1] = 3.0, 5.0
    assert spared_probability(success, 1) == pytest.approx(3 / 9)
