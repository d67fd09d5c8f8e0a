"""A real service for tests, on a free port of this machine: in a thread, where its state can be compared byte by byte,
or as the command in a process of its own, where it can be killed."""

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

from idleband.allocator.settings import Settings
from idleband.service.app import Service
from idleband.service.http import Limits
from idleband.service.serve import listen, server_of

K, M, D = 4, 2, 2  # channels, users and entries of a context of the allocators that tests make
SIZE = {"channels": K, "users": M, "dimension": D}
LONG = 60.0  # seconds after which something that should have happened has not

T = TypeVar("T")


def settings(policy: str = "mp-ucb", **more: Any) -> Settings:
    return Settings.checked({"policy": policy, **SIZE, **more})


def question(request: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """A good question; another number, other contexts."""
    contexts = [[(7 * number + 3 * k + i) % 10 / 10 for i in range(D)] for k in range(K)]
    return {"request": request, "contexts": contexts, **more}


def feedback(answer: dict[str, Any]) -> dict[str, Any]:
    """Good feedback for an answer: what a channel returned depends on the slot and on it, so it is the same again."""
    slot = answer["slot"]
    outcomes = [
        {"channel": k, "reward": (0.1, 1.0)[(k + slot) % 2], "state": (k + slot) % 2} for k in answer["channels"]
    ]
    return {"request": answer["request"], "outcomes": outcomes}


def eventually(condition: Callable[[], T], within: float = LONG) -> T:
    """What a condition says as soon as it says something."""
    until = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)
    return found


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    text: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        """Why something was refused: one line, in JSON."""
        assert 400 <= self.status < 600, self
        assert self.headers["content-type"] == "application/json"
        assert self.data["status"] == self.status
        reason = self.data["detail"]
        assert len(reason.splitlines()) == 1, reason
        assert len(reason) < 700, reason
        return str(reason)


class Speaker:
    """Says things to a service at a port, each over a connection of its own."""

    port: int
    token: str | None = None

    def say(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """`body`: bytes as they are; anything else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        if self.token is not None:
            given["Authorization"] = f"Bearer {self.token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        with contextlib.closing(connection):
            connection.request(method, path, data, given)
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.say("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.say("POST", path, body, **headers)

    def decide(self, request: str, number: int = 0, name: str = "main", **more: Any) -> Reply:
        return self.post(f"/allocators/{name}/decide", question(request, number, **more))

    def report(self, said: dict[str, Any], name: str = "main") -> Reply:
        return self.post(f"/allocators/{name}/report", said)

    def standing(self, name: str = "main") -> dict[str, Any]:
        reply = self.get(f"/allocators/{name}")
        assert reply.status == 200, reply
        return dict(reply.data)

    def raw(self) -> socket.socket:
        """A bare connection, for what no client would say."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=LONG)


class InThread(Speaker):
    """A service whose event loop runs in a thread of this process."""

    def __init__(
        self,
        folder: Path,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        port: int = 0,
        **allocators: Settings,
    ) -> None:
        self.service = Service(folder, token=token, limits=limits)
        for name, one in (allocators or {"main": settings()}).items():
            self.service.open(name, one)
        self.token = token
        self._server = server_of(self.service)
        listening = listen("127.0.0.1", port)
        self.port = listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started

    def _run(self, listening: socket.socket) -> None:
        with listening, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve(sockets=[listening]))

    def within(self, call: Callable[[], T]) -> T:
        """What a call returns, made where the service's own calls are made, between two of them."""

        async def made() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(LONG)

    def state(self, name: str = "main") -> bytes:
        return self.within(lambda: self.service.office.desks[name].allocator.to_bytes())

    @property
    def journal(self) -> Path:
        return self.service.office.journal.path

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(LONG)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def in_thread(folder: Path, **given: Any) -> Iterator[InThread]:
    service = InThread(folder, **given)
    try:
        yield service
    finally:
        service.close()


class AsCommand(Speaker):
    """`idleband serve`, in a process that is ended by its own number."""

    def __init__(self, folder: Path, *arguments: object, token: str | None = None, room: int | None = None) -> None:
        """`room`: bytes that a file of it may have, as if the disk were full then."""
        self.token = token
        self.folder = folder
        self.log = folder.parent / f"{folder.name}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "idleband", "serve", "--data", folder, "--port", 0, *arguments]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        if token is not None:
            environment["IDLEBAND_TOKEN"] = token
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        if room is not None:
            self.limit(room)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.fullmatch(r"idleband: serving .* at http://127\.0\.0\.1:(\d+)\n", self.said)
        if found is None:
            self.end(signal.SIGKILL)
            raise AssertionError(f"it did not start: {self.said!r} {self.log.read_text()}")
        self.port = int(found[1])

    def limit(self, room: int) -> None:
        """No file of it may grow beyond so many bytes."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    def end(self, how: int = signal.SIGTERM) -> int:
        """Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(LONG)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()
        return status

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextlib.contextmanager
def as_command(folder: Path, *arguments: object, **given: Any) -> Iterator[AsCommand]:
    service = AsCommand(folder, *arguments, **given)
    try:
        yield service
    finally:
        service.end(signal.SIGKILL)


NEW = ("--policy", "mp-ucb", "--channels", K, "--users", M, "--dimension", D)  # what a first start needs
