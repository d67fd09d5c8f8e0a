"""Limits on connections that uvicorn does not have: the size of headers and the time until a request is complete.

Without them a single client could fill the memory of the server or hold connections for ever. This is the only module
that uses uvicorn's protocol class, which is not a documented interface: `pyproject.toml` bounds the version of uvicorn,
and tests/service/test_connection.py checks the methods and attributes that are used here.
"""

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from idleband.service.messages import Problem
from idleband.service.problems import encode

MAX_HEADER_BYTES = 64 * 2**10  # consecutive bytes that do not belong to a body
REQUEST_TIMEOUT = 20.0  # seconds until a request is complete, also for the first one of a connection

_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large"}

log = logging.getLogger("idleband.service")


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits on headers and on the time until a request is complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._header_bytes = 0  # bytes since the last byte of a body or the end of a request
        self._in_body = False
        self._waiting_since: float | None = self.loop.time()  # None while no request is expected
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self._waiting_since is None and not self._is_responding():  # for example an empty line between requests
            self._waiting_since = self.loop.time()
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(431, f"headers: must be at most {MAX_HEADER_BYTES} bytes")

    def on_message_begin(self) -> None:
        self._waiting_since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._header_bytes, self._in_body = 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._header_bytes, self._in_body, self._waiting_since = 0, False, None
        super().on_message_complete()

    def _is_responding(self) -> bool:
        """Return whether an earlier request is being answered. Data that follows it is not read until then."""
        return bool(self.pipeline) or not (self._in_body or self.cycle is None or self.cycle.response_complete)

    def _check_time(self) -> None:
        now = self.loop.time()
        if self._is_responding():
            self._waiting_since = None if self._waiting_since is None else now
        elif self._waiting_since is not None and now - self._waiting_since >= REQUEST_TIMEOUT:
            self._refuse(408, f"request: must be complete within {REQUEST_TIMEOUT:g} seconds")
            return
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._check_time)

    def _refuse(self, status: int, detail: str) -> None:
        if self.transport.is_closing():
            return
        log.warning("request refused", extra={"status": status, "reason": detail})
        if not self._in_body and not self._is_responding():  # otherwise part of another response may have been sent
            body = encode(Problem(status, detail))
            head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
