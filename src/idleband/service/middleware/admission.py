"""Admission of connections whose requests are authenticated."""

from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.open_connections import ADMIT
from idleband.service.problems import ProblemResponse


class Admission:
    """Admit the connection of each request, except for public paths; refuse the request where there is no place.

    It stands behind the checks of the token or the origin, so that only requests that pass them are admitted.
    """

    def __init__(self, app: ASGIApp, public_paths: frozenset[str]) -> None:
        self._app, self._public_paths = app, public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["path"] not in self._public_paths:
            admit = scope.get(ADMIT)  # absent where the application is called without a server
            if admit is not None and not admit():
                headers = {"Retry-After": "1", "Connection": "close"}
                app = ProblemResponse(503, "connections: all places are taken, or all of this address", headers)
        await app(scope, receive, send)
