"""The playground: simulations started from the page, each in a process of its own, so that channels are handed out
undisturbed meanwhile."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from idleband.service.http import Operation, Refusal, encode
from idleband.service.playground_worker import Trial, checked, options

AT_ONCE = 2  # runs
LONGEST = 600.0  # seconds of one


class Playground:
    def __init__(self) -> None:
        self._running: set[asyncio.subprocess.Process] = set()
        self._starting = 0

    def operations(self) -> list[Operation]:
        return [
            Operation("GET", "/playground/options", self.playground_options, "What the playground has to choose from"),
            Operation(
                "GET", "/playground/run", self.playground_run, "Run a comparison: server-sent events",
                query=("settings",), media="text/event-stream", refuses={400: "a mistake in the settings"},
            ),
        ]  # fmt: skip

    async def playground_options(self, request: Request) -> Response:
        return Response(encode(options()), media_type="application/json")

    async def playground_run(self, request: Request) -> Response:
        """A stream of checkpoints. It ends with the run; who leaves it ends the run."""
        given = request.query_params.get("settings", "")
        try:
            checked(msgspec.json.decode(given.encode(), type=Trial))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise Refusal(400, f"settings: {error}") from None
        except RecursionError:
            raise Refusal(400, "settings: are nested too deeply") from None
        if len(self._running) + self._starting >= AT_ONCE:
            raise Refusal(429, f"{AT_ONCE} runs at once, and not more; wait for one to end", **{"Retry-After": "5"})
        self._starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "idleband.service.playground_worker", given,
                stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            self._running.add(process)
            os.setpriority(os.PRIO_PROCESS, process.pid, 10)  # what hands out channels goes first
        finally:
            self._starting -= 1
        return _Run(self._lines(process), lambda: self._end(process))

    async def _lines(self, process: Any) -> AsyncIterator[bytes]:
        late = False

        def stop() -> None:
            nonlocal late
            late = True
            self._end(process)

        # Not a time limit on what follows: whoever does not read would never come to it.
        clock = asyncio.get_running_loop().call_later(LONGEST, stop)
        try:
            while line := await process.stdout.readline():
                yield b"data: " + line + b"\n"
        finally:
            clock.cancel()
        if late:
            yield b'data: {"kind": "error", "detail": "it took too long, and was stopped"}\n\n'

    def _end(self, process: Any) -> None:
        self._running.discard(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def stop(self) -> None:
        """End all runs."""
        for process in list(self._running):
            self._end(process)
            await process.wait()


class _Run(StreamingResponse):
    """A stream after which something is done, whoever ended it and however early: nothing may be waited for then,
    because whoever has left is waited for no more."""

    def __init__(self, lines: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
