"""Experiments as data: from files, from Python, round trips, and refusals."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

import idleband as ib
from idleband.experiments.spec import Experiment, every_policy, experiment, grid, read_experiment
from tests.own_policy import MINE

S1 = ib.scenario("S1")


@pytest.mark.parametrize(
    ("entry", "labels"),
    [
        ({}, ["mp-lucb"]),
        ({"beta": 0.5}, ["mp-lucb beta=0.5"]),
        ({"beta": [0.5]}, ["mp-lucb beta=0.5"]),
        ({"beta": [0.1, 1.0]}, ["mp-lucb beta=0.1", "mp-lucb"]),
        (  # the grid of the paper
            {"beta": [0.1, 0.5, 1.0, 10, 100, 1000]},
            ["mp-lucb beta=0.1", "mp-lucb beta=0.5", "mp-lucb", *(f"mp-lucb beta={b}" for b in (10, 100, 1000))],
        ),
        (
            {"beta": [0.1, 0.5], "shared": [True, False]},
            ["mp-lucb beta=0.1 shared=true", "mp-lucb beta=0.1", "mp-lucb beta=0.5 shared=true", "mp-lucb beta=0.5"],
        ),
        ({"frame": ["slot", "rca"], "lambda": 2}, ["mp-lucb lambda=2", "mp-lucb lambda=2 frame=rca"]),
    ],
)
def test_list_of_values_is_a_grid(entry: dict[str, Any], labels: list[str]) -> None:
    assert [configured.label for configured in grid({"name": "mp-lucb", **entry})] == labels


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"beta": 1.0}, "policy.name = None"),
        ({"name": 3}, "policy.name = 3"),
        ({"name": "mp-lucb", "beta": []}, "beta = \\[\\]: a grid needs at least one value"),
        ({"name": "mp-lucb", "beta": [0.1, float("nan")]}, "beta = nan: must be a finite number"),
        ({"name": "mp-lucb", "beta": [[0.1]]}, "beta = \\[0.1\\]"),
        ({"name": "mp-lucb", "betas": 1}, "did you mean 'beta'"),
    ],
)
def test_bad_grid_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        grid(entry)


def test_file_gives_scenario_policies_and_size(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(
        """
        [scenario]
        base = "S3"
        users = 2
        sensing = "all"
        perturbation = { kind = "linear", theta_norm = 0.5 }
        [experiment]
        horizon = 1_000
        replications = 4
        seed = 11
        [[policy]]
        name = "mp-ucb"
        L = [0.5, 1.5]
        [[policy]]
        name = "mp-ts"
        """
    )
    scenario = ib.scenario("S3", users=2, sensing="all", perturbation={"theta_norm": 0.5})
    policies = (ib.policy("mp-ucb", L=0.5), ib.policy("mp-ucb"), ib.policy("mp-ts"))
    assert read_experiment(path) == Experiment(scenario, policies, 1000, 4, 11)


def test_arguments_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[scenario]\nbase = "S1"\n[experiment]\nhorizon = 10\nseed = 3\n[[policy]]\nname = "mp-ts"\n')
    found = read_experiment(path, [ib.policy("mp-ucb")], horizon="20", replications=2)
    assert found == Experiment(S1, (ib.policy("mp-ucb"),), 20, 2, 3)


def test_default_policies_are_all_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[scenario]\nbase = "S1"\n')
    assert read_experiment(path) == Experiment(S1, tuple(every_policy()), 100_000, 5, 0)
    assert [configured.label for configured in every_policy()] == [
        name for name, p in ib.POLICIES.items() if p.source is None
    ]


def test_policy_file_is_relative_to_the_experiment_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "user_code.py").write_text(MINE)
    path = tmp_path / "deep" / "experiment.toml"
    path.write_text('[scenario]\nbase = "S1"\n[[policy]]\nname = "user_code.py:mine"\n')
    monkeypatch.chdir(tmp_path)
    assert [configured.label for configured in read_experiment(path).policies] == ["mine"]


@pytest.mark.parametrize(
    "scenario",
    [
        S1,
        ib.scenario("S4", name="mine", users=1, feedback="reward", reward="additive", perturbation="none"),
        ib.scenario(
            transition=[[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]] * 2,
            good=[[2], [1, 2]],
            users=1,
            context={"dimension": 2},
            perturbation={"theta": [[0.1, 0.2], [0.3, 0.4]]},
            availability=[[1, 0], [1, 1]],
        ),
    ],
    ids=["preset", "two states", "three states"],
)
def test_round_trip_through_a_file(tmp_path: Path, scenario: ib.Scenario) -> None:
    given = experiment(scenario, [ib.policy("mp-random"), ib.policy("mp-lucb", beta=0.1, shared=True)], 77, 3, 2**62)
    path = tmp_path / "experiment.toml"
    path.write_text(tomli_w.dumps(given.to_table()))
    assert read_experiment(path) == given


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"horizon": 0}, "experiment.horizon = 0"),
        ({"horizon": 10**10 + 1}, "experiment.horizon = 10000000001: must be a whole number from 1 to 10\\^10"),
        ({"horizon": 1e30}, "experiment.horizon = 1e\\+30"),
        ({"horizon": 0.5}, "experiment.horizon = 0.5"),
        ({"horizon": True}, "experiment.horizon = True"),
        ({"horizon": "long"}, "experiment.horizon = long"),
        ({"horizon": float("inf")}, "experiment.horizon = inf"),
        ({"replications": 0}, "experiment.replications = 0"),
        ({"replications": 10**6 + 1}, "experiment.replications = 1000001"),
        ({"seed": -1}, "experiment.seed = -1"),
        ({"seed": 2**63}, "experiment.seed = 9223372036854775808"),
    ],
)
def test_bad_size_is_refused(size: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        experiment(S1, [ib.policy("mp-random")], **size)


def test_size_may_be_a_float_or_text() -> None:
    found = experiment(S1, [ib.policy("mp-random")], horizon=1e10, replications="5", seed=2**63 - 1)
    assert (found.horizon, found.replications, found.seed) == (10**10, 5, 2**63 - 1)
    assert all(type(n) is int for n in (found.horizon, found.replications, found.seed))


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([], "needs at least one"),
        ([ib.policy("mp-ucb"), ib.policy("mp-ucb", L=1.5)], "policy mp-ucb: given twice"),
        ([ib.policy("mp-ucb", L=2), ib.policy("mp-ucb", L=2.0)], "policy mp-ucb L=2: given twice"),
    ],
)
def test_empty_or_repeated_policies_are_refused(policies: list[Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        experiment(S1, policies)


def test_values_that_differ_in_the_seventh_digit_are_different_policies() -> None:
    policies = [ib.policy("mp-ucb", L=1.2345671), ib.policy("mp-ucb", L=1.2345672)]
    assert len({configured.label for configured in experiment(S1, policies).policies}) == 2
