"""Settings: what is refused, the defaults, and what a scenario defines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.settings import Settings
from idleband.policies.knowledge import setup_of
from tests.own_policy import MINE

SIZE: dict[str, Any] = {"channels": 4, "users": 2, "dimension": 3}


@pytest.mark.parametrize(
    ("policy", "given", "message"),
    [
        ("mp-ubc", {}, "unknown policy 'mp-ubc': did you mean 'mp-ucb'?"),
        (5, {}, "policy = 5: must be a name"),
        ("mp-lucb", {"betta": 1.0}, "unknown setting or parameter 'betta' of the policy: did you mean 'beta'?"),
        (
            "mp-lucb", {"collision_limt": 0.1},
            "unknown setting or parameter 'collision_limt' of the policy: did you mean 'collision_limit'?",
        ),
        ("mp-ucb", {"beta": 1.0}, "unknown setting or parameter 'beta' of the policy"),
        ("mp-lucb", {"beta": -1.0}, "policy mp-lucb: beta = -1.0: must be a finite number of at least 0"),
        ("mp-lucb", {"parameters": {"betta": 1.0}}, "unknown parameter 'betta' of policy mp-lucb"),
        ("mp-lucb", {"parameters": {"beta": 1.0}, "beta": 2.0}, "parameters"),
        ("mp-lucb", {"parameters": 5}, "parameters = 5: must be"),
        ("mp-lucb", {"parameters": ["beta"]}, "parameters = ['beta']: must be"),
        ("mp-ucb", {"channels": None}, "channels: must be given"),
        ("mp-ucb", {"channels": 0}, "channels = 0: must be"),
        ("mp-ucb", {"channels": 10_001}, "channels = 10001: must be"),
        ("mp-ucb", {"users": 0}, "users = 0: must be a whole number from 1 to 4"),
        ("mp-ucb", {"users": 5}, "users = 5: must be a whole number from 1 to 4"),
        ("mp-ucb", {"users": True}, "users = True: must be"),
        ("mp-ucb", {"dimension": -1}, "dimension = -1: must be a whole number from 0"),
        ("mp-lucb", {"dimension": 0}, "dimension = 0: must be a whole number from 1"),
        ("mp-lucb", {"dimension": None}, "dimension: must be given"),
        ("mp-ucb", {"dimension": None, "fallback": "mp-lucb"}, "dimension: must be given"),
        ("mp-ucb", {"dimension": None, "incumbent": "mp-lucb"}, "dimension: must be given"),
        ("mp-ucb", {"channel_names": ["a", "b"]}, "channel_names: has 2 names for 4 channels"),
        ("mp-ucb", {"channel_names": ["a", "b", "a", "c"]}, "channel_names = 'a': is given twice"),
        ("mp-ucb", {"channel_names": ["a", "b", "c", "3"]}, "channel_names = '3': must be"),
        ("mp-ucb", {"feedback": "none"}, "feedback = 'none': must be one of reward, perturbation"),
        ("mp-ucb", {"feedback": 1}, "feedback = 1: must be"),
        ("mp-ucb", {"rewards": (1.0, 0.1)}, "rewards = (1.0, 0.1): must be two numbers, the smaller one first"),
        ("mp-ucb", {"rewards": (1.0, 1.0)}, "rewards = (1.0, 1.0): must be"),
        ("mp-ucb", {"rewards": (0.0, 0.5, 1.0)}, "rewards = "),
        ("mp-ucb", {"rewards": 1.0}, "rewards = 1.0: must be a list"),
        ("mp-ucb", {"rewards": (0.0, float("inf"))}, "rewards = inf: must be a number"),
        ("mp-ucb", {"seed": -1}, "seed = -1: must be"),
        ("mp-ucb", {"replication": -1}, "replication = -1: must be"),
        ("mp-ucb", {"patience": 0}, "patience = 0: must be a whole number from 1 to 762600"),
        ("mp-ucb", {"patience": 1.5}, "patience = 1.5: must be"),
        ("mp-ucb", {"deadline": 0.0}, "deadline = 0.0: must be a number above 0 and at most 3600"),
        ("mp-ucb", {"deadline": -1.0}, "deadline = -1.0: must be"),
        ("mp-ucb", {"deadline": "soon"}, "deadline = 'soon': must be"),
        ("mp-ucb", {"deadline": float("nan")}, "deadline = nan: must be"),
        ("mp-ucb", {"collision_limit": 2.0}, "collision_limit = 2.0: must be a number of at least 0 and at most 1"),
        ("mp-ucb", {"collision_limit": -0.1}, "collision_limit = -0.1: must be"),
        ("mp-ucb", {"collision_limit": None}, "collision_limit = None: must be"),
        (
            "mp-ucb", {"fallback": "genie"},
            "fallback = 'genie': must be the name of a built-in policy that is not an oracle",
        ),
        ("mp-ucb", {"fallback": "oracle-static"}, "fallback = 'oracle-static': must be"),
        ("mp-ucb", {"fallback": None}, "fallback = None: must be"),
        ("mp-ucb", {"fallback": "mp-usb"}, "fallback: unknown policy 'mp-usb': did you mean 'mp-ucb'?"),
        ("mp-ucb", {"incumbent": "whittle"}, "incumbent = 'whittle': must be the name of a built-in policy"),
        ("mp-ucb", {"incumbent": 3}, "incumbent = 3: must be"),
        ("mp-ucb", {"source": "abc"}, "unknown setting or parameter 'source' of the policy"),
        ("oracle-belief", {}, "policy oracle-belief: needs a scenario, because it knows the true parameters"),
        ("genie", {}, "policy genie: needs a scenario"),
        ("oracle-belief", {"dimension": None}, "policy oracle-belief: needs a scenario"),
        (
            "mp-lucb", {"dimension": None},
            "dimension: must be given, unless a scenario defines it, because policy mp-lucb uses contexts",
        ),
        ("mp-ucb", {"channels": None}, "channels: must be given, unless a scenario defines it"),
        ("mp-ucb", {"sensing_errors": 0.1}, "sensing_errors = 0.1: must be a table of settings"),
        ("mp-ucb", {"sensing_errors": {"mised": 0.1}}, "unknown key 'mised' in sensing_errors: did you mean 'missed'?"),
        ("mp-ucb", {"sensing_errors": {"missed": 1.5}}, "sensing_errors.missed = 1.5: must be a number"),
        ("mp-ucb", {"sensing_errors": {"missed": "a"}}, "sensing_errors.missed = 'a': must be a number"),
        (
            "mp-ucb", {"sensing_errors": {"false_alarm": [0.1, 0.2]}},
            "sensing_errors.false_alarm: has 2 entries for 4 channels",
        ),
        (
            "mp-ucb", {"sensing_errors": {"missed": 0.5, "false_alarm": 0.5}},
            "sensing_errors, channel 0: missed + false_alarm = 1; must be below 1",
        ),
        ("mp-ucb", {"switching_cost": -1.0}, "switching_cost = -1.0: must be a number"),
        ("mp-ucb", {"switching_cost": "low"}, "switching_cost = 'low': must be a number"),
        ("mp-ucb", {"scenario": "S1"}, "channels = 4: must be left out; the scenario defines it"),
        ("mp-ucb", {"scenario": "S9"}, "unknown scenario 'S9'"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(policy: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError) as caught:
        ib.Allocator(policy, **{**SIZE, **given})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("users", 3),
        ("dimension", 3),
        ("feedback", "reward"),
        ("rewards", (0.0, 1.0)),
        ("sensing_errors", {"missed": 0.1}),
        ("switching_cost", 0.1),
    ],
)
def test_settings_that_the_scenario_defines_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ib.InputError, match=f"^{key} = .*: must be left out; the scenario defines it"):
        ib.Allocator("mp-ucb", scenario="S1", **{key: value})


def test_fallback_and_incumbent_must_be_built_in_policies(tmp_path: Path) -> None:
    """A fallback or incumbent is not supervised."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    ib.policy(f"{path}:mine")
    for key in ("fallback", "incumbent"):
        for value in (f"{path}:mine", "mine"):
            with pytest.raises(ib.InputError, match=f"^{key} = .*: must be the name of a built-in policy"):
                ib.Allocator("mp-ucb", **SIZE, **{key: value})


def test_default_settings() -> None:
    settings = Settings.checked({"policy": "mp-lucb", **SIZE, "beta": 0.5})
    assert (settings.feedback, settings.rewards, settings.fallback, settings.collision_limit) == (
        "reward", (0.1, 1.0), "mp-ucb", 1.0,
    )  # fmt: skip
    assert (settings.deadline, settings.incumbent, settings.scenario, settings.source) == (None, None, None, None)
    assert (settings.patience, settings.seed, settings.replication) == (1000, 0, 0)
    assert settings.parameters == ib.policy("mp-lucb", beta=0.5).values
    assert settings.setup.measured is False
    assert Settings.checked({"policy": "mp-lucb", **SIZE, "feedback": "perturbation"}).setup.measured is True


def test_the_default_patience_is_shorter_for_large_contexts() -> None:
    """The decisions that are kept take up to 256 MiB with their contexts and explanations."""
    many = {"channels": 10_000, "users": 2, "dimension": 1000}
    assert Settings.checked({"policy": "mp-ucb", **many}).patience == 3
    with pytest.raises(ib.InputError, match=r"^patience = 4: must be a whole number from 1 to 3"):
        Settings.checked({"policy": "mp-ucb", **many, "patience": 4})


def test_rewards_define_the_setup() -> None:
    known = Settings.checked({"policy": "mp-ucb", **SIZE, "rewards": [-2, 3]}).setup
    assert (known.low, known.high, known.span, known.h_span) == (-2.0, 3.0, 5.0, 5.0)
    assert known.h.tolist() == [[-2.0, 3.0]] * 4
    assert known.good.tolist() == [[False, True]] * 4
    assert Settings.checked({"policy": "mp-ucb", **SIZE, "rewards": (0.4, 0.6)}).setup.span == 1.0  # as in a scenario


def test_sensing_errors_and_switching_cost_reach_the_setup() -> None:
    given = {**SIZE, "sensing_errors": {"missed": [0.1, 0.2, 0.3, 0.4], "false_alarm": 0.05}, "switching_cost": 0.02}
    settings = Settings.checked({"policy": "mp-ucb", **given})
    assert settings.sensing_errors == given["sensing_errors"]
    assert settings.setup.missed.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert settings.setup.false_alarm.tolist() == [0.05] * 4
    assert settings.setup.switching_cost == 0.02
    again = Settings.restored(json.loads(json.dumps(settings.to_dict())))
    assert again.to_dict() == settings.to_dict()
    assert settings.difference(Settings.checked({"policy": "mp-ucb", **SIZE})).startswith("sensing_errors = {")


def test_settings_of_earlier_versions_have_no_sensing_errors() -> None:
    data = Settings.checked({"policy": "mp-ucb", **SIZE}).to_dict()
    del data["sensing_errors"], data["switching_cost"]
    settings = Settings.restored(data)
    assert (settings.sensing_errors, settings.switching_cost) == (None, 0.0)
    assert settings.difference(Settings.checked({"policy": "mp-ucb", **SIZE})) == ""
    with_cost = Settings.checked({"policy": "mp-ucb", **SIZE, "switching_cost": 0.1})
    assert settings.difference(with_cost) == "switching_cost = 0.0, not 0.1"


def test_a_trace_as_scenario_must_be_in_a_file(tmp_path: Path) -> None:
    trace = ib.Trace.from_arrays(busy=np.arange(40).reshape(20, 2) % 3 == 0)
    with pytest.raises(ib.InputError, match=r"^scenario\.trace: is only in memory; save it with Trace\.save"):
        ib.Allocator("mp-ucb", scenario=ib.scenario(trace, users=1))
    trace.save(tmp_path / "trace.parquet")
    settings = Settings.checked({"policy": "mp-ucb", "scenario": ib.scenario(tmp_path / "trace.parquet", users=1)})
    data = json.loads(json.dumps(settings.to_dict(), allow_nan=False))
    assert data["scenario"]["trace"]["file"] == str(tmp_path / "trace.parquet")
    assert Settings.restored(data).to_dict() == settings.to_dict()
    (tmp_path / "trace.parquet").unlink()
    with pytest.raises(ib.InputError, match=r"trace\.parquet: cannot be read: No such file"):
        Settings.restored(data)


def test_a_scenario_defines_the_setup() -> None:
    world = ib.scenario("S2", feedback="reward", sensing_errors={"missed": 0.1, "false_alarm": 0.2}, switching_cost=0.3)
    settings = Settings.checked({"policy": "mp-lucb", "scenario": world})
    assert (settings.channels, settings.users, settings.dimension) == (world.K, world.users, world.dimension)
    assert settings.feedback == "reward"
    assert (settings.sensing_errors, settings.switching_cost) == ({"missed": 0.1, "false_alarm": 0.2}, 0.3)
    for ours, theirs in zip(settings.setup, setup_of(world, ()), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    "given", [{**SIZE, "policy": "mp-lucb", "shared": True}, {"policy": "genie", "scenario": "S3"}]
)
def test_settings_are_restored_from_json(given: dict[str, Any]) -> None:
    settings = Settings.checked({**given, "deadline": 2, "seed": 7, "collision_limit": 0.25, "incumbent": "mp-ts"})
    data = json.loads(json.dumps(settings.to_dict(), allow_nan=False))
    assert Settings.restored(data).to_dict() == settings.to_dict()


def test_a_policy_is_accepted_by_name_file_class_and_configured(tmp_path: Path) -> None:
    """Parameters are given as keywords, in the configured policy or in the text."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    by_file = ib.Allocator(f"{path}:mine", **SIZE, first=2)
    assert by_file.decide(np.zeros((4, 3))).channels == (2, 3)
    assert by_file.settings.policy == f"{path}:mine"
    assert ib.Allocator(ib.policy("mine", first=1), **SIZE).decide(np.zeros((4, 3))).channels == (1, 2)
    assert ib.Allocator(ib.policy("mine", first=1), **SIZE, first=2).decide(np.zeros((4, 3))).channels == (2, 3)
    with pytest.raises(ib.InputError, match="policy mine: first = -1: must be a whole number of at least 0"):
        ib.Allocator("mine", **SIZE, first=-1)
