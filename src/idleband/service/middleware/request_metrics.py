"""Identifiers, counts and durations of requests, and a log entry for each refused one."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idleband.service.histogram import Histogram
from idleband.service.http_request_id import HTTP_REQUEST_ID, http_request_id
from idleband.service.problems import REASON
from idleband.service.tokens import TOKEN

STREAMS = ("/watch", "/playground/run")  # responses that last as long as the client stays: counted, not timed

log = logging.getLogger("idleband.service")


class RequestMetrics:
    """Count requests by method and status, measure their durations, log refused ones.

    Each gets an identifier, which is returned and which every line of the log about the request contains.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: dict[tuple[str, int], int] = {}  # (method, status) -> count
        self.seconds = Histogram()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        identifier = http_request_id(scope)
        HTTP_REQUEST_ID.set(identifier)  # each request is a task with variables of its own

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", identifier)]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self.count(scope, status, time.perf_counter() - began)

    @property
    def total(self) -> int:
        """Number of all requests."""
        return sum(self.requests.copy().values())

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        method, path = scope["method"], scope["path"]
        self.requests[method, status] = self.requests.get((method, status), 0) + 1
        if path.endswith(STREAMS):
            return
        self.seconds.add(seconds)
        if status >= 400:
            fields = {"method": method, "path": path, "status": status, "reason": scope.get(REASON, "")}
            token = {"token": scope[TOKEN].name} if TOKEN in scope else {}
            log.warning("request refused", extra={**fields, "ms": round(seconds * 1e3, 3), **token})
