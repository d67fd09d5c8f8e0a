"""A connection that does not wait for ever: what stands before a body may be only so long, and a request must be here
as a whole in time. The server has neither limit of its own, and a single client could keep it busy or fill it."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from idleband.service.http import encode
from idleband.service.messages import Problem

LONGEST_HEAD = 64 * 2**10  # bytes of a request before its body
SLOWEST = 20.0  # seconds until a request is here, the first one of a connection included; looked for as often

_REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large"}


class Connection(HttpToolsProtocol):
    """As uvicorn has it, and with these limits."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = 0  # bytes of a request whose headers are not complete
        self._in_body = False
        self._since: float | None = self.loop.time()  # when it began to come; None: nothing is awaited
        self._clock = self.loop.call_later(SLOWEST, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += len(data)
        super().data_received(data)
        if self._head > LONGEST_HEAD and not self._in_body:
            self._end(431, f"headers: must be at most {LONGEST_HEAD} bytes")

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head, self._in_body = 0, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body, self._since = False, None
        super().on_message_complete()

    def _look(self) -> None:
        if self._since is not None and self.loop.time() - self._since >= SLOWEST:
            self._end(408, f"request: must be here as a whole within {SLOWEST:g} seconds")
        else:
            self._clock = self.loop.call_later(SLOWEST, self._look)

    def _end(self, status: int, why: str) -> None:
        if self.transport.is_closing():
            return
        if not self._in_body:  # else somebody may be answering already
            body = encode(Problem(status, why))
            head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
