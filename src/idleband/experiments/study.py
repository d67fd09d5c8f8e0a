"""A study: several policies on the same sample paths, side by side."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from idleband.errors import InputError, unknown
from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.store import Store, open_store, read_results, task_keys
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.progress import SILENT, Progress
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.result import COLUMNS, Result, result_of
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult, run_tasks
from idleband.simulation.statistics import Interval, interval, paired_difference

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Study:
    """Several policies on the same sample paths; `compare` and `load` make one.

    >>> study = compare("S1", ["mp-random", "mp-ucb"], horizon=100, replications=2)
    >>> study.labels, study["mp-ucb"].reward.shape
    (['mp-random', 'mp-ucb'], (2, 30))
    """

    scenario: Scenario
    seed: int
    results: tuple[Result, ...]
    complete: bool = True  # false for a stored study whose experiment asks for more than has been run

    def __repr__(self) -> str:
        first = self.results[0]
        size = f"{len(self.results)} policies x {first.replications} replications x {first.horizon:,} slots"
        return f"Study({self.scenario.name}: {size})"

    @property
    def labels(self) -> list[str]:
        """The labels of the cases, in the order in which they were given."""
        return [result.label for result in self.results]

    def __getitem__(self, label: str) -> Result:
        """The result of one case, by its label (a policy's name, and the parameters that differ from its defaults)."""
        for result in self.results:
            if result.label == label:
                return result
        raise unknown("policy", label, self.labels)

    def interval(self, label: str, column: str = "reward", *, per_slot: bool = False) -> Interval:
        """The mean over replications of a column at the horizon, with its 95% interval."""
        return interval(self._last(label, column, per_slot))

    def difference(self, a: str, b: str, column: str = "reward", *, per_slot: bool = False) -> Interval:
        """The paired difference a - b of a column at the horizon, with its 95% interval (Student t over replications).

        Both ran on the same sample paths, so it is much narrower than the two intervals suggest. It is that of the
        whole run; `per_slot` divides it by the horizon.
        """
        return paired_difference(self._last(a, column, per_slot), self._last(b, column, per_slot))

    def _last(self, label: str, column: str, per_slot: bool) -> Any:
        if column not in COLUMNS:
            raise unknown("column", column, COLUMNS)
        result = self[label]
        values = result.curves[column][:, -1]
        return values / result.horizon if per_slot else values

    def table(self) -> "pandas.DataFrame":
        """One row per case, best reward first, at the horizon: means per slot over replications, and the half widths
        of their 95% intervals."""
        import pandas

        rows = []
        for result in self.results:
            row: dict[str, Any] = {"label": result.label}
            for column in COLUMNS:
                found = self.interval(result.label, column, per_slot=True)
                row[column] = found.mean
                row[f"{column}_pm"] = found.high - found.mean
            rows.append(row)
        ranked = sorted(rows, key=lambda row: -row["reward"])
        return pandas.DataFrame(ranked).set_index("label")

    def to_pandas(self) -> "pandas.DataFrame":
        """The tidy table: one row per case, replication and checkpoint."""
        import pandas

        return pandas.concat([result.to_pandas() for result in self.results], ignore_index=True)

    def plot(self, path: str | Path | None = None, reference: str = "static") -> "Figure":
        """The regret figure, R(t) / (M ln t); saved where a path is given (.png, .svg, .pdf)."""
        from idleband.reporting.plots import regret_figure

        figure = regret_figure(self.scenario, self.results, reference)
        if path is not None:
            figure.savefig(path)
        return figure


class StudyRequest(NamedTuple):
    """An experiment to run, the folder for its results, and the observer of its progress."""

    spec: Experiment
    out: Path | None = None
    progress: Progress = SILENT


def run_experiment(
    spec: Experiment, out: Path | None = None, *, threads: int | None = None, progress: Progress = SILENT
) -> Study:
    """Run the tasks of an experiment that are not stored yet, store each when it is finished, and return the study.

    `progress` receives a message with the size of the experiment, merged with the one in the folder, before it starts.
    """
    (study,) = run_experiments([StudyRequest(spec, out, progress)], threads=threads, progress=progress)
    return study


def run_experiments(
    requests: Sequence[StudyRequest], *, threads: int | None = None, progress: Progress = SILENT
) -> list[Study]:
    """Run several experiments on the same threads, so that no thread waits for the last task of one experiment.

    The observer of a request receives the work of its experiment, `progress` which policy is compiled.
    """
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_opened(request)) for request in requests]
        for one in running:
            one.begin()
        run_tasks([task for one in running for task in one.tasks()], threads=threads, progress=progress)
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
        counts = {"policies": len(spec.policies), "replications": spec.replications, "slots": spec.horizon}
        size = " x ".join(f"{count:,} {what}" for what, count in counts.items())
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


def compare(
    scenario: Any,
    policies: Iterable["str | ConfiguredPolicy | type"],
    *,
    horizon: Any = 100_000,
    replications: Any = 5,
    seed: Any = 0,
    out: str | Path | None = None,
    threads: int | None = None,
) -> Study:
    """Run several policies on the same sample paths; with `out`, keep the results in a folder and resume from it.

    >>> study = compare("S1", ["mp-random", "mp-ucb"], horizon=1000, replications=3)
    >>> study.difference("mp-ucb", "mp-random").low > 0
    True
    """
    if isinstance(policies, str | ConfiguredPolicy | type):
        raise InputError("policies: must be a list of policies")
    spec = experiment(make_scenario(scenario), [policy(p) for p in policies], horizon, replications, seed)
    return run_experiment(spec, None if out is None else Path(out), threads=threads)


def load(folder: str | Path) -> Study:
    """A stored study again, from its files alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = compare("S1", ["mp-ucb"], horizon=100, replications=2, out=folder)
    ...     load(folder).labels
    ['mp-ucb']
    """
    scenario, seed, results, complete = read_results(Path(folder))
    return Study(scenario, seed, tuple(results), complete)
