"""Operations: the entries of the table from which routes and the OpenAPI document are made."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from idleband.service.problems import HTTPProblem, encode, error_response
from idleband.service.request_body import BodySize, body_decoder, read_body
from idleband.service.tokens import ROLES, TOKEN, Token

EVENT_STREAM = "text/event-stream"
NAMES = "/v1/allocators/"  # beginning of the paths of one allocator
ALLOCATOR = f"{NAMES}{{name}}"

OPERATION = "idleband.operation"  # key in a scope: method and path of the operation, for traces


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
    role: int = field(kw_only=True)  # that the token of a request must have at least


def route(operation: Operation, max_body: int) -> Route:
    """Return the route of an operation."""
    made = Route(operation.path, endpoint(operation, max_body), methods=[operation.method])
    if operation.media_type == EVENT_STREAM and made.methods is not None:
        made.methods.discard("HEAD")  # the response to HEAD would not end either
    return made


def endpoint(operation: Operation, max_body: int) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that starlette calls for an operation."""
    handler, body_size = operation.handler, operation.body_size or (lambda _: BodySize(max_body, max_body))
    decode = None if operation.body is None else body_decoder(operation.body)
    role, name = operation.role, f"{operation.method} {operation.path}"

    async def respond(request: Request) -> Response:
        request.scope[OPERATION] = name
        try:
            token = request.scope.get(TOKEN)
            if token is not None and token.role < role:
                raise _forbidden(operation, token)
            if decode is None:
                found = await handler(request)
            else:
                found = await handler(request, decode(await read_body(request, body_size(request), max_body)))
        except Exception as error:
            return error_response(error)
        return found if isinstance(found, Response) else json_response(found)

    return respond


def _forbidden(operation: Operation, token: Token) -> HTTPProblem:
    has, needed = ROLES[token.role], ROLES[operation.role]
    return HTTPProblem(403, f"token: has the role {has}; {operation.method} {operation.path} needs {needed}")


def json_response(message: Any, status: int = 200) -> Response:
    """Return a message as JSON."""
    return _JSONResponse(encode(message), status)


class _JSONResponse(Response):
    """A response whose headers are known."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
