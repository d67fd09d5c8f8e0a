"""A study: several policies on the same sample paths, side by side."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from idleband.errors import InputError, unknown
from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.store import Store, open_store, read_results, unit_keys
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.run import Tick
from idleband.simulation.simulate import COLUMNS, Job, Outcome, Result, Unit, assemble, run_jobs
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
        raise unknown("case", label, self.labels)

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


def run_experiment(
    spec: Experiment,
    out: Path | None = None,
    *,
    threads: int | None = None,
    started: Callable[[Experiment, int, int], None] | None = None,
    preparing: Callable[[str], None] | None = None,
    progress: Tick | None = None,
) -> Study:
    """Run what is not there yet, keep each finished unit, and give the study.

    `started` is told the experiment as merged with what the folder holds, and how many units of how many are to run;
    `preparing` which policy is compiled next, and `progress` how many slots were just run.
    """
    (study,) = run_experiments([Work(spec, out, started, progress)], threads=threads, preparing=preparing)
    return study


class Work(NamedTuple):
    """An experiment to run, where its results go, and who is to know of it: see `run_experiment`."""

    spec: Experiment
    out: Path | None = None
    started: Callable[[Experiment, int, int], None] | None = None
    progress: Tick | None = None


def run_experiments(
    work: Sequence[Work], *, threads: int | None = None, preparing: Callable[[str], None] | None = None
) -> list[Study]:
    """Several experiments on the same threads, which so never wait for the last unit of one of them."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_opened(one)) for one in work]
        for one in running:
            one.begin()
        run_jobs([job for one in running for job in one.jobs()], threads=threads, preparing=preparing)
        return [one.study for one in running]


@contextlib.contextmanager
def _opened(work: Work) -> Iterator["_Running"]:
    if work.out is None:
        yield _Running(work, None)
    else:
        with open_store(work.out, work.spec) as (store, merged):
            yield _Running(work._replace(spec=merged), store)


class _Running:
    """An experiment under way. Its results are put together when its last unit is in."""

    study: Study

    def __init__(self, work: Work, store: Store | None) -> None:
        self.work, self.spec, self.store = work, work.spec, store
        self.keys = unit_keys(self.spec, self.spec.units)
        self.outcomes: dict[Unit, Outcome] = {}
        if store is not None:
            times = store.times()
            there = {unit: key for unit, key in self.keys.items() if store.has(key)}
            self.outcomes |= {unit: store.load(key, times.get(key, math.nan)) for unit, key in there.items()}
        self.missing = [unit for unit in self.keys if unit not in self.outcomes]
        self.lock = Lock()

    def begin(self) -> None:
        if self.store is not None:
            self.store.write_experiment(self.spec)  # only now: a damaged unit is told before anything is changed
        if self.work.started is not None:
            self.work.started(self.spec, len(self.missing), len(self.keys))
        if not self.missing:
            self.finish()

    def jobs(self) -> list[Job]:
        spec = self.spec
        return [Job(spec.scenario, u, spec.horizon, spec.seed, self.done, self.work.progress) for u in self.missing]

    def done(self, unit: Unit, outcome: Outcome) -> None:
        if self.store is not None:
            self.store.save(self.keys[unit], outcome)
            outcome = outcome._replace(state=None)  # a network takes megabytes, and a folder keeps no states anyway
        with self.lock:
            self.outcomes[unit] = outcome
            last = len(self.outcomes) == len(self.keys)
        if last:
            self.finish()

    def finish(self) -> None:
        spec, R = self.spec, self.spec.replications
        results = tuple(assemble(spec.scenario, c, spec.seed, spec.horizon, self.outcomes, R) for c in spec.cases)
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
