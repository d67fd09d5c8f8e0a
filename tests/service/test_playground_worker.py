"""A playground run gives the numbers of `simulate` at the same checkpoints."""

import json
import resource
import subprocess
import sys
from typing import Any

import msgspec
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.scenario.presets import PRESETS
from idleband.service import playground_worker
from idleband.service.playground_worker import PlaygroundSettings, PolicyChoice, build, run
from idleband.simulation.statistics import student_t

POLICIES = ("mp-ucb", "mp-random")  # quick to compile
UCB = [PolicyChoice("mp-ucb")]


def messages_of(settings: PlaygroundSettings) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    run(settings, messages.append)
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
    scenario, _ = build(PlaygroundSettings(policies=UCB, users=1, **changes))
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
        build(PlaygroundSettings(policies=UCB, **changes))
    assert str(refused.value).startswith(start)
    assert len(str(refused.value).splitlines()) == 1


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
