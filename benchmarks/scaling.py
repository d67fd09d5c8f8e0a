"""Measure how time and memory scale with threads, channels and the horizon, and the start of a second process.

python benchmarks/scaling.py
"""

import os
import resource
import subprocess
import sys
from time import perf_counter

import idleband as ib
from idleband.policies.registry import policy
from idleband.simulation.bench import microseconds
from idleband.simulation.scheduler import ScheduledTask, Task, run_tasks


def threads(slots: int = 400_000, tasks: int = 8, rounds: int = 5) -> None:
    """Print the speed-up of two threads on the same tasks; best of five alternating rounds of each."""
    scenario = ib.scenario("S1")
    for name in ("mp-ucb", "mp-lucb"):
        work = [ScheduledTask(scenario, Task(policy(name), i), slots, 0, lambda *_: None) for i in range(tasks)]
        best = {1: float("inf"), 2: float("inf")}
        for _ in range(rounds):
            for n in best:
                began = perf_counter()
                run_tasks(work, threads=n)
                best[n] = min(best[n], perf_counter() - began)
        print(f"two threads, {name}: {best[1] / best[2]:.2f} times one")


def channels() -> None:
    """Print the time per channel at K = 1000, M = 200, relative to K = 10, M = 5."""
    small = ib.scenario("S1")
    large = ib.scenario(p01=list(small.to_dict()["p01"]) * 100, p10=list(small.to_dict()["p10"]) * 100, users=200)
    for name in ib.POLICIES:
        configured = {name: policy(name)}
        a = microseconds(small, configured, slots=100_000, rounds=5)[name] / small.K
        b = microseconds(large, configured, slots=2_000, rounds=5)[name] / large.K
        print(f"K = 1000, {name}: {b * 1e3:.1f} ns per channel, {b / a:.2f} times that at K = 10 ({a * 1e3:.1f} ns)")


def memory() -> None:
    """Print the peak memory of a process that runs T slots of one policy."""
    code = (
        "import sys, resource, idleband as ib;"
        "ib.simulate('S1', 'mp-lucb', horizon=float(sys.argv[1]), replications=2);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    for horizon in ("1e5", "1e6", "1e7"):
        done = subprocess.run([sys.executable, "-c", code, horizon], capture_output=True, text=True, check=True)
        print(f"memory at T = {horizon}: {int(done.stdout) / 1024:.0f} MiB")


def second_process() -> None:
    """Print the time of the import and ten slots of every policy in a new process, with an empty and a filled cache."""
    import tempfile

    code = "import idleband as ib\nfor name in ib.POLICIES: ib.simulate('S1', name, horizon=10, replications=1)"
    with tempfile.TemporaryDirectory() as folder:
        for what in ("first", "second"):
            began = perf_counter()
            subprocess.run([sys.executable, "-c", code], env={**os.environ, "IDLEBAND_CACHE_DIR": folder}, check=True)
            print(f"{what} process, all policies: {perf_counter() - began:.1f} s")


if __name__ == "__main__":
    threads()
    channels()
    memory()
    second_process()
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
