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
        raw.sendall(b"GET / HTTP/1.1\r\nX-A: " + b"a" * (connection_module.LONGEST_HEAD + 1))
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
        assert b" 200 " not in heard(raw)


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
    monkeypatch.setattr(connection_module, "SLOWEST", 0.3)
    with service.raw() as raw:
        for _ in range(4):
            raw.sendall(b"GET /health HTTP/1.1\r\nHo")
            time.sleep(0.1)
            raw.sendall(b"st: localhost\r\n\r\n")
            said = b""
            while not said.endswith(b"}"):
                said += raw.recv(65536)
            assert said.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.15)
