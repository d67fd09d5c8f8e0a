"""Real services for tests, on a free port of this machine.

`in_thread` runs one in a thread of the test process, where its state can be compared byte for byte. `as_command` runs
`idleband serve` in a process that can be killed.
"""

import asyncio
import contextlib
import http.client
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from idleband.allocator.events import Receipt
from idleband.allocator.settings import Settings
from idleband.service.app import Service
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.limits import Limits
from idleband.service.manager import AllocatorManager
from idleband.service.playground_settings import OfferedTrace
from idleband.service.postgres_journal import PostgresJournal
from idleband.service.postgres_url import PostgresUrl
from idleband.service.serve import listen, new_server
from idleband.service.tokens import Tokens

K, M, D = 4, 2, 2  # channels, users and dimension of the allocators in these tests
SIZES = {"channels": K, "users": M, "dimension": D}
TIMEOUT = 60.0  # seconds; generous, because tests must not depend on the speed of the machine
V1 = "/v1/allocators"

T = TypeVar("T")


def settings(policy: str = "mp-ucb", **more: Any) -> Settings:
    return Settings.checked({"policy": policy, **SIZES, **more})


def contexts_of(number: int) -> list[list[float]]:
    """Return contexts that differ from number to number."""
    return [[(7 * number + 3 * k + i) % 10 / 10 for i in range(D)] for k in range(K)]


def decide_body(request_id: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """Return a valid body for decide."""
    return {"request_id": request_id, "contexts": contexts_of(number), **more}


def report_body(decision: dict[str, Any]) -> dict[str, Any]:
    """Return valid feedback for a response of decide; a function of slot and channel, so it can be repeated."""
    states = [(k + decision["slot"]) % 2 for k in decision["channels"]]
    return {"request_id": decision["request_id"], "rewards": [(0.1, 1.0)[s] for s in states], "states": states}


def learn(
    manager: AllocatorManager, allocator: JournaledAllocator, request_id: str, rewards: Any, *states_and_more: Any
) -> Receipt:
    """Report feedback for a decision; the last arguments are states and perturbations."""
    more = dict(zip(("states", "perturbations"), states_and_more, strict=False))
    found, _ = manager.step(allocator, {"request_id": request_id, "rewards": rewards, **more}, None)
    assert found.receipt is not None
    return found.receipt


def eventually(condition: Callable[[], T], within: float = TIMEOUT) -> T:
    """Return the first true value of a condition; fail after `within` seconds."""
    until = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < until, "the condition did not become true"
        time.sleep(0.01)
    return found


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # with names in lower case
    text: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def detail(self) -> str:
        """The reason of a refusal: one line, in JSON."""
        assert 400 <= self.status < 600, self
        assert self.headers["content-type"] == "application/json"
        assert self.data["status"] == self.status
        detail = self.data["detail"]
        assert len(detail.splitlines()) == 1, detail
        assert len(detail) < 700, detail
        return str(detail)


class Caller:
    """Sends requests to a service at a port, each over a new connection."""

    port: int
    token: str | None = None

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a body: bytes as they are, anything else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        if self.token is not None:
            given["Authorization"] = f"Bearer {self.token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            connection.request(method, path, data, given)
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.send("POST", path, body, **headers)

    def decide(self, request_id: str, number: int = 0, name: str = "main", **more: Any) -> Reply:
        return self.post(f"{V1}/{name}/decide", decide_body(request_id, number, **more))

    def report(self, body: dict[str, Any], name: str = "main") -> Reply:
        return self.post(f"{V1}/{name}/report", body)

    def status(self, name: str = "main") -> dict[str, Any]:
        reply = self.get(f"{V1}/{name}")
        assert reply.status == 200, reply
        return dict(reply.data)

    def raw(self) -> socket.socket:
        """Open a connection for bytes that no client sends."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)


class InThread(Caller):
    """A service whose event loop runs in a thread of this process.

    With a folder and without `allocators` it has one named main.
    """

    def __init__(
        self,
        data: Path | PostgresUrl,
        *,
        token: str | None = None,
        tokens: Tokens | None = None,
        limits: Limits | None = None,
        port: int = 0,
        lease: float = 2.0,
        traces: dict[str, OfferedTrace] | None = None,
        tracing: Any = None,
        **allocators: Settings,
    ) -> None:
        tokens = tokens if token is None else Tokens.single(token)
        listening = listen("127.0.0.1", port)
        self.port = listening.getsockname()[1]
        if isinstance(data, PostgresUrl):
            journal: Path | PostgresJournal = PostgresJournal(data, f"http://127.0.0.1:{self.port}", lease)
        else:
            journal = data
            allocators = allocators or {"main": settings()}
        self.service = Service(journal, tokens=tokens, limits=limits, traces=traces, tracing=tracing)
        for name, one in allocators.items():
            self.service.open(name, one)
        self.token = token
        self._server = new_server(self.service)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started

    def _run(self, listening: socket.socket) -> None:
        with listening, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[listening]))

    def within(self, call: Callable[[], T]) -> T:
        """Return the result of a call that is made in the event loop of the service, between two requests."""

        async def made() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(TIMEOUT)

    def core(self, name: str = "main") -> Any:
        return self.within(lambda: self.service.manager.allocators[name].core)

    def state(self, name: str = "main") -> bytes:
        """Return the serialized state of an allocator."""
        return self.within(lambda: self.service.manager.allocators[name].core.snapshot()())

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def in_thread(data: Path | PostgresUrl, **options: Any) -> Iterator[InThread]:
    service = InThread(data, **options)
    try:
        yield service
    finally:
        service.close()


class AsCommand(Caller):
    """`idleband serve` in a process."""

    def __init__(
        self, folder: Path, *arguments: object, token: str | None = None, read_log: bool = True, url: str = ""
    ) -> None:
        """Start the service on a folder, or on a database with its log beside the folder.

        `read_log` False: its standard error is a pipe that is not read.
        """
        self.token = token
        self.folder = folder
        self.log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "idleband", "serve", "--data", url or folder, "--port", 0, *arguments]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if token is not None:
            environment["IDLEBAND_TOKEN"] = token
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE,
                stderr=log if read_log else subprocess.PIPE, text=True, env=environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        first_line = self.process.stdout.readline()
        found = re.fullmatch(r"idleband: serving .* at http://127\.0\.0\.1:(\d+)\n", first_line)
        if found is None:
            self.end(signal.SIGKILL)
            raise AssertionError(f"the service did not start: {first_line!r} {self.log.read_text()}")
        self.port = int(found[1])

    def limit_file_size(self, size: int) -> None:
        """Let no file of the process grow beyond `size` bytes, as if the disk were full."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the process with a signal; return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(TIMEOUT)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()
        return status

    @property
    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextlib.contextmanager
def as_command(folder: Path, *arguments: object, **options: Any) -> Iterator[AsCommand]:
    service = AsCommand(folder, *arguments, **options)
    try:
        yield service
    finally:
        service.end(signal.SIGKILL)


NEW = ("--policy", "mp-ucb", "--channels", K, "--users", M, "--dimension", D)  # arguments of a first start
