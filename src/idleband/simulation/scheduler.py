"""Tasks, what runs them, and running them on threads.

A task is one configured policy, or the references, on one sample path. Tasks are independent: any order and any number
of threads or other processes give the same numbers. The compiled loops release the interpreter lock, so threads run in
parallel. What runs tasks is an `Executor`: `ThreadExecutor` here, `DaskExecutor` in `idleband.cluster`.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from time import thread_time
from typing import Any, NamedTuple, Protocol

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.kernels.interrupt import interruptible
from idleband.policies.registry import ConfiguredPolicy
from idleband.progress import SILENT, Progress
from idleband.scenario.scenario import Scenario
from idleband.simulation.path import draw_ahead, prepare_drawing
from idleband.simulation.run import FIRST_SEGMENT, ReferenceRun, in_segments
from idleband.simulation.users_run import check_coordination, start_run


class Task(NamedTuple):
    """One configured policy, or the references, on one sample path."""

    configured: ConfiguredPolicy | None  # None: the references
    replication: int  # from 0


class TaskResult(NamedTuple):
    """What a task has computed."""

    curves: Floats  # (curves, C)
    plays: Ints  # (K,), empty for the references
    state: Any  # final state of the policy, None for the references
    note: str  # why the policy ran interpreted; empty if it ran compiled
    seconds: float = 0.0  # processor time


class ScheduledTask(NamedTuple):
    """A task with the experiment that it belongs to."""

    scenario: Scenario
    task: Task
    horizon: int
    seed: int
    done: Callable[[Task, TaskResult], None]  # called on the thread of the task when it is finished
    progress: Progress = SILENT


class Executor(Protocol):
    """What runs tasks."""

    def run(self, tasks: Sequence[ScheduledTask], progress: Progress) -> None:
        """Run tasks and pass each result to `done` as soon as it is there; Ctrl-C and errors end all of them.

        Results that were passed on are kept. `progress` receives `compiling`; `advance` goes to the observer of each
        task.
        """


@dataclass(frozen=True)
class ThreadExecutor:
    """Runs tasks on threads of this process, by default one per processor core."""

    threads: int | None = None

    def run(self, tasks: Sequence[ScheduledTask], progress: Progress) -> None:
        """Run tasks on threads."""
        run_tasks(tasks, threads=self.threads, progress=progress)


class _StoppedError(Exception):
    """Another task has failed, or the user has interrupted the run."""


Segments = dict[tuple[int, int], int]
"""With how many slots to begin, by the identity of the scenario and of the configured policy."""


def run_task(scheduled: ScheduledTask, advance: Callable[[int], None], segments: Segments) -> TaskResult:
    """Run one task and call `advance` with the number of slots after each segment."""
    began = thread_time()
    scenario, task, horizon, seed, _, _ = scheduled
    key = id(scenario), id(task.configured)
    first = segments.get(key, FIRST_SEGMENT)
    if task.configured is None:
        references = ReferenceRun.start(scenario, horizon, seed, task.replication)
        segments[key] = in_segments(references, horizon, advance, first)
        return TaskResult(references.references.curves, np.zeros(0, np.int64), None, "", thread_time() - began)
    run = start_run(scenario, task.configured, horizon, seed, task.replication)
    segments[key] = in_segments(run, horizon, advance, first)
    return TaskResult(run.tally.curves, run.tally.plays, run.state, run.kernel.reason, thread_time() - began)


def run_tasks(tasks: Sequence[ScheduledTask], *, threads: int | None = None, progress: Progress = SILENT) -> None:
    """Run tasks on threads and pass each result to `done` as soon as it is there.

    Tasks of the same policy run one after another, in the order of the first of each, so that the first policies run
    while others are compiled. Ctrl-C ends all tasks within a segment; results that were passed on are kept.

    `progress` receives `compiling`; `advance` goes to the observer of each task.
    """
    workers = cores() if threads is None else validation.whole(threads, "threads", 1, 1024)
    loops = tasks_by_loop(tasks)
    ready: SimpleQueue[ScheduledTask | None] = SimpleQueue()  # None: no more tasks
    stop, ended, failed = Event(), Semaphore(0), list[BaseException]()
    segments: Segments = {}
    replications = replications_of(tasks)

    def work() -> None:
        try:
            while (scheduled := ready.get()) is not None and not stop.is_set():

                def advance(slots: int, observer: Progress = scheduled.progress) -> None:
                    observer.advance(slots)
                    if stop.is_set():
                        raise _StoppedError

                scenario, task = scheduled.scenario, scheduled.task
                draw_ahead(scenario, scheduled.seed, task.replication, replications[id(scenario)])
                scheduled.done(task, run_task(scheduled, advance, segments))
        except _StoppedError:
            pass
        except BaseException as error:
            failed.append(error)
            stop.set()
        finally:
            ended.release()

    pool = [Thread(target=work) for _ in range(min(workers, len(tasks)))]
    try:
        for thread in pool:
            thread.start()
        # Loops are compiled on this thread, because a compilation on another thread could not be interrupted. The other
        # threads run what is ready meanwhile.
        for scenario in {id(scheduled.scenario): scheduled.scenario for scheduled in tasks}.values():
            with interruptible():
                prepare_drawing(scenario, replications[id(scenario)])
        for same_loop in loops:
            if not stop.is_set():
                progress.compiling(name_of(same_loop[0]))
                with interruptible():
                    compile_loop(same_loop[0])
            for scheduled in same_loop:
                ready.put(scheduled)
        for _ in pool:
            ready.put(None)
        for _ in pool:
            # Thread.join with a timeout would report a thread as ended if Ctrl-C interrupts it. The timeout is needed
            # because Ctrl-C is only noticed between two waits.
            while not ended.acquire(timeout=0.1):
                pass
    except BaseException:
        stop.set()
        for _ in pool:
            ready.put(None)
        for thread in pool:
            if thread.ident is not None:
                thread.join()
        raise
    if failed:
        raise failed[0]


def tasks_by_loop(tasks: Iterable[ScheduledTask]) -> list[list[ScheduledTask]]:
    """Return lists of tasks that share machine code, after checking that the policies fit the scenarios."""
    by_loop: dict[Any, list[ScheduledTask]] = {}
    for scheduled in tasks:
        configured = scheduled.task.configured
        if configured is not None:
            check_coordination(scheduled.scenario, configured.policy)
        key = None if configured is None else configured.policy.key
        by_loop.setdefault((scheduled.scenario.perturbation.model, key), []).append(scheduled)
    return list(by_loop.values())


def replications_of(tasks: Iterable[ScheduledTask]) -> dict[int, int]:
    """Return the number of replications of each scenario, by its identity."""
    replications: dict[int, int] = {}
    for scheduled in tasks:
        world = id(scheduled.scenario)
        replications[world] = max(replications.get(world, 0), scheduled.task.replication + 1)
    return replications


def name_of(scheduled: ScheduledTask) -> str:
    """Return the name of the policy of a task, as progress shows it."""
    configured = scheduled.task.configured
    return "the references" if configured is None else configured.policy.name


def compile_loop(scheduled: ScheduledTask) -> None:
    """Compile the loop of a task, or load it from the cache."""
    configured = scheduled.task.configured
    if configured is None:
        ReferenceRun.start(scheduled.scenario, scheduled.horizon, scheduled.seed, 0).to(0)
    else:
        start_run(scheduled.scenario, configured, scheduled.horizon, scheduled.seed, 0)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
