"""Kill workers of a cluster while they run an experiment, and compare its results with those of threads.

    python studies/cluster_kills.py [KILLS]           20 kills by default; writes studies/cluster_kills.md

Two workers run three policies. Whenever another share of the slots is done, a worker that is running a batch is killed
(SIGKILL); Dask starts another. Once with the settings of Dask, under which it gives up a batch after the loss of four
workers, and once with none allowed, so that every loss of a batch is repaired here.
"""

import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import dask
import distributed  # noqa: F401  (the defaults of its settings)

import idleband as ib
from idleband.cluster.connect import executor_for, local_workers
from idleband.experiments.run import run_experiment
from idleband.experiments.spec import experiment
from idleband.progress import Progress
from idleband.simulation.scheduler import ThreadExecutor

HERE = Path(__file__).parent
SPEC = experiment(ib.scenario("S1"), map(ib.policy, ("mp-ucb", "mp-lucb", "rca-m")), 300_000, 20, 3)


class Killer(Progress):
    """Kills a worker at equal shares of the work."""

    def __init__(self, client: Any, kills: int) -> None:
        self.client, self.kills = client, kills
        self.expected = self.done = 0.0
        self.killed: list[int] = []

    def expect(self, slots: float) -> None:
        self.expected += slots

    def advance(self, slots: float) -> None:
        self.done += slots
        if len(self.killed) < self.kills and self.done > self.expected * (len(self.killed) + 1) / (self.kills + 1):
            alive = [one.pid for one in self.client.cluster.workers.values() if one.pid and one.pid not in self.killed]
            if alive:
                self.killed.append(random.choice(alive))
                os.kill(self.killed[-1], signal.SIGKILL)


def tables(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("results.parquet", "plays.parquet")]


def run(folder: Path, kills: int, allowed: int) -> str:
    """Run the experiment while workers are killed; return a row of the table."""
    with dask.config.set({"distributed.scheduler.allowed-failures": allowed}), local_workers(2) as client:
        killer = Killer(client, kills)
        began = perf_counter()
        run_experiment(SPEC, folder / str(allowed), executor=executor_for(None, client), progress=killer)
        seconds = perf_counter() - began
    equal = "yes" if tables(folder / str(allowed)) == tables(folder / "threads") else "NO"
    return f"| {allowed} | {len(killer.killed)} | {len(SPEC.tasks)} | {equal} | {seconds:.0f} |"


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run_experiment(SPEC, folder / "threads", executor=ThreadExecutor(2))
        rows = [run(folder, kills, allowed) for allowed in (3, 0)]
    text = f"""# Killed workers

`python studies/cluster_kills.py {kills}`: {len(SPEC.policies)} policies x {SPEC.replications} replications x
{SPEC.horizon:,} slots of S1 on two local workers, of which one is killed (SIGKILL) {kills} times.

| `allowed-failures` of Dask | workers killed | tasks | tables equal those of threads, bit by bit | seconds |
|---|---|---|---|---|
"""
    (HERE / "cluster_kills.md").write_text(text + "\n".join(rows) + "\n")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
