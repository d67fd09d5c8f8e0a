"""The operations on allocators over HTTP."""

import contextlib
import http.client
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import idleband
from idleband.service import allocator_api
from idleband.service.journal import JournalError
from tests.allocator.helpers import plain
from tests.service.running import (
    TIMEOUT,
    V1,
    D,
    InThread,
    K,
    M,
    decide_body,
    eventually,
    in_thread,
    report_body,
    settings,
)

NEW = {"name": "new", "policy": "mp-ucb", "channels": K, "users": M, "dimension": D}
NAMES = ["ch1", "ch2", "ch3", "ch4"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InThread]:
    with in_thread(tmp_path, main=settings(patience=5)) as running:
        yield running


@pytest.fixture
def named(tmp_path: Path) -> Iterator[InThread]:
    """A service whose channels have names."""
    with in_thread(tmp_path, main=settings(patience=5, channel_names=NAMES)) as running:
        yield running


def test_decide_and_report(service: InThread) -> None:
    decision = service.decide("first").data
    assert decision == {"request_id": "first", "slot": 1, "channels": [0, 1], "by": "policy", "proposed": [0, 1]}
    assert service.report(report_body(decision)).data == {"learned": [0, 1], "repeated": [], "late": False}
    status = service.status()
    assert (status["slot"], status["last"], status["counts"]["reported"]) == (1, decision, 2)


def test_feedback_in_parts_and_in_any_order(service: InThread) -> None:
    bodies = [report_body(service.decide(f"r{i}", i).data) for i in range(3)]
    for body in (bodies[2], bodies[0]):
        channels = service.get(f"{V1}/main/explain?request_id={body['request_id']}").data["channels"]
        assigned = [one["channel"] for one in channels if one["assigned"]]
        for i in (1, 0):
            part = {**body, "rewards": [None, None], "states": [None, None]}
            part["rewards"][i], part["states"][i] = body["rewards"][i], body["states"][i]
            assert service.report(part).data == {"learned": [assigned[i]], "repeated": [], "late": False}
        assert service.report(body).data["repeated"] == assigned
    assert service.status()["counts"]["reported"] == 4
    empty = {"request_id": bodies[1]["request_id"], "rewards": {}}
    assert service.report(empty).data == {"learned": [], "repeated": [], "late": False}


def test_feedback_as_a_list_by_index_and_by_name_is_the_same(named: InThread) -> None:
    for i in range(3):
        decision = named.decide(f"r{i}", i).data
        assert decision["channel_names"] == [NAMES[k] for k in decision["channels"]]
        body = report_body(decision)
        assert named.report(body).data["learned"] == decision["channels"]
        for keys in (map(str, decision["channels"]), decision["channel_names"]):
            channels = list(keys)
            by_channel = {field: dict(zip(channels, body[field], strict=True)) for field in ("rewards", "states")}
            reply = named.report({"request_id": f"r{i}", **by_channel})
            assert reply.data == {"learned": [], "repeated": decision["channels"], "late": False}


def step_body(decision: dict[str, Any], request_id: str, number: int = 0) -> dict[str, Any]:
    return {"report": report_body(decision), "decide": decide_body(request_id, number)}


def test_step_reports_and_decides_as_two_requests_do(service: InThread, tmp_path: Path) -> None:
    with in_thread(tmp_path / "other", main=settings(patience=5)) as other:
        here = there = service.post(f"{V1}/main/step", {"decide": decide_body("r0")}).data["decide"]
        assert other.decide("r0").data == there
        for i in range(1, 6):
            found = service.post(f"{V1}/main/step", step_body(here, f"r{i}", i)).data
            assert found["report"] == other.report(report_body(there)).data
            here, there = found["decide"], other.decide(f"r{i}", i).data
            assert here == there
        last = service.post(f"{V1}/main/step", {"report": report_body(here)}).data
        assert last == {"report": other.report(report_body(there)).data}
        assert service.state() == other.state()


def test_repeated_step_gets_the_same_decision_and_is_learned_once(service: InThread) -> None:
    body = step_body(service.decide("r0").data, "r1", 1)
    first = service.post(f"{V1}/main/step", body).data
    state = service.state()
    again = service.post(f"{V1}/main/step", body).data
    assert again["decide"] == first["decide"]
    assert again["report"] == {"learned": [], "repeated": first["report"]["learned"], "late": False}
    assert service.state() == state


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"report": None, "decide": None}, 400, "one of them must be given"),
        ({"decide": {"request_id": "r0", "contexts": [[0.123] * 2] * 4}}, 409, "other values"),
        ({"decide": {"request_id": "r1", "contexts": [[0.1] * 2] * 3}}, 400, "contexts"),
        ({"decide": {"request_id": "r1", "contexts": [[1e300] * 2] * 4}}, 400, r"contexts\[0\]\[0\] = 1e\+300"),
        ({"decide": {"request_id": "r1", "slots": 3}}, 400, "field 'slots' in decide: did you mean 'slot'"),
        ({"report": {"request_id": "r0", "rewards": [7.0, 7.0]}}, 400, "rewards"),
        ({"report": {"request_id": "none", "rewards": [1.0, 1.0]}}, 404, "no decision"),
    ],
)  # fmt: skip
def test_refused_step_does_neither(service: InThread, change: dict[str, Any], status: int, detail: str) -> None:
    body = {**step_body(service.decide("r0").data, "r1", 1), **change}
    state = service.state()
    reply = service.post(f"{V1}/main/step", body)
    assert reply.status == status, reply
    assert re.search(detail, reply.detail), reply
    among = service.post("/v1/steps", {"steps": [{"name": "main", **body}]})
    refused = among.data if among.status != 200 else among.data["results"][0]["problem"]
    assert refused["status"] == status
    assert service.state() == state


def test_steps_of_several_allocators_are_independent_and_share_a_commit(tmp_path: Path) -> None:
    plain(lambda slot, picks: None)
    with in_thread(tmp_path, main=settings(), second=settings(), threaded=settings("plain")) as service:
        names = ("main", "second", "threaded")
        steps = [{"name": name, "decide": decide_body("r0")} for name in (*names, "main")]
        steps[3]["decide"] = decide_body("r1", 1)
        commits = service.service.manager.commits
        before = commits.commits
        results = service.post("/v1/steps", {"steps": steps}).data["results"]
        assert [one["decide"]["slot"] for one in results] == [1, 1, 1, 2]
        assert commits.commits - before <= 2  # one, or two if the thread had not ended
        steps = [
            {"name": name, **step_body(one["decide"], "r2", 2)} for name, one in zip(names, results[:3], strict=True)
        ]
        steps.insert(1, {"name": "none", **step_body(results[0]["decide"], "r2", 2)})
        steps.insert(2, {"name": "main", **step_body(results[0]["decide"], "r0", 2)})
        found = service.post("/v1/steps", {"steps": steps}).data["results"]
        assert [one.get("problem", {}).get("status") for one in found] == [None, 404, 409, None, None]
        assert all(found[i]["report"]["learned"] for i in (0, 3, 4))
        assert service.get("/metrics").text.count(b'idleband_requests_total{method="POST",status="200"} 2') == 1


def test_steps_are_refused_as_a_whole_while_the_journal_cannot_be_written(service: InThread) -> None:
    service.decide("r0")
    service.within(lambda: service.service.manager.commits.fail(JournalError("disk full")))
    service.service.manager.commits.failed_at = time.monotonic() + 1000.0
    reply = service.post("/v1/steps", {"steps": [{"name": "main", "decide": decide_body("r1")}]})
    assert reply.status == 503
    assert "disk full" in reply.detail


def test_too_many_steps_are_refused(service: InThread) -> None:
    step = {"name": "main", "report": {"request_id": "r", "rewards": []}}
    assert service.post("/v1/steps", {"steps": []}).status == 400
    assert service.post("/v1/steps", {"steps": [step] * 1001}).status in (400, 413)
    many = decide_body("r", contexts=[[0] * 99] * 99)
    reply = service.post("/v1/steps", {"steps": [{"name": "main", "decide": many}]})
    assert reply.status == 413
    assert "values" in reply.detail


def test_decide_for_no_users(service: InThread) -> None:
    decision = service.decide("none", users=0).data
    assert (decision["channels"], decision["slot"]) == ([], 1)
    assert service.report(report_body(decision)).status == 200


def test_slots_may_be_skipped(service: InThread) -> None:
    assert service.decide("a", slot=1000).data["slot"] == 1000
    assert service.decide("b").data["slot"] == 1001


def test_late_feedback_is_acknowledged_counted_and_not_learned(
    service: InThread, caplog: pytest.LogCaptureFixture
) -> None:
    first = service.decide("first").data
    for i in range(5):
        service.decide(f"r{i}", i)
    before = service.status()
    with caplog.at_level(logging.INFO, "idleband.service"):
        for _ in range(2):
            reply = service.report(report_body(first))
            assert (reply.status, reply.data) == (200, {"learned": [], "repeated": [], "late": True})
    after = service.status()
    assert after["counts"] == {**before["counts"], "late": 2}
    assert after["channel"] == before["channel"]
    logged = [record for record in caplog.records if record.getMessage() == "late report"]
    assert [(record.allocator, record.request_id) for record in logged] == [("main", "first")] * 2  # type: ignore[attr-defined]
    assert service.decide("first").data == first  # the decision itself is still kept


def test_feedback_in_the_last_slot_of_patience_is_not_late(service: InThread) -> None:
    first = service.decide("first").data
    for i in range(4):
        service.decide(f"r{i}", i)
    assert service.report(report_body(first)).data["late"] is False


def test_vacated_channels_are_not_assigned_until_restored(service: InThread) -> None:
    service.decide("first")  # channels 0 and 1
    reply = service.post(f"{V1}/main/vacate", {"channels": [1, 3]})
    assert reply.data == {"leave": [1], "vacated": [1, 3]}
    assert service.decide("second").data["channels"] == [0, 2]
    assert service.decide("third", incumbent=[1, 2]).data["channels"] == [2]
    assert service.post(f"{V1}/main/restore", {"channels": [3]}).data == {"leave": [], "vacated": [1]}
    assert [one["vacated"] for one in service.status()["channel"]] == [False, True, False, False]


def test_channel_names_are_accepted_and_shown(named: InThread) -> None:
    named.decide("first")
    assert named.post(f"{V1}/main/vacate", {"channels": ["ch2", 3]}).data == {"leave": [1], "vacated": [1, 3]}
    assert named.post(f"{V1}/main/restore", {"channels": ["ch4"]}).data["vacated"] == [1]
    assert named.decide("second", incumbent=["ch3", 0]).data["channels"] == [2, 0]
    assert "ch5" in named.post(f"{V1}/main/vacate", {"channels": ["ch5"]}).detail
    assert [one["name"] for one in named.status()["channel"]] == NAMES
    assert "ch1" in named.get(f"{V1}/main/explain?request_id=first").data["text"]


def test_explain_returns_text_and_numbers(service: InThread) -> None:
    service.decide("first")
    explained = service.get(f"{V1}/main/explain?request_id=first").data
    assert (explained["request_id"], explained["slot"], explained["by"]) == ("first", 1, "policy")
    assert [one["assigned"] for one in explained["channels"]] == [True, True, False, False]
    assert "Slot 1" in explained["text"]


def test_request_id_is_any_printable_text(service: InThread) -> None:
    for request_id in ("ä 数 🙂", "a/b?c=d&e", '"quoted" \\ \'', "x" * 128):
        decision = service.decide(request_id).data
        assert decision["request_id"] == request_id
        assert service.report(report_body(decision)).data["learned"] == decision["channels"]
        assert service.decide(request_id).data == decision


def test_reset_restarts_only_a_policy_that_is_out_of_service(service: InThread) -> None:
    for i in range(4):
        service.report(report_body(service.decide(f"r{i}", i).data))
    before = service.state()
    assert service.post(f"{V1}/main/reset", None).status == 200
    assert service.state() == before
    core = service.core()
    service.within(lambda: setattr(core.supervisor, "failure", "slot 4: failed by this test"))
    reply = service.post(f"{V1}/main/reset", None)
    assert (reply.status, reply.data["slot"], reply.data["policy_failure"]) == (200, 4, "")
    assert service.decide("next").data["channels"] == [0, 1]  # untried channels first, as at the start


def test_create_returns_the_existing_allocator_if_repeated(service: InThread) -> None:
    made = service.post(V1, NEW)
    assert (made.status, made.data["name"], made.data["policy"], made.data["slot"]) == (200, "new", "mp-ucb", 0)
    assert service.decide("r", name="new").status == 200
    again = service.post(V1, NEW)
    assert (again.status, again.data["slot"]) == (200, 1)
    assert service.post(V1, {**NEW, "seed": 5}).status == 409
    assert service.get(V1).data == {"allocators": ["main", "new"]}
    assert service.status()["slot"] == 0  # the other allocator has not changed


def test_create_accepts_every_setting(service: InThread) -> None:
    given = {
        **NEW, "parameters": {"L": 2.0}, "feedback": "perturbation", "rewards": [0.0, 2.0], "seed": 3, "patience": 7,
        "fallback": "mp-random", "incumbent": "mp-random", "deadline": 60.0, "collision_limit": 0.9,
        "channel_names": NAMES, "switching_cost": 0.02,
        "sensing_errors": {"missed": 0.1, "false_alarm": [0.05, 0.1, 0.0, 0.2]},
    }  # fmt: skip
    assert service.post(V1, given).data["policy"] == "mp-ucb L=2"
    found = service.core("new").settings
    for key, value in given.items():
        if key != "name":
            assert getattr(found, key) == (tuple(value) if isinstance(value, list) else value)
    assert service.decide("r", name="new").data["by"] == "incumbent"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sensing_errors": {"missed": 1.5}}, "sensing_errors.missed = 1.5: must be a number"),
        ({"sensing_errors": {"missed": [0.1]}}, "sensing_errors.missed: has 1 entry for 4 channels"),
        ({"sensing_errors": {"mised": 0.1}}, "mised"),
        ({"sensing_errors": 0.1}, "sensing_errors"),
        ({"switching_cost": -1}, "switching_cost = -1"),
        ({"switching_cost": "high"}, "switching_cost"),
    ],
)
def test_bad_sensing_errors_and_switching_costs_are_refused(
    service: InThread, given: dict[str, Any], message: str
) -> None:
    reply = service.post(V1, {**NEW, **given})
    assert reply.status == 400
    assert message in reply.detail


def test_restart_keeps_allocators_decisions_and_reports(tmp_path: Path) -> None:
    with in_thread(tmp_path / "data") as service:
        service.post(V1, NEW)
        decisions = [service.decide(f"r{i}", i).data for i in range(5)]
        service.report(report_body(decisions[0]))
        service.post(f"{V1}/main/vacate", {"channels": [2]})
        state = service.state()
    with in_thread(tmp_path / "data") as service:
        assert service.get(V1).data == {"allocators": ["main", "new"]}
        assert service.state() == state
        assert [service.decide(f"r{i}", i).data for i in range(5)] == decisions
        assert service.report(report_body(decisions[0])).data["repeated"] == decisions[0]["channels"]
        assert service.report(report_body(decisions[1])).data["learned"] == decisions[1]["channels"]


def test_health_reports_version_and_allocators(service: InThread) -> None:
    assert service.get("/health").data == {
        "status": "ok", "version": idleband.__version__, "allocators": 1, "open": 1, "journal": "ok",
        "out_of_service": {},
    }  # fmt: skip


def test_policy_out_of_service_is_logged_once_and_shown_in_health(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(slot: Any, picks: Any) -> None:
        if slot.t > 1:
            raise RuntimeError("no idea")

    plain(raising)
    with in_thread(tmp_path, main=settings("plain")) as service:
        for i in range(4):
            assert service.report(report_body(service.decide(f"r{i}", i).data)).status == 200
        assert service.get("/health").data["out_of_service"] == {"main": "slot 2: RuntimeError: no idea"}
        (logged,) = (record for record in caplog.records if record.message == "policy out of service")
        assert (logged.allocator, logged.reason) == ("main", "slot 2: RuntimeError: no idea")  # type: ignore[attr-defined]
        service.post(f"{V1}/main/reset", {})
        assert service.get("/health").data["out_of_service"] == {}


def test_create_refuses_a_slow_policy_without_a_deadline(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_api, "MAX_SLOT_SECONDS", 0.0)
    assert "must take at most 0 s, or have a deadline" in service.post(V1, NEW).detail
    assert service.post(V1, {**NEW, "deadline": 60.0}).status == 200


def test_contexts_may_be_omitted_for_a_policy_that_does_not_use_them(service: InThread) -> None:
    body = {"request_id": "omitted"}
    assert service.post(f"{V1}/main/decide", body).status == 200
    assert service.post(f"{V1}/main/decide", {**decide_body("null"), "contexts": None}).status == 200


def test_refused_requests_are_logged_with_the_reason(service: InThread, caplog: pytest.LogCaptureFixture) -> None:
    detail = service.decide("first", users=99).detail
    logged = eventually(lambda: [r for r in caplog.records if r.getMessage() == "request refused"])
    assert len(logged) == 1
    fields = vars(logged[0])
    assert [fields[key] for key in ("method", "path", "status", "reason")] == ["POST", f"{V1}/main/decide", 400, detail]


# --- watch -----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream of views."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        assert (reply.status, reply.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        self._reply = reply

    def next(self) -> dict[str, Any]:
        line = self._reply.readline()
        assert line.startswith(b"data: ")
        assert self._reply.readline() == b"\n"
        return dict(json.loads(line[6:]))

    def next_with(self, slot: int) -> dict[str, Any]:
        """Return the first view of a slot; there may be several changes between two views."""
        while (view := self.next())["slot"] < slot:
            pass
        return view

    def rest(self) -> bytes:
        return self._reply.read()


@contextlib.contextmanager
def watching(service: InThread) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request("GET", f"{V1}/main/watch")
        reply = connection.getresponse()
        with contextlib.closing(reply):
            yield Stream(reply)


def test_watch_sends_a_view_after_every_change(service: InThread) -> None:
    with watching(service) as stream:
        view = stream.next()
        assert (view["slot"], view["strip"], view["explanation"]) == (0, [], "")
        decision = service.decide("first").data
        view = stream.next()
        assert view["last"] == decision
        assert view["strip"] == [{"request_id": "first", "slot": 1, "outcomes": [[0, 0], [1, 0]]}]
        assert "Slot 1" in view["explanation"]
        service.report(report_body(decision))
        assert stream.next()["curves"] == [[1, pytest.approx(1.1)]]
        service.decide("first")  # a repeated request changes nothing
        service.decide("second")
        assert [one["request_id"] for one in stream.next()["strip"]] == ["first", "second"]


def test_watchers_share_one_rendered_view(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    original = allocator_api.AllocatorApi._view_data

    async def counted(self: allocator_api.AllocatorApi, name: str) -> dict[str, Any]:
        rendered.append(name)
        return await original(self, name)

    monkeypatch.setattr(allocator_api.AllocatorApi, "_view_data", counted)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(watching(service)) for _ in range(10)]
        assert all(stream.next()["slot"] == 0 for stream in streams)
        assert rendered == ["main"]
        decision = service.decide("first").data
        assert [stream.next()["last"] for stream in streams] == [decision] * 10
        assert rendered == ["main"] * 2


def test_watch_ends_with_the_service(tmp_path: Path) -> None:
    service = InThread(tmp_path)
    with watching(service) as stream:
        stream.next()
        service.close()
        assert stream.rest() == b""


def test_largest_reference_values_are_shown(service: InThread) -> None:
    largest = {"static": 1e12, "contextual": -1e12, "suboptimal_static": 2**53, "suboptimal_contextual": 0}
    for i in range(3):
        body = report_body(service.decide(f"r{i}", i).data)
        assert service.report({**body, "reference": largest}).status == 200
    with watching(service) as stream:
        assert stream.next_with(3)["curves"][-1][2:] == [1e12, -1e12]


def test_streams_have_no_head_method(service: InThread) -> None:
    for path in (f"{V1}/main/watch", "/v1/playground/run?settings={}"):
        assert service.send("HEAD", path).status == 405
    assert service.send("HEAD", "/health").status == 200
