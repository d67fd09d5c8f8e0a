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
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from idleband.service.direct_requests import MAX_BODY, DirectRequests, Respond
from idleband.service.messages import Problem
from idleband.service.middleware.security_headers import LINES as SECURITY_LINES
from idleband.service.open_connections import ADMIT, OpenConnections
from idleband.service.problems import encode

MAX_HEADER_BYTES = 64 * 2**10  # consecutive bytes that do not belong to a body
# Seconds until a request is complete, also for the first one of a connection, and within which a client must read part
# of what is sent to it. They are checked at this interval, so that a connection ends after one to two of them.
REQUEST_TIMEOUT = 20.0
PIECE = 1024  # bytes that are parsed at once, which may contain several requests; bodies are not cut

_STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}

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

    def __init__(
        self, open_connections: OpenConnections, direct: DirectRequests, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._open_connections, self._direct = open_connections, direct
        self._direct_respond: Respond | None = None  # answers the present request when its body is complete

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
            self._answer_directly()
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(431, f"headers: must be at most {MAX_HEADER_BYTES} bytes")
        self._unparsed = b"" if self.transport.is_closing() else bytes(data[at:])
        self.flow.held = bool(self.pipeline)
        if self.flow.held:
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._responding = cycle
        if self._is_short(cycle):
            self._direct_respond = self._direct.find(cycle.scope)
            if self._direct_respond is not None:
                return
        cycle.transport = _JoinedWrites(cycle)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def _is_short(self, cycle: RequestResponseCycle) -> bool:
        """Return whether the body of a request is short and of known length, and nothing else is unusual."""
        known = not cycle.more_body or self._body_left > 0
        short = len(cycle.body) + self._body_left <= MAX_BODY
        return known and short and cycle.keep_alive and not cycle.waiting_for_100_continue

    def on_response_complete(self) -> None:
        assert self._responding is not None
        if isinstance(self._responding.transport, _JoinedWrites):
            self._responding.transport.flush()
        super().on_response_complete()
        self._answer_directly()  # the next request, if it was read already
        if self.flow.held and not self.pipeline and not self.transport.is_closing():
            self._parse()
            self.flow.resume_reading()

    def on_message_begin(self) -> None:
        self._waiting_since = self.loop.time()
        super().on_message_begin()
        self.scope[ADMIT] = self._admit  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._header_bytes, self._in_body = 0, True
        self._body_left = 0
        for name, value in self.headers:
            if name == b"content-length":
                self._body_left = int(value)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._header_bytes, self._body_left, self._in_body, self._waiting_since = 0, 0, False, None
        super().on_message_complete()

    # --- requests of every slot --------------------------------------------------------------------------------------

    def _answer_directly(self) -> None:
        """Answer the present request if its body is complete and it does not go through ASGI."""
        respond, cycle = self._direct_respond, self._responding
        if respond is None or cycle is None or cycle.more_body:
            return
        self._direct_respond = None
        self._direct.answer(cycle.scope, bytes(cycle.body), respond, partial(self._reply, cycle))

    def _reply(self, cycle: RequestResponseCycle, response: Response) -> None:
        if self.flow.write_paused and not cycle.disconnected:
            self.loop.create_task(self._reply_later(cycle, response))
            return
        if cycle.disconnected:
            return
        head = _STATUS_LINES[response.status_code]
        for name, value in (*self.server_state.default_headers, *response.raw_headers):
            head += b"%s: %s\r\n" % (name, value)
        if b"\r\nconnection: close" in head:
            cycle.keep_alive = False
        elif not cycle.keep_alive:  # the service is being stopped
            head += b"connection: close\r\n"
        self.transport.write(b"%s%s\r\n%s" % (head, SECURITY_LINES, response.body))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    async def _reply_later(self, cycle: RequestResponseCycle, response: Response) -> None:
        """Reply when the client has read part of what was sent to it."""
        await self.flow.drain()
        self._reply(cycle, response)

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
            head = f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write(_STATUS_LINES[status] + head.encode() + body)
        self.transport.close()
