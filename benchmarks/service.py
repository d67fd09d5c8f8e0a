"""Measure pairs of decide and report per second and their latency over loopback, with and without learning and journal.

    python benchmarks/service.py                    both in alternation, 5 seconds each
    python benchmarks/service.py --minutes 10       the durable one for ten minutes, with its memory every half minute

The service runs on one core and the clients, with 16 connections, on another. The bare service has no allocator (every
decision is the same) and no journal (nothing is written). Everything else is the same code.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

CONNECTIONS, K, M, D = 16, 10, 5, 8
POLICY = "mp-lucb"


# --- the service, in a separate process -------------------------------------------------------------------------


def serve(kind: str, folder: str) -> None:
    from idleband.allocator.events import Decision, Receipt
    from idleband.allocator.settings import Settings
    from idleband.service.app import Service
    from idleband.service.limits import Limits
    from idleband.service.serve import listen, new_server

    service = Service(Path(folder), limits=Limits(rate=1e9))
    service.open("main", Settings.checked({"policy": POLICY, "channels": K, "users": M, "dimension": D}))
    if kind == "bare":
        slot = 0

        def decide(*_: Any, request_id: str, **__: Any) -> Decision:
            nonlocal slot
            slot += 1
            return Decision(request_id, (0, 1, 2, 3, 4), slot, "policy", (0, 1, 2, 3, 4))

        service.manager.decide = decide  # type: ignore[method-assign,assignment]
        service.manager.report = lambda *_: Receipt((0, 1, 2, 3, 4))  # type: ignore[method-assign,assignment]
        service.manager.allocators["main"].parse_report = lambda *_: None  # type: ignore[method-assign,assignment]
    listening = listen("127.0.0.1", 0)
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    new_server(service).run(sockets=[listening])


class Running:
    """A service on the first core."""

    def __init__(self, kind: str) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=Path.cwd())  # not in a file system in memory
        first, *_ = sorted(os.sched_getaffinity(0))
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", kind, self.folder.name],
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {first}),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.folder.cleanup()


# --- clients ---------------------------------------------------------------------------------------------------------


def request(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/allocators/main/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def answer(reader: asyncio.StreamReader) -> Any:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return json.loads(await reader.readexactly(length))


async def client(port: int, number: int, until: float, contexts: list[Any], times: list[float]) -> None:
    """Decide and report until a time; append the duration of each pair to `times`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    i = 0
    while (began := time.perf_counter()) < until:
        name = f"{number}-{began:.9f}"
        writer.write(request("decide", {"request_id": name, "contexts": contexts[i % len(contexts)]}))
        channels = (await answer(reader))["channels"]
        states = [int((i + k) % 3 > 0) for k in channels]
        rewards = [1.0 if state else 0.1 for state in states]
        writer.write(request("report", {"request_id": name, "rewards": rewards, "states": states}))
        await answer(reader)
        times.append(time.perf_counter() - began)
        i += 1
    writer.close()


def load(port: int, seconds: float) -> list[float]:
    contexts = np.random.default_rng(0).random((50, K, D)).round(6).tolist()
    times: list[float] = []

    async def all_clients() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, i, until, contexts, times) for i in range(CONNECTIONS)))

    asyncio.run(all_clients())
    return times


def print_rate(kind: str, times: list[float], seconds: float) -> float:
    rate = len(times) / seconds
    p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
    print(f"{kind:8} {rate:7.0f} pairs per second   median {p50:5.2f} ms   p99 {p99:5.2f} ms", flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "DIR"))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    cores = sorted(os.sched_getaffinity(0))
    kinds = ["durable"] if options.minutes else ["durable", "bare"]
    services = {kind: Running(kind) for kind in kinds}
    os.sched_setaffinity(0, {cores[-1]})
    try:
        for one in services.values():
            load(one.port, 1.0)  # warm up
        if options.minutes:
            for i in range(int(options.minutes * 2)):
                times = load(services["durable"].port, 30.0)
                print_rate("durable", times, 30.0)
                print(f"  after {(i + 1) / 2:g} minutes {services['durable'].memory():.1f} MiB", flush=True)
            return
        best = dict.fromkeys(kinds, 0.0)
        for _ in range(options.rounds):
            for kind, one in services.items():
                best[kind] = max(best[kind], print_rate(kind, load(one.port, 5.0), 5.0))
        print(f"durable / bare: {best['durable'] / best['bare']:.2f}")
    finally:
        for one in services.values():
            one.stop()


if __name__ == "__main__":
    main()
