"""The playground: simulations started from the page.

Each runs in a separate process with low priority, so that decisions are not delayed.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from idleband.service.operations import EVENT_STREAM, Operation
from idleband.service.playground_options import PlaygroundOptions, options
from idleband.service.playground_settings import OfferedTrace, PlaygroundSettings, check
from idleband.service.problems import HTTPProblem, encode
from idleband.service.tokens import OPERATE, READ

MAX_RUNS = 2  # at the same time
RUN_TIMEOUT = 600.0  # seconds
NICENESS = 10
MAX_LINE = 2**20  # bytes of a message of a worker


class Playground:
    """Starts worker processes and streams their messages; `traces` can be replayed, by name."""

    def __init__(self, traces: Mapping[str, OfferedTrace] | None = None) -> None:
        self._traces = traces or {}
        self._running: set[asyncio.subprocess.Process] = set()
        self._starting = 0

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", "/v1/playground/options", self.playground_options, "Options of the playground",
                response=PlaygroundOptions, role=READ,
            ),
            Operation(
                "GET", "/v1/playground/run", self.playground_run, "Run a comparison: server-sent events",
                query=("settings",), media_type=EVENT_STREAM, errors={400: "the settings are invalid"},
                role=OPERATE,
            ),
        ]  # fmt: skip

    async def playground_options(self, request: Request) -> PlaygroundOptions:
        return options(self._traces.values())

    async def playground_run(self, request: Request) -> Response:
        """Return a stream of messages. The run ends when the client disconnects."""
        text = request.query_params.get("settings", "")
        try:
            settings = msgspec.json.decode(text.encode(), type=PlaygroundSettings)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise HTTPProblem(400, f"settings: {error}") from None
        except RecursionError:
            raise HTTPProblem(400, "settings: nested too deeply") from None
        trace = await asyncio.to_thread(check, settings, self._traces)
        if len(self._running) + self._starting >= MAX_RUNS:
            raise HTTPProblem(
                429, f"{MAX_RUNS} runs are in progress, the most at a time; wait for one to end", {"Retry-After": "5"}
            )
        self._starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "idleband.service.playground_worker", text, *([trace.path] if trace else []),
                stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL, limit=MAX_LINE,
            )  # fmt: skip
            self._running.add(process)
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        finally:
            self._starting -= 1
        return _RunStream(self._messages(process), lambda: self._end(process))

    async def _messages(self, process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
        """Yield the worker's messages as server-sent events."""
        assert process.stdout is not None
        timed_out = False

        def stop() -> None:
            nonlocal timed_out
            timed_out = True
            self._end(process)

        # A timer and not a limit on reading: a client that does not read stops this generator, but not the timer.
        timer = asyncio.get_running_loop().call_later(RUN_TIMEOUT, stop)
        try:
            while line := await process.stdout.readline():
                yield b"data: " + line + b"\n"
        finally:
            timer.cancel()
        if timed_out:
            detail = f"the run was stopped: it took more than {RUN_TIMEOUT:g} seconds"
            yield b"data: " + encode({"kind": "error", "detail": detail}) + b"\n\n"

    def _end(self, process: asyncio.subprocess.Process) -> None:
        self._running.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def stop(self) -> None:
        """End all runs."""
        for process in list(self._running):
            self._end(process)
            await process.wait()


class _RunStream(StreamingResponse):
    """A stream that ends its run when it is closed by either side.

    `end` must not wait: after a disconnect the task is cancelled.
    """

    def __init__(self, messages: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(messages, media_type=EVENT_STREAM)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
