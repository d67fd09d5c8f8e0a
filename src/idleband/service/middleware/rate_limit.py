"""A limit on the requests per second from one address."""

import time

from starlette.types import ASGIApp, Scope

from idleband.service.middleware.check import Check
from idleband.service.problems import ProblemResponse

MAX_ADDRESSES = 10_000  # whose rates are remembered


class RateLimit(Check):
    """Refuse requests above a rate. Each address has a token bucket that holds the requests of one second."""

    def __init__(self, app: ASGIApp, rate: float) -> None:
        super().__init__(app)
        self._rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}  # address -> (requests left, time of the last request)

    def refusal(self, scope: Scope) -> ProblemResponse | None:
        if self._within_rate(scope):
            return None
        return ProblemResponse(429, f"more than {self._rate:g} requests per second", {"Retry-After": "1"})

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
