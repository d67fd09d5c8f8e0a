"""Requests to other processes of the service, over connections that are kept open."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

CONNECT_TIMEOUT, RESPONSE_TIMEOUT = 2.0, 60.0  # seconds; a first decision may compile its policy
STREAM_TIMEOUT = 40.0  # seconds between two parts of a stream
IDLE_TIMEOUT = 15.0  # seconds for which a connection is kept; a service closes it after 30
MAX_IDLE = 64  # connections to one process
READ_BYTES = 2**16

Headers = Iterable[tuple[bytes, bytes]]


class UnreachableError(Exception):
    """A process did not answer."""


class ForwardedResponse:
    """A response whose parts are read one after the other."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.keeps_open = False
        self.timeout = RESPONSE_TIMEOUT  # between two parts
        self._reader, self._parts = reader, list[bytes]()
        self._complete = False
        self._parser = httptools.HttpResponseParser(self)

    # --- called by the parser ----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self._complete = True
        self.keeps_open = self._parser.should_keep_alive()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read_head(self) -> None:
        """Read until the headers are complete."""
        while not self.status:
            await self._read()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body part by part, as it arrives."""
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._complete:
                return
            await self._read()

    async def _read(self) -> None:
        try:
            data = await asyncio.wait_for(self._reader.read(READ_BYTES), self.timeout)
            if not data:
                raise UnreachableError("the connection was closed")
            self._parser.feed_data(data)
        except (OSError, TimeoutError, httptools.HttpParserError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from None


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float  # when it became idle


class HttpForwarder:
    """Sends requests to processes by their addresses, such as http://10.0.0.5:8765. Belongs to one event loop."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = {}

    @contextlib.asynccontextmanager
    async def send(
        self, address: str, method: str, target: str, headers: Headers, body: bytes
    ) -> AsyncIterator[ForwardedResponse]:
        """Yield the response to a request. Raises UnreachableError, also while the response is read.

        A request over a connection that was idle is sent again over a new one where there is no response.
        """
        idle = self._idle.setdefault(address, [])
        while idle and time.monotonic() - idle[-1].since > IDLE_TIMEOUT:
            idle.pop().writer.close()
        connection = idle.pop() if idle else None
        was_idle = connection is not None
        head = _head(address, method, target, headers, body)
        while True:
            connection = connection or await _connect(address)
            try:
                response = ForwardedResponse(connection.reader)
                connection.writer.write(head + body)
                await response.read_head()
                break
            except BaseException as error:
                connection.writer.close()
                if not was_idle or not isinstance(error, UnreachableError):
                    raise
                connection, was_idle = None, False
        try:
            yield response
        finally:
            if response.keeps_open and len(idle) < MAX_IDLE:
                idle.append(connection._replace(since=time.monotonic()))
            else:
                connection.writer.close()

    def close(self) -> None:
        """Close the idle connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.writer.close()
        self._idle.clear()


async def _connect(address: str) -> _Connection:
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        opening = asyncio.open_connection(parts.hostname, port, ssl=parts.scheme == "https" or None)
        return _Connection(*await asyncio.wait_for(opening, CONNECT_TIMEOUT), 0.0)
    except (OSError, TimeoutError) as error:
        raise UnreachableError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None


def _head(address: str, method: str, target: str, headers: Headers, body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1\r\nhost: {urlsplit(address).netloc}\r\n".encode("latin-1")]
    lines += [b"%s: %s\r\n" % header for header in headers]
    return b"".join([*lines, b"content-length: %d\r\n\r\n" % len(body)])
