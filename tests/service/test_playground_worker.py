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
from idleband.service import playground_worker
from idleband.service.playground_settings import PlaygroundSettings, PolicyChoice, offered_traces
from idleband.service.playground_worker import run
from idleband.simulation.statistics import student_t

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
