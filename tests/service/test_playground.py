"""The playground: runs in processes of their own, which end with the run or with whoever looks at it."""

import contextlib
import http.client
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from idleband.policies.registry import POLICIES
from idleband.service import playground
from tests.service.running import LONG, InThread, eventually, in_thread

SHORT = {"scenario": "S1", "policies": [{"name": "mp-ucb"}], "horizon": 100, "replications": 2}
# Slots enough for minutes: it ends because somebody leaves.
LONGER = {**SHORT, "horizon": 10**6, "replications": 10}


def path(settings: Any) -> str:
    return f"/playground/run?settings={quote(json.dumps(settings))}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("playground")) as running:
        yield running


@contextlib.contextmanager
def looking(service: InThread, settings: Any) -> Iterator[http.client.HTTPResponse]:
    """A run's stream, until it is left."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=LONG)
    with contextlib.closing(connection):
        connection.request("GET", path(settings))
        reply = connection.getresponse()
        with contextlib.closing(reply):
            yield reply


def messages(text: bytes) -> list[dict[str, Any]]:
    parts = text.decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def running(service: InThread) -> list[int]:
    return service.within(lambda: [process.pid for process in service.service.playground._running])


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_run_to_its_end(service: InThread) -> None:
    reply = service.get(path(SHORT))
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    said = messages(reply.text)
    assert [one["kind"] for one in said[:2]] == ["preparing", "progress"]
    assert said[-1] == {"kind": "end"}
    points = [one for one in said if one["kind"] == "point"]
    assert points[-1]["t"] == SHORT["horizon"]
    assert (points[-1]["done"], list(points[-1]["curves"])) == (1.0, ["mp-ucb"])
    assert [one["done"] for one in points] == sorted(one["done"] for one in points)
    eventually(lambda: not running(service))


BAD = {
    "no scenario of ours": {"scenario": "S99"},
    "a scenario's file": {"scenario": "/etc/passwd"},
    "no model of ours": {"perturbation": "none-such"},
    "no policy": {"policies": []},
    "too many policies": {"policies": [{"name": "mp-ucb", "parameters": {"L": i / 10}} for i in range(1, 8)]},
    "no policy of ours": {"policies": [{"name": "mp-nothing"}]},
    "somebody's own policy": {"policies": [{"name": "file.py:mine"}]},
    "a policy twice": {"policies": [{"name": "mp-ucb"}, {"name": "mp-ucb"}]},
    "a parameter out of its range": {"policies": [{"name": "mp-ucb", "parameters": {"L": -1}}]},
    "no users": {"users": 0},
    "too many users": {"users": 11},
    "too few slots": {"horizon": 9},
    "too many slots": {"horizon": 10**6 + 1},
    "half a slot": {"horizon": 10.5},
    "too much work": {
        "horizon": 10**6, "replications": 10, "policies": [{"name": name} for name in ("mp-ucb", "mp-ts", "rca-m")],
    },
    "too many replications": {"replications": 11},
    "a seed below none": {"seed": -1},
    "an unknown setting": {"colour": "red"},
}  # fmt: skip


@pytest.mark.parametrize("changed", BAD.values(), ids=BAD)
def test_bad_settings(service: InThread, changed: dict[str, Any]) -> None:
    reply = service.get(path({**SHORT, **changed}))
    assert reply.status == 400
    assert reply.reason
    assert not running(service)


@pytest.mark.parametrize("settings", ["", "{", "%ff", "%ed%a0%80", "null", "[" * 5000, "%00"])
def test_settings_that_are_not_even_json(service: InThread, settings: str) -> None:
    assert service.get(f"/playground/run?settings={settings}").status == 400


def test_who_leaves_ends_the_run(service: InThread) -> None:
    with looking(service, LONGER) as reply:
        assert reply.readline().startswith(b"data: ")
        (pid,) = running(service)
        assert not gone(pid)
    eventually(lambda: gone(pid))
    eventually(lambda: not running(service))


def test_two_at_once_and_not_more(service: InThread) -> None:
    for _ in range(2):  # and again, when those have left
        with contextlib.ExitStack() as both:
            for _ in range(playground.AT_ONCE):
                reply = both.enter_context(looking(service, LONGER))
                assert reply.status == 200
                assert reply.readline()
            assert len(running(service)) == playground.AT_ONCE
            more = service.get(path(SHORT))
            assert (more.status, more.headers["retry-after"]) == (429, "5")
            assert more.reason
        eventually(lambda: not running(service))


def test_a_run_that_takes_too_long(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground, "LONGEST", 0.5)
    said = messages(service.get(path(LONGER)).text)
    assert said[-1]["kind"] == "error"
    assert "too long" in said[-1]["detail"]
    eventually(lambda: not running(service))


def test_the_end_of_the_service_ends_its_runs(tmp_path: Path) -> None:
    """At once: it does not wait for whoever looks."""
    service = InThread(tmp_path)
    with looking(service, LONGER) as reply:
        assert reply.readline()
        (pid,) = running(service)
        began = time.monotonic()
        service.close()
        assert gone(pid)
        assert time.monotonic() - began < 4


def test_channels_are_handed_out_meanwhile(service: InThread) -> None:
    with looking(service, LONGER) as reply:
        assert reply.readline()
        assert service.decide("meanwhile").status == 200
        (pid,) = running(service)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 10
    eventually(lambda: not running(service))


def test_options(service: InThread) -> None:
    options = service.get("/playground/options").data
    assert [one["name"] for one in options["policies"]] == [n for n, one in POLICIES.items() if one.source is None]
    assert {"S1", "S2"} <= set(options["scenarios"])
    assert "linear" in options["perturbations"]
    (ucb,) = (one for one in options["policies"] if one["name"] == "mp-ucb")
    assert [(p["name"], p["default"], p["kind"]) for p in ucb["parameters"]] == [("L", 1.5, "float")]
