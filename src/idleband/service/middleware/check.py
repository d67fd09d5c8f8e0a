"""Checks of requests before they reach the application."""

from starlette.types import ASGIApp, Receive, Scope, Send

from idleband.service.problems import ProblemResponse


class Check:
    """Middleware that refuses requests. A check does not wait, so that it can also be made without ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def refusal(self, scope: Scope) -> ProblemResponse | None:
        """Return why a request is refused; None if it is not."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app if scope["type"] != "http" else self.refusal(scope) or self._app
        await app(scope, receive, send)
