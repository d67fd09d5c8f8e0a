"""Levels of the perturbation, and the upper bound, for scenarios of every kind."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels import whittle_lagrangian
from idleband.scenario import upper_bound
from idleband.scenario.presets import PRESETS
from idleband.scenario.upper_bound import bound, levels, padded, padded_transition
from tests.own_model import LOUD

THREE: dict[str, Any] = {
    "transition": [
        [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]],
        [[0.9, 0.1], [0.3, 0.7]],
        [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2]],
    ],
    "rewards": [[0.1, 0.1, 1.0], [0.1, 1.0], [0.1, 1.0, 0.1]],
    "users": 2,
}
PERTURBATION_MODELS = ["none", "linear", "quadratic", "cosine"]
NEGATIVE = {"kind": "linear", "theta": [0.9, -0.4, 0.8, 0.3, -0.6, 0.2, 0.5, 0.1]}


@pytest.fixture
def loud(tmp_path: Path) -> str:
    """Return the name of a user's perturbation model."""
    path = tmp_path / "mine.py"
    path.write_text(LOUD)
    return f"{path}:loud"


def means_by_level(scenario: ib.Scenario, theta: np.ndarray) -> np.ndarray:
    """Return the mean reward of every channel, shape (K,), computed from its levels."""
    _, probability, pay = levels(scenario, theta)
    distributions = padded(scenario.stationary_distributions, 0.0)
    return np.einsum("kl,kls,ks->k", probability, pay, distributions)


# --- levels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["threshold", "additive"])
@pytest.mark.parametrize("model", [*PERTURBATION_MODELS, NEGATIVE], ids=[*PERTURBATION_MODELS, "negative"])
@pytest.mark.parametrize("base", ["S3", THREE], ids=["S3", "three states"])
def test_levels_have_the_mean_rewards(base: Any, model: Any, reward: str) -> None:
    """The means are exact although the additive reward is discretised into 64 levels."""
    scenario = ib.scenario(base, reward=reward, perturbation=model)
    theta = scenario.theta(0, 0)
    ends, probability, pay = levels(scenario, theta)
    assert ends.shape == probability.shape == pay.shape[:2]
    assert (probability >= 0).all()
    assert (np.diff(ends, axis=1) >= 0).all()
    assert (ends[:, -1] > 1e100).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-9)
    means, error = scenario.mean_rewards(theta)
    assert error == 0
    np.testing.assert_allclose(means_by_level(scenario, theta), means, atol=1e-9)


def test_levels_agree_with_sampled_contexts() -> None:
    """Frequencies of the levels are within five standard deviations of their probabilities."""
    scenario = ib.scenario("S1", perturbation=NEGATIVE)
    theta = scenario.theta(0, 0)
    ends, probability, pay = levels(scenario, theta)
    n = np.random.default_rng(0).random((200_000, 8)) @ theta[0]
    for level, (low, high) in enumerate(zip([-np.inf, *ends[0, :-1]], ends[0], strict=True)):
        q = probability[0, level]
        assert abs(((low <= n) & (n < high)).mean() - q) < 5 * math.sqrt(q * (1 - q) / len(n))
    assert (probability[0] > 0.01).all()
    assert pay[0].tolist() == [[1.0, 1.0], [0.1, 1.0], [0.1, 0.1]]


@pytest.mark.parametrize("model", PERTURBATION_MODELS[1:])
def test_levels_of_the_additive_reward_have_equal_width(model: str) -> None:
    """The reward of a level differs from that of its middle by less than half a width."""
    scenario = ib.scenario("S1", reward="additive", perturbation=model)
    theta = scenario.theta(0, 0)
    ends, probability, pay = levels(scenario, theta)
    low, high = scenario.perturbation.model.bounds(theta[0])
    width = (high - low) / 64
    np.testing.assert_allclose(ends[0, :-1], low + width * np.arange(1, 64), atol=1e-9)
    middles = low + width * (np.arange(64) + 0.5)
    assert np.abs(scenario.rewards[0] - middles[:, None] - pay[0]).max() < 0.5 * width
    assert probability.shape == (10, 64)


def test_channels_with_different_thetas_have_different_levels() -> None:
    scenario = ib.scenario("S2", perturbation={"kind": "linear", "theta_norm": 0.8, "per_channel": True})
    theta = scenario.theta(0, 0)
    _, probability, _ = levels(scenario, theta)
    assert len(set(probability[:, 1].tolist())) == scenario.K
    np.testing.assert_allclose(probability[:, :2].sum(axis=1), scenario.probabilities_below(theta, 1.0)[0], atol=1e-9)


@pytest.mark.parametrize("reward", ["threshold", "additive"])
def test_user_model_has_levels_and_an_upper_bound(loud: str, reward: str) -> None:
    """Its probabilities come from a sample with a known standard error."""
    scenario = ib.scenario("S1", reward=reward, perturbation={"kind": loud, "clear": 0.7})
    theta = scenario.theta(0, 0)
    means, error = scenario.mean_rewards(theta)
    np.testing.assert_allclose(means_by_level(scenario, theta), means, atol=5 * error + 1e-9)
    _, probability, _ = levels(scenario, theta)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-9)
    found = bound(scenario, theta)
    assert found is not None
    assert found > np.sort(means)[-5:].sum() - 5 * 5 * error


# --- matrices --------------------------------------------------------------------------------------------------------


def test_channels_with_fewer_states_are_padded() -> None:
    P = padded_transition(ib.scenario(THREE))
    assert P.shape == (3, 3, 3)
    assert P[1].tolist() == [[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 0.0]]
    assert P[2].tolist() == THREE["transition"][2]
    assert padded((np.array([1.0]),), 0.0).tolist() == [[1.0, 0.0]]
    assert padded((np.array([True, False, True]), np.array([True])), False).tolist() == [
        [True, False, True],
        [True, False, False],
    ]


# --- upper bound -----------------------------------------------------------------------------------------------------


def value(scenario: ib.Scenario, theta: np.ndarray | None = None) -> float:
    """Return the upper bound, which must exist."""
    found = bound(scenario, theta)
    assert found is not None
    return found


def test_bound_without_theta_is_that_without_perturbation() -> None:
    clear = ib.scenario("S1", perturbation="none")
    assert value(ib.scenario("S1")) == value(clear) == pytest.approx(value(clear, clear.theta(0, 0)), abs=1e-12)
    assert value(clear) == pytest.approx(4.066, abs=5e-4)


@pytest.mark.parametrize("reward", ["threshold", "additive"])
@pytest.mark.parametrize("base", ["S4", THREE], ids=["S4", "three states"])
def test_bound_is_between_the_best_fixed_channels_and_the_largest_reward(base: Any, reward: str) -> None:
    scenario = ib.scenario(base, reward=reward)
    theta = scenario.theta(0, 0)
    means, _ = scenario.mean_rewards(theta)
    found, clear = value(scenario, theta), value(scenario)
    assert np.sort(means)[-scenario.users :].sum() < found < clear
    assert clear < scenario.users * max(h.max() for h in scenario.rewards) + 1e-9


def test_no_bound_where_all_channels_are_sensed() -> None:
    assert bound(ib.scenario("S1", sensing="all")) is None


def test_bound_counts_available_channels_only() -> None:
    """Two channels are available in every other slot and ten in the others: 3.5 plays per slot on average."""
    row = [True, True] + [False] * 8
    scenario = ib.scenario("S2", perturbation="none", availability=[row, [True] * 10])
    _, probability, pay = levels(scenario, scenario.theta(0, 0))
    relaxed = whittle_lagrangian.channels(padded_transition(scenario), pay, probability)
    assert value(scenario) == pytest.approx(whittle_lagrangian.bound(relaxed, 3.5, 0.1, 1.0), abs=1e-9)
    assert value(scenario) < value(ib.scenario("S2", perturbation="none"))


def test_bound_that_would_take_too_long_is_not_computed() -> None:
    K, S = 400, 30
    rng = np.random.default_rng(0)
    matrix = (0.99 * np.eye(S) + 0.01 * rng.dirichlet(np.ones(S), S)).tolist()
    scenario = ib.scenario(transition=[matrix] * K, good=[S - 1], users=5)
    began = time.perf_counter()
    assert bound(scenario) is None
    assert time.perf_counter() - began < 5


def test_bound_is_computed_once_for_all_replications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn thetas differ, but have the same success probability."""
    calls: list[float] = []
    original: Callable[..., float] = whittle_lagrangian.bound

    def counted(*arguments: Any) -> float:
        calls.append(1.0)
        return original(*arguments)

    monkeypatch.setattr(whittle_lagrangian, "bound", counted)
    upper_bound.compute_bound.cache_clear()
    scenario = ib.scenario("S2", users=3)
    assert len({value(scenario, scenario.theta(0, replication)) for replication in range(5)}) == 1
    assert len(calls) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_precomputed_bounds_of_presets_equal_computed_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used for every seed."""
    preset = ib.scenario(name)
    thetas = [None, preset.theta(0, 0), preset.theta(3, 1)]
    stored = [bound(preset, theta) for theta in thetas]
    assert set(stored) <= set(upper_bound.preset_bounds().values())
    monkeypatch.setattr(upper_bound, "preset_bounds", dict)
    assert [bound(preset, theta) for theta in thetas] == stored
