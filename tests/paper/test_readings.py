"""Readings: scenario settings and two configured policies."""

from dataclasses import replace

import pytest

from idleband.errors import InputError
from idleband.experiments.spec import experiment
from idleband.paper.readings import (
    BASELINES,
    CLEAR,
    GRID,
    MAIN,
    MAP,
    MAP_CLEAR,
    READINGS,
    SCENARIOS,
    SENSED,
    Reading,
    ScenarioSettings,
    find,
    map_reading,
)
from idleband.policies.registry import policy
from idleband.scenario.build import scenario
from tests.paper import stored

ALL = tuple(dict.fromkeys((*READINGS, *MAP)))


def test_keys_titles_and_policies_of_the_readings() -> None:
    assert {r.key: (r.linear.policy.name, r.neural.policy.name) for r in READINGS} == stored.POLICIES
    assert len({r.title for r in ALL}) == len({r.key for r in ALL}) == len(ALL) == 8 + 5
    assert (MAIN.key, SENSED.key) == ("slot-played", "rca-sensed")
    assert (SCENARIOS, BASELINES, GRID) == (stored.SCENARIOS, stored.BASELINES, stored.GRID)


@pytest.mark.parametrize("reading", ALL, ids=lambda reading: reading.key)
@pytest.mark.parametrize("preset", SCENARIOS)
def test_every_reading_is_a_valid_experiment(reading: Reading, preset: str) -> None:
    spec = experiment(reading.settings.scenario(preset), [reading.linear, reading.neural, *map(policy, BASELINES)])
    assert (spec.scenario.name, spec.scenario.users, spec.scenario.K) == (preset, 5, 10)
    means, _ = spec.scenario.mean_rewards(spec.scenario.theta(0, 0))
    good = (means - 0.1) / (spec.scenario.table_means - 0.1)
    assert good == pytest.approx([1.0 if reading.key == "none" else reading.settings.clear] * 10, abs=1e-6)


def test_main_reading_uses_the_presets() -> None:
    """It has the default perturbation and sensing, and the full matrix of each network."""
    assert MAIN.settings.scenario("S3") == scenario("S3")
    assert CLEAR == 0.7
    assert MAIN.linear == policy("mp-lucb")
    assert [r.key for r in READINGS if r.neural.values["covariance"] == "full"] == ["slot-played"]


def test_sensing_of_the_readings() -> None:
    sensed = {r.key for r in ALL if r.settings.sensing == "all"}
    assert sensed == {"rca-sensed", "printed-reward", "printed-indicator"}
    models = {r.key: r.settings.model for r in READINGS if r.settings.model != "linear"}
    assert models == {"quadratic": "quadratic", "cosine": "cosine", "none": "none"}
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


def test_map_contains_the_main_reading() -> None:
    assert tuple(stored.MAP) == MAP_CLEAR
    assert [r.key for r in MAP] == list(stored.MAP.values())
    assert MAP[2] is MAIN is map_reading(0.7)
    for clear, reading in zip(MAP_CLEAR, MAP, strict=True):
        assert reading.settings == ScenarioSettings(clear=clear)
        assert (reading.linear, reading.paths) == (MAIN.linear, "")
        assert reading is MAIN or f"{clear:g}" in reading.title


def test_readings_are_found_by_key() -> None:
    assert all(find(reading.key) is reading for reading in ALL)
    with pytest.raises(StopIteration):
        find("slot-plaid")


def test_impossible_scenario_settings_are_refused() -> None:
    with pytest.raises(InputError, match="users = 11"):
        ScenarioSettings(users=11).scenario("S1")
