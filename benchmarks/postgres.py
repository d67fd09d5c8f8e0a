"""Measure pairs of report and decide per second on PostgreSQL, beside SQLite and bare PostgreSQL commits.

    python benchmarks/postgres.py [ROUNDS]        3 rounds by default, two minutes

Services run on one core, and the clients and PostgreSQL on the others. All ways alternate, two seconds each. Bare
PostgreSQL writes the events of one pair per connection in each transaction, in one statement, into the table of the
journal and as durably.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import asyncpg
import numpy as np

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE), str(HERE / "benchmarks")]

from service import BATCH, CONNECTIONS, LAST, SECONDS, D, K, M, Running, batch, load, step, two_requests  # noqa: E402

from tests.service.postgres_server import postgres_server  # noqa: E402

_INSERT = """
INSERT INTO events (allocator, seq, kind, request, body, checksum)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bytea[], $5::bytea[], $6::bigint[])
"""


def bare_pairs(url: str, connections: int, seconds: float) -> list[float]:
    """Commit the events of one pair per connection in each transaction."""
    times: list[float] = []
    kinds = ((0, bytes(8 * K * D + 120)), (1, bytes(24 * M + 10)))

    async def write() -> None:
        connection = await asyncpg.connect(url, server_settings={"search_path": "idleband"})
        seq = 1 + (await connection.fetchval("SELECT max(seq) FROM events WHERE allocator = 1000") or 0)
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            rows = [
                (1000, seq + 2 * i + kind, kind, f"{began}-{i}".encode(), body, seq)
                for i in range(connections)
                for kind, body in kinds
            ]
            seq += len(rows)
            await connection.execute(_INSERT, *zip(*rows, strict=True))
            times.extend([time.perf_counter() - began] * connections)
        await connection.close()

    asyncio.run(write())
    return times


def main(rounds: int) -> None:
    rates: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    os.sched_setaffinity(0, {LAST})  # PostgreSQL inherits it
    with postgres_server(durable=True) as server:
        url = server.new_database()
        services = {"PostgreSQL": Running(HERE, url), "SQLite": Running(HERE)}
        ways = {
            f"{place}, {name}": lambda n, s, port=one.port, pairs=pairs, by=by: load(port, pairs, max(1, n // by), s)
            for place, one in services.items()
            for name, pairs, by in (
                ("two requests", two_requests, 1), ("step", step, 1), (f"batch of {BATCH}", batch, BATCH),
            )
        }  # fmt: skip
        ways["bare PostgreSQL"] = lambda n, s: bare_pairs(url, n, s)
        try:
            for way in ways.values():
                way(16, 1.0)  # warm up
            for _ in range(rounds):
                for connections in CONNECTIONS:
                    for name, way in ways.items():
                        began = services["PostgreSQL"].processor_time()
                        times = way(connections, SECONDS)
                        used = services["PostgreSQL"].processor_time() - began
                        p50, p99 = np.quantile(times, (0.5, 0.99)) * 1e3
                        found = len(times) / SECONDS, p50, p99, used / SECONDS
                        rates.setdefault((connections, name), []).append(found)
        finally:
            for one in services.values():
                one.stop()
    print("pairs in flight, pairs per second (least to most), median in ms, p99 in ms, share of a core of the service")
    for (connections, name), measured in rates.items():
        rate, p50, p99, used = np.median(measured, axis=0)
        low, high = np.min(measured, axis=0)[0], np.max(measured, axis=0)[0]
        share = f"{used:5.0%}" if name.startswith("PostgreSQL") else ""
        print(f"{connections:3} {name:26} {rate:7.0f} ({low:.0f} to {high:.0f})   {p50:6.2f}   {p99:6.2f}   {share}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
