"""Errors as responses: a status and a reason of one line, in JSON."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from idleband.errors import ConflictError, InputError, PolicyBusyError, StorageError, UnknownRequestError
from idleband.service.messages import Problem

MAX_DETAIL_LENGTH = 600  # characters
REASON = "idleband.reason"  # key in a scope: why the request was refused, for the log

encode = msgspec.json.Encoder().encode


class HTTPProblem(Exception):
    """An error with an HTTP status, raised while a request is handled."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class ProblemResponse(Response):
    """A response with a reason, which it also records in the scope for the log."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        problem = new_problem(status, detail)
        super().__init__(encode(problem), status, headers, "application/json")
        self.reason = problem.detail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REASON] = self.reason
        await super().__call__(scope, receive, send)


def new_problem(status: int, detail: str) -> Problem:
    """Return a problem with a reason of one line."""
    line = " ".join(detail.splitlines())
    if len(line) > MAX_DETAIL_LENGTH:  # it may quote the request
        line = f"{line[:MAX_DETAIL_LENGTH]}..."
    return Problem(status, line)


def http_problem(error: Exception) -> HTTPProblem:
    """Return an error with its HTTP status; raise it again if it is not one of the client or the disk."""
    if isinstance(error, HTTPProblem):
        return error
    if isinstance(error, InputError):
        return HTTPProblem(400, str(error))
    if isinstance(error, ConflictError):
        return HTTPProblem(409, str(error))
    if isinstance(error, UnknownRequestError):
        return HTTPProblem(404, str(error))
    if isinstance(error, StorageError):
        return HTTPProblem(503, f"{error}; nothing was acknowledged, send the request again", {"Retry-After": "1"})
    if isinstance(error, PolicyBusyError):
        return HTTPProblem(503, str(error), {"Retry-After": "1"})
    if isinstance(error, MemoryError):
        return HTTPProblem(400, "not enough memory; use fewer channels or a smaller dimension")
    raise error


def taken_over(name: str) -> HTTPProblem:
    """Return the error for a request to an allocator that changes its owner."""
    detail = f"allocator {name}: is being taken over by another process; send the request again"
    return HTTPProblem(503, detail, {"Retry-After": "1"})


def error_response(error: Exception) -> ProblemResponse:
    """Return the response for an error; raise the error again if it is not one of the client or the disk."""
    problem = http_problem(error)
    return ProblemResponse(problem.status, problem.detail, problem.headers)


async def unknown_path(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path, or with a method that the path does not have."""
    status = getattr(error, "status_code", 404)
    detail = getattr(error, "detail", "Not Found").lower()
    path = request.url.path
    hint = "see /openapi.json"
    if status == 404 and path.startswith(("/allocators", "/playground/")):
        hint = f"paths have a version prefix: /v1{path}"
    return ProblemResponse(status, f"{request.method} {path}: {detail}; {hint}", getattr(error, "headers", None))
