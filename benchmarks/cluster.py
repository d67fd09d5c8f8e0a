"""Measure the speed-up of two local Dask workers, and what a task costs on a cluster.

python benchmarks/cluster.py
"""

import contextlib
import statistics
from time import perf_counter

import idleband as ib
from idleband.cluster.connect import executor_for, local_workers
from idleband.policies.registry import policy
from idleband.progress import SILENT
from idleband.simulation.scheduler import Executor, ScheduledTask, Task, ThreadExecutor

ROUNDS = 5


def seconds(executor: Executor, name: str, slots: int, tasks: int) -> float:
    """Return how long an executor takes for tasks of a policy."""
    scenario, configured = ib.scenario("S1"), policy(name)
    work = [ScheduledTask(scenario, Task(configured, i), slots, 0, lambda *_: None) for i in range(tasks)]
    began = perf_counter()
    executor.run(work, SILENT)
    return perf_counter() - began


def speed_up(executors: dict[str, Executor], name: str, slots: int, tasks: int) -> None:
    """Print how long the same tasks take, in alternating rounds, and the speed-up of each round."""
    times: dict[str, list[float]] = {what: [] for what in executors}
    for executor in executors.values():
        seconds(executor, name, 1000, 8)  # every worker has loaded the loop
    for _ in range(ROUNDS):
        for what, executor in executors.items():
            times[what].append(seconds(executor, name, slots, tasks))
    print(f"{name}, {tasks} tasks of {slots:,} slots, {ROUNDS} alternating rounds")
    for what, found in times.items():
        ratios = [one / other for one, other in zip(times["one worker"], found, strict=True)]
        print(
            f"  {what}: {min(found):.2f} s at best, {statistics.median(found):.2f} s median;"
            f" {statistics.median(ratios):.2f} times one worker (median), {min(ratios):.2f} to {max(ratios):.2f}"
        )


def overhead(executors: dict[str, Executor]) -> None:
    """Print what a task costs apart from its slots: tasks of a single slot."""
    tasks = 20_000
    for what, executor in executors.items():
        seconds(executor, "mp-ucb", 1, tasks)  # thetas are kept
        best = min(seconds(executor, "mp-ucb", 1, tasks) for _ in range(3))
        print(f"one slot of mp-ucb, {what}: {best / tasks * 1e6:.0f} us per task")


def main() -> None:
    with contextlib.ExitStack() as stack:
        one, two = (executor_for(None, stack.enter_context(local_workers(n))) for n in (1, 2))
        executors: dict[str, Executor] = {"one worker": one, "two workers": two, "two threads": ThreadExecutor(2)}
        speed_up(executors, "mp-lucb", 400_000, 16)
        speed_up(executors, "mp-ucb", 20_000, 400)
        overhead({"one thread": ThreadExecutor(1), **executors})


if __name__ == "__main__":
    main()
