"""Measure a service with ten thousand allocators: memory, start, and the latency of open and of closed ones.

    python studies/ten_thousand_allocators.py [ALLOCATORS]      10,000 by default, 5 minutes; writes the .md beside it

The allocators are made in this process, with some slots each, and a few with as many as they keep. `idleband serve`
then serves their folder, with limits of its memory, to clients of this process over loopback. An allocator is cold if
it has to be opened for a request.
"""

import asyncio
import json
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from idleband.allocator.settings import Settings
from idleband.service.manager import AllocatorManager

HERE = Path(__file__).parent
K, M, D = 10, 5, 8
SETTINGS = {"policy": "mp-lucb", "channels": K, "users": M, "dimension": D}
SLOTS, LONG_SLOTS, LONG = 20, 1000, 50  # of most allocators; of the last ones; number of these
MEMORY = (256, 64)  # limits in MiB
SECONDS, CONNECTIONS, PAUSE = 15.0, 16, 0.16
CONTEXTS = np.random.default_rng(0).random((50, K, D)).round(6).tolist()


def make(folder: Path, count: int) -> None:
    """Make a folder with allocators a0, a1 and so on."""
    manager = AllocatorManager(folder, memory=2**26)
    settings = Settings.checked(SETTINGS)
    for i in range(count):
        name = f"a{i}"
        manager.open(name, settings)
        for slot in range(LONG_SLOTS if i >= count - LONG else SLOTS):
            allocator = manager.allocators[name]
            decision = manager.decide(allocator, CONTEXTS[slot % 50], request_id=f"made-{slot}")
            report = {"request_id": f"made-{slot}", "rewards": [(0.1, 1.0)[(i + k) % 2] for k in decision.channels]}
            manager.step(allocator, report, None)
        manager.commit()
    manager.close()


class Served:
    """`idleband serve` on a folder."""

    def __init__(self, folder: Path, memory: int) -> None:
        command = [sys.executable, "-m", "idleband", "serve", "--data", str(folder), "--port", "0"]
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, "--rate", "1000000", "--memory", str(memory)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as reply:
            assert reply.status == 200
        self.start = time.perf_counter() - began

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def stop(self) -> float:
        """Stop the service; return how long it took."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0
        return time.perf_counter() - began


class Connection:
    """One connection to a service."""

    @classmethod
    async def to(cls, port: int) -> "Connection":
        self = cls()
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def send(self, method: str, path: str, body: str = "") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        self._writer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 200"), head
        length = re.search("content-length: ([0-9]+)", head)
        assert length is not None
        return await self._reader.readexactly(int(length[1]))

    async def decide(self, name: str, request_id: str) -> float:
        """Return the seconds that a decision takes."""
        body = json.dumps({"request_id": request_id, "contexts": random.choice(CONTEXTS)})
        began = time.perf_counter()
        await self.send("POST", f"/v1/allocators/{name}/decide", body)
        return time.perf_counter() - began

    async def metric(self, name: str) -> float:
        found = re.search(rf"^idleband_{name} (\S+)$", (await self.send("GET", "/metrics")).decode(), re.MULTILINE)
        assert found is not None
        return float(found[1])


def quantiles(times: list[float]) -> str:
    p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
    return f"{p50:.2f} | {p99:.2f} | {max(times) * 1e3:.1f} | {len(times)}"


async def one_by_one(port: int, count: int, lines: list[str]) -> None:
    """One client, which waits for each answer."""
    connection, run = await Connection.to(port), time.time_ns()
    chosen = random.sample(range(count - LONG), min(2000, count // 2))
    await connection.decide(f"a{count - LONG - 1}", f"{run}")  # loads the compiled code
    cold = [await connection.decide(f"a{i}", f"{run}-cold") for i in chosen]
    lines.append(f"| cold, {SLOTS} decisions kept | {quantiles(cold)} |")
    long = [await connection.decide(f"a{i}", f"{run}-cold") for i in range(count - LONG, count)]
    lines.append(f"| cold, {LONG_SLOTS} decisions kept | {quantiles(long)} |")
    warm = [await connection.decide(f"a{chosen[-1 - j % 20]}", f"{run}-warm-{j}") for j in range(4000)]
    lines.append(f"| warm | {quantiles(warm)} |")


async def many_clients(service: Served, count: int, pause: float, lines: list[str]) -> dict[str, float]:
    """Clients that choose among all allocators at random, with a pause, beside one that stays with one allocator."""
    run, until = time.time_ns(), time.perf_counter() + SECONDS
    cold: list[float] = []
    warm: list[float] = []
    most: dict[str, float] = {"memory": 0.0, "bytes": 0.0}

    async def wander(client: int) -> None:
        connection, j = await Connection.to(service.port), 0
        await asyncio.sleep(pause * client / CONNECTIONS)
        while time.perf_counter() < until:
            j += 1
            cold.append(await connection.decide(f"a{random.randrange(count)}", f"{run}-{client}-{j}"))
            await asyncio.sleep(pause)

    async def stay() -> None:
        connection, j = await Connection.to(service.port), 0
        while time.perf_counter() < until:
            j += 1
            warm.append(await connection.decide("a0", f"{run}-{j}"))

    async def look() -> None:
        connection = await Connection.to(service.port)
        while time.perf_counter() < until:
            await asyncio.sleep(1.0)
            most["memory"] = max(most["memory"], service.memory())
            most["bytes"] = max(most["bytes"], await connection.metric("open_bytes"))
        most["open"] = await connection.metric("open_allocators")

    await asyncio.gather(stay(), look(), *(wander(i) for i in range(CONNECTIONS)))
    pace = f"{CONNECTIONS / pause:.0f} per second" if pause else "without pause"
    lines.append(f"| {CONNECTIONS} clients, allocators at random, {pace} | {quantiles(cold)} |")
    lines.append(f"| beside them, an allocator that stays open | {quantiles(warm)} |")
    return most


def main(count: int) -> None:
    began = time.perf_counter()
    latencies = ["| requests | median | p99 | most | number |", "|---|---|---|---|---|"]
    memory = [
        "| limit | start | resident after the start | resident at most | open | estimate of the open ones | stop |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # not in a file system in memory
        one, many = Path(name) / "one", Path(name) / "many"
        make(one, 1 + LONG)
        single = Served(one, MEMORY[0])
        base = single.memory()
        alone = single.start
        single.stop()
        at = time.perf_counter()
        make(many, count)
        made = time.perf_counter() - at
        print(f"made in {made:.0f} s", flush=True)
        size = sum(file.stat().st_size for file in many.iterdir()) / 2**20
        for limit in MEMORY:
            service = Served(many, limit)
            at_start = service.memory()
            try:
                if limit == MEMORY[0]:
                    asyncio.run(one_by_one(service.port, count, latencies))
                    asyncio.run(many_clients(service, count, PAUSE, latencies))
                most = asyncio.run(many_clients(service, count, 0.0, latencies if limit == MEMORY[0] else []))
            finally:
                stop = service.stop()
            memory.append(
                f"| {limit} | {service.start:.2f} s | {at_start:.0f} | {most['memory']:.0f} | {most['open']:.0f}"
                f" | {most['bytes'] / 2**20:.0f} | {stop:.1f} s |"
            )
    minutes = (time.perf_counter() - began) / 60
    text = f"""# Ten thousand allocators in one service

`python studies/ten_thousand_allocators.py`, {minutes:.0f} minutes on two cores, which the service
and the clients share. MP-LUCB with K = {K}, M = {M}, d = {D}. {count:,} allocators, of which {LONG} keep
{LONG_SLOTS:,} decisions and the others {SLOTS}. To make them took {made:.0f} s; their journal has {size:.0f} MiB.

## Memory in MiB, and start

A service with {1 + LONG} allocators, none of them open, starts in {alone:.2f} s and has {base:.0f} MiB.

{chr(10).join(memory)}

The limit and the estimate count open allocators, not the process, its compiled code and the names of the others.

## Latency of a decision over loopback in ms, with a limit of {MEMORY[0]} MiB

{chr(10).join(latencies)}

The rows were measured in this order. Clients that choose at random find few allocators open: most of their requests
close one allocator and open another. Other work ran on the machine.
"""
    (HERE / "ten_thousand_allocators.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10_000)
