"""Bearer token authentication."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.middleware.headers import header
from idleband.service.problems import ProblemResponse


class BearerAuthentication:
    """Refuse requests without the token, except for public paths."""

    def __init__(self, app: ASGIApp, token: str, public_paths: frozenset[str]) -> None:
        self._app, self._token, self._public_paths = app, token.encode(), public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not self._authorized(scope):
            app = ProblemResponse(401, "Authorization: must be Bearer and the token", {"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)

    def _authorized(self, scope: Scope) -> bool:
        scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
        equal = hmac.compare_digest(token.strip().encode(), self._token)
        return (equal and scheme.lower() == "bearer") or scope["path"] in self._public_paths
