"""Run experiments: the tasks that are not stored yet, on an executor, with results kept in folders."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from idleband.errors import counted
from idleband.experiments.spec import Experiment
from idleband.experiments.store import Store, open_store, task_keys
from idleband.experiments.study import Study
from idleband.progress import SILENT, Progress
from idleband.simulation.result import result_of
from idleband.simulation.scheduler import Executor, ScheduledTask, Task, TaskResult, ThreadExecutor


class StudyRequest(NamedTuple):
    """An experiment to run, the folder for its results, and the observer of its progress."""

    spec: Experiment
    out: Path | None = None
    progress: Progress = SILENT


ON_ALL_CORES = ThreadExecutor()


def run_experiment(
    spec: Experiment, out: Path | None = None, *, executor: Executor = ON_ALL_CORES, progress: Progress = SILENT
) -> Study:
    """Run the tasks of an experiment that are not stored yet, store each when it is finished, and return the study.

    `progress` receives a message with the size of the experiment, merged with the one in the folder, before it starts.
    """
    (study,) = run_experiments([StudyRequest(spec, out, progress)], executor=executor, progress=progress)
    return study


def run_experiments(
    requests: Sequence[StudyRequest], *, executor: Executor = ON_ALL_CORES, progress: Progress = SILENT
) -> list[Study]:
    """Run several experiments together, so that no thread or worker waits for the last task of one experiment.

    The observer of a request receives the work of its experiment, `progress` which policy is compiled.
    """
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_opened(request)) for request in requests]
        for one in running:
            one.begin()
        executor.run([task for one in running for task in one.tasks()], progress)
        return [one.study for one in running]


@contextlib.contextmanager
def _opened(request: StudyRequest) -> Iterator["_Running"]:
    if request.out is None:
        yield _Running(request, None)
    else:
        with open_store(request.out, request.spec) as (store, merged):
            yield _Running(request._replace(spec=merged), store)


class _Running:
    """An experiment that is being run. The study is assembled when its last task is finished."""

    study: Study

    def __init__(self, request: StudyRequest, store: Store | None) -> None:
        self.spec, self.progress, self.store = request.spec, request.progress, store
        self.keys = task_keys(self.spec, self.spec.tasks)
        self.finished: dict[Task, TaskResult] = {}
        if store is not None:
            times = store.times()
            stored = {task: key for task, key in self.keys.items() if store.has(key)}
            self.finished |= {task: store.load(key, times.get(key, math.nan)) for task, key in stored.items()}
            for task, result in self.finished.items():
                store.check_shape(task, result, self.spec)
        self.missing = [task for task in self.keys if task not in self.finished]
        self.lock = Lock()

    def begin(self) -> None:
        if self.store is not None:
            self.store.write_experiment(self.spec)  # only now: a damaged task file is reported before any change
        self.progress.message(self.summary())
        self.progress.expect(len(self.missing) * self.spec.horizon)
        if not self.missing:
            self.finish()

    def summary(self) -> str:
        """Return the size of the experiment and how much of it is stored, in one line."""
        spec = self.spec
        counts = {"policy": len(spec.policies), "replication": spec.replications, "slot": spec.horizon}
        size = " x ".join(counted(n, noun) for noun, n in counts.items())
        found = len(self.finished)
        return f"{spec.scenario.name}: {size}" + (f", {found} of {len(self.keys)} tasks already there" if found else "")

    def tasks(self) -> list[ScheduledTask]:
        spec = self.spec
        return [
            ScheduledTask(spec.scenario, task, spec.horizon, spec.seed, self.done, self.progress)
            for task in self.missing
        ]

    def done(self, task: Task, result: TaskResult) -> None:
        if self.store is not None:
            self.store.save(self.keys[task], result)
            result = result._replace(state=None)  # the state of a network takes megabytes and is not stored
        with self.lock:
            self.finished[task] = result
            last = len(self.finished) == len(self.keys)
        if last:
            self.finish()

    def finish(self) -> None:
        spec, R = self.spec, self.spec.replications
        results = tuple(result_of(spec.scenario, c, spec.seed, spec.horizon, self.finished, R) for c in spec.policies)
        if self.store is not None:
            self.store.write_results(spec, results)
        self.study = Study(spec.scenario, spec.seed, results)
