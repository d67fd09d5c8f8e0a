"""Rewards: the kernels on values computed by hand, and mean rewards and reward range against simulated rewards."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.scenario.reward import ADDITIVE, THRESHOLD, expected_reward, reward

JUST_BELOW_1 = math.nextafter(1.0, 0.0)
TINY = 5e-324


@pytest.mark.parametrize(
    ("good", "n", "paid"),
    [
        (True, -0.5, 1.0),
        (True, 0.0, 1.0),
        (True, JUST_BELOW_1, 1.0),
        (True, 1.0, 0.1),  # 1 - n > 0 does not hold
        (True, 1.5, 0.1),
        (False, -0.5, 1.0),  # a negative perturbation gives 1 on a bad channel, too
        (False, -TINY, 1.0),
        (False, 0.0, 0.1),
        (False, -0.0, 0.1),
        (False, 0.5, 0.1),
        (False, 1.0, 0.1),
    ],
)
def test_threshold_reward(good: bool, n: float, paid: float) -> None:
    for h in (0.1, 1.0, -7.0):  # the state reward has no influence
        assert reward(THRESHOLD, h, good, n) == paid


@pytest.mark.parametrize(
    ("h", "n", "paid"), [(1.0, 0.25, 0.75), (0.1, 0.0, 0.1), (0.5, 1.0, -0.5), (0.5, -1.5, 2.0), (-2.0, 3.0, -5.0)]
)
def test_additive_reward(h: float, n: float, paid: float) -> None:
    assert reward(ADDITIVE, h, True, n) == paid
    assert reward(ADDITIVE, h, False, n) == paid
    assert expected_reward(ADDITIVE, h, 0.3, n) == paid


@given(st.floats(0, 1), st.one_of(st.sampled_from([0.0, -0.0, 1.0, JUST_BELOW_1, -TINY]), st.floats(-3, 3)))
def test_expected_reward_is_the_mean_over_states(good_share: float, n: float) -> None:
    mean = good_share * reward(THRESHOLD, 1.0, True, n) + (1 - good_share) * reward(THRESHOLD, 0.1, False, n)
    assert expected_reward(THRESHOLD, 0.1 + 0.9 * good_share, good_share, n) == pytest.approx(mean, abs=1e-12)


# --- one channel, played in every slot -------------------------------------------------------------------------------

PERTURBATION_MODELS: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "positive": {"theta": [0.9, 0.5, 0.4]},
    "negative": {"theta": [-0.4, -0.2, 0.0]},
    "both": {"theta": [1.2, -0.7, 0.3]},
    "clear": {"clear": 0.75},
    "norm": {"theta_norm": 0.9},
}
INDEPENDENT = [[0.3, 0.7], [0.3, 0.7]]  # the next state does not depend on the present one: slots are independent


def one_channel(model: str, kind: str, **more: Any) -> ib.Scenario:
    rewards = [-0.2, 0.9] if kind == "additive" else None
    settings: dict[str, Any] = {"transition": [INDEPENDENT], "rewards": rewards, "good": [1], **more}
    return ib.scenario(
        users=1, reward=kind, context={"dimension": 3}, perturbation=PERTURBATION_MODELS[model], **settings
    )


@pytest.mark.parametrize("kind", ["threshold", "additive"])
@pytest.mark.parametrize("model", PERTURBATION_MODELS)
def test_mean_rewards_equal_simulated_averages(model: str, kind: str) -> None:
    T, R, seed = 50_000, 2, 8
    scenario = one_channel(model, kind)
    result = ib.simulate(scenario, "mp-random", horizon=T, replications=R, seed=seed)
    for replication in range(R):
        theta = scenario.theta(seed, replication)
        means, error = scenario.mean_rewards(theta)
        assert error == 0
        if kind == "threshold":  # the reward is 0.1 or 1
            q = (means[0] - 0.1) / 0.9
            variance = 0.81 * q * (1 - q)
        else:  # variance of h plus that of a weighted sum of uniforms
            variance = 0.3 * 0.7 * 1.1**2 + float(theta[0] @ theta[0]) / 12
        assert abs(result.reward[replication, -1] / T - means[0]) <= 5 * math.sqrt(variance / T) + 1e-12


@pytest.mark.parametrize("kind", ["threshold", "additive"])
@pytest.mark.parametrize("model", PERTURBATION_MODELS)
def test_reward_range_contains_every_simulated_reward(model: str, kind: str) -> None:
    scenario = one_channel(model, kind)
    low, high = scenario.reward_range()
    slots = ib.simulate(scenario, "mp-random", horizon=200, replications=1, record="slots").slots
    assert slots is not None
    paid = slots["reward"].dropna()
    rounding = 1e-9  # the reward of a slot is a difference of cumulative sums
    assert low - rounding <= paid.min() <= paid.max() <= high + rounding


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"reward": "threshold", "perturbation": {"theta": [5.0, -5.0, 0.0]}}, (0.1, 1.0)),
        ({"reward": "additive", "perturbation": "none"}, (-0.2, 0.9)),
        ({"reward": "additive", "perturbation": {"theta": [0.5, -0.25, 0.0]}}, (-0.7, 1.15)),
        ({"reward": "additive", "perturbation": {"theta_norm": 0.5}}, (-0.2 - 0.5 * math.sqrt(3), 0.9)),
        ({"reward": "additive", "perturbation": {"clear": 0.8}}, (-0.2 - math.sqrt(3), 0.9)),
        ({"reward": "additive", "perturbation": {"theta_norm": 0.0}}, (-0.2, 0.9)),
    ],
)
def test_reward_range_of_one_channel_is_tight(settings: dict[str, Any], expected: tuple[float, float]) -> None:
    scenario = ib.scenario(
        transition=[INDEPENDENT],
        rewards=[-0.2, 0.9] if settings["reward"] == "additive" else None,
        good=[1],
        users=1,
        context={"dimension": 3},
        **settings,
    )  # fmt: skip
    assert scenario.reward_range() == pytest.approx(expected, abs=1e-12)


def test_reward_range_covers_all_channels() -> None:
    """It extends from the smallest to the largest reward of any channel under the theta of that channel."""
    scenario = ib.scenario(
        p01=[0.5, 0.5],
        p10=[0.5, 0.5],
        rewards=[[0.0, 1.0], [0.5, 2.0]],
        users=1,
        reward="additive",
        context={"dimension": 2},
        perturbation={"theta": [[1.0, -1.0], [3.0, 0.0]]},
    )
    assert scenario.reward_range() == (-3.0, 3.0)


def test_mean_rewards_with_one_theta_per_channel() -> None:
    scenario = ib.scenario(
        p01=[0.2, 0.2, 0.2],
        p10=[0.6, 0.6, 0.6],
        users=1,
        context={"dimension": 1},
        perturbation={"theta": [[0.5], [2.0], [-3.0]]},
    )
    means, error = scenario.mean_rewards(scenario.theta(0, 0))
    np.testing.assert_allclose(means, [0.1 + 0.9 * 0.25, 0.1 + 0.9 * 0.125, 1.0], rtol=1e-12)
    assert error == 0
    additive, _ = ib.scenario(scenario, reward="additive").mean_rewards(scenario.theta(0, 0))
    np.testing.assert_allclose(additive, [0.325 - 0.25, 0.325 - 1.0, 0.325 + 1.5], rtol=1e-12)


def test_mean_rewards_from_a_sample_have_a_standard_error() -> None:
    scenario = ib.scenario("S1", context={"dimension": 18}, perturbation={"theta": [0.15] * 18})
    means, error = scenario.mean_rewards(scenario.theta(0, 0))
    assert 0 < error < 0.001
    assert np.all((means > 0.1) & (means < scenario.table_means))
