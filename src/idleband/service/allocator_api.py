"""The operations on allocators: /v1/allocators and below."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from idleband import validation
from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt, Report, StepResult
from idleband.allocator.settings import CHANGEABLE, MAX_CHANNELS, Settings
from idleband.errors import (
    ConflictError,
    IdlebandError,
    InputError,
    StorageError,
    UnknownRequestError,
    counted,
    shown,
    unknown,
)
from idleband.policies.registry import POLICIES
from idleband.service.histogram import Histogram
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.live_view import LiveView
from idleband.service.manager import AllocatorManager, Size, prepare
from idleband.service.messages import (
    AllocatorChange,
    AllocatorList,
    AllocatorStatus,
    ChannelList,
    DecideRequest,
    DecideResponse,
    DeletedResponse,
    ExplainResponse,
    NamedStepRequest,
    NewAllocator,
    ReportRequest,
    ReportResponse,
    StepOutcome,
    StepRequest,
    StepResponse,
    StepsRequest,
    StepsResponse,
    VacatedResponse,
)
from idleband.service.operations import EVENT_STREAM, Operation
from idleband.service.problems import HTTPProblem, encode, http_problem, new_problem, taken_over
from idleband.service.request_body import BASE_BYTES, BASE_VALUES, BodySize
from idleband.service.slot_thread import MAX_QUICK_SECONDS
from idleband.service.tokens import ADMINISTER, OPERATE, READ, TOKEN

WATCH_INTERVAL = 0.25  # seconds between two views of a stream, at least
KEEPALIVE_INTERVAL = 15.0  # seconds without a change after which a stream sends a comment
MAX_SLOT_SECONDS, TRIAL_SLOTS = 1.0, 2  # time that a new allocator may take per slot; slots in which it is measured

_UNKNOWN = {404: "unknown allocator or unknown request_id", 500: "the allocator is damaged in the journal"}
_CONFLICT = {**_UNKNOWN, 409: "the request contradicts an earlier one, or one that is not kept any more"}

_DECIDE_CONFLICT = {**_CONFLICT, 409: f"{_CONFLICT[409]}, or slot is too far from the last one"}

_CHANGE_CONFLICT = {**_UNKNOWN, 409: "another allocator has the name, or this one has another number"}
_NUMBER = {"number": "refuse the request if the allocator of this name has another number"}

TIMED_REQUESTS = 1000  # whose processor time is taken after a request has taken long
MAX_LISTED = 1000  # names of allocators in one response
MAX_STEPS_VALUES = 200_000  # of a request for several allocators, which are decoded in some 10 ms

log = logging.getLogger("idleband.service")
T = TypeVar("T")


class AllocatorApi:
    """Handlers of the operations on the allocators of one manager."""

    def __init__(self, manager: AllocatorManager) -> None:
        self._manager = manager
        # By numbers of allocators, which stay the same when these are renamed.
        self.views: dict[int, LiveView] = {}  # of open allocators of which something was shown or changed
        self._logged_failures: dict[int, str] = {}  # failures of policies that were logged
        self._rendered: dict[int, _RenderedView] = {}  # several watchers share one
        self._rendering: dict[int, asyncio.Future[_RenderedView]] = {}
        self._ending = asyncio.Event()
        self.decision_seconds = Histogram()

    def operations(self) -> list[Operation]:
        """Return the operations on allocators."""
        root, one = "/v1/allocators", "/v1/allocators/{name}"
        return [
            Operation(
                "GET", root, self.list_allocators, "List the names of allocators, in alphabetical order",
                response=AllocatorList, errors={400: f"limit is not a whole number from 1 to {MAX_LISTED}"},
                optional_query={
                    "after": "name after which the list begins; default: it begins with the first one",
                    "limit": f"number of names, at most {MAX_LISTED} and by default {MAX_LISTED}",
                },
                role=READ,
            ),
            Operation(
                "POST", root, self.create, "Create an allocator; a repeated request returns the existing one",
                NewAllocator, AllocatorStatus, errors={409: "an allocator of this name has other settings"},
                body_size=_new_allocator_size, role=ADMINISTER,
            ),
            Operation("GET", one, self.status, "Return the status", None, AllocatorStatus, errors=_UNKNOWN, role=READ),
            Operation(
                "PATCH", one, self.change, "Change the name or settings of an allocator", AllocatorChange,
                AllocatorStatus, errors=_CHANGE_CONFLICT, body_size=_new_allocator_size, optional_query=_NUMBER,
                role=ADMINISTER,
            ),
            Operation(
                "DELETE", one, self.delete, "Delete an allocator with all that it has learned", None, DeletedResponse,
                errors={**_CHANGE_CONFLICT, 400: "number is not a number"}, optional_query=_NUMBER, role=ADMINISTER,
            ),
            Operation(
                "POST", f"{one}/decide", self.decide, "Assign channels in the next slot", DecideRequest, DecideResponse,
                errors=_DECIDE_CONFLICT, body_size=self._decide_size, every_slot=True, role=OPERATE,
            ),
            Operation(
                "POST", f"{one}/report", self.report, "Report feedback for a decision", ReportRequest, ReportResponse,
                errors=_CONFLICT, body_size=self._report_size, every_slot=True, role=OPERATE,
            ),
            Operation(
                "POST", f"{one}/step", self.step, "Report feedback for a decision and assign channels in the next slot",
                StepRequest, StepResponse, errors=_DECIDE_CONFLICT, body_size=self._step_size, every_slot=True,
                role=OPERATE,
            ),
            Operation(
                "POST", "/v1/steps", self.steps, "Report and decide for several allocators, each by itself",
                StepsRequest, StepsResponse, body_size=self._steps_size, every_slot=True, role=OPERATE,
            ),
            Operation(
                "GET", f"{one}/explain", self.explain, "Explain a decision", None, ExplainResponse,
                query=("request_id",), errors={**_UNKNOWN, 400: "request_id is missing"}, role=READ,
            ),
            Operation(
                "POST", f"{one}/vacate", self.vacate, "Exclude channels from assignment", ChannelList, VacatedResponse,
                errors=_UNKNOWN, body_size=self._channels_size, role=OPERATE,
            ),
            Operation(
                "POST", f"{one}/restore", self.restore, "Allow vacated channels again", ChannelList, VacatedResponse,
                errors=_UNKNOWN, body_size=self._channels_size, role=OPERATE,
            ),
            Operation(
                "POST", f"{one}/reset", self.reset, "Restart a policy that is out of service", None, AllocatorStatus,
                errors=_UNKNOWN, role=OPERATE,
            ),
            Operation(
                "GET", f"{one}/watch", self.watch, "Follow an allocator: server-sent events", errors=_UNKNOWN,
                media_type=EVENT_STREAM, role=READ,
            ),
        ]  # fmt: skip

    def open(self, name: str, settings: Settings, core: AllocatorCore | None = None) -> JournaledAllocator:
        """Return the allocator of this name; create it if there is none, with this core if it is given."""
        return self._manager.open(name, settings, core)

    def closed(self, number: int) -> None:
        """Forget what is shown of an allocator that was closed."""
        self.views.pop(number, None)
        self._rendered.pop(number, None)

    def _view_of(self, allocator: JournaledAllocator) -> LiveView:
        view = self.views.get(allocator.number)
        if view is None:
            view = _new_view(allocator)
            if allocator in self._manager.open_allocators:  # otherwise it was deleted meanwhile
                self.views[allocator.number] = view
        return view

    def end_streams(self) -> None:
        """End the streams of all clients that watch an allocator."""
        self._ending.set()

    async def _find(self, request: Request) -> JournaledAllocator:
        self._check_journal()
        return await self._opened(request.path_params["name"])

    def _check_journal(self) -> None:
        if not self._manager.recover():
            detail = f"{self._manager.failure}; nothing is acknowledged until it can be written"
            raise HTTPProblem(503, detail, {"Retry-After": "1"})

    async def _opened(self, name: str) -> JournaledAllocator:
        """Return an allocator, opened if necessary."""
        allocator = self._manager.find(name)
        if allocator is not None:
            return allocator
        if name not in self._manager.allocators:
            raise self._unknown(name)
        try:
            return await self._manager.opened(name)
        except InputError as error:  # what the journal contains is not a mistake of the client
            raise HTTPProblem(500, f"allocator {name}: cannot be opened: {error}") from None

    def _unknown(self, name: str) -> HTTPProblem:
        if self._manager.was_given_up(name):
            return taken_over(name)
        return HTTPProblem(404, f"allocator {name!r}: does not exist")

    # --- sizes of bodies ---------------------------------------------------------------------------------------------

    def _decide_size(self, request: Request) -> BodySize:
        return self._sizes(request).decide

    def _report_size(self, request: Request) -> BodySize:
        return self._sizes(request).report

    def _step_size(self, request: Request) -> BodySize:
        return self._sizes(request).step

    def _steps_size(self, request: Request) -> BodySize:
        """Return the size of a step of each allocator."""
        manager = self._manager
        sizes = [_body_sizes(size).step.times(count) for size, count in manager.counts_by_size.items()]
        max_values = min(MAX_STEPS_VALUES, BASE_VALUES + sum(size.max_values for size in sizes))
        return BodySize(BASE_BYTES + sum(size.max_bytes for size in sizes), max_values, " for these allocators")

    def _channels_size(self, request: Request) -> BodySize:
        return self._sizes(request).channels

    def _sizes(self, request: Request) -> "_BodySizes":
        """Return the sizes for the allocator of a request, which need not be open."""
        name = request.path_params["name"]
        size = self._manager.size_of(name)
        if size is None:
            raise self._unknown(name)
        return _body_sizes(size)

    # --- decide and report -------------------------------------------------------------------------------------------

    async def decide(self, request: Request, body: DecideRequest) -> DecideResponse:
        allocator = await self._find(request)
        began = time.perf_counter()
        decision = await self._change(
            allocator, "decide", body.contexts, body.users, body.available, body.states, request_id=body.request_id,
            slot=body.slot, incumbent=body.incumbent,
        )  # fmt: skip
        self.decision_seconds.add(time.perf_counter() - began)
        self._note_decision(allocator, decision)
        await self._manager.flush()
        return _decide_response(decision, allocator.core.settings.channel_names)

    async def report(self, request: Request, body: ReportRequest) -> ReportResponse:
        allocator = await self._find(request)
        found, report = await self._change(allocator, "step", _report_arguments(body), None)
        self._note_report(allocator, body, report, found.receipt)
        await self._manager.flush()
        return _report_response(found.receipt)

    async def step(self, request: Request, body: StepRequest) -> StepResponse:
        allocator = await self._find(request)
        found = await self._step(allocator, body)
        await self._manager.flush()
        return StepResponse(*_step_responses(allocator, found))

    async def steps(self, request: Request, body: StepsRequest) -> StepsResponse:
        """Apply all steps before one commit, unless that takes so long that other requests have to come first.

        Those of allocators with threads are applied in these, while the others go on.
        """
        self._check_journal()
        began = time.monotonic()
        results: dict[int, StepOutcome] = {}
        in_threads: dict[int, asyncio.Task[StepOutcome]] = {}
        for i, item in enumerate(body.steps):
            allocator = self._manager.find(item.name)
            if allocator is not None and allocator.thread is not None:
                in_threads[i] = asyncio.create_task(self._outcome(item))
                in_threads[i].add_done_callback(lambda done: done.cancelled() or done.exception())
            else:
                results[i] = await self._outcome(item)
            if time.monotonic() - began > MAX_QUICK_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()
        for i, task in in_threads.items():
            results[i] = await task
        await self._manager.flush()
        return StepsResponse([results[i] for i in range(len(body.steps))])

    async def _outcome(self, item: NamedStepRequest) -> StepOutcome:
        """Apply a step; return the answer, or why it was refused."""
        try:
            allocator = await self._opened(item.name)
            return StepOutcome(*_step_responses(allocator, await self._step(allocator, item)))
        except StorageError:  # of all steps
            raise
        except Exception as error:
            problem = http_problem(error)
            return StepOutcome(problem=new_problem(problem.status, problem.detail))

    async def _step(self, allocator: JournaledAllocator, body: StepRequest) -> StepResult:
        """Apply a step, which is durable after the next flush."""
        report, decide = body.report, body.decide
        if report is None and decide is None:
            raise InputError("report, decide: one of them must be given, or both")
        began = time.perf_counter()
        found, checked = await self._change(
            allocator, "step", report and _report_arguments(report), decide and msgspec.structs.asdict(decide)
        )
        if report is not None:
            self._note_report(allocator, report, checked, found.receipt)
        if found.decision is not None:
            self.decision_seconds.add(time.perf_counter() - began)
            self._note_decision(allocator, found.decision)
        return found

    def _note_decision(self, allocator: JournaledAllocator, decision: Decision) -> None:
        """Show a decision on the page."""
        view = self._view_of(allocator)
        if decision.slot > view.slot:
            view.decided(decision)
        self._log_policy_failure(allocator)

    def _note_report(
        self, allocator: JournaledAllocator, body: ReportRequest, report: Report | None, receipt: Receipt
    ) -> None:
        """Show a report on the page; log a late one."""
        if report is not None:
            self._view_of(allocator).reported(report, receipt, body.reference)
        self._log_policy_failure(allocator)
        if receipt.late:
            log.info("late report", extra={"allocator": allocator.name, "request_id": body.request_id})

    async def _change(self, allocator: JournaledAllocator, operation: str, *arguments: Any, **options: Any) -> Any:
        """Carry out an operation of the manager on an allocator, in its thread if it has one."""
        self._view_of(allocator)  # begins before the change
        if allocator.thread is not None:
            method = getattr(allocator, operation)
            return await self._manager.change(allocator, lambda: method(*arguments, **options))
        # The clock of processor time costs as much as a tenth of a slot. It is used after a request has taken long.
        clock = time.thread_time if allocator.timed else time.monotonic
        began = clock()
        answer = getattr(self._manager, operation)(allocator, *arguments, **options)
        seconds = clock() - began
        if seconds > MAX_QUICK_SECONDS:
            if allocator.timed:
                self._manager.note_duration(allocator, seconds)
            allocator.timed = TIMED_REQUESTS
        elif allocator.timed:
            allocator.timed -= 1
        return answer

    def _log_policy_failure(self, allocator: JournaledAllocator) -> None:
        """Log once that a policy is out of service."""
        failure = allocator.core.policy_failure
        if failure != self._logged_failures.get(allocator.number, ""):
            self._logged_failures[allocator.number] = failure
            if failure:
                log.error("policy out of service", extra={"allocator": allocator.name, "reason": failure})

    # --- operators ---------------------------------------------------------------------------------------------------

    async def vacate(self, request: Request, body: ChannelList) -> VacatedResponse:
        allocator = await self._find(request)
        leave = await self._change(allocator, "vacate", body.channels)
        await self._manager.flush()
        self._view_of(allocator).steered()
        return VacatedResponse(list(leave), list(allocator.core.vacated))

    async def restore(self, request: Request, body: ChannelList) -> VacatedResponse:
        allocator = await self._find(request)
        await self._change(allocator, "restore", body.channels)
        await self._manager.flush()
        self._view_of(allocator).steered()
        return VacatedResponse([], list(allocator.core.vacated))

    async def reset(self, request: Request) -> AllocatorStatus:
        allocator = await self._find(request)
        if allocator.core.policy_failure:  # a policy in service keeps what it has learned, so a repeat does no harm
            await self._change(allocator, "reset")
            self._log_policy_failure(allocator)
        await self._manager.flush()
        self._view_of(allocator).steered()
        return await _status(allocator)

    async def create(self, request: Request, body: NewAllocator) -> AllocatorStatus:
        if body.policy not in POLICIES or POLICIES[body.policy].source is not None:
            raise _unknown_policy(body.policy)  # a policy file is code, which is not accepted over HTTP
        given = msgspec.to_builtins(body)  # without the fields that are not given
        name = given.pop("name")
        settings = Settings.checked(given)
        # Compilation takes seconds and must not block the event loop. Afterwards the compiled code is ready.
        if name not in self._manager.allocators:
            await asyncio.to_thread(_check_speed, settings)
            core = await asyncio.to_thread(prepare, name, settings)
            return await _status(self.open(name, settings, core))
        await self._opened(name)
        return await _status(self.open(name, settings))

    async def change(self, request: Request, body: AllocatorChange) -> AllocatorStatus:
        allocator = await self._find_numbered(request)
        given = msgspec.to_builtins(body)  # without the fields that are not given
        if not given:
            raise InputError(f"body: has no field; must have one of name, {', '.join(CHANGEABLE)}")
        name = given.pop("name", allocator.name)
        present = allocator.core.settings
        if given.get("deadline", 0) is None and present.deadline is not None:
            await asyncio.to_thread(_check_speed, present.changed({"deadline": None}))
            allocator = await self._find_numbered(request)
        await self._manager.rename_or_change(allocator, name, given)
        log.info("allocator changed", extra={"allocator": name, "number": allocator.number, "change": body})
        view = self._view_of(allocator)
        view.patience = allocator.core.settings.patience
        view.steered()
        return await _status(allocator)

    async def delete(self, request: Request) -> DeletedResponse:
        allocator = await self._find_numbered(request)
        await self._manager.delete(allocator)
        found = DeletedResponse(allocator.name, allocator.number, allocator.core.slot)
        self._logged_failures.pop(allocator.number, None)
        log.info("allocator deleted", extra={"allocator": found.name, "number": found.number, "slot": found.slot})
        return found

    async def _find_numbered(self, request: Request) -> JournaledAllocator:
        """Return the allocator of a request, which may also give its number."""
        allocator = await self._find(request)
        number = request.query_params.get("number")
        if number is not None and not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise InputError(f"number = {shown(number)}: must be the number in the status of the allocator")
        if number is not None and int(number) != allocator.number:
            raise ConflictError(f"number = {number}: allocator {allocator.name} has number {allocator.number}")
        return allocator

    # --- status ------------------------------------------------------------------------------------------------------

    async def list_allocators(self, request: Request) -> AllocatorList:
        after, limit = request.query_params.get("after", ""), request.query_params.get("limit", str(MAX_LISTED))
        count = validation.whole(limit, "limit", 1, MAX_LISTED)
        names = sorted(name for name in await self._manager.names() if name > after)
        return AllocatorList(names[:count], names[count - 1] if len(names) > count else UNSET)

    async def status(self, request: Request) -> AllocatorStatus:
        allocator = await self._find(request)
        await self._manager.flush()
        return await _status(allocator)

    async def explain(self, request: Request) -> ExplainResponse:
        allocator = await self._find(request)
        request_id = request.query_params.get("request_id")
        if not request_id:
            raise InputError("request_id: must be given, as in explain?request_id=...")
        await self._manager.flush()
        explanation = await _read(allocator, lambda: allocator.core.explain(request_id))
        return msgspec.convert(explanation.to_dict(), ExplainResponse)

    async def watch(self, request: Request) -> Response:
        """Send what the page shows whenever it has changed."""
        allocator = await self._find(request)
        name, number, token = allocator.name, allocator.number, request.scope.get(TOKEN)

        async def stream() -> AsyncIterator[bytes]:
            seen, quiet = -1, 0.0
            with self._manager.holding(name):
                while not (self._ending.is_set() or (token is not None and token.revoked)):
                    try:
                        view = await self._view(name, number)
                    except IdlebandError:  # deleted, renamed, or restored from the journal: the client may ask again
                        return
                    if view.changes != seen:
                        seen, quiet = view.changes, 0.0
                        yield view.event
                    elif quiet >= KEEPALIVE_INTERVAL:
                        quiet = 0.0
                        yield b": no change\n\n"
                    quiet += WATCH_INTERVAL
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ending.wait(), WATCH_INTERVAL)

        return StreamingResponse(stream(), media_type=EVENT_STREAM)

    async def _view(self, name: str, number: int) -> "_RenderedView":
        """Return what the page shows, rendered again at most twice per interval, however many clients watch."""
        last, shown = self._rendered.get(number), self.views.get(number)
        if last is None or (
            (shown is None or last.changes != shown.changes) and time.monotonic() - last.at >= WATCH_INTERVAL / 2
        ):
            rendering = self._rendering.get(number)
            if rendering is None:
                rendering = self._rendering[number] = asyncio.ensure_future(self._render(name, number))
                rendering.add_done_callback(lambda done: self._ended_rendering(number, done))
            last = await asyncio.shield(rendering)  # the client may leave while others wait for it, too
        return last

    def _ended_rendering(self, number: int, task: "asyncio.Future[_RenderedView]") -> None:
        del self._rendering[number]
        if not task.cancelled():
            task.exception()  # the clients may have left

    async def _render(self, name: str, number: int) -> "_RenderedView":
        allocator = await self._manager.opened(name)
        if allocator.number != number:
            raise UnknownRequestError(f"allocator {name}: was deleted or renamed")
        changes, now = self._view_of(allocator).changes, time.monotonic()
        event = b"data: " + encode(await self._view_data(allocator)) + b"\n\n"
        rendered = _RenderedView(changes, now, event)
        if number in self.views:
            self._rendered[number] = rendered
        return rendered

    async def _view_data(self, allocator: JournaledAllocator) -> dict[str, Any]:
        found, text = await _read(allocator, lambda: _status_and_explanation(allocator))
        status = _status_message(allocator, found)
        return {**msgspec.structs.asdict(status), **self._view_of(allocator).view(), "explanation": text}


class _RenderedView(NamedTuple):
    """The view of an allocator as an event of a stream."""

    changes: int  # of the live view that it shows
    at: float  # when it was rendered
    event: bytes


class _BodySizes(NamedTuple):
    """Sizes of the bodies of requests to one allocator."""

    decide: BodySize
    report: BodySize
    step: BodySize
    channels: BodySize


@lru_cache
def _body_sizes(size: Size) -> _BodySizes:
    K, M, d = size.channels, size.users, size.dimension
    what = f" for {counted(K, 'channel')}, {counted(M, 'user')} and dimension {d}"
    decide = BodySize.of(K * max(1, d), 3 * K, what)  # contexts; available, states and incumbent
    report = BodySize.of(0, 3 * M, what)  # rewards, states and perturbations, with the names of channels
    return _BodySizes(decide, report, decide.and_also(report), BodySize.of(0, K, what))


def _new_allocator_size(request: Request) -> BodySize:
    """Names, and two probabilities of sensing errors, per channel, and parameters."""
    return BodySize.of(2 * MAX_CHANNELS, MAX_CHANNELS, "")


def _new_view(allocator: JournaledAllocator) -> LiveView:
    settings = allocator.core.settings
    return LiveView(settings.setup.good, settings.setup.high, settings.patience, allocator.core.slot)


def _decide_response(decision: Decision, channel_names: tuple[str, ...]) -> DecideResponse:
    return DecideResponse(
        request_id=str(decision.request_id),
        slot=decision.slot,
        channels=list(decision.channels),
        channel_names=[channel_names[k] for k in decision.channels] if channel_names else msgspec.UNSET,
        by=decision.by,
        proposed=None if decision.proposed is None else list(decision.proposed),
    )


def _report_arguments(body: ReportRequest) -> dict[str, Any]:
    return {
        "request_id": body.request_id,
        "rewards": body.rewards,
        "states": body.states,
        "perturbations": body.perturbations,
    }


def _report_response(receipt: Receipt) -> ReportResponse:
    return ReportResponse(list(receipt.learned), list(receipt.repeated), receipt.late)


def _step_responses(
    allocator: JournaledAllocator, found: StepResult
) -> tuple[ReportResponse | UnsetType, DecideResponse | UnsetType]:
    return (
        UNSET if found.receipt is None else _report_response(found.receipt),
        UNSET if found.decision is None else _decide_response(found.decision, allocator.core.settings.channel_names),
    )


async def _read(allocator: JournaledAllocator, work: Callable[[], T]) -> T:
    """Return what is read of an allocator, between two changes."""
    return work() if allocator.thread is None else await allocator.thread.call(work)


async def _status(allocator: JournaledAllocator) -> AllocatorStatus:
    return _status_message(allocator, await _read(allocator, allocator.core.status))


def _status_and_explanation(allocator: JournaledAllocator) -> tuple[dict[str, Any], str]:
    """Return the status and an explanation of the last decision."""
    status = allocator.core.status()
    last = status["last"]
    return status, "" if last is None else allocator.core.explain(last["request_id"]).text


def _status_message(allocator: JournaledAllocator, found: dict[str, Any]) -> AllocatorStatus:
    found = dict(found)
    last = found.pop("last")
    response = None if last is None else _decide_response(Decision(**last), allocator.core.settings.channel_names)
    settings = allocator.core.settings.to_dict()
    identity = {"name": allocator.name, "number": allocator.number}
    return msgspec.convert({**identity, **found, "last": response, "settings": settings}, AllocatorStatus)


def _check_speed(settings: Settings) -> None:
    """Compile the policy and refuse it if it is so slow that other clients would wait, unless it has a deadline."""
    core = AllocatorCore(settings)
    began = time.monotonic()
    for _ in range(TRIAL_SLOTS):
        decision = core.decide(core.parse_decide(np.zeros((settings.channels, settings.dimension))))
        rewards = [settings.setup.low] * len(decision.channels)
        core.learn(core.parse_report(decision.request_id, rewards))
    seconds = (time.monotonic() - began) / TRIAL_SLOTS
    if settings.deadline is None and seconds > MAX_SLOT_SECONDS:
        raise InputError(
            f"policy: {settings.configured.label} takes {seconds:.1f} s per slot, for which all other clients would"
            f" wait; must take at most {MAX_SLOT_SECONDS:g} s, or have a deadline"
        )


def _unknown_policy(name: str) -> InputError:
    known = [policy for policy, found in POLICIES.items() if found.source is None]
    if name.partition(":")[0] in known:
        return InputError(f"policy = {shown(name)}: must be the name alone; parameters belong into `parameters`")
    return unknown("policy", name[:80], known)
