"""The service as an ASGI application: routes, middleware, pages, start and end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

import idleband
from idleband.allocator.settings import Settings
from idleband.service.allocator_api import AllocatorApi
from idleband.service.direct_requests import DirectRequests
from idleband.service.journal import Journal, JournalError, SharedJournal
from idleband.service.limits import Limits
from idleband.service.manager import AllocatorManager
from idleband.service.messages import Health
from idleband.service.metrics import metrics_text
from idleband.service.middleware.admission import Admission
from idleband.service.middleware.authentication import BearerAuthentication
from idleband.service.middleware.check import Check
from idleband.service.middleware.connection_close import ConnectionClose
from idleband.service.middleware.forwarding import Forwarding
from idleband.service.middleware.origin_check import OriginCheck
from idleband.service.middleware.rate_limit import RateLimit
from idleband.service.middleware.request_metrics import RequestMetrics
from idleband.service.middleware.security_headers import SecurityHeaders
from idleband.service.open_connections import OpenConnections
from idleband.service.openapi import openapi
from idleband.service.operations import Operation, json_response, route
from idleband.service.playground import Playground
from idleband.service.playground_settings import OfferedTrace
from idleband.service.problems import encode, unknown_path
from idleband.service.tokens import PUBLIC, READ, REFRESH_INTERVAL, Tokens

if TYPE_CHECKING:
    from idleband.service.tracing import Tracing

PAGES = Path(__file__).parent / "page"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

log = logging.getLogger("idleband.service")


class Service:
    """The allocators of a data folder, or of a journal, behind HTTP.

    `app` is the ASGI application; the playground offers `traces`.
    """

    def __init__(
        self,
        data: Path | Journal,
        *,
        tokens: Tokens | None = None,
        limits: Limits | None = None,
        hosts: tuple[str, ...] = LOOPBACK,
        traces: Mapping[str, OfferedTrace] | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self.limits = limits or Limits()
        self.manager = AllocatorManager(data, memory=self.limits.memory, closed=lambda one: self.api.closed(one))
        self.connections = OpenConnections(self.limits)
        self.api = AllocatorApi(self.manager)
        self.playground = Playground(traces)
        operations = self.operations()
        self._document = encode(openapi(operations, idleband.__version__, tokens is not None))
        self._tokens = tokens
        self.routes: list[Any] = [route(operation, self.limits.body) for operation in operations]
        self.routes += [
            Route("/", _page("watch.html")),
            Route("/playground", _page("playground.html")),
            Mount("/static", StaticFiles(directory=PAGES)),
        ]
        starlette = Starlette(
            routes=self.routes, lifespan=self._lifespan, exception_handlers={HTTPException: unknown_path}
        )
        starlette.router.redirect_slashes = False
        answering: ASGIApp = starlette
        self.forwarding: Forwarding | None = None
        if isinstance(self.manager.journal, SharedJournal):
            answering = self.forwarding = Forwarding(starlette, self.manager, self.manager.journal, self.limits.body)
        checks = self._checks(answering, tokens, hosts)
        checked: ASGIApp = SecurityHeaders(ConnectionClose(checks[-1]))
        self._tracing = tracing
        if tracing is not None:
            checked = tracing.middleware(checked)
            tracing.trace_commits(self.manager.commits)
        self.request_metrics = RequestMetrics(checked)
        self.app: ASGIApp = self.request_metrics
        # Traces are made by middleware.
        every_slot = [one for one in operations if one.every_slot and tracing is None]
        # The rate comes last, because a request that is refused passes it again.
        in_order = (checks[1], checks[0], checks[2])
        owns = None if self.forwarding is None else self.manager.owns
        self.direct = DirectRequests(every_slot, self.limits.body, in_order, self.request_metrics, owns)

    def _checks(self, app: ASGIApp, tokens: Tokens | None, hosts: tuple[str, ...]) -> tuple[Check, Check, Check]:
        """Return the checks of admission, origin or token, and rate. Each calls the one before it, the first `app`."""
        # Pages need no token: they ask the user for it. Load balancers and links from other sites need none either.
        public = frozenset(["/", "/playground", "/health", *(f"/static/{path.name}" for path in PAGES.iterdir())])
        admission = Admission(app, public)
        access: Check = OriginCheck(admission, hosts, public)
        if tokens is not None:
            access = BearerAuthentication(admission, tokens, public)
        return admission, access, RateLimit(access, self.limits.rate)

    def operations(self) -> list[Operation]:
        """Return all operations; the routes and the OpenAPI document are made from them."""
        return [
            Operation(
                "GET", "/health", self.health, "Return whether the service works", None, Health,
                error_responses={503: Health}, role=PUBLIC,
            ),
            Operation(
                "GET", "/metrics", self.metrics, "Return metrics for Prometheus", media_type="text/plain", role=READ
            ),
            Operation("GET", "/openapi.json", self.openapi, "Return this document", role=READ),
            *self.api.operations(),
            *self.playground.operations(),
        ]  # fmt: skip

    def open(self, name: str, settings: Settings) -> None:
        """Create the allocator of this name if there is none. Refuse other settings than it has."""
        self.api.open(name, settings)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.manager.start(asyncio.get_running_loop())
        refreshing = asyncio.create_task(self._refresh_tokens())
        number, place = len(self.manager.allocators), self.manager.journal.place
        log.info("service started", extra={"allocators": number, "journal": place})
        try:
            yield
        finally:
            refreshing.cancel()
            await self.end_streams()
            try:
                self.manager.close()
            except JournalError as error:  # acknowledged events are durable and are replayed at the next start
                log.error("journal not closed", extra={"reason": str(error)})
            if self._tracing is not None:
                self._tracing.close()
            slots = {one.name: one.core.slot for one in self.manager.open_allocators}
            log.info("service stopped", extra={"slots": slots})

    async def _refresh_tokens(self) -> None:
        """Read the tokens again whenever their file has changed."""
        while self._tokens is not None:
            await asyncio.sleep(REFRESH_INTERVAL)
            self._tokens.refresh()

    async def end_streams(self) -> None:
        """End responses that would last as long as their clients stay."""
        self.api.end_streams()
        if self.forwarding is not None:
            self.forwarding.end_streams()
        await self.playground.stop()

    async def health(self, request: Request) -> Response:
        works = self.manager.recover()
        allocators, opened = self.manager.allocators, self.manager.open_allocators
        failures = {one.name: one.core.policy_failure for one in opened if one.core.policy_failure}
        health = Health(
            "ok" if works else "failing", idleband.__version__, len(allocators), len(opened),
            self.manager.failure or "ok", {**self.manager.closed_failures, **failures},
        )  # fmt: skip
        return json_response(health, 200 if works else 503)

    async def metrics(self, request: Request) -> Response:
        text = await metrics_text(self.manager, self.request_metrics, self.api.decision_seconds)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return FileResponse(PAGES / name)

    return page
