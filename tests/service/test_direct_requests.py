"""Requests of every slot are answered without ASGI, and with the same response as through it."""

import asyncio
import contextvars
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from idleband.service.direct_requests import MAX_BODY, _Running
from idleband.service.manager import AllocatorManager
from tests.service.running import V1, InThread, decide_body, in_thread, settings


def request(path: str, body: Any, *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {V1}/main/{path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""]).encode() + data


def exchange(service: InThread, *requests: bytes) -> list[tuple[list[str], Any]]:
    """Send requests at once, the last one with `Connection: close`; return heads and bodies of the responses."""
    with service.raw() as connection:
        connection.sendall(b"".join(requests))
        received = b""
        while part := connection.recv(2**16):
            received += part
    found = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        size = int(length[1])
        found.append((head.decode().split("\r\n"), json.loads(rest[:size])))
        received = rest[size:]
    return found


def test_response_is_the_same_as_through_asgi(tmp_path: Path) -> None:
    """A request with `Connection: close` goes through ASGI."""
    with in_thread(tmp_path) as service:
        for path, body in (
            ("decide", decide_body("a")),
            ("decide", {**decide_body("a"), "users": 1}),  # 409
            ("report", {"request_id": "unknown", "rewards": [1.0]}),  # 404
            ("step", {}),  # 400
        ):
            direct, asgi = exchange(service, request(path, body), request(path, body, "Connection: close"))
            assert "connection: close" in asgi[0]
            heads = [
                {line for line in head if not line.startswith(("date", "connection", "x-request-id"))}
                for head, _ in (direct, asgi)
            ]
            assert heads[0] == heads[1]
            assert direct[1] == asgi[1]
        counts = service.service.request_metrics.requests
        assert [counts["POST", status] for status in (200, 400, 404, 409)] == [2, 2, 2, 2]


def test_requests_that_are_sent_at_once_are_answered_in_order(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        requests = [request("decide", decide_body(f"r{i}", i)) for i in range(20)]
        unknown = request("report", {"request_id": "unknown", "rewards": [1.0]})
        last = request("decide", decide_body("last"), "Connection: close")
        found = exchange(service, *requests[:10], unknown, unknown, *requests[10:], last)
        assert [body.get("slot", 0) for _, body in found] == [*range(1, 11), 0, 0, *range(11, 22)]


def test_large_body_goes_through_asgi(tmp_path: Path) -> None:
    with in_thread(tmp_path, main=settings(channels=1200, dimension=10)) as service:
        contexts = [[0.123456] * 10] * 1200
        assert len(json.dumps(contexts)) > MAX_BODY
        assert service.post(f"{V1}/main/decide", {"request_id": "a", "contexts": contexts}).data["slot"] == 1


def test_defect_is_answered_with_500(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    with in_thread(tmp_path) as service:
        with monkeypatch.context() as patch:
            patch.setattr(AllocatorManager, "decide", broken)
            reply = service.decide("a")
            assert (reply.status, reply.headers["connection"], reply.text) == (500, "close", b"Internal Server Error")
        assert service.decide("a").data["slot"] == 1
    assert "ZeroDivisionError" in caplog.text


def test_coroutine_runs_at_once_and_goes_on_after_what_it_waits_for() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def work() -> Response:
            seen.append("began")
            await first
            await asyncio.sleep(0)
            with pytest.raises(ValueError, match="no"):
                await second
            return Response("done")

        _Running(work(), contextvars.copy_context(), lambda response: seen.append(bytes(response.body).decode()))
        seen.append("waits")
        first.set_result(None)
        second.set_exception(ValueError("no"))
        for _ in range(5):
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(main()) == ["began", "waits", "done"]
