"""Requests of every slot, answered without a task and the layers of ASGI, which cost more than the slot itself.

A connection gives the complete body of such a request to the function of its operation, which is the one that the
router calls, after the same checks that the middleware makes. The function runs at once. Where it has to wait, for
the commit of its event, it goes on from there. Everything else, also a request that is refused, goes through ASGI.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from idleband.service.http_request_id import HTTP_REQUEST_ID, http_request_id
from idleband.service.middleware.check import Check
from idleband.service.middleware.request_metrics import RequestMetrics
from idleband.service.operations import ALLOCATOR, NAMES, Operation, endpoint
from idleband.service.problems import REASON, ProblemResponse
from idleband.service.request_body import BODY

MAX_BODY = 2**16  # bytes; a larger one is read part by part, through ASGI

Respond = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("idleband.service")


class DirectRequests:
    """The operations of every slot, the checks before them, and the metrics of their requests."""

    def __init__(
        self,
        operations: Sequence[Operation],
        max_body: int,
        checks: Sequence[Check],
        metrics: RequestMetrics,
        owns: Callable[[str], bool] | None = None,
    ) -> None:
        """`owns` returns whether an allocator belongs to this process; requests for others are forwarded."""
        self._checks, self._metrics, self._owns = tuple(checks), metrics, owns
        self._fixed: dict[str, Respond] = {}  # by path
        self._named: dict[str, Respond] = {}  # by what follows the name of the allocator
        for one in operations:
            assert one.method == "POST", one.path
            rest = one.path.removeprefix(ALLOCATOR)
            (self._fixed if rest == one.path else self._named)[rest] = endpoint(one, max_body)

    def find(self, scope: Any) -> Respond | None:
        """Return the function that answers a request; None if it has to go through ASGI."""
        if scope["method"] != "POST":
            return None
        path = scope["path"]
        if path.startswith(NAMES):
            name, slash, rest = path[len(NAMES) :].partition("/")
            if not name or "/" in rest or (self._owns is not None and not self._owns(name)):
                return None
            found = self._named.get(slash + rest)
            scope["path_params"] = {"name": name}
        elif self._owns is None:
            found = self._fixed.get(path)
        else:  # for several allocators, of different processes perhaps
            return None
        if found is None:
            return None
        for check in self._checks:
            if check.refusal(scope) is not None:
                return None
        return found

    def answer(self, scope: Any, body: bytes, respond: Respond, reply: Callable[[Response], None]) -> None:
        """Call `reply` with the response to a request, now or later."""
        began = time.perf_counter()
        scope[BODY] = body
        identifier = http_request_id(scope)
        context = contextvars.copy_context()  # of this request, like that of a task
        context.run(HTTP_REQUEST_ID.set, identifier)

        def done(response: Response) -> None:
            if isinstance(response, ProblemResponse):
                scope[REASON] = response.reason
            response.raw_headers.append((b"x-request-id", identifier))
            reply(response)
            self._metrics.count(scope, response.status_code, time.perf_counter() - began)

        _Running(respond(Request(scope)), context, done)


class _Running:
    """A coroutine that runs at once, unlike a task, and goes on whenever what it waits for is there."""

    __slots__ = ("_context", "_coroutine", "_done")

    def __init__(
        self, coroutine: Awaitable[Response], context: contextvars.Context, done: Callable[[Response], None]
    ) -> None:
        assert isinstance(coroutine, Coroutine)
        self._coroutine, self._context, self._done = coroutine, context, done
        context.run(self._step)

    def _step(self, _: Any = None) -> None:
        try:
            waited = self._coroutine.send(None)
        except StopIteration as end:
            self._done(end.value)
        except Exception as error:  # a defect
            log.error("request failed", exc_info=error)
            self._done(PlainTextResponse("Internal Server Error", 500, {"connection": "close"}))
        else:
            if waited is None:
                asyncio.get_running_loop().call_soon(self._step, context=self._context)
            else:
                waited._asyncio_future_blocking = False  # the protocol between futures and tasks
                waited.add_done_callback(self._step, context=self._context)
