"""Limits on connections that uvicorn does not have: headers, times, pipelined requests, and how many are open.

Without them a single client could fill the memory of the server or hold connections for ever. This is the only module
that uses uvicorn's protocol class, which is not a documented interface: `pyproject.toml` bounds the version of uvicorn,
and tests/service/test_connection.py checks the methods and attributes that are used here.

**Pipelined requests.** A client may send further requests before the response to the first. uvicorn parses all that it
has read and keeps an object per request, some hundred times as large as a short request. Here data is parsed in small
pieces, and only while no request waits for the response to an earlier one; the rest is kept as it came, and nothing
more is read until it has been parsed. The client then cannot send more, because its own buffers are full.
"""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from idleband.service.messages import Problem
from idleband.service.open_connections import ADMIT, OpenConnections
from idleband.service.problems import encode

MAX_HEADER_BYTES = 64 * 2**10  # consecutive bytes that do not belong to a body
# Seconds until a request is complete, also for the first one of a connection, and within which a client must read part
# of what is sent to it. They are checked at this interval, so that a connection ends after one to two of them.
REQUEST_TIMEOUT = 20.0
PIECE = 1024  # bytes that are parsed at once, which may contain several requests; bodies are not cut

_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}

log = logging.getLogger("idleband.service")


class _HeldFlowControl(FlowControl):
    """Flow control that does not resume reading while data that was read waits to be parsed."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class _JoinedWrites:
    """The transport of one response, which sends the head together with the body: a write costs a system call."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._transport, self._head = cycle, cycle.transport, b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif self._cycle.response_started and b"\r\ncontent-length: " in data:  # the head of a response, not a stream
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head that has no body."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()


class LimitedConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits on headers, pipelined requests, and the time to send and to read."""

    flow: _HeldFlowControl

    def __init__(self, open_connections: OpenConnections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open_connections = open_connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _HeldFlowControl(transport)
        self._responding: RequestResponseCycle | None = None  # to the present request; uvicorn keeps the last one read
        self._unparsed = b""  # read, and waiting until earlier requests are answered
        self._body_left = 0  # bytes of the present body that are still to come, if its length is known
        self._header_bytes = 0  # bytes since the last byte of a body or the end of a request
        self._in_body = False
        self._unsent = 0  # bytes that waited to be sent at the last check of the time
        self._waiting_since: float | None = self.loop.time()  # None while no request is expected
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._check_time)
        self._open_connections.add(self, "" if self.client is None else self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._open_connections.remove(self)
        if self._responding is not None and not self._responding.response_complete:
            self._responding.disconnected = True  # otherwise it would write to a closed connection
            self._responding.message_event.set()
        super().connection_lost(exc)

    def evict(self) -> None:
        """Close the connection for another one."""
        if self.transport.get_write_buffer_size():  # otherwise it would stay open until the client reads
            self.transport.abort()
        else:
            self._refuse(503, "connections: closed for a newer one, because no request was authenticated before")

    # --- reading -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._parse()
        if self._waiting_since is None and not self._is_responding():  # for example an empty line between requests
            self._waiting_since = self.loop.time()

    def _parse(self) -> None:
        """Parse what was read until a request has to wait for the response to an earlier one."""
        data, at = memoryview(self._unparsed), 0
        while at < len(data) and not self.pipeline and not self.transport.is_closing():
            piece = data[at : at + max(PIECE, self._body_left)]
            at += len(piece)
            self._header_bytes += len(piece)
            super().data_received(piece)  # type: ignore[arg-type]  # the parser takes any buffer
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(431, f"headers: must be at most {MAX_HEADER_BYTES} bytes")
        self._unparsed = b"" if self.transport.is_closing() else bytes(data[at:])
        self.flow.held = bool(self.pipeline)
        if self.flow.held:
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._responding = cycle
        cycle.transport = _JoinedWrites(cycle)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        assert self._responding is not None
        self._responding.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
        if self.flow.held and not self.pipeline and not self.transport.is_closing():
            self._parse()
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        self._waiting_since = self.loop.time()
        super().on_message_begin()
        self.scope[ADMIT] = self._admit  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._header_bytes, self._in_body = 0, True
        self._body_left = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._header_bytes, self._body_left, self._in_body, self._waiting_since = 0, 0, False, None
        super().on_message_complete()

    def _admit(self) -> bool:
        """Let the connection stay, because its request was authenticated; return whether there is a place."""
        return self._open_connections.admit(self)

    # --- time --------------------------------------------------------------------------------------------------------

    def _is_responding(self) -> bool:
        """Return whether an earlier request is being answered. Data that follows it is not read until then."""
        return bool(self.pipeline) or not (self._in_body or self.cycle is None or self.cycle.response_complete)

    def _check_time(self) -> None:
        now = self.loop.time()
        unsent, before = self.transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent and unsent == before and (self.flow.write_paused or self.transport.is_closing()):
            log.warning("connection closed", extra={"reason": f"nothing was read for {REQUEST_TIMEOUT:g} seconds"})
            self.transport.abort()
            return
        if self._is_responding():
            self._waiting_since = None if self._waiting_since is None else now
        elif self._waiting_since is not None and now - self._waiting_since >= REQUEST_TIMEOUT:
            self._refuse(408, f"request: must be complete within {REQUEST_TIMEOUT:g} seconds")
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
