"""The service: what can be asked of it, and what happens then."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import idleband
from idleband.allocator.core import AllocatorCore
from idleband.allocator.settings import Settings
from idleband.errors import InputError, shown, unknown
from idleband.policies.registry import POLICIES
from idleband.service.http import Gate, Limits, Operation, Refusal, encode, endpoint, openapi, problem
from idleband.service.journal import JournalError
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.live_view import LiveView
from idleband.service.manager import AllocatorManager
from idleband.service.messages import (
    Answer,
    Channels,
    Explained,
    Feedback,
    Health,
    Left,
    Names,
    NewAllocator,
    Question,
    Standing,
    Taken,
)
from idleband.service.metrics import metrics_text
from idleband.service.playground import Playground

log = logging.getLogger("idleband.service")

PAGE = Path(__file__).parent / "page"
EVERY = 0.25  # seconds between two looks of a page, at most
QUIET = 15.0  # seconds after which a silent stream says that it is alive
SLOWEST, TRIED = 1.0, 2  # seconds that a slot of a new allocator may take; slots in which that is tried
OPEN = frozenset(["/", "/playground", "/health"])  # without a token; the page asks for it
_NO_SUCH = {404: "no such allocator, or no such decision"}
_CONFLICT = {**_NO_SUCH, 409: "something else was said of the same thing before"}


class Service:
    """Allocators behind HTTP. `app` is what a server runs."""

    def __init__(
        self,
        folder: Path,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1"),
    ) -> None:
        self.office = AllocatorManager(folder)
        self.limits = limits or Limits()
        self.feeds = {name: self._new_feed(desk) for name, desk in self.office.desks.items()}
        self._broken: dict[str, str] = {}  # what was logged of policies that are out of service
        self.playground = Playground()
        self.document = encode(openapi(self.operations(), idleband.__version__, token is not None))
        routes: list[Any] = [_route(one, self.limits) for one in self.operations()]
        routes += [
            Route("/", _page("watch.html")),
            Route("/playground", _page("playground.html")),
            Mount("/static", StaticFiles(directory=PAGE)),
        ]
        self.ending = asyncio.Event()
        inner = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _no_such_place})
        inner.router.redirect_slashes = False
        self.gate = Gate(inner, token, self.limits, hosts, OPEN | _static_files())
        self.app = self.gate

    @staticmethod
    def _new_feed(desk: JournaledAllocator) -> LiveView:
        settings = desk.allocator.settings
        return LiveView(settings.setup.good, settings.setup.high, settings.patience)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.office.start(asyncio.get_running_loop())
        log.info("started", extra={"allocators": len(self.office.desks), "journal": str(self.office.journal.path)})
        try:
            yield
        finally:
            await self.end_streams()
            try:
                self.office.close()
            except (
                JournalError
            ) as error:  # a full disk: what was acknowledged is there, and is replayed at the next start
                log.error("no snapshot", extra={"reason": str(error)})
            log.info("stopped", extra={"slots": {name: d.allocator.slot for name, d in self.office.desks.items()}})

    async def end_streams(self) -> None:
        """End what would last as long as somebody looks."""
        self.ending.set()
        await self.playground.stop()

    def open(self, name: str, settings: Settings) -> None:
        """Have an allocator of this name."""
        desk = self.office.open(name, settings)
        self.feeds.setdefault(name, self._new_feed(desk))

    # --- operations --------------------------------------------------------------------------------------------------

    def operations(self) -> list[Operation]:
        """All of them: the routes and the OpenAPI document are made from this."""
        at = "/allocators/{name}"
        return [
            Operation("GET", "/health", self.health, "Whether it works", answer=Health, says={503: Health}),
            Operation("GET", "/metrics", self.metrics, "Counts and times for Prometheus", media="text/plain"),
            Operation("GET", "/openapi.json", self.openapi, "This document"),
            Operation("GET", "/allocators", self.list_allocators, "The names of all allocators", answer=Names),
            Operation(
                "POST", "/allocators", self.create, "A new allocator; the same again is no mistake", NewAllocator,
                Standing, refuses={409: "there is one of this name with other settings"},
            ),
            Operation("GET", at, self.show, "How an allocator stands", answer=Standing, refuses=_NO_SUCH),
            Operation(
                "POST", f"{at}/decide", self.decide, "Which channels to hand out now", Question, Answer,
                refuses=_CONFLICT,
            ),
            Operation(
                "POST", f"{at}/report", self.report, "What channels have returned", Feedback, Taken, refuses=_CONFLICT
            ),
            Operation(
                "GET", f"{at}/explain", self.explain, "Why a decision was taken", answer=Explained, query=("request",),
                refuses={**_NO_SUCH, 400: "no request is named"},
            ),
            Operation(
                "POST", f"{at}/vacate", self.vacate, "Channels that must be left now", Channels, Left, refuses=_NO_SUCH
            ),
            Operation(
                "POST", f"{at}/restore", self.restore, "Channels that may be handed out again", Channels, Left,
                refuses=_NO_SUCH,
            ),
            Operation(
                "POST", f"{at}/reset", self.reset, "Have the policy begin anew", answer=Standing, refuses=_NO_SUCH
            ),
            Operation(
                "GET", f"{at}/watch", self.watch, "How it goes, as it goes: server-sent events", refuses=_NO_SUCH,
                media="text/event-stream",
            ),
            *self.playground.operations(),
        ]  # fmt: skip

    def _desk(self, request: Request) -> JournaledAllocator:
        if not self.office.recover():
            raise Refusal(
                503, f"{self.office.failure}; nothing is acknowledged until it can be", **{"Retry-After": "1"}
            )
        desk = self.office.desks.get(request.path_params["name"])
        if desk is None:
            raise Refusal(404, f"allocator {request.path_params['name']!r}: there is none of this name")
        return desk

    async def decide(self, request: Request, said: Question) -> Answer:
        desk = self._desk(request)
        before = desk.allocator.slot
        decision = desk.decide(
            said.request, said.contexts, users=said.users, available=said.available, states=said.states, slot=said.slot,
            incumbent=said.incumbent,
        )  # fmt: skip
        if decision.slot > before:
            self.feeds[desk.name].decided(decision)
        self._notice(desk)
        await self.office.durable()
        return _answer(decision)

    async def report(self, request: Request, said: Feedback) -> Taken:
        desk = self._desk(request)
        by_channel = {one.channel: one for one in said.outcomes}
        if len(by_channel) != len(said.outcomes):
            raise InputError("outcomes: each channel once")
        rewards = {k: one.reward for k, one in by_channel.items()}
        states = {k: one.state for k, one in by_channel.items() if one.state is not None}
        measured = {k: one.perturbation for k, one in by_channel.items() if one.perturbation is not None}
        receipt = desk.report(said.request, rewards, states or None, measured or None)
        self.feeds[desk.name].reported(said, receipt)
        self._notice(desk)
        await self.office.durable()
        if receipt.late:
            log.info("late", extra={"allocator": desk.name, "request": said.request})
        return Taken(list(receipt.learned), list(receipt.repeated), receipt.late)

    def _notice(self, desk: JournaledAllocator) -> None:
        """Log that a policy is out of service, once."""
        broken = desk.allocator.policy_failure
        if broken != self._broken.get(desk.name, ""):
            self._broken[desk.name] = broken
            if broken:
                log.error("policy out of service", extra={"allocator": desk.name, "reason": broken})

    async def explain(self, request: Request) -> Response:
        desk = self._desk(request)
        asked = request.query_params.get("request")
        if not asked:
            raise InputError("request: must be given, as in explain?request=...")
        await self.office.durable()
        return Response(encode(desk.allocator.explain(asked).to_dict()), media_type="application/json")

    async def show(self, request: Request) -> Response:
        desk = self._desk(request)
        await self.office.durable()
        return Response(encode(self._standing(desk)), media_type="application/json")

    def _standing(self, desk: JournaledAllocator) -> dict[str, Any]:
        found = desk.allocator.status()
        if found["last"] is not None:
            found["last"]["request"] = found["last"].pop("request_id")
        return {"name": desk.name, **found, "settings": desk.allocator.settings.to_dict()}

    async def vacate(self, request: Request, said: Channels) -> Left:
        desk = self._desk(request)
        leave = desk.vacate(said.channels)
        await self.office.durable()
        self.feeds[desk.name].steered()
        return Left(list(leave), list(desk.allocator.vacated))

    async def restore(self, request: Request, said: Channels) -> Left:
        desk = self._desk(request)
        desk.restore(said.channels)
        await self.office.durable()
        self.feeds[desk.name].steered()
        return Left([], list(desk.allocator.vacated))

    async def reset(self, request: Request) -> Response:
        desk = self._desk(request)
        if desk.allocator.policy_failure:  # a policy in service is left alone
            desk.reset()
            self._notice(desk)
        await self.office.durable()
        self.feeds[desk.name].steered()
        return await self.show(request)

    async def list_allocators(self, request: Request) -> Names:
        return Names(list(self.office.desks))

    async def create(self, request: Request, said: NewAllocator) -> Response:
        if said.policy not in POLICIES or POLICIES[said.policy].source is not None:
            # A file of somebody's own is code, and nobody brings code over HTTP.
            raise _unknown_policy(said.policy)
        given = msgspec.structs.asdict(said)
        name = given.pop("name")
        settings = Settings.checked({key: value for key, value in given.items() if value is not msgspec.UNSET})
        # Compiling a policy takes seconds: not on the thread that answers everybody. Then it is there to be used.
        await asyncio.to_thread(_try, settings)
        self.open(name, settings)
        return Response(encode(self._standing(self.office.desks[name])), media_type="application/json")

    # --- looking -----------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        works = self.office.recover()
        said = Health(
            "ok" if works else "failing", idleband.__version__, len(self.office.desks), self.office.failure or "ok",
            {name: failure for name, desk in self.office.desks.items() if (failure := desk.allocator.policy_failure)},
        )  # fmt: skip
        return Response(encode(said), 200 if works else 503, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        return Response(metrics_text(self.office, self.gate), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(self.document, media_type="application/json")

    async def watch(self, request: Request) -> Response:
        """What the page shows, whenever it has changed."""
        desk = self._desk(request)

        async def stream() -> AsyncIterator[bytes]:
            seen, quiet = -1, 0.0
            while not self.ending.is_set():
                feed = self.feeds[desk.name]
                if feed.changes != seen:
                    seen, quiet = feed.changes, 0.0
                    yield b"data: " + json.dumps(self._view(desk.name, feed), allow_nan=False).encode() + b"\n\n"
                elif quiet >= QUIET:
                    quiet = 0.0
                    yield b": still here\n\n"
                quiet += EVERY
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ending.wait(), EVERY)

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _view(self, name: str, feed: LiveView) -> dict[str, Any]:
        desk = self.office.desks[name]
        standing = self._standing(desk)
        last = standing["last"]
        text = desk.allocator.explain(last["request"]).text if last is not None else ""
        return {**standing, **feed.view(), "explanation": text}


def _route(operation: Operation, limits: Limits) -> Route:
    route = Route(operation.path, endpoint(operation, limits), methods=[operation.method])
    if operation.media == "text/event-stream" and route.methods is not None:
        route.methods.discard("HEAD")  # a stream without its body would never end
    return route


def _try(settings: Settings) -> None:
    """Refuse a policy that everybody would wait for, unless it has a deadline, and a thread of its own."""
    core = AllocatorCore(settings)
    began = time.monotonic()
    for _ in range(TRIED):
        decision = core.decide(core.parse_decide(np.zeros((settings.channels, settings.dimension))))
        rewards = [settings.setup.low] * len(decision.channels)
        core.learn(core.parse_report(decision.request_id, rewards))
    took = (time.monotonic() - began) / TRIED
    if settings.deadline is None and took > SLOWEST:
        raise InputError(
            f"policy: {settings.configured.label} takes {took:.1f} s for a slot, and all others would wait; must take"
            f" at most {SLOWEST:g} s, or have a deadline"
        )


def _answer(decision: Any) -> Answer:
    proposed = None if decision.proposed is None else list(decision.proposed)
    return Answer(str(decision.request_id), decision.slot, list(decision.channels), decision.by, proposed)


def _unknown_policy(name: str) -> InputError:
    known = [policy for policy, found in POLICIES.items() if found.source is None]
    if name.partition(":")[0] in known:
        return InputError(f"policy = {shown(name)}: must be its name alone; its parameters go into `parameters`")
    return unknown("policy", name[:80], known)


async def _no_such_place(request: Request, error: Any) -> Response:
    """An unknown path, or a method that it does not have."""
    what = f"{request.method} {request.url.path}"
    return problem(error.status_code, f"{what}: {error.detail.lower()}; /openapi.json has all there is", error.headers)


def _page(name: str) -> Any:
    async def page(request: Request) -> Response:
        return FileResponse(PAGE / name)

    return page


def _static_files() -> frozenset[str]:
    return frozenset(f"/static/{path.name}" for path in PAGE.iterdir())
