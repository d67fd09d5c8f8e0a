"""Bearer token authentication. Which operations a token may request is checked where they are called."""

from starlette.types import ASGIApp, Scope

from idleband.service.middleware.check import Check
from idleband.service.middleware.headers import header
from idleband.service.problems import ProblemResponse
from idleband.service.tokens import TOKEN, Token, Tokens


class BearerAuthentication(Check):
    """Refuse requests without a token, except for public paths."""

    def __init__(self, app: ASGIApp, tokens: Tokens, public_paths: frozenset[str]) -> None:
        super().__init__(app)
        self._tokens, self._public_paths = tokens, public_paths

    def refusal(self, scope: Scope) -> ProblemResponse | None:
        token = self._token(scope)
        if token is not None:
            scope[TOKEN] = token
        elif scope["path"] not in self._public_paths:
            return ProblemResponse(401, "Authorization: must be Bearer and the token", {"WWW-Authenticate": "Bearer"})
        return None

    def _token(self, scope: Scope) -> Token | None:
        scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
        return self._tokens.find(token.strip().encode()) if scheme.lower() == "bearer" else None
