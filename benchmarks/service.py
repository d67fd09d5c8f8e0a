"""Measure pairs of report and decide per second and their latency over loopback, beside an earlier commit and SQLite.

    git worktree add ../before COMMIT
    python benchmarks/service.py --baseline ../before     alternating runs of both, and of bare SQLite, 2 seconds each
    python benchmarks/service.py --minutes 10             ten minutes of steps, with the memory every half minute

Services run on one core and the clients on another. A pair is a report and the next decision: in two requests, in one
step, or in one of 16 steps of a batch for 16 allocators. Its latency is that of the one or two requests. Bare SQLite
writes the events of one pair per connection in each transaction, into the table of the journal and as durably.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
CONNECTIONS, K, M, D = (16, 1), 10, 5, 8
BATCH = 16  # allocators
POLICY = "mp-lucb"
SECONDS = 2.0


# --- the service, in a separate process -------------------------------------------------------------------------


def serve(place: str) -> None:
    """Serve allocators whose journal is in a folder, or in a PostgreSQL database."""
    from idleband.allocator.allocator import Allocator
    from idleband.allocator.settings import Settings
    from idleband.service.app import Service
    from idleband.service.limits import Limits
    from idleband.service.serve import listen, new_server

    first = Allocator(POLICY, channels=K, users=M, dimension=D)  # compiles what the others use
    first.report(first.decide(np.zeros((K, D))).request_id, [1.0] * M)
    listening = listen("127.0.0.1", 0)
    data: Any = Path(place)
    if "://" in place:
        from idleband.service.postgres_journal import PostgresJournal
        from idleband.service.postgres_url import PostgresUrl

        data = PostgresJournal(PostgresUrl(place), f"http://127.0.0.1:{listening.getsockname()[1]}", 5.0)
    service = Service(data, limits=Limits(rate=1e9))
    for i in range(BATCH):
        service.open(f"m{i}", Settings.checked({"policy": POLICY, "channels": K, "users": M, "dimension": D}))
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    new_server(service).run(sockets=[listening])


class Running:
    """A service on the first core, with the package of a source tree."""

    def __init__(self, tree: Path, url: str = "") -> None:
        self.folder = tempfile.TemporaryDirectory(dir=Path.cwd())  # not in a file system in memory
        first, *_ = sorted(os.sched_getaffinity(0))
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", url or self.folder.name],
            env={**os.environ, "PYTHONPATH": str(tree / "src")},
            stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {first}),
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def processor_time(self) -> float:
        """Return the processor time so far in seconds. Other processes on the machine hardly influence it."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.folder.cleanup()


# --- clients ---------------------------------------------------------------------------------------------------------

CONTEXTS = [json.dumps(x) for x in np.random.default_rng(0).random((50, K, D)).round(6).tolist()]


class Connection:
    """One connection to a service."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: str) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        self._writer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"content-length: ([0-9]+)", head)
        assert length is not None
        return await self._reader.readexactly(int(length[1]))


def decide_part(name: str, i: int) -> str:
    return f'{{"request_id": "{name}", "contexts": {CONTEXTS[i % len(CONTEXTS)]}}}'


def report_part(name: str, channels: list[int], i: int) -> str:
    states = [int((i + k) % 3 > 0) for k in channels]
    rewards = [1.0 if state else 0.1 for state in states]
    return f'{{"request_id": "{name}", "rewards": {rewards}, "states": {states}}}'


Pairs = Callable[[Connection, str, float, list[float]], Coroutine[Any, Any, None]]


async def two_requests(connection: Connection, client: str, until: float, times: list[float]) -> None:
    i = 0
    while (began := time.perf_counter()) < until:
        name, i = f"{client}-{i}", i + 1
        found = json.loads(await connection.post("/v1/allocators/m0/decide", decide_part(name, i)))
        await connection.post("/v1/allocators/m0/report", report_part(name, found["channels"], i))
        times.append(time.perf_counter() - began)


async def step(connection: Connection, client: str, until: float, times: list[float]) -> None:
    i, report = 0, ""
    while (began := time.perf_counter()) < until:
        name, i = f"{client}-{i}", i + 1
        body = f'{{{report}"decide": {decide_part(name, i)}}}'
        found = json.loads(await connection.post("/v1/allocators/m0/step", body))
        report = f'"report": {report_part(name, found["decide"]["channels"], i)}, '
        times.append(time.perf_counter() - began)


async def batch(connection: Connection, client: str, until: float, times: list[float]) -> None:
    i, reports = 0, [""] * BATCH
    while (began := time.perf_counter()) < until:
        name, i = f"{client}-{i}", i + 1
        steps = [f'{{"name": "m{j}", {reports[j]}"decide": {decide_part(name, i + j)}}}' for j in range(BATCH)]
        found = json.loads(await connection.post("/v1/steps", f'{{"steps": [{", ".join(steps)}]}}'))["results"]
        reports = [f'"report": {report_part(name, one["decide"]["channels"], i)}, ' for one in found]
        times += [time.perf_counter() - began] * BATCH


def load(port: int, pairs: Pairs, connections: int, seconds: float) -> list[float]:
    """Return the latency of every pair."""
    times: list[float] = []

    async def all_clients() -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
        until, run = time.perf_counter() + seconds, f"{time.time():.6f}"
        await asyncio.gather(*(pairs(Connection(*one), f"{run}-{i}", until, times) for i, one in enumerate(opened)))
        for _, writer in opened:
            writer.close()

    asyncio.run(all_clients())
    return times


def sqlite_pairs(connections: int, seconds: float) -> list[float]:
    """Commit the events of one pair per connection in each transaction, on the core of the services."""
    from idleband.service.sqlite_journal import FILE_NAME, SqliteJournal

    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        journal = SqliteJournal(Path(folder))
        journal.add("m0", "{}")
        journal.close()
        writer = sqlite3.connect(Path(folder) / FILE_NAME, isolation_level=None)
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA synchronous = FULL")
        times: list[float] = []
        seq, kinds = 0, ((0, bytes(8 * K * D + 120)), (1, bytes(24 * M + 10)))
        os.sched_setaffinity(0, {FIRST})
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            rows = []
            for i in range(connections):
                rows += [(1, seq + 2 * i + 1 + kind, kind, f"{began}-{i}", body, seq) for kind, body in kinds]
            seq += len(rows)
            writer.execute("BEGIN IMMEDIATE")
            writer.executemany(
                "INSERT INTO events (allocator, seq, kind, request, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
            writer.execute("COMMIT")
            times += [time.perf_counter() - began] * connections
        writer.close()
        os.sched_setaffinity(0, cores)
    return times


# --- comparison ------------------------------------------------------------------------------------------------------

FIRST, *_, LAST = [*sorted(os.sched_getaffinity(0))] * 2


def compare(trees: dict[str, Path], rounds: int) -> None:
    services = {name: Running(tree) for name, tree in trees.items()}
    os.sched_setaffinity(0, {LAST})
    ways: dict[str, Callable[[int, float], list[float]]] = {
        f"{name}, two requests": lambda n, s, port=one.port: load(port, two_requests, n, s)  # type: ignore[misc]
        for name, one in services.items()
    }
    port = services["now"].port
    ways["now, step"] = lambda n, s: load(port, step, n, s)
    ways[f"now, batch of {BATCH}"] = lambda n, s: load(port, batch, max(1, n // BATCH), s)
    ways["bare SQLite"] = sqlite_pairs
    rates: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    try:
        for way in ways.values():
            way(16, 1.0)  # warm up
        for _ in range(rounds):
            for connections in CONNECTIONS:
                for name, way in ways.items():
                    began = [one.processor_time() for one in services.values()]
                    times = way(connections, SECONDS)
                    used = sum(one.processor_time() for one in services.values()) - sum(began)
                    p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
                    found = len(times) / SECONDS, p50, p99, used / len(times) * 1e6
                    rates.setdefault((connections, name), []).append(found)
    finally:
        for one in services.values():
            one.stop()
    print("pairs in flight, pairs per second (least to most), median in ms, p99 in ms (least to most), processor time")
    for (connections, name), measured in rates.items():
        each = np.array(measured)
        (rate, p50, p99, used), low, high = np.median(each, axis=0), each.min(axis=0), each.max(axis=0)
        print(
            f"{connections:3} {name:24} {rate:7.0f} ({low[0]:.0f} to {high[0]:.0f})   {p50:6.2f}"
            f"   {p99:6.2f} ({low[2]:.2f} to {high[2]:.2f})   {used:5.0f} us"
        )
    before = next(iter(trees))
    for connections in CONNECTIONS:
        base = [rate for rate, *_ in rates[connections, f"{before}, two requests"]]
        for name in ways:
            ratios = [rate / old for (rate, *_), old in zip(rates[connections, name], base, strict=True)]
            print(
                f"{connections:3} {name:24} / {before}, two requests: {np.median(ratios):.2f} (least {min(ratios):.2f})"
            )


def endure(minutes: float) -> None:
    service = Running(HERE)
    os.sched_setaffinity(0, {LAST})
    try:
        for i in range(int(minutes * 2)):
            times = load(service.port, step, 16, 30.0)
            p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
            print(f"{(i + 1) / 2:g} minutes: {len(times) / 30:.0f} pairs per second,", end=" ")
            print(f"median {p50:.2f} ms, p99 {p99:.2f} ms, {service.memory():.1f} MiB", flush=True)
    finally:
        service.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", metavar="DIR")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="source tree of an earlier commit")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    elif options.minutes:
        endure(options.minutes)
    else:
        before = {} if options.baseline is None else {"before": options.baseline.resolve()}
        compare({**before, "now": HERE}, options.rounds)


if __name__ == "__main__":
    main()
