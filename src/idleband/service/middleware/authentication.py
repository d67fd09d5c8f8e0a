"""Bearer token authentication. Which operations a token may request is checked where they are called."""

from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.middleware.headers import header
from idleband.service.problems import ProblemResponse
from idleband.service.tokens import TOKEN, Token, Tokens


class BearerAuthentication:
    """Refuse requests without a token, except for public paths."""

    def __init__(self, app: ASGIApp, tokens: Tokens, public_paths: frozenset[str]) -> None:
        self._app, self._tokens, self._public_paths = app, tokens, public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            token = self._token(scope)
            if token is not None:
                scope[TOKEN] = token
            elif scope["path"] not in self._public_paths:
                headers = {"WWW-Authenticate": "Bearer"}
                app = ProblemResponse(401, "Authorization: must be Bearer and the token", headers)
        await app(scope, receive, send)

    def _token(self, scope: Scope) -> Token | None:
        scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
        return self._tokens.find(token.strip().encode()) if scheme.lower() == "bearer" else None
