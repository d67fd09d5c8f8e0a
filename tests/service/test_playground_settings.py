"""Settings of the playground: the scenarios that follow from them, and what is refused."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.policies.registry import DECENTRALISED, POLICIES
from idleband.scenario.presets import PRESETS
from idleband.service.playground_options import options
from idleband.service.playground_settings import (
    OfferedTrace,
    PlaygroundRun,
    PlaygroundSettings,
    PolicyChoice,
    build,
    check,
    offered_traces,
)

UCB = [PolicyChoice("mp-ucb")]
OF_USERS = [name for name, one in DECENTRALISED.items() if one.source is None]  # other tests register their own


def of(traces: dict[str, OfferedTrace] | None = None, /, **changes: Any) -> PlaygroundRun:
    """Build the run that a client's settings describe."""
    settings = msgspec.convert({"policies": [{"name": "mp-ucb"}], **changes}, PlaygroundSettings)
    return build(settings, traces or {})


# --- channels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_without_changes_is_that_of_the_package(preset: str) -> None:
    run = of(scenario=preset, users=3, perturbation="cosine")
    assert run.scenario == ib.scenario(preset, users=3, perturbation="cosine")
    assert run.horizon == 20_000


@pytest.mark.parametrize(
    ("changes", "p01", "p10"),
    [
        ({"channels": 3, "p01": 0.2, "p10": 0.4}, [0.2] * 3, [0.4] * 3),
        ({"p01": [0.1, 0.2], "p10": 0.5}, [0.1, 0.2], [0.5] * 2),
        ({"channels": 2, "p01": 0.3, "p10": [0.5, 1]}, [0.3] * 2, [0.5, 1.0]),
        ({"p01": 0.5}, [0.5] * 10, list(PRESETS["S1"].p10)),
    ],
    ids=["one value each", "list and value", "value and list", "p10 of the preset"],
)
def test_channels_and_probabilities_can_be_set(changes: dict[str, Any], p01: list[float], p10: list[float]) -> None:
    scenario = of(users=1, **changes).scenario
    assert len(p01) == scenario.K
    assert [float(P[0, 1]) for P in scenario.transition] == p01
    assert [float(P[1, 0]) for P in scenario.transition] == p10


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"channels": 3, "p01": [0.1, 0.2], "p10": 0.1, "users": 1}, "p01: has 2 values; must be one value, or 3,"),
        ({"channels": 3, "p01": 0.1, "users": 1}, "p10: has 10 values; must be one value, or 3,"),
        ({"channels": 3, "p01": 0.1, "p10": 0.1, "users": 4}, "users = 4: must be at most 3,"),
        ({"users": 11}, "users = 11: must be at most 10,"),
        ({"p01": 0.0}, "scenario.p01"),
        ({"p10": [0.1] * 9 + [1.5]}, "scenario.p10"),
        ({"channels": 50, "p01": 0.1, "p10": 0.1, "horizon": 10**6, "replications": 5}, "horizon = 1000000: 5,000,000"),
    ],
)
def test_bad_channels_are_refused_in_one_line(changes: dict[str, Any], start: str) -> None:
    with pytest.raises(InputError) as refused:
        of(**changes)
    assert str(refused.value).startswith(start)
    assert len(str(refused.value).splitlines()) == 1


# --- dwell times, sensing errors, shocks, regime change ---------------------------------------------------------------


def test_dwell_times_keep_the_means_of_the_chains() -> None:
    for dwell, kind in (("bursty", "weibull"), ("regular", "negative-binomial")):
        scenario = of(scenario="S1", dwell=dwell).scenario
        assert scenario.dwell is not None
        assert {one.kind for one in (*scenario.dwell.good, *scenario.dwell.bad)} == {kind}
        assert [one.mean for one in scenario.dwell.bad] == pytest.approx([1 / p for p in PRESETS["S1"].p01], rel=0.02)
        assert [one.mean for one in scenario.dwell.good] == pytest.approx([1 / p for p in PRESETS["S1"].p10], rel=0.02)
        assert scenario.channel_names == PRESETS["S1"].channel_names


def test_one_probability_is_used_for_both_sensing_errors() -> None:
    errors = of(sensing_errors=0.1).scenario.sensing_errors
    assert errors is not None
    assert (set(errors.missed), set(errors.false_alarm)) == ({0.1}, {0.1})
    assert of(sensing_errors=0).scenario.sensing_errors is None


def test_noise_of_the_perturbation() -> None:
    for kind in ("linear", "quadratic", "cosine"):
        perturbation = of(perturbation=kind, noise=0.5).scenario.perturbation
        assert (perturbation.kind, perturbation.noise, perturbation.clear) == (kind, 0.5, 0.7)
    assert of(noise=0).scenario.perturbation == of(scenario="S1").scenario.perturbation


def test_regimes_change_in_the_middle_of_the_run() -> None:
    run = of(scenario="S1", regime_change=True, shocks=True, horizon=1000)
    regimes, p01 = run.scenario.regimes, PRESETS["S1"].p01
    assert regimes is not None
    assert (regimes.p01, regimes.at) == ((p01, p01[::-1]), (501,))
    assert regimes.p10[1] == PRESETS["S1"].p10[::-1]
    assert run.scenario.shocks is not None
    assert of(regime_change=True).scenario.regimes.at == (10_001,)  # type: ignore[union-attr]


def test_settings_of_the_channels_can_be_combined() -> None:
    scenario = of(channels=3, p01=[0.1, 0.2, 0.3], p10=0.1, users=2, dwell="bursty", shocks=True).scenario
    assert (scenario.K, scenario.name) == (3, "S1-edited")
    assert scenario.dwell is not None
    assert scenario.shocks is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dwell": "weibull"}, "Invalid enum value 'weibull' - at `$.dwell`"),
        ({"sensing_errors": 0.31}, "Expected `float` <= 0.3 - at `$.sensing_errors`"),
        ({"sensing_errors": "some"}, "Expected `float`, got `str` - at `$.sensing_errors`"),
        ({"noise": 0.6}, "Expected `float` <= 0.5 - at `$.noise`"),
        ({"noise": 0.1, "perturbation": "none"}, "scenario.perturbation.noise: not used where kind is none"),
        ({"shocks": 1}, "Expected `bool`, got `int` - at `$.shocks`"),
        ({"regime_change": True, "dwell": "bursty"}, "regime_change: needs geometric dwell times; dwell is bursty"),
        ({"dwell": "bursty", "p01": 1e-12}, "scenario.dwell.bad.mean, channel 0 = "),
    ],
)
def test_invalid_channel_settings_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, msgspec.ValidationError)) as refused:
        of(**changes)
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


# --- users without a base station -------------------------------------------------------------------------------------

ALONE: dict[str, Any] = {"coordination": "none", "policies": [{"name": "mctopm"}]}


def test_users_without_a_base_station_are_those_of_the_scenario_settings() -> None:
    given = {"collision": "split", "observes": "collisions", "control_bits": 2, "mean_stay": 300, "mean_absence": 100.5}
    run = of(**ALONE, users=4, scenario="S2", **given)
    assert run.scenario == ib.scenario("S2", users={"count": 4, "coordination": "none", **given})
    assert of(**ALONE).scenario == ib.scenario("S1", users={"coordination": "none"})
    assert of(coordination="station").scenario == ib.scenario("S1")


def test_policies_of_a_base_station_stand_beside_those_of_users() -> None:
    run = of(coordination="none", policies=[{"name": "mp-ucb"}, {"name": "mctopm"}])
    assert [one.policy.decentralised for one in run.policies] == [False, True]


def test_every_decentralised_policy_runs_with_settings_that_it_allows() -> None:
    for name in OF_USERS:
        run = of(coordination="none", control_bits=8, policies=[{"name": name}])
        assert run.policies[0].policy.name == name


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"collision": "lost"}, "scenario.users.collision: not used with a base station"),
    ({"observes": "sensing"}, "scenario.users.observes: not used with a base station"),
    ({"control_bits": 0}, "scenario.users.control_bits: not used with a base station"),
    ({"mean_stay": 5.0}, "scenario.users.mean_stay: not used with a base station"),
    ({"policies": [{"name": "mctopm"}]}, "policy mctopm: is for users without a base station"),
    ({"coordination": "some"}, "scenario.users.coordination = 'some': must be"),
    ({**ALONE, "collision": "some"}, "scenario.users.collision = 'some': must be"),
    ({**ALONE, "observes": "rewards"}, "scenario.users.observes = 'rewards': policy mctopm needs"),
    ({**ALONE, "observes": "all"}, "scenario.users.observes = 'all': must be"),
    ({**ALONE, "control_bits": 65}, "scenario.users.control_bits = 65: must be"),
    ({**ALONE, "mean_stay": 5.0}, "scenario.users: give both mean_stay and mean_absence"),
    ({**ALONE, "mean_stay": 0.5, "mean_absence": 5.0}, "scenario.users.mean_stay = 0.5: must be"),
    ({**ALONE, "users": 11}, "users = 11: must be at most"),
    ({**ALONE, "policies": [{"name": "mp-ucb"}]}, "policies: without a base station at least one must be a policy of"),
    (
        {"coordination": "none", "users": 10, "horizon": 10**6, "replications": 10,
         "policies": [{"name": "mctopm"}, {"name": "mp-ucb"}]},
        "horizon = 1000000: 20,000,000 slots over all policies and replications; must be at most 10,000,000 with 10"
        " channels and 10 users without a base station",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), UNFIT)
def test_settings_that_do_not_fit_the_coordination_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """With a preset, and with a trace before it is read."""
    traces = offered_traces([save_trace(tmp_path / "b.parquet", channels=10)])
    for scenario in ("S1", "b"):
        settings = msgspec.convert(
            {"policies": [{"name": "mp-ucb"}], "scenario": scenario, **changes}, PlaygroundSettings
        )
        with pytest.raises(InputError) as refused:
            check(settings, traces)
        assert str(refused.value).startswith(message)
        assert len(str(refused.value).splitlines()) == 1


def test_users_without_a_base_station_on_a_trace(tmp_path: Path) -> None:
    traces = offered_traces([save_trace(tmp_path / "b.parquet")])
    scenario = of(traces, **ALONE, scenario="b", users=2, perturbation="none", control_bits=1).scenario
    assert scenario.recording is not None
    assert scenario.uncoordinated is not None
    assert (scenario.users, scenario.uncoordinated.control_bits) == (2, 1)


# --- traces ----------------------------------------------------------------------------------------------------------


def save_trace(path: Path, slots: int = 40, channels: int = 3) -> Path:
    busy = np.random.default_rng(1).random((slots, channels)) < 0.4
    ib.Trace.from_arrays(busy=busy, slot_s=0.5).save(path)
    return path


def test_a_trace_is_offered_by_the_name_of_its_file(tmp_path: Path) -> None:
    traces = offered_traces([save_trace(tmp_path / "LTE band (1).parquet"), save_trace(tmp_path / "b.parquet")])
    assert list(traces) == ["LTE-band-1", "b"]
    run = of(traces, scenario="LTE-band-1", users=2, perturbation="none", sensing_errors=0.1)
    assert (run.scenario.name, run.scenario.K, run.scenario.users, run.horizon) == ("LTE-band-1", 3, 2, 40)
    assert run.scenario.recording is not None
    assert run.scenario.sensing_errors is not None
    assert of(traces, scenario="b", users=3, horizon=10).horizon == 10


def test_options_contain_traces_without_their_paths(tmp_path: Path) -> None:
    found = options(offered_traces([save_trace(tmp_path / "b.parquet")]).values())
    assert msgspec.to_builtins(found.traces) == [
        {"name": "b", "channels": 3, "slots": 40, "slot_seconds": 0.5, "horizon": 40}
    ]
    assert str(tmp_path) not in msgspec.json.encode(found).decode()
    assert found.dwell == ["geometric", "bursty", "regular"]


def test_every_policy_of_the_package_is_offered() -> None:
    names = [one.name for one in options([]).policies]
    assert names == [name for name, one in POLICIES.items() if one.source is None]
    assert {"mp-adaptive", "mp-stay", "mp-lbt"} <= set(names)
    assert [one.name for one in options([]).decentralised] == OF_USERS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 4}, "users = 4: must be at most 3, the number of channels"),
        ({"channels": 3}, "channels: must be left out; the trace b defines the channels"),
        ({"p01": 0.1}, "p01: must be left out; the trace b defines the channels"),
        ({"dwell": "bursty"}, "dwell: must be left out; the trace b defines the states of the channels"),
        ({"shocks": True}, "shocks: must be left out"),
        ({"regime_change": True}, "regime_change: must be left out"),
        ({"perturbation": "loud"}, "perturbation = 'loud': must be one of none, linear"),
        ({"scenario": "c"}, "scenario = 'c': must be one of S1, S2, S3, S4, b"),
    ],
)
def test_settings_that_a_trace_defines_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    traces = offered_traces([save_trace(tmp_path / "b.parquet")])
    settings = msgspec.convert(
        {"policies": [{"name": "mp-ucb"}], "scenario": "b", "users": 2, **changes}, PlaygroundSettings
    )
    for found in (check, build):
        with pytest.raises(InputError) as refused:
            found(settings, traces)
        assert str(refused.value).startswith(message)


def test_work_is_limited_in_proportion_to_the_channels(tmp_path: Path) -> None:
    """A trace of 147 channels may run 10/147 of the slots that ten channels may."""
    traces = offered_traces([save_trace(tmp_path / "wide.parquet", channels=147)])
    assert of(traces, scenario="wide", users=100, horizon=136_000, replications=10).horizon == 136_000
    with pytest.raises(InputError, match=r"^horizon = 137000: 1,370,000 slots .* at most 1,360,544 with 147 channels"):
        of(traces, scenario="wide", horizon=137_000, replications=10)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.parquet", "none.parquet: cannot be read"),
        ("S1.parquet", "S1.parquet: the name 'S1' belongs to a preset; rename the file"),
        ("again/b.parquet", "the name 'b' belongs to another trace; rename the file"),
        ("text.parquet", "is not a trace file"),
        ("wide.parquet", "wide.parquet: has 1001 channels; the playground takes at most 1000"),
    ],
)
def test_bad_trace_files_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "again").mkdir()
    for good in ("b.parquet", "S1.parquet", "again/b.parquet"):
        save_trace(tmp_path / good)
    save_trace(tmp_path / "wide.parquet", slots=2, channels=1001)
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(InputError) as refused:
        offered_traces([tmp_path / "b.parquet", tmp_path / name])
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
