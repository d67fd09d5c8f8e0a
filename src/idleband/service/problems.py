"""Errors as responses: a status and a reason of one line, in JSON."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from idleband.errors import ConflictError, InputError, StorageError, UnknownRequestError
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
        line = " ".join(detail.splitlines())
        if len(line) > MAX_DETAIL_LENGTH:  # it may quote the request
            line = f"{line[:MAX_DETAIL_LENGTH]}..."
        super().__init__(encode(Problem(status, line)), status, headers, "application/json")
        self._reason = line

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REASON] = self._reason
        await super().__call__(scope, receive, send)


def error_response(error: Exception) -> ProblemResponse:
    """Return the response for an error; raise the error again if it is not one of the client or the disk."""
    if isinstance(error, HTTPProblem):
        return ProblemResponse(error.status, error.detail, error.headers)
    if isinstance(error, InputError):
        return ProblemResponse(400, str(error))
    if isinstance(error, ConflictError):
        return ProblemResponse(409, str(error))
    if isinstance(error, UnknownRequestError):
        return ProblemResponse(404, str(error))
    if isinstance(error, StorageError):
        return ProblemResponse(503, f"{error}; nothing was acknowledged, send the request again", {"Retry-After": "1"})
    if isinstance(error, MemoryError):
        return ProblemResponse(400, "not enough memory; use fewer channels or a smaller dimension")
    raise error


async def unknown_path(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown path, or with a method that the path does not have."""
    status = getattr(error, "status_code", 404)
    detail = getattr(error, "detail", "Not Found").lower()
    path = request.url.path
    hint = "see /openapi.json"
    if status == 404 and path.startswith(("/allocators", "/playground/")):
        hint = f"paths have a version prefix: /v1{path}"
    return ProblemResponse(status, f"{request.method} {path}: {detail}; {hint}", getattr(error, "headers", None))
