"""What can be asked of the service, asked over HTTP."""

import contextlib
import http.client
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import idleband
from idleband.service import app as app_module
from tests.allocator.helpers import plain
from tests.service.running import LONG, D, InThread, K, M, eventually, feedback, in_thread, question, settings

NEW = {"name": "new", "policy": "mp-ucb", "channels": K, "users": M, "dimension": D}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InThread]:
    with in_thread(tmp_path, main=settings(patience=5)) as running:
        yield running


def test_a_slot(service: InThread) -> None:
    answer = service.decide("first").data
    assert answer == {"request": "first", "slot": 1, "channels": [0, 1], "by": "policy", "proposed": [0, 1]}
    assert service.report(feedback(answer)).data == {"learned": [0, 1], "repeated": [], "late": False}
    standing = service.standing()
    assert (standing["slot"], standing["last"], standing["counts"]["reported"]) == (1, answer, 2)


def test_feedback_in_parts_and_in_any_order(service: InThread) -> None:
    said = [feedback(service.decide(f"r{i}", i).data) for i in range(3)]
    for one in (said[2], said[0]):
        for k in (1, 0):
            part = {**one, "outcomes": one["outcomes"][k : k + 1]}
            channel = one["outcomes"][k]["channel"]
            assert service.report(part).data == {"learned": [channel], "repeated": [], "late": False}
        assert service.report(one).data["repeated"] == [each["channel"] for each in one["outcomes"]]
    assert service.standing()["counts"]["reported"] == 4
    assert service.report({**said[1], "outcomes": []}).data == {"learned": [], "repeated": [], "late": False}


def test_no_users(service: InThread) -> None:
    answer = service.decide("none", users=0).data
    assert (answer["channels"], answer["slot"]) == ([], 1)
    assert service.report(feedback(answer)).status == 200


def test_slots_that_passed(service: InThread) -> None:
    assert service.decide("a", slot=1000).data["slot"] == 1000
    assert service.decide("b").data["slot"] == 1001


def test_late_feedback(service: InThread, caplog: pytest.LogCaptureFixture) -> None:
    """Acknowledged, counted, logged, not learned; and however often."""
    first = service.decide("first").data
    for i in range(5):
        service.decide(f"r{i}", i)
    said = feedback(first)
    before = service.standing()
    with caplog.at_level(logging.INFO, "idleband.service"):
        for _ in range(2):
            reply = service.report(said)
            assert (reply.status, reply.data) == (200, {"learned": [], "repeated": [], "late": True})
    after = service.standing()
    assert after["counts"] == {**before["counts"], "late": 2}
    assert after["channel"] == before["channel"]
    logged = [record for record in caplog.records if record.getMessage() == "late"]
    assert [(record.allocator, record.request) for record in logged] == [("main", "first")] * 2  # type: ignore[attr-defined]
    assert service.decide("first").data == first  # the answer is still there


def test_the_last_slot_in_which_feedback_is_in_time(service: InThread) -> None:
    first = service.decide("first").data
    for i in range(4):
        service.decide(f"r{i}", i)
    assert service.report(feedback(first)).data["late"] is False


def test_channels_to_be_left(service: InThread) -> None:
    service.decide("first")  # 0 and 1
    reply = service.post("/allocators/main/vacate", {"channels": [1, 3]})
    assert reply.data == {"leave": [1], "vacated": [1, 3]}
    assert service.decide("second").data["channels"] == [0, 2]
    assert service.decide("third", incumbent=[1, 2]).data["channels"] == [2]
    assert service.post("/allocators/main/restore", {"channels": [3]}).data == {"leave": [], "vacated": [1]}
    assert [one["vacated"] for one in service.standing()["channel"]] == [False, True, False, False]


def test_why(service: InThread) -> None:
    service.decide("first")
    explained = service.get("/allocators/main/explain?request=first").data
    assert (explained["request_id"], explained["slot"], explained["by"]) == ("first", 1, "policy")
    assert [one["assigned"] for one in explained["channels"]] == [True, True, False, False]
    assert "Slot 1" in explained["text"]


def test_names_of_decisions_are_anything_that_can_be_printed(service: InThread) -> None:
    for name in ("ä 数 🙂", "a/b?c=d&e", '"quoted" \\ \'', "x" * 128):
        answer = service.decide(name).data
        assert answer["request"] == name
        assert service.report(feedback(answer)).data["learned"] == answer["channels"]
        assert service.decide(name).data == answer


def test_beginning_anew(service: InThread) -> None:
    for i in range(4):
        service.report(feedback(service.decide(f"r{i}", i).data))
    allocator = service.within(lambda: service.service.office.desks["main"].allocator)
    before = service.within(allocator.to_bytes)
    assert service.post("/allocators/main/reset", None).status == 200
    assert service.within(allocator.to_bytes) == before  # one that works is left alone
    service.within(lambda: setattr(allocator.supervisor, "failure", "slot 4: broken by this test"))
    standing = service.post("/allocators/main/reset", None)
    assert (standing.status, standing.data["slot"], standing.data["policy_failure"]) == (200, 4, "")
    assert service.decide("next").data["channels"] == [0, 1]  # untried channels first, as at the start


def test_a_new_allocator_and_the_same_again(service: InThread) -> None:
    made = service.post("/allocators", NEW)
    assert (made.status, made.data["name"], made.data["policy"], made.data["slot"]) == (200, "new", "mp-ucb", 0)
    assert service.decide("r", name="new").status == 200
    again = service.post("/allocators", NEW)
    assert (again.status, again.data["slot"]) == (200, 1)  # it is the one that was there
    assert service.post("/allocators", {**NEW, "seed": 5}).status == 409
    assert service.get("/allocators").data == {"allocators": ["main", "new"]}
    assert service.standing()["slot"] == 0  # the other one has not moved


def test_every_setting(service: InThread) -> None:
    given = {
        **NEW, "parameters": {"L": 2.0}, "feedback": "perturbation", "rewards": [0.0, 2.0], "seed": 3, "patience": 7,
        "fallback": "mp-random", "incumbent": "mp-random", "deadline": 5.0, "collision_limit": 0.9,
    }  # fmt: skip
    assert service.post("/allocators", given).data["policy"] == "mp-ucb L=2"
    found = service.within(lambda: service.service.office.desks["new"].allocator.settings)
    for key, value in given.items():
        if key != "name":
            assert getattr(found, key) == (tuple(value) if key == "rewards" else value)
    assert service.decide("r", name="new").data["by"] == "incumbent"


def test_after_a_restart_all_is_as_it_was(tmp_path: Path) -> None:
    with in_thread(tmp_path / "data") as service:
        service.post("/allocators", NEW)
        answers = [service.decide(f"r{i}", i).data for i in range(5)]
        service.report(feedback(answers[0]))
        service.post("/allocators/main/vacate", {"channels": [2]})
        state = service.state()
    with in_thread(tmp_path / "data") as service:
        assert service.get("/allocators").data == {"allocators": ["main", "new"]}
        assert service.state() == state
        assert [service.decide(f"r{i}", i).data for i in range(5)] == answers
        assert service.report(feedback(answers[0])).data["repeated"] == answers[0]["channels"]
        assert service.report(feedback(answers[1])).data["learned"] == answers[1]["channels"]


def test_health(service: InThread) -> None:
    assert service.get("/health").data == {
        "status": "ok", "version": idleband.__version__, "allocators": 1, "journal": "ok", "out_of_service": {},
    }  # fmt: skip


def test_a_policy_out_of_service_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once in the log, and in /health as long as it is."""

    def raising(slot: Any, picks: Any) -> None:
        if slot.t > 1:
            raise RuntimeError("no idea")

    plain(raising)
    with in_thread(tmp_path, main=settings("plain")) as service:
        for i in range(4):
            assert service.report(feedback(service.decide(f"r{i}", i).data)).status == 200
        assert service.get("/health").data["out_of_service"] == {"main": "slot 2: RuntimeError: no idea"}
        (told,) = (record for record in caplog.records if record.message == "policy out of service")
        assert (told.allocator, told.reason) == ("main", "slot 2: RuntimeError: no idea")  # type: ignore[attr-defined]
        service.post("/allocators/main/reset", {})
        assert service.get("/health").data["out_of_service"] == {}


def test_why_something_was_refused_is_in_the_log(service: InThread, caplog: pytest.LogCaptureFixture) -> None:
    reason = service.decide("first", users=99).reason

    def told() -> list[str]:
        return [record.reason for record in caplog.records if record.message == "refused"]  # type: ignore[attr-defined]

    eventually(told)
    assert told() == [reason]


def test_a_policy_that_all_would_wait_for_is_refused(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a deadline it has a thread of its own."""
    monkeypatch.setattr(app_module, "SLOWEST", 0.0)
    assert (
        "and all others would wait; must take at most 0 s, or have a deadline"
        in service.post("/allocators", NEW).reason
    )
    assert service.post("/allocators", {**NEW, "deadline": 5.0}).status == 200


def test_streams_have_no_heads(service: InThread) -> None:
    for path in ("/allocators/main/watch", "/playground/run?settings={}"):
        assert service.say("HEAD", path).status == 405
    assert service.say("HEAD", "/health").status == 200


# --- watching --------------------------------------------------------------------------------------------------------


class Watching:
    """A stream of views."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        assert (reply.status, reply.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        self._reply = reply

    def next(self) -> dict[str, Any]:
        line = self._reply.readline()
        assert line.startswith(b"data: ")
        assert self._reply.readline() == b"\n"
        return dict(json.loads(line[6:]))

    def rest(self) -> bytes:
        return self._reply.read()


@contextlib.contextmanager
def watching(service: InThread) -> Iterator[Watching]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=LONG)
    with contextlib.closing(connection):
        connection.request("GET", "/allocators/main/watch")
        reply = connection.getresponse()
        with contextlib.closing(reply):
            yield Watching(reply)


def test_watching(service: InThread) -> None:
    with watching(service) as views:
        view = views.next()
        assert (view["slot"], view["strip"], view["explanation"]) == (0, [], "")
        answer = service.decide("first").data
        view = views.next()
        assert view["last"] == answer
        assert view["strip"] == [{"request": "first", "slot": 1, "outcomes": [[0, 0], [1, 0]]}]
        assert "Slot 1" in view["explanation"]
        service.report(feedback(answer))
        assert views.next()["curves"] == [[1, pytest.approx(1.1)]]
        service.decide("first")  # the same again is nothing to see
        service.decide("second")
        assert [one["request"] for one in views.next()["strip"]] == ["first", "second"]


def test_whoever_watches_is_let_go_at_the_end(tmp_path: Path) -> None:
    service = InThread(tmp_path)
    with watching(service) as views:
        views.next()
        service.close()
        assert views.rest() == b""


def test_numbers_of_a_client_cannot_break_the_view(service: InThread) -> None:
    """What a simulator says is shown, and added up."""
    largest = {"static": 1e12, "contextual": -1e12, "suboptimal_static": 2**53, "suboptimal_contextual": 0}
    for i in range(3):
        said = feedback(service.decide(f"r{i}", i).data)
        assert service.report({**said, "reference": largest}).status == 200
    with watching(service) as views:
        assert views.next()["curves"][-1][2:] == [1e12, -1e12]


# --- what is logged --------------------------------------------------------------------------------------------------


def test_refusals_are_logged(service: InThread, caplog: pytest.LogCaptureFixture) -> None:
    service.post("/allocators/main/decide", b"{")
    logged = eventually(lambda: [r for r in caplog.records if r.getMessage() == "refused"])[0]
    assert (logged.method, logged.path, logged.status) == ("POST", "/allocators/main/decide", 400)  # type: ignore[attr-defined]


def test_questions_of_another_kind(service: InThread) -> None:
    """An index policy needs no contexts; one that has them takes them all the same."""
    body = {key: value for key, value in question("plain").items() if key != "contexts"}
    assert service.post("/allocators/main/decide", body).status == 200
    assert service.post("/allocators/main/decide", {**body, "request": "null", "contexts": None}).status == 200
