"""Playground runs over HTTP: worker processes end with the run, with the client's connection, or with the service."""

import contextlib
import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import idleband as ib
from idleband.policies.registry import DECENTRALISED, POLICIES
from idleband.scenario.presets import PRESETS
from idleband.service import playground
from idleband.service.playground_settings import offered_traces
from tests.service.running import InThread, eventually, in_thread

TIMEOUT = 300.0  # seconds; only for what hangs: a busy machine must not fail a test
SHORT = {"scenario": "S1", "policies": [{"name": "mp-ucb"}], "horizon": 100, "replications": 2}
LONG = {**SHORT, "horizon": 10**6, "replications": 10}  # too long to end before the test ends it


def path(settings: Any) -> str:
    return f"/v1/playground/run?settings={quote(json.dumps(settings))}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("playground")) as running:
        yield running


@contextlib.contextmanager
def open_run(service: InThread, settings: Any) -> Iterator[http.client.HTTPResponse]:
    """The stream of a run; leaving the context closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request("GET", path(settings))
        response = connection.getresponse()
        with contextlib.closing(response):
            yield response


def messages(service: InThread, settings: Any) -> list[dict[str, Any]]:
    """All messages of a run."""
    with open_run(service, settings) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        parts = response.read().decode().split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") and "\n" not in part for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def worker_pids(service: InThread) -> list[int]:
    return service.within(lambda: [process.pid for process in service.service.playground._running])


def wait_for_no_workers(service: InThread) -> None:
    eventually(lambda: not worker_pids(service), within=TIMEOUT)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_run_streams_points_up_to_the_horizon(service: InThread) -> None:
    stream = messages(service, SHORT)
    assert [message["kind"] for message in stream[:2]] == ["preparing", "progress"]
    assert stream[-1] == {"kind": "end"}
    points = [message for message in stream if message["kind"] == "point"]
    assert points[-1]["t"] == SHORT["horizon"]
    assert (points[-1]["done"], list(points[-1]["curves"])) == (1.0, ["mp-ucb"])
    assert [point["done"] for point in points] == sorted(point["done"] for point in points)
    wait_for_no_workers(service)


BAD = {
    "unknown scenario": {"scenario": "S99"},
    "file as scenario": {"scenario": "/etc/passwd"},
    "unknown perturbation model": {"perturbation": "none-such"},
    "no policy": {"policies": []},
    "too many policies": {"policies": [{"name": "mp-ucb", "parameters": {"L": i / 10}} for i in range(1, 8)]},
    "unknown policy": {"policies": [{"name": "mp-nothing"}]},
    "policy from a file": {"policies": [{"name": "file.py:mine"}]},
    "policy given twice": {"policies": [{"name": "mp-ucb"}, {"name": "mp-ucb"}]},
    "parameter out of range": {"policies": [{"name": "mp-ucb", "parameters": {"L": -1}}]},
    "no users": {"users": 0},
    "more users than channels": {"users": 11},
    "no channels": {"channels": 0},
    "too many channels": {"channels": 51, "p01": 0.1, "p10": 0.1},
    "probability of zero": {"p01": 0},
    "probability above one": {"p10": [0.1] * 9 + [1.1]},
    "wrong number of probabilities": {"p01": [0.1] * 9},
    "too few slots": {"horizon": 9},
    "too many slots": {"horizon": 10**6 + 1},
    "horizon not whole": {"horizon": 10.5},
    "too much work": {
        "horizon": 10**6, "replications": 10, "policies": [{"name": name} for name in ("mp-ucb", "mp-ts", "rca-m")],
    },
    "too many replications": {"replications": 11},
    "unknown dwell times": {"dwell": "weibull"},
    "sensing errors above 0.3": {"sensing_errors": 0.5},
    "regime change with bursty dwell times": {"regime_change": True, "dwell": "bursty"},
    "negative seed": {"seed": -1},
    "policy of single users with a base station": {"policies": [{"name": "mctopm"}]},
    "collisions between users with a base station": {"collision": "split"},
    "no policy of single users without a base station": {"coordination": "none"},
    "observations that the policy needs are missing": {
        "coordination": "none", "observes": "rewards", "policies": [{"name": "mctopm"}],
    },
    "unknown setting": {"colour": "red"},
}  # fmt: skip


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_bad_settings_are_refused_with_one_line(service: InThread, changes: dict[str, Any]) -> None:
    reply = service.get(path({**SHORT, **changes}))
    assert reply.status == 400
    assert reply.detail
    assert not worker_pids(service)


@pytest.mark.parametrize("settings", ["", "{", "%ff", "%ed%a0%80", "null", "[" * 5000, "%00"])
def test_settings_that_are_not_json_are_refused(service: InThread, settings: str) -> None:
    assert service.get(f"/v1/playground/run?settings={settings}").status == 400


def test_disconnect_ends_the_run(service: InThread) -> None:
    with open_run(service, LONG) as response:
        assert response.readline().startswith(b"data: ")
        (pid,) = worker_pids(service)
        assert not has_ended(pid)
    eventually(lambda: has_ended(pid), within=TIMEOUT)
    wait_for_no_workers(service)


def test_decisions_are_served_during_runs_and_further_runs_are_refused(service: InThread) -> None:
    for _ in range(2):  # the second time, the places of the first runs are free again
        with contextlib.ExitStack() as runs:
            for _ in range(playground.MAX_RUNS):
                response = runs.enter_context(open_run(service, LONG))
                assert response.status == 200
                assert response.readline()
            pids = worker_pids(service)
            assert len(pids) == playground.MAX_RUNS
            assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} == {playground.NICENESS}
            refused = service.get(path(SHORT))
            assert (refused.status, refused.headers["retry-after"]) == (429, "5")
            assert refused.detail
            assert service.decide("during a run").status == 200
        wait_for_no_workers(service)


def test_run_is_stopped_at_the_time_limit(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground, "RUN_TIMEOUT", 0.1)
    last = messages(service, LONG)[-1]
    assert last == {"kind": "error", "detail": "the run was stopped: it took more than 0.1 seconds"}
    wait_for_no_workers(service)


def test_end_of_the_service_ends_its_runs(tmp_path: Path) -> None:
    """The service does not wait for clients that read a stream."""
    service = InThread(tmp_path)
    with open_run(service, LONG) as response:
        assert response.readline()
        (pid,) = worker_pids(service)
        service.close()
        assert has_ended(pid)


def test_a_trace_of_the_service_is_replayed(tmp_path: Path) -> None:
    """Clients give its name; the path is known to the service and to its worker only."""
    busy = np.random.default_rng(1).random((60, 147)) < 0.4
    ib.Trace.from_arrays(busy=busy).save(tmp_path / "wide.parquet")
    traces = offered_traces([tmp_path / "wide.parquet"])
    with in_thread(tmp_path / "data", traces=traces) as service:
        (offered,) = service.get("/v1/playground/options").data["traces"]
        assert (offered["name"], offered["channels"], offered["horizon"]) == ("wide", 147, 60)
        chosen = {"scenario": "wide", "perturbation": "none", "users": 100, "policies": [{"name": "mp-ucb"}]}
        stream = messages(service, chosen)
        assert stream[-1] == {"kind": "end"}
        assert [message["t"] for message in stream if message["kind"] == "point"][-1] == 60
        for changes, field in (
            ({"users": 148}, "users = 148"), ({"shocks": True}, "shocks: "),
            ({"scenario": str(tmp_path / "wide.parquet")}, "scenario = "), ({"horizon": 10**6}, "horizon = 1000000"),
        ):  # fmt: skip
            reply = service.get(path({**chosen, **changes}))
            assert (reply.status, reply.detail.startswith(field)) == (400, True)


def test_users_without_a_base_station_on_a_wide_trace(tmp_path: Path) -> None:
    """Messages with the slots of 300 users on 1000 channels are longer than the default limit of a line."""
    busy = np.random.default_rng(1).random((30, 1000)) < 0.4
    ib.Trace.from_arrays(busy=busy).save(tmp_path / "wide.parquet")
    chosen = {"scenario": "wide", "perturbation": "none", "users": 300, "replications": 1, "coordination": "none"}
    chosen["policies"] = [{"name": "user-random"}]
    with in_thread(tmp_path / "data", traces=offered_traces([tmp_path / "wide.parquet"])) as service:
        stream = messages(service, chosen)
    assert stream[-1] == {"kind": "end"}
    slots = [one for one in stream if one["kind"] == "slots"]
    assert slots[-1]["last"] == 30
    assert slots[0]["busy"][0] == "".join("01"[int(one)] for one in busy[0])


def test_options_list_presets_models_policies_and_limits(service: InThread) -> None:
    options = service.get("/v1/playground/options").data
    assert [one["name"] for one in options["policies"]] == [n for n, one in POLICIES.items() if one.source is None]
    assert [one["name"] for one in options["scenarios"]] == list(PRESETS)
    assert options["scenarios"][0]["p01"] == list(PRESETS["S1"].p01)
    assert options["perturbations"] == ["none", "linear", "quadratic", "cosine"]
    assert options["limits"]["work"] == 2 * 10**7
    assert [one["name"] for one in options["decentralised"]] == [
        n for n, one in DECENTRALISED.items() if not one.source
    ]
    assert (options["collision"], options["observes"]) == (
        ["lost", "one", "split"],
        ["sensing", "collisions", "rewards"],
    )
    (ucb,) = (one for one in options["policies"] if one["name"] == "mp-ucb")
    assert options["traces"] == []
    assert [(p["name"], p["default"], p["kind"]) for p in ucb["parameters"]] == [("L", 1.5, "float")]
