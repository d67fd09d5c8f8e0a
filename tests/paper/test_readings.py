"""Readings: scenario settings and two configured policies."""

from dataclasses import replace

import numpy as np
import pytest

from idleband.errors import InputError
from idleband.experiments.spec import experiment
from idleband.paper.readings import (
    BASELINES,
    CLEAR,
    GAMMA_GRID,
    GRID,
    MAIN,
    MAP,
    MAP_CLEAR,
    NOISE,
    READINGS,
    SCENARIOS,
    SENSED,
    Reading,
    ScenarioSettings,
    find,
    map_reading,
    tuned_in,
)
from idleband.policies.registry import policy
from idleband.scenario.build import scenario
from tests.paper import stored

ALL = tuple(dict.fromkeys((*READINGS, *MAP)))


def test_keys_titles_and_policies_of_the_readings() -> None:
    assert {r.key: (r.linear.policy.name, r.neural.policy.name) for r in READINGS} == stored.POLICIES
    assert len({r.title for r in ALL}) == len({r.key for r in ALL}) == len(ALL)
    assert [r.key for r in ALL] == [*stored.POLICIES, *stored.ONLY_IN_MAP]
    assert (MAIN.key, SENSED.key) == ("slot-played", "rca-sensed")
    assert (SCENARIOS, BASELINES, GRID) == (stored.SCENARIOS, stored.BASELINES, stored.GRID)
    assert GAMMA_GRID == stored.GAMMA_GRID
    assert set(GAMMA_GRID) <= set(GRID)


@pytest.mark.parametrize("reading", ALL, ids=lambda reading: reading.key)
@pytest.mark.parametrize("preset", SCENARIOS)
def test_every_reading_is_a_valid_experiment(reading: Reading, preset: str) -> None:
    spec = experiment(reading.settings.scenario(preset), [reading.linear, reading.neural, *map(policy, BASELINES)])
    assert (spec.scenario.name, spec.scenario.users, spec.scenario.K) == (preset, 5, 10)
    thetas = spec.scenario.theta(0, 0)
    means, _ = spec.scenario.mean_rewards(thetas)
    if reading.key == "additive":
        assert means == pytest.approx(spec.scenario.table_means - thetas.sum(axis=1) / 2)
        return
    good = (spec.scenario.table_means - 0.1) / 0.9
    clear = 1.0 if reading.key == "none" else reading.settings.clear
    negative, _ = spec.scenario.probabilities_below(thetas, 0.0)  # only with noise; a bad channel then pays high
    assert means == pytest.approx(0.1 + 0.9 * (good * clear + (1 - good) * negative), abs=1e-6)
    assert np.all((negative > 0) == (reading.settings.noise > 0))


def test_main_reading_uses_the_presets() -> None:
    """It has the default perturbation, reward and sensing."""
    assert MAIN.settings.scenario("S3") == scenario("S3")
    assert CLEAR == 0.7
    assert MAIN.linear == policy("mp-lucb")


def test_networks_keep_the_diagonal_and_differ_in_nothing_else_from_the_policies() -> None:
    for reading in READINGS:
        assert reading.neural.values["covariance"] == "diagonal"
        by_margin = {"replace": "indicator"} if reading.key == "printed-indicator" else {}
        name = stored.POLICIES[reading.key][1]
        assert reading.neural == policy(name, covariance="diagonal", **by_margin)


def test_sensing_of_the_readings() -> None:
    sensed = {r.key for r in ALL if r.settings.sensing == "all"}
    assert sensed == {"rca-sensed", "printed-reward", "printed-indicator"}
    models = {r.key: r.settings.model for r in READINGS if r.settings.model != "linear"}
    assert models == {"quadratic": "quadratic", "cosine": "cosine", "none": "none"}
    assert [r.key for r in ALL if r.settings.reward == "additive"] == ["additive"]
    assert [r.key for r in ALL if r.settings.per_channel] == ["per-channel"]
    assert [(r.key, r.settings.noise) for r in READINGS if r.settings.noise] == [(f"noise-{s:g}", s) for s in NOISE]
    margins = [find(f"printed-{m}") for m in ("reward", "indicator")]
    assert [(r.linear.values["replace"], r.neural.values["replace"]) for r in margins] == [
        ("reward", "reward"),
        ("indicator", "indicator"),
    ]


def test_baselines_observe_played_channels_only() -> None:
    """A reading has baselines, or uses those of a reading with the same sample paths."""
    for reading in ALL:
        assert bool(reading.paths) == (reading.key not in stored.WITH_BASELINES)
        owner = find(reading.paths) if reading.paths else reading
        assert not owner.paths
        assert owner.settings.sensing == "played"
        assert replace(owner.settings, sensing=reading.settings.sensing) == reading.settings


def test_theta_per_channel() -> None:
    """Ten parameters instead of one, each with P(n < 1) = 0.7."""
    one, ten = (r.settings.scenario("S1").theta(0, 0) for r in (MAIN, find("per-channel")))
    assert len({tuple(theta) for theta in one.tolist()}) == 1
    assert len({tuple(theta) for theta in ten.tolist()}) == 10


def test_tuned_L_is_shared_by_worlds_that_are_the_same_to_the_baselines() -> None:
    """Under the threshold reward only the mean rewards matter, because contexts are independent of each other.

    With noise a bad channel pays high where n < 0.
    """
    for reading in ALL:
        owner = tuned_in(reading)
        assert owner.key == stored.TUNED_IN.get(reading.key, "slot-played" if reading.paths else reading.key)
        assert tuned_in(owner) is owner
        settings = reading.settings
        assert (owner.settings.clear, owner.settings.reward) == (settings.clear, settings.reward)
        for preset in SCENARIOS:
            shared, own = (r.settings.scenario(preset) for r in (owner, reading))
            means, same = (world.mean_rewards(world.theta(0, 0))[0] for world in (shared, own))
            assert same == pytest.approx(means, abs=1e-6 if not settings.noise else 1e-2)
            if settings.noise:
                negative, _ = own.probabilities_below(own.theta(0, 0), 0.0)
                assert max(negative) <= (0.004 if reading in READINGS else 0.01)


def test_map_contains_the_main_reading() -> None:
    assert tuple(clear for clear, noise in stored.MAP if not noise) == MAP_CLEAR
    assert [r.key for r in MAP] == list(stored.MAP.values())
    assert MAP[2] is MAIN is map_reading(0.7)
    for (clear, noise), reading in zip(stored.MAP, MAP, strict=True):
        assert reading.settings == ScenarioSettings(clear=clear, noise=noise)
        assert (reading.linear, reading.paths) == (MAIN.linear, "")
        if reading not in READINGS:
            assert f"P(n<1) = {clear:g}" in reading.title
            assert (f"sigma = {noise:g}" in reading.title) == (noise > 0)


def test_readings_are_found_by_key() -> None:
    assert all(find(reading.key) is reading for reading in ALL)
    with pytest.raises(StopIteration):
        find("slot-plaid")


def test_impossible_scenario_settings_are_refused() -> None:
    with pytest.raises(InputError, match="users = 11"):
        ScenarioSettings(users=11).scenario("S1")
