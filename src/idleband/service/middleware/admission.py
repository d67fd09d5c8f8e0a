"""Admission of connections whose requests are authenticated."""

from starlette.types import ASGIApp, Scope

from idleband.service.middleware.check import Check
from idleband.service.open_connections import ADMIT
from idleband.service.problems import ProblemResponse


class Admission(Check):
    """Admit the connection of each request, except for public paths; refuse the request where there is no place.

    It stands behind the checks of the token or the origin, so that only requests that pass them are admitted.
    """

    def __init__(self, app: ASGIApp, public_paths: frozenset[str]) -> None:
        super().__init__(app)
        self._public_paths = public_paths

    def refusal(self, scope: Scope) -> ProblemResponse | None:
        if scope["path"] in self._public_paths:
            return None
        admit = scope.get(ADMIT)  # absent where the application is called without a server
        if admit is None or admit():
            return None
        headers = {"Retry-After": "1", "Connection": "close"}
        return ProblemResponse(503, "connections: all places are taken, or all of this address", headers)
