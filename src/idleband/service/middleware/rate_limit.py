"""A limit on the requests per second from one address."""

import time

from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.problems import ProblemResponse

MAX_ADDRESSES = 10_000  # whose rates are remembered


class RateLimit:
    """Refuse requests above a rate. Each address has a token bucket that holds the requests of one second."""

    def __init__(self, app: ASGIApp, rate: float) -> None:
        self._app, self._rate = app, rate
        self._buckets: dict[str, tuple[float, float]] = {}  # address -> (requests left, time of the last request)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not self._within_rate(scope):
            app = ProblemResponse(429, f"more than {self._rate:g} requests per second", {"Retry-After": "1"})
        await app(scope, receive, send)

    def _within_rate(self, scope: Scope) -> bool:
        address = scope["client"][0] if scope.get("client") else ""
        now, rate = time.monotonic(), self._rate
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= MAX_ADDRESSES:
                self._buckets.clear()
            left = rate
        else:
            left = min(rate, bucket[0] + (now - bucket[1]) * rate)
        within = left >= 1.0
        self._buckets[address] = left - within, now  # a refused request takes nothing from the bucket
        return within
