"""Limits on connections, and the interface of uvicorn that they need."""

import contextlib
import inspect
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from idleband.service import connection as connection_module
from idleband.service.limits import Limits
from tests.service.running import V1, InThread, eventually, in_thread

HEAD = f"POST {V1}/main/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("connection"), limits=Limits(connections=20)) as running:
        yield running


# --- the interface of uvicorn ----------------------------------------------------------------------------------------

METHODS = {
    "connection_made": ["self", "transport"],
    "connection_lost": ["self", "exc"],
    "data_received": ["self", "data"],
    "on_message_begin": ["self"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
}


@pytest.mark.parametrize("name", METHODS)
def test_uvicorn_has_the_methods_that_connections_override(name: str) -> None:
    advice = f"HttpToolsProtocol.{name} of uvicorn has changed: adapt src/idleband/service/connection.py"
    method = getattr(HttpToolsProtocol, name, None)
    assert method is not None, advice
    assert list(inspect.signature(method).parameters) == METHODS[name], advice


def test_uvicorn_has_the_attributes_that_connections_use() -> None:
    advice = "HttpToolsProtocol of uvicorn has changed: adapt src/idleband/service/connection.py"
    config = Config(app=lambda scope: None, log_config=None)
    protocol = HttpToolsProtocol(config, ServerState(), {}, _loop=object())  # type: ignore[arg-type]
    for name in ("loop", "transport", "pipeline", "cycle"):
        assert hasattr(protocol, name), f"{name}: {advice}"
    assert protocol.cycle is None, advice
    assert len(protocol.pipeline) == 0, advice
    assert "self.response_complete = False" in inspect.getsource(RequestResponseCycle.__init__), advice


# --- limits ----------------------------------------------------------------------------------------------------------


def read_to_end(raw: socket.socket) -> bytes:
    parts = []
    while part := raw.recv(65536):
        parts.append(part)
    return b"".join(parts)


def read_response(raw: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"}"):
        part = raw.recv(65536)
        assert part, found
        found += part
    return found


def send_until_closed(raw: socket.socket, data: bytes) -> int:
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 2**26:
            sent += raw.send(data)
    return sent


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a"),
        (b"GET / HTTP/1.1\r\nX-A: ", b"a"),
        (b"GET / HTTP/1.1\r\n", b"X-A: a\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n", b"X-A: a\r\n"),
    ],
    ids=["path", "header", "headers", "trailers"],
)
def test_endless_headers_close_the_connection(service: InThread, begin: bytes, more: bytes) -> None:
    with service.raw() as raw:
        raw.sendall(begin)
        assert send_until_closed(raw, more * 2**14) < 2**24
    assert service.get("/health").status == 200


def test_too_large_headers_are_refused_with_431(service: InThread) -> None:
    with service.raw() as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX-A: " + b"a" * (connection_module.MAX_HEADER_BYTES + 1))
        response = read_to_end(raw)
    assert response.startswith(b"HTTP/1.1 431 ")
    assert response.endswith(b'{"status":431,"detail":"headers: must be at most 65536 bytes"}')


@pytest.mark.parametrize("begin", [b"", b"GET / HT", HEAD], ids=["nothing", "part of a line", "part of the headers"])
def test_incomplete_request_is_refused_with_408(
    service: InThread, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 0.2)
    with service.raw() as raw:
        raw.sendall(begin)
        assert read_to_end(raw).startswith(b"HTTP/1.1 408 ")


def test_empty_line_after_a_request_is_refused_with_408(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 2.0)
    with service.raw() as raw:
        raw.sendall(HEALTH)
        read_response(raw)
        raw.sendall(b"\r\n")
        assert read_to_end(raw).startswith(b"HTTP/1.1 408 ")


def test_incomplete_body_closes_the_connection(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 0.2)
    with service.raw() as raw:
        raw.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert read_to_end(raw) == b""  # a response may have been started


def test_idle_connections_are_closed_for_others(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 0.5)
    idle = [service.raw() for _ in range(25)]
    eventually(lambda: service.get("/health").status == 200)  # 503 while there are too many connections
    for raw in idle:
        raw.close()


def count_checks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows whenever a connection checks the time."""
    checks: list[object] = []
    original = connection_module.LimitedConnection._check_time

    def check(self: connection_module.LimitedConnection) -> None:
        checks.append(self)
        original(self)

    monkeypatch.setattr(connection_module.LimitedConnection, "_check_time", check)
    return checks


def test_connection_is_kept_between_complete_requests(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 2.0)
    checks = count_checks(monkeypatch)
    with service.raw() as raw:
        for i in range(2):
            raw.sendall(HEALTH[:25])
            raw.sendall(HEALTH[25:])
            assert read_response(raw).startswith(b"HTTP/1.1 200 ")
            eventually(lambda i=i: len(checks) > i)


def test_chunked_body_does_not_count_as_headers(service: InThread) -> None:
    """With chunks that are smaller than their framing."""
    with service.raw() as raw:
        raw.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        raw.sendall(b"1\r\n \r\n" * 30_000 + b"2\r\n{}\r\n0\r\n\r\n")
        assert read_response(raw).startswith(b"HTTP/1.1 400 ")  # it has no request_id


@pytest.mark.parametrize("following", [b"GET /hea", HEAD + b"Content-Length: 2\r\n\r\n{}"])
def test_stream_is_not_ended_by_a_following_request(
    tmp_path: Path, following: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 0.2)
    checks = count_checks(monkeypatch)
    with in_thread(tmp_path) as service, service.raw() as raw:
        raw.sendall(f"GET {V1}/main/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        found = raw.recv(65536)
        raw.sendall(following)
        for i in range(3):
            count, before = len(checks), len(found)
            eventually(lambda count=count: len(checks) > count + 2)
            service.decide(f"r{i}", i)
            while b'"slot":%d' % (i + 1) not in found[before:]:
                part = raw.recv(65536)
                assert part
                found += part
    assert b" 408 " not in found
    assert b" 400 " not in found
