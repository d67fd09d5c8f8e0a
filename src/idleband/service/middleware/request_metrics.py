"""Counts and durations of requests, and a log entry for each refused one."""

import logging
import time
from bisect import bisect_left

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idleband.service.problems import REASON

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)  # seconds; upper limits of the histogram
STREAMS = ("/watch", "/playground/run")  # responses that last as long as the client stays: counted, not timed

log = logging.getLogger("idleband.service")


class RequestMetrics:
    """Count requests by method and status, measure their durations, log refused ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: dict[tuple[str, int], int] = {}  # (method, status) -> count
        self.histogram = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    @property
    def total(self) -> int:
        """Number of all requests."""
        return sum(self.requests.copy().values())

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        self.requests[method, status] = self.requests.get((method, status), 0) + 1
        if path.endswith(STREAMS):
            return
        self.seconds += seconds
        self.histogram[bisect_left(BUCKETS, seconds)] += 1
        if status >= 400:
            fields = {"method": method, "path": path, "status": status, "reason": scope.get(REASON, "")}
            log.warning("request refused", extra={**fields, "ms": round(seconds * 1e3, 3)})
