"""Several services on one database: every client reaches every allocator, whichever process it asks."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idleband.service.middleware.forwarding import FORWARDED
from idleband.service.postgres_files import verify
from idleband.service.postgres_url import PostgresUrl
from tests.service.postgres_server import PostgresServer, postgres_server
from tests.service.running import (
    NEW,
    V1,
    AsCommand,
    D,
    InThread,
    K,
    M,
    as_command,
    decide_body,
    eventually,
    in_thread,
    report_body,
    settings,
)

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def pair(postgres: PostgresServer) -> Iterator[tuple[InThread, InThread]]:
    """The owner of the allocator main, and another process."""
    url = PostgresUrl(postgres.new_database())
    with in_thread(url, token=TOKEN, main=settings()) as owner, in_thread(url, token=TOKEN) as other:
        yield owner, other


def names(service: InThread) -> list[str]:
    return service.within(lambda: list(service.service.manager.allocators))


def test_requests_for_allocators_of_another_process_are_forwarded(pair: tuple[InThread, InThread]) -> None:
    owner, other = pair
    assert names(other) == []
    decision = other.decide("f1")
    assert decision.status == 200
    assert owner.decide("f1").data == decision.data
    assert other.report(report_body(decision.data)).data["learned"] == decision.data["channels"]
    assert owner.report(report_body(decision.data)).data["repeated"] == decision.data["channels"]
    for path in (f"{V1}/main", V1, f"{V1}/main/explain?request_id=f1"):
        assert other.get(path).data == owner.get(path).data
    assert other.post(f"{V1}/main/vacate", {"channels": [0]}).data["vacated"] == [0]
    assert other.post(f"{V1}/main/restore", {"channels": [0]}).data["vacated"] == []
    assert other.post(f"{V1}/main/reset", None).status == 200
    assert (other.send("HEAD", f"{V1}/main").status, other.send("HEAD", f"{V1}/main/watch").status) == (200, 405)


def test_refusals_of_the_owner_are_returned(pair: tuple[InThread, InThread]) -> None:
    owner, other = pair
    bad: list[tuple[str, Any]] = [
        (f"{V1}/main/decide", {"request_id": "x", "contexts": [[1.0]]}),
        (f"{V1}/main/decide", b"{"),
        (f"{V1}/main/nothing", {}),
        (f"{V1}/none/decide", decide_body("x")),
        (V1, {"name": "main", "policy": "mp-ucb", "channels": K + 1, "users": M}),
    ]
    for path, body in bad:
        here, there = owner.post(path, body), other.post(path, body)
        assert (there.status, there.detail) == (here.status, here.detail)
    assert other.send("POST", f"{V1}/main/decide", b"{}", Authorization="Bearer wrong").status == 401
    assert other.get(f"{V1}/main").headers["cache-control"] == "no-store"


def test_new_allocator_belongs_to_the_process_that_was_asked(pair: tuple[InThread, InThread]) -> None:
    owner, other = pair
    body = {"name": "second", "policy": "mp-ucb", "channels": K, "users": M}
    assert other.post(V1, body).status == 200
    assert owner.post(V1, body).status == 200
    assert (names(owner), names(other)) == (["main"], ["second"])
    assert owner.get(V1).data == other.get(V1).data == {"allocators": ["main", "second"]}


def test_steps_are_sent_to_the_owners_of_their_allocators(pair: tuple[InThread, InThread]) -> None:
    owner, other = pair
    other.post(V1, {"name": "third", "policy": "mp-ucb", "channels": K, "users": M})
    items = [("main", "b1"), ("third", "b1"), ("none", "b1"), ("third", "b2"), ("main", "b2")]
    body = {"steps": [{"name": name, "decide": {"request_id": request_id}} for name, request_id in items]}
    body["steps"][0]["decide"] = decide_body("b1")
    body["steps"][4]["decide"] = decide_body("b2")
    found = [service.post("/v1/steps", body).data["results"] for service in (owner, other)]
    assert found[0] == found[1]
    assert ["problem" in one for one in found[0]] == [False, False, True, False, False]
    slots = [one["decide"]["slot"] for one in found[0] if "decide" in one]
    assert slots == [slots[0], 1, 2, slots[0] + 1]


def test_page_of_an_allocator_of_another_process_is_streamed(pair: tuple[InThread, InThread]) -> None:
    owner, other = pair
    with other.raw() as client:
        head = f"GET {V1}/main/watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        client.sendall(head.encode())
        received = client.makefile("rb")
        assert received.readline() == b"HTTP/1.1 200 OK\r\n"

        def next_view() -> dict[str, Any]:
            while not (line := received.readline()).startswith(b"data: "):
                assert line
            return dict(json.loads(line[6:]))

        before = next_view()["slot"]
        owner.decide("w1")
        assert next_view()["slot"] == before + 1


def test_forwarded_request_is_not_forwarded_again(pair: tuple[InThread, InThread]) -> None:
    _, other = pair
    reply = other.get(f"{V1}/main", **{FORWARDED.decode(): "1"})
    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
    assert "is being taken over" in reply.detail


# --- processes that end ----------------------------------------------------------------------------------------------


def test_allocator_continues_bit_by_bit_in_another_process(postgres: PostgresServer) -> None:
    url = PostgresUrl(postgres.new_database())
    with in_thread(url, main=settings(), lease=1.0) as first, in_thread(url, lease=1.0) as second:
        for i in range(5):
            second.report(report_body(first.decide(f"r{i}", i).data))
        last = first.decide("r5", 5)
        state = first.state()
        first.close()
        eventually(lambda: names(second) == ["main"])
        assert second.state() == state
        assert second.decide("r5", 5).data == last.data
        assert second.report(report_body(last.data)).data["learned"] == last.data["channels"]


def test_kill_of_the_owner_is_answered_with_503_until_another_process_has_taken_over(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database()
    with as_command(tmp_path / "one", *NEW, "--lease", "1", url=url) as first:
        with in_thread(PostgresUrl(url), lease=1.0) as second:
            decision = second.decide("k1").data
            first.end(signal.SIGKILL)
            reply = eventually(lambda: one if (one := second.decide("k1")).status == 200 or refused(one) else None)
            assert reply.data == decision
            assert second.report(report_body(decision)).data["learned"] == decision["channels"]
        assert_passwordless(first)


def refused(reply: Any) -> bool:
    """Check a response while an allocator has no owner."""
    assert reply.status == 503
    assert reply.headers["retry-after"] == "1"
    return False


def assert_passwordless(service: AsCommand) -> None:
    assert "postgresql://127.0.0.1" in service.log.read_text()
    assert "idleband@" not in service.log.read_text()


def test_process_that_was_stopped_beyond_its_lease_cannot_write(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database()
    with (
        as_command(tmp_path / "one", *NEW, "--lease", "1", url=url) as first,
        in_thread(PostgresUrl(url), lease=1.0) as second,
    ):
        first.decide("p1")
        first.process.send_signal(signal.SIGSTOP)
        with first.raw() as client:
            body = json.dumps(decide_body("p2", 2)).encode()
            head = f"POST {V1}/main/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)  # while it is stopped
            eventually(lambda: names(second) == ["main"])
            assert second.decide("p3", 3).data["slot"] == 2
            first.process.send_signal(signal.SIGCONT)
            assert re.match(rb"HTTP/1.1 (200|503)", client.recv(12))
        decided = eventually(lambda: one if (one := first.decide("p2", 2)).status == 200 else None)
        assert decided.data["slot"] == 3
        assert [second.decide(f"p{i}", i).data["slot"] for i in (2, 3)] == [3, 2]
        assert eventually(lambda: [line for line in first.log_lines if line["event"].startswith("lease lost")])
    events = postgres.execute(url, "SELECT seq, request FROM events ORDER BY seq")
    assert events == [(1, b"p1"), (2, b"p3"), (3, b"p2")]


def test_service_recovers_when_postgresql_is_restarted() -> None:
    with postgres_server(durable=True) as server, in_thread(PostgresUrl(server.new_database()), main=settings()) as one:
        decisions = [one.decide(f"d{i}", i).data for i in range(3)]
        for number in (signal.SIGINT, signal.SIGQUIT):  # the second one is like a crash
            server.stop(number)
            reply = one.decide("d3", 3)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            eventually(lambda: one.get("/health").status == 503)
            server.start()
            eventually(lambda: one.get("/health").status == 200)
        assert [one.decide(f"d{i}", i).data for i in range(3)] == decisions
        assert one.decide("d3", 3).data["slot"] == 4


def test_allocators_are_renamed_and_deleted_from_any_process(postgres: PostgresServer) -> None:
    """A name moves to the other process, which refuses request_ids of the allocator that had it before."""
    url = PostgresUrl(postgres.new_database())
    new = {"name": "main", "policy": "mp-ucb", "channels": K, "users": M, "dimension": D}
    with in_thread(url, main=settings()) as owner, in_thread(url) as other:
        assert owner.decide("r1").status == 200
        assert owner.send("PATCH", f"{V1}/main", {"name": "edge"}).data["name"] == "edge"
        assert other.post(V1, new).data["number"] == 2
        assert (names(owner), names(other)) == (["edge"], ["main"])
        found = other.send("PATCH", f"{V1}/edge", {"patience": 5}, X_Request_Id="mine")
        assert (found.status, found.data["settings"]["patience"]) == (200, 5)
        assert found.headers["x-request-id"] == "mine"
        assert other.decide("r1", name="edge").data["slot"] == 1
        reply = owner.send("PATCH", f"{V1}/edge", {"name": "main"})
        assert (reply.status, "is the name of another allocator" in reply.detail) == (409, True)
        for service in (owner, other):
            assert "earlier allocator of this name" in service.decide("r1").detail
        assert other.send("DELETE", f"{V1}/edge?number=1").data == {"name": "edge", "number": 1, "slot": 1}
        assert owner.send("DELETE", f"{V1}/main?number=1").status == 409
        assert [service.get(V1).data for service in (owner, other)] == [{"allocators": ["main"]}] * 2
        assert owner.get(f"{V1}/edge").status == 404
    with in_thread(url) as again:
        assert again.get(V1).data == {"allocators": ["main"]}
        assert "earlier allocator of this name" in again.decide("r1").detail
        assert again.decide("r2").data["slot"] == 1
    assert verify(url).faults == []
