"""Planned studies: sizes, seeds, grids, the choice of parameters, and the studies of each part."""

import re
from dataclasses import astuple, replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from idleband.experiments.spec import Experiment
from idleband.experiments.study import Study
from idleband.paper.parts import PARTS
from idleband.paper.plan import (
    COST,
    FIGURE_3,
    FIGURE_3_USERS,
    FIGURE_4,
    QUICK,
    Choices,
    PlannedStudy,
    Size,
    TunedParameters,
    baseline_policies,
    choices_from,
    chosen,
    chosen_gamma,
    figure3_study,
    figure4_study,
    gamma_study,
    gamma_tuning_of,
    inner_beta,
    linear_study,
    neural_study,
    reported_of,
    tuning_of,
    tuning_studies,
    tuning_study,
)
from idleband.paper.readings import (
    GAMMA_GRID,
    GRID,
    MAIN,
    MAP,
    READINGS,
    SCENARIOS,
    SENSED,
    Reading,
    baselines_of,
    find,
)
from idleband.policies.registry import policy
from idleband.simulation.result import Result
from tests.paper import stored

SIZE = Size(horizon=1000, replications=7, fewer=6, fewest=5, neural=4, neural_fewer=3, tuning=2, seed=7)


def choices(value: float = 0.5, gamma: float = 10.0) -> Choices:
    pairs = [(reading, preset) for reading in (*READINGS, *MAP) for preset in SCENARIOS]
    tunes = {r.key: r.key in stored.WITH_BASELINES and r.key not in stored.TUNED_IN for r, _ in pairs}
    return {
        (r.key, p): TunedParameters(value, dict.fromkeys(("mp-ucb", "rca-m"), value) if tunes[r.key] else {}, gamma)
        for r, p in pairs
    }


@cache
def studies_of(part: str) -> list[PlannedStudy]:
    return [*tuning_studies(SIZE, [part]), *reported_of(SIZE, part, choices())]


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_default_and_quick_sizes() -> None:
    """The default has the horizon of the paper and at least its five replications."""
    assert astuple(Size()) == (100_000, 20, 10, 5, 12, 5, 2, 0)
    assert astuple(QUICK) == (10_000, 3, 3, 3, 3, 3, 1, 0)
    assert (Size().gamma_horizon, QUICK.gamma_horizon, Size(horizon=12).gamma_horizon) == (20_000, 2_000, 10)


KINDS = {  # of reported studies, by their folders; all others are fast
    r"S\d-(slot-played|rca-sensed)-neural": "network",
    r".*-neural": "network-fewer",
    r"S\d-slot-played-0\.\d+.*": "fewest",
    r"S1-(?!slot-played-).*-beta": "fewest",
    r"S1-rca-sensed-users-\d": "fewer",
    r"S\d-(?!slot-played|rca-sensed).*": "fewer",
}


def test_replications_of_each_study() -> None:
    assert list(COST) == ["fast", "fewer", "fewest", "network", "network-fewer"]
    assert [SIZE.of(kind) for kind in COST] == [7, 6, 5, 4, 3]
    kinds = set()
    for part in PARTS:
        for planned in studies_of(part):
            if planned.folder.endswith("-gamma"):
                assert (planned.experiment.horizon, planned.experiment.replications) == (200, 1)
                continue
            assert planned.experiment.horizon == 1000
            if planned.folder.endswith("-tuning"):
                assert (planned.experiment.replications, planned.kind) == (2, "fast")
                continue
            kind = next((k for pattern, k in KINDS.items() if re.fullmatch(pattern, planned.folder)), "fast")
            assert (planned.kind, planned.experiment.replications) == (kind, SIZE.of(kind)), planned.folder
            kinds.add(kind)
    assert kinds == set(COST)


def test_main_comparisons_have_all_replications() -> None:
    """Baselines and MP-LUCB have the same replications in every reading."""
    for reading in READINGS:
        kinds = {linear_study(SIZE, one, "S3", choices()).kind for one in (reading, baselines_of(reading))}
        assert "fewest" not in kinds
        assert kinds <= {"fast", "fewer"}
    assert figure3_study(SIZE, MAIN, "MP-LUCB", 2, choices()).kind == figure4_study(SIZE, MAIN).kind == "fast"


def test_no_sample_path_is_tuned_on_and_reported() -> None:
    for part in PARTS:
        for planned in studies_of(part):
            tunes = planned.folder.endswith(("-tuning", "-gamma"))
            assert planned.experiment.seed == (1_000_010 if tunes else 7)
    # streams depend on (seed, replication, name), so different seeds suffice
    assert Size().tuning_seed != Size().seed


def test_networks_have_a_higher_cost() -> None:
    costs = {planned.folder: planned.cost for part in PARTS for planned in studies_of(part)}
    assert all((cost > 1) == folder.endswith(("-neural", "-gamma")) for folder, cost in costs.items())


# --- folders ---------------------------------------------------------------------------------------------------------


def test_every_folder_belongs_to_one_experiment() -> None:
    found: dict[str, Experiment] = {}
    for part in PARTS:
        for planned in studies_of(part):
            assert found.setdefault(planned.folder, planned.experiment) == planned.experiment, planned.folder
    for (one, a), (other, b) in combinations(found.items(), 2):
        assert a != b, (one, other)


def test_folder_names_of_studies() -> None:
    """Folder names are those that the test helpers use."""
    assert tuning_study(SIZE, find("cosine"), "S2").folder == "S2-cosine-tuning"
    assert linear_study(SIZE, find("slot-played-0.97"), "S4", choices()).folder == "S4-slot-played-0.97"
    assert neural_study(SIZE, SENSED, "S3", choices()).folder == "S3-rca-sensed-neural"
    assert gamma_study(SIZE, SENSED, "S3").folder == "S3-rca-sensed-gamma"
    for reading, role in FIGURE_3:
        assert figure3_study(SIZE, reading, role, 4, choices()).folder == stored.users_study(reading.key, role, 4)
    assert figure4_study(SIZE, MAIN).folder == "S1-slot-played-beta"


# --- the parts -------------------------------------------------------------------------------------------------------

BOTH = ("slot-played", "rca-sensed")
OTHERS = tuple(key for key in stored.POLICIES if key not in BOTH)


def folders(part: str) -> set[str]:
    return {planned.folder for planned in studies_of(part)}


def in_all_scenarios(*names: str) -> set[str]:
    return {f"{preset}-{name}" for preset in stored.SCENARIOS for name in names}


def test_studies_of_each_part() -> None:
    assert list(PARTS) == ["figure1", "figure2", "figure3", "figure4", "readings", "map"]
    own = ("", "-neural", "-tuning", "-gamma")
    assert folders("figure1") == in_all_scenarios(*(f"{r}{w}" for r in BOTH for w in own))
    assert folders("figure2") == folders("figure1")
    users = {stored.users_study(*line, M) for line in stored.FIGURE_3 for M in (1, 3, 5, 7, 9)}
    assert len(users) == 15
    assert folders("figure3") == {"S1-slot-played-tuning", "S1-slot-played-gamma", "S1-rca-sensed-tuning", *users}
    assert folders("figure4") == {f"S1-{r}-{w}" for r in stored.LINEAR_MODEL for w in ("tuning", "beta")}
    # the baselines of three of the other readings are in the main one; its network is not needed
    others = in_all_scenarios(*(f"{r}{w}" for r in OTHERS for w in own))
    assert folders("readings") == others | in_all_scenarios("slot-played", "slot-played-tuning")
    assert folders("map") == in_all_scenarios(*(f"{r}{w}" for r in stored.MAP.values() for w in ("", "-tuning")))


@pytest.mark.parametrize("part", PARTS)
def test_all_reported_readings_of_a_part_are_tuned(part: str) -> None:
    """A part uses only values that its tuning studies choose."""
    networks = [(reading.key, preset) for reading, preset in gamma_tuning_of(part)]
    tuned = {
        (reading.key, preset): choices()[reading.key, preset]._replace(
            gamma=1.0 if (reading.key, preset) in networks else None
        )
        for reading, preset in tuning_of(part)
    }
    assert list(reported_of(SIZE, part, tuned))
    assert set(networks) <= tuned.keys()


# --- configured policies ---------------------------------------------------------------------------------------------


def test_baselines_are_tuned_and_textbook() -> None:
    policies = baseline_policies({"mp-ucb": 0.1, "rca-m": 1.0})
    assert {name: tuple(configured.label for configured in pair) for name, pair in policies.items()} == {
        "mp-random": ("mp-random", "mp-random"),
        "mp-ucb": ("mp-ucb L=0.1", "mp-ucb"),
        "mp-klucb": ("mp-klucb", "mp-klucb"),
        "rca-m": ("rca-m", "rca-m"),  # the tuned value equals the textbook value
    }


def test_policies_of_the_reported_studies() -> None:
    given = choices(0.1)
    labels = [configured.label for configured in linear_study(SIZE, MAIN, "S2", given).experiment.policies]
    tuned, textbook = ["mp-ucb L=0.1", "rca-m L=0.1"], ["mp-ucb", "rca-m"]
    assert sorted(labels) == sorted([*tuned, *textbook, "mp-random", "mp-klucb", "mp-lucb beta=0.1"])
    (alone,) = linear_study(SIZE, SENSED, "S2", given).experiment.policies
    assert alone == policy("mp-lucb-rca", beta=0.1)
    for reading in READINGS:
        (neural,) = neural_study(SIZE, reading, "S1", given).experiment.policies
        assert neural == policy(reading.neural, gamma=10.0)


def test_baselines_have_the_L_that_is_tuned_in_an_equal_world() -> None:
    given = {**choices(), ("slot-played", "S2"): TunedParameters(1.0, {"mp-ucb": 100.0, "rca-m": 10.0})}
    for key in ("slot-played", "quadratic", "none"):
        labels = [c.label for c in linear_study(SIZE, find(key), "S2", given).experiment.policies]
        tuned = ("mp-ucb L=0.5", "rca-m L=0.5") if key == "none" else ("mp-ucb L=100", "rca-m L=10")
        assert set(tuned) <= set(labels)


def test_tuning_studies_contain_the_grids() -> None:
    for reading in READINGS:
        policies = tuning_study(SIZE, reading, "S1").experiment.policies
        values = [(c.policy.name, c.values["beta" if c.policy.name.startswith("mp-lucb") else "L"]) for c in policies]
        own = reading.key in stored.WITH_BASELINES and reading.key not in stored.TUNED_IN
        baselines = ["mp-ucb", "rca-m"] if own else []
        assert values == [(name, v) for name in (reading.linear.policy.name, *baselines) for v in stored.GRID]
        short = gamma_study(SIZE, reading, "S1").experiment
        assert short.policies == tuple(policy(reading.neural, gamma=value) for value in stored.GAMMA_GRID)
        assert short.scenario == reading.settings.scenario("S1")


def test_figure_3_has_the_policies_with_other_numbers_of_users() -> None:
    """MP-LUCB has the beta of its reading, MP-NUCB its gamma."""
    assert tuple((reading.key, role) for reading, role in FIGURE_3) == stored.FIGURE_3
    given = {**choices(10.0), ("rca-sensed", "S1"): TunedParameters(0.1, {})}
    policies = (
        policy("mp-lucb", beta=10.0),
        policy("mp-nucb", covariance="diagonal", gamma=10.0),
        policy("mp-lucb-rca", beta=0.1),
    )
    assert FIGURE_3_USERS == stored.USERS
    for M in FIGURE_3_USERS:
        for (reading, role), configured in zip(FIGURE_3, policies, strict=True):
            spec = figure3_study(SIZE, reading, role, M, given).experiment
            assert spec.policies == (configured,)
            assert spec.scenario.users == M
            assert spec.scenario == replace(reading.settings, users=M).scenario("S1")


def test_figure_4_has_every_beta_of_every_reading_with_the_linear_model() -> None:
    assert tuple(reading.key for reading in FIGURE_4) == stored.LINEAR_MODEL
    for reading, planned in zip(FIGURE_4, reported_of(SIZE, "figure4", choices()), strict=True):
        assert planned.experiment.policies == tuple(policy(reading.linear, beta=beta) for beta in stored.GRID)
        assert planned.experiment.scenario == reading.settings.scenario("S1")


# --- choice of parameters --------------------------------------------------------------------------------------------


def tuned_study(reading: Reading, rewards: dict[str, list[list[float]]]) -> Study:
    """Return a tuning study with given final rewards: for each policy and value of its grid, one per replication.

    Earlier rewards are in the opposite order.
    """
    results = []
    for name, table in rewards.items():
        made = {"linear": (reading.linear, "beta", GRID), "neural": (reading.neural, "gamma", GAMMA_GRID)}
        source, parameter, values = made.get(name, (name, "L", GRID))
        for value, final in zip(values, table, strict=True):
            configured = policy(source, **{parameter: value})
            reward = np.array([[1e6 - r, r] for r in final])
            curves = {"reward": reward, **{f"regret_{k}": reward for k in ("static", "contextual", "genie", "table")}}
            scenario = reading.settings.scenario("S1")
            t, plays = np.array([10, 1000]), np.zeros((len(final), 10))
            results.append(
                Result(scenario, configured.policy.name, configured.label, configured.values, 0, t, curves, plays)
            )
    return Study(reading.settings.scenario("S1"), 0, tuple(results))


RISING = [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]


def test_highest_mean_is_chosen() -> None:
    peak = [[1.0, 9.0], [6.0, 6.0], [2.0, 9.5], [1.0, 2.0], [0.0, 11.0], [0.0, 0.0]]  # means 5, 6, 5.75, ...
    study = tuned_study(MAIN, {"linear": peak, "mp-ucb": [[r[0]] for r in RISING], "rca-m": RISING[::-1]})
    assert chosen(MAIN, study) == TunedParameters(0.5, {"mp-ucb": 1000.0, "rca-m": 0.1})


def test_smallest_value_is_chosen_among_equal_ones() -> None:
    flat, two = [[4.0]] * 6, [[1.0], [1.0], [3.0], [2.0], [3.0], [3.0]]
    study = tuned_study(MAIN, {"linear": two, "mp-ucb": flat, "rca-m": RISING})
    assert chosen(MAIN, study) == TunedParameters(1.0, {"mp-ucb": 0.1, "rca-m": 1000.0})


@pytest.mark.parametrize("key", ["rca-sensed", "quadratic"])
def test_only_beta_is_tuned_where_another_reading_tunes_the_baselines(key: str) -> None:
    assert chosen(find(key), tuned_study(find(key), {"linear": RISING})) == TunedParameters(1000.0, {})


@pytest.mark.parametrize(
    ("rewards", "gamma"), [([[1.0], [4.0], [3.0], [2.0]], 0.5), ([[1.0]] * 4, 0.1), (RISING[:4], 10.0)]
)
def test_gamma_with_the_highest_reward_is_chosen(rewards: list[list[float]], gamma: float) -> None:
    assert chosen_gamma(SENSED, tuned_study(SENSED, {"neural": rewards})) == gamma


def test_choices_are_those_of_the_studies_that_are_found() -> None:
    """beta and L of a reading count without gamma, gamma without them does not."""
    linear = {"linear": RISING, "mp-ucb": RISING, "rca-m": RISING}
    studies = {
        "S1-slot-played-tuning": tuned_study(MAIN, linear),
        "S1-slot-played-gamma": tuned_study(MAIN, {"neural": RISING[:4]}),
        "S2-slot-played-tuning": tuned_study(MAIN, linear),
        "S3-slot-played-gamma": tuned_study(MAIN, {"neural": RISING[:4]}),
    }
    found = choices_from(SIZE, ["figure1"], lambda planned: studies.get(planned.folder))
    tuned = TunedParameters(1000.0, {"mp-ucb": 1000.0, "rca-m": 1000.0})
    assert found == {("slot-played", "S1"): tuned._replace(gamma=10.0), ("slot-played", "S2"): tuned}


@pytest.mark.parametrize(
    ("rewards", "inner"),
    [
        (RISING, 100.0),
        (RISING[::-1], 0.5),
        ([[9.0], [1.0], [2.0], [3.0], [2.0], [9.0]], 10.0),
        ([[1.0]] * 6, 0.5),
    ],
)
def test_inner_beta_is_never_an_end_of_the_grid(rewards: list[list[float]], inner: float) -> None:
    assert inner_beta(MAIN, tuned_study(MAIN, {"linear": rewards})) == inner
