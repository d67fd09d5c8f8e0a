"""Forwarding of requests for allocators that another process owns."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idleband.service.http_forwarder import STREAM_TIMEOUT, ForwardedResponse, Headers, HttpForwarder, UnreachableError
from idleband.service.http_request_id import HTTP_REQUEST_ID
from idleband.service.journal import JournalError, SharedJournal
from idleband.service.manager import AllocatorManager
from idleband.service.middleware.headers import header
from idleband.service.middleware.security_headers import HEADERS
from idleband.service.operations import EVENT_STREAM, NAMES
from idleband.service.problems import HTTPProblem, encode, error_response, taken_over
from idleband.service.request_body import BODY_READ, BodySize, read_body

FORWARDED = b"idleband-forwarded"  # header of a forwarded request, which is not forwarded again
RECEIVE_TIMEOUT = 2.0  # seconds to wait for an allocator that this process has just taken over
OWNER_INTERVAL = 2.0  # seconds between two looks whether an owner that has not answered yet is still one
OWNER_TIMEOUT = 1.0  # seconds for which the address of an owner is remembered
CREATE, STEPS = NAMES.removesuffix("/"), "/v1/steps"
# Headers of a request that are for this process, and of a response that are of the other one.
_OF_A_CONNECTION = [b"connection", b"keep-alive", b"transfer-encoding", b"content-length"]
_NOT_SENT = frozenset(
    [
        *_OF_A_CONNECTION,
        b"host",
        b"expect",
        b"te",
        b"upgrade",
        b"origin",
        b"referer",
        b"x-forwarded-for",
        b"x-request-id",
        FORWARDED,
    ]
)
_NOT_RETURNED = frozenset([*_OF_A_CONNECTION, b"date", b"server", b"x-request-id", *(name for name, _ in HEADERS)])


class _Named(msgspec.Struct):
    """What has a name, and perhaps more."""

    name: str


class _Steps(msgspec.Struct):
    steps: list[msgspec.Raw]


class _Results(msgspec.Struct):
    results: list[msgspec.Raw]


class Forwarding:
    """Forward requests for allocators that another process owns, and return its response.

    It stands behind the checks of the token and the limits. A request that was forwarded is not forwarded again: while
    an allocator changes its owner, it gets 503 and is repeated by the client.
    """

    def __init__(self, app: ASGIApp, manager: AllocatorManager, journal: SharedJournal, max_body: int) -> None:
        self._app, self._manager, self._journal, self._max_body = app, manager, journal, max_body
        self._forwarder = HttpForwarder()
        self._streams: set[asyncio.Task[None]] = set()
        self._owners: dict[str, tuple[str, float]] = {}  # name -> address, and until when it is believed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.startswith(NAMES):
            name = path[len(NAMES) :].partition("/")[0]
            if not self._manager.owns(name):
                await self._answer(scope, receive, send, self._one(name))
                return
        elif path in (CREATE, STEPS) and scope["method"] == "POST":
            await self._answer(scope, receive, send, self._create if path == CREATE else self._steps)
            return
        await self._app(scope, receive, send)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, work: Callable[..., Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await work(scope, receive, send)
        except (HTTPProblem, JournalError) as error:
            await error_response(error)(scope, receive, send)

    def end_streams(self) -> None:
        """End the streams of other processes, and close the connections to them."""
        for task in self._streams:
            task.cancel()
        self._forwarder.close()

    # --- requests ----------------------------------------------------------------------------------------------------

    def _one(self, name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        """Return what answers a request for the allocator of this name."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            address = await self._address(scope, name)
            if address is None:
                await self._app(scope, receive, send)
            else:
                body = await self._body(scope, receive) if scope["method"] not in ("GET", "HEAD") else b""
                await self._forward(scope, receive, send, name, address, body)

        return answer

    async def _create(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._body(scope, receive)
        names = _names([msgspec.Raw(body)])
        address = await self._address(scope, names[0]) if names and not self._manager.owns(names[0]) else None
        if address is None:
            await self._app(scope, _received(body, receive), send)
        else:
            await self._forward(scope, receive, send, names[0], address, body)

    async def _steps(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send each process its steps, and put the results together."""
        body = await self._body(scope, receive)
        try:
            steps = msgspec.json.decode(body, type=_Steps).steps
            names = _names(steps)
        except msgspec.DecodeError:
            names = []
        parts: dict[str | None, list[int]] = {}
        for i, name in enumerate(names):
            parts.setdefault(None if self._manager.owns(name) else await self._address(scope, name), []).append(i)
        if set(parts) <= {None}:
            await self._app(scope, _received(body, receive), send)
            return
        results: list[msgspec.Raw] = [msgspec.Raw()] * len(names)
        for address, indices in parts.items():
            part = encode({"steps": [steps[i] for i in indices]})
            status, headers, answer = await self._part(scope, receive, address, names[indices[0]], part)
            if status != 200:
                await _send_response(send, status, headers, answer)
                return
            for i, one in zip(indices, msgspec.json.decode(answer, type=_Results).results, strict=True):
                results[i] = one
        answer = encode({"results": results})
        await _send_response(send, 200, [(b"content-type", b"application/json")], answer)

    async def _part(
        self, scope: Scope, receive: Receive, address: str | None, name: str, body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return status, headers and body of the response to a part of the steps."""
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        if address is None:
            length = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await self._app({**scope, "headers": length}, _received(body, receive), keep)
        else:
            await self._forward(scope, receive, keep, name, address, body)
        headers = [(name.lower(), value) for name, value in sent[0]["headers"]]
        return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if BODY_READ in scope:
            return b""
        request = Request(scope, receive)
        if not request.headers.get("content-type") and request.headers.get("content-length", "0") == "0":
            return b""  # of an operation without a body
        return await read_body(request, BodySize(self._max_body, self._max_body), self._max_body)

    # --- owners ------------------------------------------------------------------------------------------------------

    async def _address(self, scope: Scope, name: str) -> str | None:
        """Return where the owner of an allocator is; None if it is this process, or if there is no such allocator."""
        address, until = self._owners.get(name, ("", 0.0))
        if time.monotonic() > until:
            owner = await self._journal.find_owner(name)
            if owner is None or self._manager.owns(name):
                return None
            if owner.is_here and await self._is_received(name):
                return None
            if owner.is_here or owner.address is None:
                raise taken_over(name)
            address = owner.address
            if len(self._owners) > 10_000:
                self._owners.clear()
            self._owners[name] = address, time.monotonic() + OWNER_TIMEOUT
        if header(scope, FORWARDED) is not None:
            self._owners.pop(name, None)
            raise taken_over(name)
        return address

    async def _is_received(self, name: str) -> bool:
        """Wait a little until the manager knows that this process owns an allocator; return whether it does."""
        until = time.monotonic() + RECEIVE_TIMEOUT
        while not self._manager.owns(name) and time.monotonic() < until:
            self._manager.recover()
            await asyncio.sleep(0.01)
        return self._manager.owns(name)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, name: str, address: str, body: bytes) -> None:
        """Send a request to another process, and its response to the client, for as long as that is the owner."""
        begun: list[Message] = []

        async def note(message: Message) -> None:
            if not begun:
                begun.append(message)
            await send(message)

        work = asyncio.create_task(self._exchange(scope, receive, note, address, body))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=OWNER_INTERVAL)
                if not work.done() and not await self._is_owner(scope, name, address):
                    break
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        error = taken_over(name) if work.cancelled() else work.exception()
        if error is None or begun:  # the client of a stream connects again
            return
        if not isinstance(error, UnreachableError):
            raise error
        self._owners.pop(name, None)
        detail = f"allocator {name}: the process that owns it does not answer ({error}); send the request again"
        raise HTTPProblem(503, detail, {"Retry-After": "1"})

    async def _is_owner(self, scope: Scope, name: str, address: str) -> bool:
        try:
            return await self._address(scope, name) == address
        except (HTTPProblem, JournalError):
            return False

    async def _exchange(self, scope: Scope, receive: Receive, send: Send, address: str, body: bytes) -> None:
        query = scope.get("query_string", b"").decode("latin-1")
        target = quote(scope["path"]) + (f"?{query}" if query else "")
        async with self._forwarder.send(address, scope["method"], target, _sent(scope), body) as response:
            headers = [one for one in response.headers if one[0] not in _NOT_RETURNED]
            if scope["method"] == "HEAD":  # the parser would wait for the body
                await _send_response(send, response.status, headers, b"")
            elif _is_stream(headers):
                await send({"type": "http.response.start", "status": response.status, "headers": headers})
                await self._stream(response, receive, send)
            else:
                answer = b"".join([part async for part in response.parts()])
                await _send_response(send, response.status, headers, answer)

    async def _stream(self, response: ForwardedResponse, receive: Receive, send: Send) -> None:
        """Send a stream until it ends, the client leaves or the service is stopped."""
        tasks = {asyncio.create_task(_copy(response, send)), asyncio.create_task(_gone(receive))}
        self._streams |= tasks
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams -= tasks
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(response: ForwardedResponse, send: Send) -> None:
    """Send a stream until it ends; a client that wants to go on connects again."""
    response.timeout = STREAM_TIMEOUT
    try:
        async for part in response.parts():
            await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        response.keeps_open = False
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _names(items: list[msgspec.Raw]) -> list[str]:
    """Return the names of items; none if one has no name."""
    try:
        return [msgspec.json.decode(item, type=_Named).name for item in items]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []  # the application says what is wrong


def _sent(scope: Scope) -> Headers:
    own = [(FORWARDED, b"1"), (b"x-request-id", HTTP_REQUEST_ID.get())]  # of this request in both logs
    return [*(one for one in scope["headers"] if one[0] not in _NOT_SENT and one[0][:4] != b"sec-"), *own]


def _is_stream(headers: Headers) -> bool:
    return any(name == b"content-type" and value.startswith(EVENT_STREAM.encode()) for name, value in headers)


def _received(body: bytes, receive: Receive) -> Receive:
    """Return what receives a body that was read before, and then what follows it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


async def _send_response(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*(one for one in headers if one[0] != b"content-length"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
