"""Limits on connections, and the interface of uvicorn that they need."""

import contextlib
import inspect
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from idleband.service import allocator_api
from idleband.service import connection as connection_module
from idleband.service.limits import Limits
from tests.service.running import V1, D, InThread, decide_body, eventually, in_thread, settings

HEAD = f"POST {V1}/main/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("connection"), limits=Limits(connections=40)) as running:
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
    "on_response_complete": ["self"],
    "_start_asgi_task": ["self", "cycle", "app"],
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
    # Reading is paused and resumed through an object that connections replace.
    assert list(inspect.signature(FlowControl.resume_reading).parameters) == ["self"], advice
    assert "self.flow = FlowControl(transport)" in inspect.getsource(HttpToolsProtocol.connection_made), advice
    assert FlowControl(None).write_paused is False, advice  # type: ignore[arg-type]
    for name in ("loop", "transport", "pipeline", "cycle", "flow", "client", "scope", "headers"):
        assert hasattr(protocol, name), f"{name}: {advice}"
    assert protocol.cycle is None, advice
    assert len(protocol.pipeline) == 0, advice
    cycle = inspect.getsource(RequestResponseCycle.__init__)
    for line in (
        "response_complete = False",
        "disconnected = False",
        "message_event = message_event",
        "response_started = False",
        "transport = transport",
    ):
        assert f"self.{line}" in cycle, advice


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


def connections_of(service: InThread) -> set[connection_module.LimitedConnection]:
    return service.within(lambda: set(service._server.server_state.connections))  # type: ignore[arg-type]


def test_pipelined_requests_that_are_not_read_stop_the_client(service: InThread) -> None:
    """Only a few of them are parsed; the rest stays in the buffers of the sockets."""
    before = connections_of(service)
    with service.raw() as raw:
        raw.settimeout(1.0)
        with pytest.raises(TimeoutError):
            raw.sendall(HEALTH * 2**20)  # 50 MB
        (connection,) = connections_of(service) - before
        assert len(connection.pipeline) <= connection_module.PIECE / len(HEALTH) + 1
        assert len(connection._unparsed) <= 2**20
        assert connection.transport.get_write_buffer_size() <= 2**20
    eventually(lambda: connection not in connections_of(service))


def test_pipelined_requests_are_answered_in_order(service: InThread) -> None:
    bodies = [json.dumps(decide_body(f"p{i}", i)).encode() for i in range(300)]
    requests = b"".join(HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
    with service.raw() as raw:
        for first in range(0, len(requests), 7001):  # cut anywhere
            raw.sendall(requests[first : first + 7001])
        found = b""
        while found.count(b"HTTP/1.1 200 OK") < len(bodies) or not found.endswith(b"}"):
            part = raw.recv(65536)
            assert part, found[-1000:]
            found += part
    assert re.findall(rb'"request_id":"(p[0-9]+)"', found) == [b"p%d" % i for i in range(len(bodies))]


def test_end_of_a_connection_with_pipelined_requests_ends_the_present_response(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with in_thread(tmp_path) as service:
        with service.raw() as raw:
            raw.sendall(f"GET {V1}/main/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + HEALTH * 3)
            raw.recv(65536)
            (connection,) = connections_of(service)
            cycle = connection._responding
            assert cycle is not connection.cycle  # that is the one of the last request
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset the connection
        for i in range(10**6):
            if not connections_of(service):
                break
            service.decide(f"r{i}", i)  # writing to the stream shows that it is closed
        assert cycle is not None
        assert cycle.disconnected
    assert not [record for record in caplog.records if record.exc_info]


def test_stream_that_is_not_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT", 0.5)
    monkeypatch.setattr(allocator_api, "WATCH_INTERVAL", 0.01)
    with in_thread(tmp_path, main=settings(channels=1000, users=500)) as service, service.raw() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        raw.sendall(f"GET {V1}/main/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        contexts = [[0.5] * D] * 1000
        count = iter(range(10**6))

        def closed() -> bool:
            assert service.decide(f"r{next(count)}", contexts=contexts).status == 200
            return not any(str(one.scope.get("path")).endswith("/watch") for one in connections_of(service))

        raw.recv(1)
        eventually(closed)


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


def test_head_and_body_of_a_response_are_sent_at_once() -> None:
    """And a head without a body, or one of a stream, is not held back."""

    class Transport:
        def __init__(self) -> None:
            self.sent: list[bytes] = []
            self.closed = False

        def write(self, data: bytes) -> None:
            self.sent.append(data)

        def close(self) -> None:
            self.closed = True

    class Cycle:
        response_started = False
        transport = Transport()

    cycle = Cycle()
    joined = connection_module._JoinedWrites(cycle)  # type: ignore[arg-type]
    joined.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    cycle.response_started = True
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    joined.write(head)
    joined.write(b"{}")
    joined.write(head)
    joined.close()
    joined.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert [len(data) for data in cycle.transport.sent] == [25, len(head) + 2, len(head), 47]
    assert joined.closed
