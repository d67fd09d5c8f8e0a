"""The edge: who may ask, how much and how often; bodies read and answers written; one table of operations, from which
the OpenAPI document is made."""

import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idleband.errors import (
    ConflictError,
    IdlebandError,
    PolicyBusyError,
    StorageError,
    UnknownRequestError,
    unknown,
)
from idleband.service.journal import JournalError
from idleband.service.messages import Problem

log = logging.getLogger("idleband.service")
encode = msgspec.json.Encoder().encode

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)  # seconds, of the latency histogram
STREAMS = ("/watch", "/playground/run")  # answers that last as long as somebody looks: not timed
MAX_CLIENTS = 10_000  # whose rates are remembered
MAX_REASON_LENGTH = 600  # characters
_READ = "idleband.read"  # in a scope: the body was read to its end
_REASON = "idleband.reason"  # in a scope: why it was refused


@dataclass(frozen=True)
class Limits:
    """What one client, and all together, may do."""

    body: int = 4 * 2**20  # bytes of a request
    rate: float = 20_000.0  # requests a second from one address
    connections: int = 256


class Refusal(Exception):
    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class _Refused(Response):
    """An answer that leaves its reason for the log."""

    reason = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[_REASON] = self.reason
        await super().__call__(scope, receive, send)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """A reason in one line, and not a long one, whatever the client's own words in it are."""
    detail = " ".join(detail.splitlines())
    if len(detail) > MAX_REASON_LENGTH:
        detail = f"{detail[:MAX_REASON_LENGTH]}..."
    response = _Refused(encode(Problem(status, detail)), status, headers, "application/json")
    response.reason = detail
    return response


def refused(error: Exception) -> Response:
    """What a client is told of an error; its own mistakes in one line."""
    if isinstance(error, Refusal):
        return problem(error.status, error.detail, error.headers)
    if isinstance(error, IdlebandError):
        statuses = {ConflictError: 409, UnknownRequestError: 404, PolicyBusyError: 503, StorageError: 503}
        status = statuses.get(type(error), 400)
        return problem(status, re.sub("^request_id = ", "request = ", str(error)))  # which is what it is called here
    if isinstance(error, MemoryError):
        return problem(400, "there is not enough memory for this: fewer channels or entries of a context need less")
    if isinstance(error, JournalError):
        return problem(503, f"{error}; nothing was acknowledged, ask again", {"Retry-After": "1"})
    raise error


# --- operations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked for."""

    method: str
    path: str  # with {name} for what varies
    call: Callable[..., Awaitable[Any]]  # with the request and, if there is one, the body
    does: str
    body: type | None = None
    answer: type | None = None  # None: a response of its own
    query: tuple[str, ...] = ()
    media: str = "application/json"
    status: int = 200
    refuses: dict[int, str] = field(default_factory=dict)
    says: dict[int, type] = field(default_factory=dict)  # with these statuses, instead of a Problem


async def read(request: Request, most: int) -> bytes:
    """The body of a request, as long as it is not too long."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "Content-Type: must be application/json")
    size, parts = 0, []
    if _length(request.headers) > most:
        raise Refusal(413, f"body: must be at most {most} bytes")
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Refusal(413, f"body: must be at most {most} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise Refusal(400, "body: ended early") from None
    request.scope[_READ] = True
    return b"".join(parts)


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isdecimal() and len(given) < 100 else 0


def endpoint(operation: Operation, limits: Limits) -> Callable[[Request], Awaitable[Response]]:
    """An operation as Starlette calls it."""
    decode: Callable[[bytes], Any] | None = (
        None if operation.body is None else msgspec.json.Decoder(operation.body).decode
    )

    async def answer(request: Request) -> Response:
        try:
            if decode is None:
                found = await operation.call(request)
            else:
                found = await operation.call(request, _decoded(decode, operation, await read(request, limits.body)))
        except Exception as error:
            return refused(error)
        if isinstance(found, Response):
            return found
        return Response(encode(found), operation.status, media_type="application/json")

    return answer


def _decoded(decode: Callable[[bytes], Any], operation: Operation, body: bytes) -> Any:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = str(error)
        strange = re.fullmatch("Object contains unknown field `(.*)`", said)
        if strange and operation.body is not None:
            said = str(unknown("field", strange[1][:80], [one.name for one in msgspec.structs.fields(operation.body)]))
        elif not body:
            said = "is empty; must be JSON"
        elif "malformed" in said and re.search(rb"\b(NaN|Infinity)\b", body):
            said = f"{said}: NaN and Infinity are no numbers of JSON; all must be finite"
        raise Refusal(400, f"body: {said}") from None
    except RecursionError:
        raise Refusal(400, "body: is nested too deeply") from None


def openapi(operations: Iterable[Operation], version: str, secured: bool) -> dict[str, Any]:
    """The OpenAPI document of a table of operations."""
    operations = list(operations)
    kinds = [kind for one in operations for kind in (one.body, one.answer) if kind is not None]
    _, schemas = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for one in operations:
        parameters = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", one.path)]
        parameters += [_parameter(name, "query") for name in one.query]
        answers: dict[str, Any] = {str(one.status): {"description": one.does, "content": {one.media: _schema(one)}}}
        refuses = _ALWAYS | ({} if one.body is None else _WITH_BODY) | one.refuses
        for status, why in sorted(refuses.items()):
            answers[str(status)] = {
                "description": why,
                "content": {"application/json": {"schema": _reference(one.says.get(status, Problem))}},
            }
        described: dict[str, Any] = {
            "operationId": one.call.__name__,
            "summary": one.does,
            "parameters": parameters,
            "responses": answers,
        }
        if one.body is not None:
            described["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": _reference(one.body)}},
            }
        paths.setdefault(one.path, {})[one.method.lower()] = described
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "idleband", "version": version, "description": "Hands out idle radio channels."},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


_ALWAYS = {
    401: "no token, or a wrong one",
    403: "asked by a page from elsewhere",
    404: "no such path",
    405: "no such method here",
    421: "not the name by which the service was started",
    429: "too many requests",
    503: "the journal cannot be written now, or too many connections",
}
_WITH_BODY = {400: "a mistake in the body", 413: "too large a body", 415: "not JSON"}


def _schema(one: Operation) -> dict[str, Any]:
    """What an answer is: of a type of ours, JSON of another kind, or text."""
    if one.answer is not None:
        return {"schema": _reference(one.answer)}
    return {} if one.media == "application/json" else {"schema": {"type": "string"}}


def _reference(kind: type | None) -> dict[str, Any]:
    assert kind is not None
    return {"$ref": f"#/components/schemas/{(get_args(kind) or (kind,))[0].__name__}"}


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string", "minLength": 1}}


# --- the gate --------------------------------------------------------------------------------------------------------


class Gate:
    """Before anything is read: the token, the rate, the name by which we were called. Behind it: times and counts."""

    def __init__(
        self, app: ASGIApp, token: str | None, limits: Limits, hosts: tuple[str, ...], open_paths: frozenset[str]
    ) -> None:
        self.app, self.limits = app, limits
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(hosts)
        self._open = open_paths
        self._buckets: dict[str, tuple[float, float]] = {}  # address -> requests left, when that was counted
        self.requests: dict[tuple[str, int], int] = {}  # (method, status) -> how many
        self.seconds = [0] * (len(BUCKETS) + 1)
        self.seconds_sum = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if _has_body(scope) and _READ not in scope:
                    # Whoever is answered before all is said may go on for ever, and nobody would listen.
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            no = self._refusal(scope)
            await (self.app if no is None else no)(scope, receive, told)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        if not self._within_rate(address):
            return problem(429, f"more than {self.limits.rate:g} requests a second", {"Retry-After": "1"})
        if self._token is not None:
            kind, _, given = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode(), self._token) and kind.lower() == "bearer"
            if not right and scope["path"] not in self._open:
                return problem(401, "Authorization: must be Bearer and the token", {"WWW-Authenticate": "Bearer"})
        elif _host(headers.get("host", "")) not in self._hosts:
            # Without a token only this machine may ask; a page from elsewhere must not have its name point here.
            return problem(421, "Host: must be the name by which this service was started")
        elif scope["path"] not in self._open and self._from_elsewhere(headers):
            # Nor may it have the browser of somebody on this machine ask for it.
            return problem(403, "Origin: a page from elsewhere may not ask")
        return None

    def _from_elsewhere(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
            return True
        return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")

    def _within_rate(self, address: str) -> bool:
        now, rate = time.monotonic(), self.limits.rate
        left, when = self._buckets.get(address, (rate, now))
        left = min(rate, left + (now - when) * rate)
        if len(self._buckets) >= MAX_CLIENTS and address not in self._buckets:
            self._buckets.clear()
        within = left >= 1.0
        self._buckets[address] = (
            left - within,
            now,
        )  # what is refused costs nothing: who asks on is let in at the rate
        return within

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        key = (scope["method"], status)
        self.requests[key] = self.requests.get(key, 0) + 1
        if scope["path"].endswith(STREAMS):
            return
        self.seconds_sum += seconds
        for i, limit in enumerate(BUCKETS):
            if seconds <= limit:
                self.seconds[i] += 1
                break
        else:
            self.seconds[-1] += 1
        if status >= 400:
            log.warning(
                "refused",
                extra={
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "reason": scope.get(_REASON, ""),
                    "ms": round(seconds * 1e3, 3),
                },
            )


_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
