"""A run of the playground is a simulation like any other: the same numbers at the same checkpoints."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest

import idleband as ib
from idleband.service import playground_worker
from idleband.service.playground_worker import Chosen, Trial, run
from idleband.simulation.statistics import student_t

POLICIES = ("mp-ucb", "mp-random")


def test_a_run_that_needs_too_much_memory() -> None:
    """Networks of a gigabyte each: it is told, and the machine is left some."""
    large = Trial(policies=[Chosen("mp-nucb", {"D": 40, "L": 4})], replications=10)
    done = subprocess.run(
        [sys.executable, "-m", "idleband.service.playground_worker", msgspec.json.encode(large)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "kind": "error",
        "detail": "it needs more than 3 GiB of memory, and was stopped",
    }


@pytest.mark.parametrize("replications", [1, 3])
def test_the_numbers_are_those_of_simulate(replications: int) -> None:
    said: list[dict[str, Any]] = []
    run(
        Trial(
            scenario="S2", users=4, policies=[Chosen(name) for name in POLICIES], horizon=3000,
            replications=replications, seed=7,
        ),
        said.append,
    )  # fmt: skip
    points = [one for one in said if one["kind"] == "point"]
    world = ib.scenario("S2", users=4)
    for name in POLICIES:
        result = ib.simulate(world, name, horizon=3000, replications=replications, seed=7)
        assert [point["t"] for point in points] == result.t.tolist()
        for c, point in enumerate(points):
            of = point["curves"][name]
            for kind, values in (
                ("static", result.regret("static")[:, c]),
                ("contextual", result.regret("contextual")[:, c]),
                ("reward", result.reward[:, c] / point["t"]),
            ):
                mean, half = student_t(values)
                expected = [mean, half if replications > 1 else 0.0]
                np.testing.assert_allclose(of[kind], expected, rtol=1e-12, atol=1e-12)
    assert [one["policy"] for one in said if one["kind"] == "preparing"] == list(POLICIES)
    assert said[-1] == {"kind": "end"}


def test_progress_goes_up_to_the_end() -> None:
    said: list[dict[str, Any]] = []
    run(Trial(policies=[Chosen("mp-ucb")], horizon=500, replications=2), said.append)
    done = [one["done"] for one in said if "done" in one]
    assert done == sorted(done)
    assert done[-1] == 1.0


@pytest.mark.parametrize(
    "given", ['{"policies": [{"name": "mp-nothing"}]}', "nonsense", '{"policies": 1}', '{"policies": []}']
)
def test_what_is_wrong_is_said_in_the_stream(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["trial", given])
    playground_worker.main()
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["kind"] == "error"
