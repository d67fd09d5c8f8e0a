"""A connection that does not wait for ever: what stands beside a body may be only so long, and a request must be here
as a whole in time. The server has neither limit of its own, and a single client could keep it busy or fill it."""

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from idleband.service.http import encode
from idleband.service.messages import Problem

MAX_HEAD_BYTES = 64 * 2**10  # bytes on end that are no body
SLOWEST = 20.0  # seconds until a request is here, the first one of a connection included; looked for as often

_REASONS = {408: "Request Timeout", 431: "Request Header Fields Too Large"}

log = logging.getLogger("idleband.service")


class Connection(HttpToolsProtocol):
    """As uvicorn has it, and with these limits."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head = 0  # bytes since the last that belonged to a body, or ended a request
        self._in_body = False
        self._since: float | None = self.loop.time()  # when a request began to come; None: none is awaited
        self._clock = self.loop.call_later(SLOWEST, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._since is None and not self._answering():  # an empty line, say, which begins nothing
            self._since = self.loop.time()
        if self._head > MAX_HEAD_BYTES:
            self._end(431, f"headers: must be at most {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head, self._in_body = 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head, self._in_body, self._since = 0, False, None
        super().on_message_complete()

    def _answering(self) -> bool:
        """Whether a request that came before is being answered; then nobody reads, and whoever is next must wait."""
        return bool(self.pipeline) or not (self._in_body or self.cycle is None or self.cycle.response_complete)

    def _look(self) -> None:
        now = self.loop.time()
        if self._answering():
            self._since = None if self._since is None else now
        elif self._since is not None and now - self._since >= SLOWEST:
            self._end(408, f"request: must be here as a whole within {SLOWEST:g} seconds")
            return
        self._clock = self.loop.call_later(SLOWEST, self._look)

    def _end(self, status: int, why: str) -> None:
        if self.transport.is_closing():
            return
        log.warning("refused", extra={"status": status, "reason": why})
        if not self._in_body and not self._answering():  # else this would stand in the middle of another answer
            body = encode(Problem(status, why))
            head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
