"""Operations: the entries of the table from which routes and the OpenAPI document are made."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.problems import encode, error_response
from idleband.service.request_body import BodySize, body_decoder, read_body

EVENT_STREAM = "text/event-stream"
NAMES = "/v1/allocators/"  # beginning of the paths of one allocator
ALLOCATOR = f"{NAMES}{{name}}"

_Respond = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Operation:
    """One method on one path."""

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]  # called with the request and, if there is a body, with the decoded body
    summary: str
    body: type | None = None
    response: type | None = None  # None: the handler returns a starlette Response
    query: tuple[str, ...] = ()  # names of required query parameters
    optional_query: dict[str, str] = field(default_factory=dict)  # names of others -> description
    media_type: str = "application/json"
    errors: dict[int, str] = field(default_factory=dict)  # status -> meaning, beside those of every operation
    body_size: Callable[[Request], BodySize] | None = None  # size up to which the body of a request can be valid
    error_responses: dict[int, type] = field(default_factory=dict)  # status -> message, where it is not a Problem
    every_slot: bool = False  # whether it is requested in every slot, and must be fast


def route(operation: Operation, max_body: int) -> Route:
    """Return the route of an operation."""
    made = Route(operation.path, endpoint(operation, max_body), methods=[operation.method])
    if operation.media_type == EVENT_STREAM and made.methods is not None:
        made.methods.discard("HEAD")  # the response to HEAD would not end either
    return made


class DirectRoutes:
    """Answers the operations of every slot without Starlette's router, which tries the pattern of every route.

    It stands behind all middleware, as the router does, and calls the same function of the operation. Everything else
    goes on to the router, also other methods on the same paths.
    """

    def __init__(self, app: ASGIApp, operations: Sequence[Operation], max_body: int) -> None:
        self._app = app
        self._fixed: dict[str, _Respond] = {}  # by path
        self._named: dict[str, _Respond] = {}  # by what follows the name of the allocator
        for one in operations:
            assert one.method == "POST", one.path
            rest = one.path.removeprefix(ALLOCATOR)
            (self._fixed if rest == one.path else self._named)[rest] = endpoint(one, max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        respond = self._find(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if respond is None:
            await self._app(scope, receive, send)
            return
        response = await respond(Request(scope, receive))
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> _Respond | None:
        path = scope["path"]
        if not path.startswith(NAMES):
            return self._fixed.get(path)
        name, slash, rest = path[len(NAMES) :].partition("/")
        if not name or "/" in rest:
            return None
        scope["path_params"] = {"name": name}
        return self._named.get(slash + rest)


def endpoint(operation: Operation, max_body: int) -> _Respond:
    """Return the function that starlette calls for an operation."""
    handler, body_size = operation.handler, operation.body_size or (lambda _: BodySize(max_body, max_body))
    decode = None if operation.body is None else body_decoder(operation.body)

    async def respond(request: Request) -> Response:
        try:
            if decode is None:
                found = await handler(request)
            else:
                found = await handler(request, decode(await read_body(request, body_size(request), max_body)))
        except Exception as error:
            return error_response(error)
        return found if isinstance(found, Response) else json_response(found)

    return respond


def json_response(message: Any, status: int = 200) -> Response:
    """Return a message as JSON."""
    return Response(encode(message), status, media_type="application/json")
