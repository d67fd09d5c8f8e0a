"""A playground run gives the numbers of `simulate` at the same checkpoints."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import idleband as ib
from idleband.scenario.presets import PRESETS
from idleband.service import playground_slots, playground_worker
from idleband.service.playground_settings import PlaygroundSettings, PolicyChoice, offered_traces
from idleband.service.playground_worker import run
from idleband.simulation.statistics import student_t
from idleband.simulation.users_run import UsersRun, start_run

POLICIES = ("mp-ucb", "mp-random")  # quick to compile
UCB = [PolicyChoice("mp-ucb")]


def messages_of(settings: PlaygroundSettings, traces: Any = None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    run(settings, messages.append, traces)
    return messages


@pytest.mark.parametrize("replications", [1, 3])
def test_rewards_regrets_and_differences_equal_those_of_simulate(replications: int) -> None:
    choices = [PolicyChoice(name) for name in POLICIES]
    messages = messages_of(
        PlaygroundSettings(scenario="S2", users=4, policies=choices, horizon=300, replications=replications, seed=7)
    )
    points = [message for message in messages if message["kind"] == "point"]
    results = {
        name: ib.simulate(ib.scenario("S2", users=4), name, horizon=300, replications=replications, seed=7)
        for name in POLICIES
    }

    def check(found: list[float], values: Any) -> None:
        mean, half = student_t(values)
        assert found == pytest.approx([float(mean), float(half) if replications > 1 else 0.0], rel=1e-12, abs=1e-12)

    for name, result in results.items():
        assert [point["t"] for point in points] == result.t.tolist()
        for c, point in enumerate(points):
            measures = point["curves"][name]
            check(measures["reward"], result.reward[:, c] / point["t"])
            check(measures["static"], result.regret("static")[:, c])
            check(measures["contextual"], result.regret("contextual")[:, c])
    first, second = (results[name].reward for name in POLICIES)
    for c, point in enumerate(points):
        (difference,) = point["differences"]
        assert (difference["of"], difference["from"]) == POLICIES
        check(difference["reward"], (first - second)[:, c] / point["t"])
    assert [message["policy"] for message in messages if message["kind"] == "preparing"] == list(POLICIES)
    assert messages[-1] == {"kind": "end"}


def test_progress_increases_to_one() -> None:
    messages = messages_of(PlaygroundSettings(policies=UCB, horizon=200, replications=2))
    done = [message["done"] for message in messages if "done" in message]
    assert done == sorted(done)
    assert done[-1] == 1.0


def test_channels_of_the_preset_given_explicitly_change_nothing() -> None:
    preset = PRESETS["S1"]
    same = PlaygroundSettings(
        policies=UCB, horizon=100, channels=10, p01=list(preset.p01), p10=list(preset.p10), replications=1
    )
    assert messages_of(same) == messages_of(PlaygroundSettings(policies=UCB, horizon=100, replications=1))


ALONE: dict[str, Any] = {"coordination": "none", "policies": [PolicyChoice("user-random"), PolicyChoice("mp-random")]}


def test_slots_of_users_are_those_of_the_first_replication() -> None:
    settings = PlaygroundSettings(
        **ALONE, scenario="S4", users=4, horizon=150, replications=2, seed=3, mean_stay=20, mean_absence=10
    )
    messages = messages_of(settings)
    (begin,) = (one for one in messages if one["kind"] == "users")
    assert (begin["users"], begin["slots"], len(begin["channels"])) == (4, 150, 10)
    assert (begin["policies"], begin["references"]) == (["user-random"], ["mp-random"])

    found = [one for one in messages if one["kind"] == "slots"]
    assert [one["first"] for one in found] == [1, *(one["last"] + 1 for one in found[:-1])]
    assert found[-1]["last"] == 150

    users = {"count": 4, "coordination": "none", "mean_stay": 20, "mean_absence": 10}
    scenario = ib.scenario("S4", users=users)
    run, reference = (start_run(scenario, ib.policy(name), 150, 3, 0) for name in ("user-random", "mp-random"))
    assert isinstance(run, UsersRun)
    absent = 0
    for message in found:
        slots, earned = message["policies"]["user-random"], message["references"]["mp-random"]
        for i, t in enumerate(range(message["first"], message["last"] + 1)):
            before, other = run.tally.now.copy(), reference.tally.now[0]
            run.to(t)
            reference.to(t)
            good = run.path.good[np.arange(10), run.path.s]
            assert message["busy"][i] == "".join("01"[not one] for one in good)
            assert message["present"][i] == "".join("01"[int(one)] for one in run.presence.present)
            assert slots["picks"][i] == run.tally.picks.tolist()
            assert sum(slots["rewards"][i]) == pytest.approx(run.tally.now[0] - before[0], abs=1e-6)
            assert earned[i] == pytest.approx(reference.tally.now[0] - other, abs=1e-6)
            assert slots["switches"][i] == run.tally.now[6] - before[6]
            absent += message["present"][i].count("0")
    assert absent > 0


def test_collisions_of_users_equal_those_of_simulate() -> None:
    settings = PlaygroundSettings(**ALONE, perturbation="none", horizon=200, replications=3)
    messages = messages_of(settings)
    last = [message for message in messages if message["kind"] == "point"][-1]
    scenario = ib.scenario("S1", perturbation="none", users={"coordination": "none"})
    result = ib.simulate(scenario, "user-random", horizon=200, replications=3)
    assert result.users is not None
    assert list(last["users"]) == ["user-random"]
    found = last["users"]["user-random"]
    for name, values in (
        ("collisions", result.users.collisions.sum(axis=1)),
        ("switches", result.users.switches / 200),
        ("messages", result.users.messages / 200),
    ):
        mean, half = student_t(values)
        assert found[name] == pytest.approx([float(mean), float(half)], rel=1e-12, abs=1e-12), name
    assert found["last_collision"] == result.users.last_collision.tolist()
    assert last["curves"]["user-random"]["reward"][0] == pytest.approx(result.reward[:, -1].mean() / 200, rel=1e-12)
    (bound,) = (one["reward"] for one in messages if one["kind"] == "bound")
    assert bound == pytest.approx(float((result.regret("bound") + result.reward)[0, -1] / 200), rel=1e-9)


def test_no_upper_bound_where_users_leave_and_no_slots_with_a_base_station() -> None:
    short = {"horizon": 10, "replications": 1}
    messages = messages_of(PlaygroundSettings(**ALONE, **short, mean_stay=20, mean_absence=10))
    assert [one["reward"] for one in messages if one["kind"] == "bound"] == [None]
    with_station = messages_of(PlaygroundSettings(policies=UCB, **short))
    assert not {"users", "slots", "bound"} & {one["kind"] for one in with_station}
    assert "present" not in next(
        one for one in messages_of(PlaygroundSettings(**ALONE, **short)) if one["kind"] == "slots"
    )


def test_recorded_slots_are_limited_by_users_and_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 policies of 4 users and 10 channels: 18 entries per slot."""
    monkeypatch.setattr(playground_slots, "MAX_ENTRIES", 18 * 30)
    monkeypatch.setattr(playground_slots, "ENTRIES_PER_MESSAGE", 18 * 7)
    messages = messages_of(PlaygroundSettings(**ALONE, users=4, horizon=1000, replications=1))
    found = [one for one in messages if one["kind"] == "slots"]
    assert found[-1]["last"] == 30
    assert max(one["last"] - one["first"] + 1 for one in found) <= 7
    assert [one for one in messages if one["kind"] == "point"][-1]["t"] == 1000


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    """The worker gets the path of the file as its second argument."""
    busy = np.random.default_rng(1).random((80, 3)) < [0.2, 0.5, 0.8]
    ib.Trace.from_arrays(busy=busy).save(tmp_path / "band.parquet")
    settings = PlaygroundSettings(
        scenario="band", perturbation="none", users=2, policies=UCB, replications=2, sensing_errors=0.2
    )
    done = subprocess.run(
        [sys.executable, "-m", "idleband.service.playground_worker", msgspec.json.encode(settings),
         tmp_path / "band.parquet"],
        capture_output=True, text=True,
    )  # fmt: skip
    messages = list(map(json.loads, done.stdout.splitlines()))
    assert messages == messages_of(settings, offered_traces([tmp_path / "band.parquet"]))
    points = [message for message in messages if message["kind"] == "point"]
    assert points[-1]["t"] == 80
    assert points[-1]["intervals"] == "block bootstrap over 20 blocks of one recording"
    assert points[0]["intervals"] == "2 blocks of one recording, no interval"
    errors = {"missed": 0.2, "false_alarm": 0.2}
    scenario = ib.scenario(tmp_path / "band.parquet", users=2, sensing_errors=errors)
    result = ib.simulate(scenario, "mp-ucb", horizon=80, replications=2)
    assert points[-1]["curves"]["mp-ucb"]["reward"][0] == pytest.approx(result.reward[:, -1].mean() / 80, rel=1e-12)


def test_run_above_the_memory_limit_ends_with_an_error() -> None:
    """Ten networks of about a gigabyte each."""
    large = PlaygroundSettings(policies=[PolicyChoice("mp-nucb", {"D": 40, "L": 4})], replications=10)
    done = subprocess.run(
        [sys.executable, "-m", "idleband.service.playground_worker", msgspec.json.encode(large)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "kind": "error",
        "detail": "the run was stopped: it needs more than 3 GiB of memory",
    }


@pytest.mark.parametrize(
    "settings", ['{"policies": [{"name": "mp-nothing"}]}', "nonsense", '{"policies": 1}', '{"policies": []}']
)
def test_invalid_settings_end_with_an_error_message(
    settings: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["playground_worker", settings])
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)  # would limit the test process
    playground_worker.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["kind"] == "error"
