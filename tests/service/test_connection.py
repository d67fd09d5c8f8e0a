"""Connections that say too much before they say anything, or nothing at all."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idleband.service import connection as connection_module
from idleband.service.http import Limits
from tests.service.running import LONG, InThread, in_thread

HEAD = b"POST /allocators/main/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InThread]:
    with in_thread(tmp_path, limits=Limits(connections=20)) as running:
        yield running


def heard(raw: socket.socket) -> bytes:
    """All that is said until the connection ends."""
    parts = []
    while part := raw.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"GET /", b"a"), (b"GET / HTTP/1.1\r\nX-A: ", b"a"), (b"GET / HTTP/1.1\r\n", b"X-A: a\r\n")],
)
def test_a_head_without_end(service: InThread, begin: bytes, more: bytes) -> None:
    """Nobody listens for long, and others are answered."""
    with service.raw() as raw:
        raw.sendall(begin)
        said = 0
        with contextlib.suppress(ConnectionError):
            while said < 2**26:
                said += raw.send(more * 2**14)
        assert said < 2**24
    assert service.decide("after").status == 200


def test_why_is_said(service: InThread) -> None:
    with service.raw() as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX-A: " + b"a" * (connection_module.MAX_HEAD_BYTES + 1))
        said = heard(raw)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert said.endswith(b'{"status":431,"detail":"headers: must be at most 65536 bytes"}')


@pytest.mark.parametrize("begin", [b"", b"GET / HT", HEAD])
def test_a_request_that_does_not_come(service: InThread, begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLOWEST", 0.2)
    with service.raw() as raw:
        raw.sendall(begin)
        assert heard(raw).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_does_not_come(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLOWEST", 0.2)
    with service.raw() as raw:
        raw.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert heard(raw) == b""  # somebody may have begun to answer


def test_idle_connections_do_not_shut_others_out_for_long(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SLOWEST", 0.5)
    idle = [service.raw() for _ in range(25)]
    until = time.monotonic() + LONG
    while service.decide("me").status != 200:  # 503, too many connections
        assert time.monotonic() < until
    for raw in idle:
        raw.close()


def test_one_that_is_used_stays(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again and again, in whatever pieces, and waits between."""
    monkeypatch.setattr(connection_module, "SLOWEST", 2.0)
    with service.raw() as raw:
        for _ in range(4):
            raw.sendall(b"GET /health HTTP/1.1\r\nHo")
            time.sleep(0.3)
            raw.sendall(b"st: localhost\r\n\r\n")
            assert answered(raw).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.4)


def answered(raw: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"}"):
        said += raw.recv(65536)
    return said


def test_an_empty_line_begins_nothing(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not keep a connection for ever."""
    monkeypatch.setattr(connection_module, "SLOWEST", 0.3)
    with service.raw() as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered(raw)
        raw.sendall(b"\r\n")
        assert heard(raw).startswith(b"HTTP/1.1 408 ")


def test_what_follows_a_body_has_an_end_too(service: InThread) -> None:
    with service.raw() as raw:
        raw.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
        said = 0
        with contextlib.suppress(ConnectionError):
            while said < 2**26:
                said += raw.send(b"X-A: a\r\n" * 2**12)
        assert said < 2**24


def test_a_large_body_in_pieces_is_no_head(service: InThread) -> None:
    """With chunks smaller than their frames, and more of them than a head may have."""
    with service.raw() as raw:
        raw.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        raw.sendall(b"1\r\n \r\n" * 30_000 + b"2\r\n{}\r\n0\r\n\r\n")
        assert answered(raw).startswith(b"HTTP/1.1 400 ")  # it has no request


@pytest.mark.parametrize("next_one", [b"GET /hea", HEAD + b"Content-Length: 2\r\n\r\n{}"])
def test_an_answer_that_goes_on_is_not_cut(service: InThread, next_one: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what comes behind its question; a stream goes on for as long as somebody looks."""
    monkeypatch.setattr(connection_module, "SLOWEST", 0.2)
    with service.raw() as raw:
        raw.sendall(b"GET /allocators/main/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = raw.recv(65536)
        raw.sendall(next_one)
        time.sleep(1.0)
        for i in range(3):
            service.decide(f"r{i}", i)
            before = len(said)
            while b'"slot": %d' % (i + 1) not in said[before:]:
                part = raw.recv(65536)
                assert part
                said += part
    assert b" 408 " not in said
    assert b" 400 " not in said
