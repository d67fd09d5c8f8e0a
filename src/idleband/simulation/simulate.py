"""Replications on threads -> results.

A unit of work is one case, or the references, on one sample path. Units know nothing of each other: any order and any
number of threads give the same numbers. The compiled loops release the interpreter lock, so threads run side by side.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.policies.protocol import Policy
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.reward import reward
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound
from idleband.simulation.loop import CURVES, REFERENCES
from idleband.simulation.path import checkpoints, path_parameters
from idleband.simulation.run import PolicyRun, ReferenceRun, Tick, in_segments

if TYPE_CHECKING:
    import pandas


MAX_SLOTS, MAX_REPLICATIONS, MAX_SEED = 10**10, 10**6, 2**63 - 1
MAX_RECORDED = 10**7  # rows of a slot-by-slot record


# The measured columns of the tidy table, and their types.
COLUMNS = {
    "reward": np.float64,
    "regret_static": np.float64,
    "regret_contextual": np.float64,
    "regret_genie": np.float64,
    "regret_table": np.float64,
    "regret_bound": np.float64,  # nan where there is no bound
    "suboptimal_static": np.int64,
    "suboptimal_contextual": np.int64,
    "collisions": np.int64,
}


class Unit(NamedTuple):
    case: ConfiguredPolicy | None  # None: the references
    replication: int  # from 0


class Outcome(NamedTuple):
    curves: Floats  # (curves, C)
    plays: Ints  # (K,), empty for the references
    state: Any  # what the policy had learned, None for the references
    note: str  # why the policy ran interpreted, if it did
    seconds: float = 0.0  # of processor time that it took


def run_unit(scenario: Scenario, unit: Unit, horizon: int, seed: int, tick: Tick) -> Outcome:
    began = thread_time()
    if unit.case is None:
        walk = ReferenceRun.start(scenario, horizon, seed, unit.replication)
        in_segments(walk, horizon, tick)
        return Outcome(walk.references.curves, np.zeros(0, np.int64), None, "", thread_time() - began)
    run = PolicyRun.start(scenario, unit.case, horizon, seed, unit.replication)
    in_segments(run, horizon, tick)
    return Outcome(run.tally.curves, run.tally.plays, run.state, run.kernel.reason, thread_time() - began)


class _Stopped(Exception):
    """Another unit failed, or the user wants to stop."""


class Job(NamedTuple):
    """A unit of work, and who is to know of it."""

    scenario: Scenario
    unit: Unit
    horizon: int
    seed: int
    done: Callable[[Unit, Outcome], None]  # called when it is finished, on its thread
    progress: Tick | None = None  # told how many slots of it were just run


def run_jobs(
    jobs: Sequence[Job], *, threads: int | None = None, preparing: Callable[[str], None] | None = None
) -> None:
    """Run jobs on threads and hand each over as it finishes: those of one policy after those of another, in the order
    of their first, so that they begin while others are compiled. Ctrl-C ends all within a segment; what was handed
    over stays handed over.

    `preparing` is told the policy whose loop is compiled or loaded next.
    """
    workers = cores() if threads is None else validation.whole(threads, "threads", 1, 1024)
    by_loop: dict[Any, list[Job]] = {}
    for job in jobs:
        policy = None if job.unit.case is None else job.unit.case.policy.key
        by_loop.setdefault((job.scenario.perturbation.model, policy), []).append(job)
    ready: SimpleQueue[Job | None] = SimpleQueue()  # None: there will be no more
    stop, ended, failed = Event(), Semaphore(0), list[BaseException]()

    def work() -> None:
        try:
            while (job := ready.get()) is not None and not stop.is_set():

                def tick(slots: int, told: Tick | None = job.progress) -> None:
                    if told is not None:
                        told(slots)
                    if stop.is_set():
                        raise _Stopped

                job.done(job.unit, run_unit(job.scenario, job.unit, job.horizon, job.seed, tick))
        except _Stopped:
            pass
        except BaseException as error:
            failed.append(error)
            stop.set()
        finally:
            ended.release()

    pool = [Thread(target=work) for _ in range(min(workers, len(jobs)))]
    try:
        for thread in pool:
            thread.start()
        # Loops are compiled on this thread, because a compilation on another one could not be interrupted; meanwhile
        # the others run what is ready.
        for alike in by_loop.values():
            if not stop.is_set():
                _prepare(alike[0], preparing)
            for job in alike:
                ready.put(job)
        for _ in pool:
            ready.put(None)
        for _ in pool:
            # Not Thread.join with a timeout, which takes a thread for ended where Ctrl-C falls into it; and with a
            # timeout, or Ctrl-C would not be seen before the end.
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


def _prepare(job: Job, preparing: Callable[[str], None] | None) -> None:
    """Compile the loop of a job, or load it."""
    case = job.unit.case
    if preparing is not None:
        preparing("the references" if case is None else case.policy.name)
    with compile.interruptible():
        if case is None:
            ReferenceRun.start(job.scenario, job.horizon, job.seed, 0).to(0)
        else:
            PolicyRun.start(job.scenario, case, job.horizon, job.seed, 0)


def run_units(
    scenario: Scenario,
    units: Sequence[Unit],
    horizon: int,
    seed: int,
    done: Callable[[Unit, Outcome], None],
    *,
    threads: int | None = None,
) -> None:
    """Run units of one experiment, and hand each to `done` as it finishes."""
    run_jobs([Job(scenario, unit, horizon, seed, done) for unit in units], threads=threads)


def cores() -> int:
    """How many threads there are to run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Result:
    """One policy on one scenario: cumulative values at checkpoints, one row per replication; `simulate` makes one.

    >>> result = simulate("S1", "mp-ucb", horizon=100, replications=2)
    >>> result.label, result.horizon, result.plays.shape
    ('mp-ucb', 100, (2, 10))
    """

    scenario: Scenario
    policy: str
    label: str  # the policy's name and the parameters that differ from its defaults
    parameters: dict[str, Any]
    seed: int
    t: Ints  # (C,) checkpoints
    curves: dict[str, Floats]  # each (R, C), named as the columns of the tidy table
    plays: Ints  # (R, K) plays per channel
    state: tuple[Any, ...] | None = None  # per replication; not kept in files
    slots: "pandas.DataFrame | None" = None  # with record="slots"
    note: str = ""  # why the policy ran interpreted, if it did
    seconds: Floats | None = None  # (R,) of processor time; not kept in tables

    def __repr__(self) -> str:
        return (
            f"Result({self.label} on {self.scenario.name}: {self.replications} replications x {self.horizon:,} slots)"
        )

    @property
    def reward(self) -> Floats:
        """(R, C) cumulative reward."""
        return self.curves["reward"]

    @property
    def replications(self) -> int:
        return len(self.plays)

    @property
    def horizon(self) -> int:
        return int(self.t[-1])

    def regret(self, reference: str = "static") -> Floats:
        """(R, C) cumulative regret against `static`, `contextual`, `genie`, `table` or `bound`."""
        return self.curves["regret_" + validation.choice(reference, "reference", (*REFERENCES, "table", "bound"))]

    def columns(self) -> dict[str, Any]:
        """The tidy table, column by column: one row per replication and checkpoint."""
        R, C = self.reward.shape
        columns: dict[str, Any] = {
            "scenario": [self.scenario.name] * (R * C),
            "policy": [self.policy] * (R * C),
            "label": [self.label] * (R * C),
            "replication": np.repeat(np.arange(R), C),
            "t": np.tile(self.t, R),
        }
        columns |= {name: self.curves[name].ravel().astype(kind) for name, kind in COLUMNS.items()}
        columns |= {name: [value] * (R * C) for name, value in self.parameters.items()}
        return columns

    def to_pandas(self) -> "pandas.DataFrame":
        """The tidy table: one row per replication and checkpoint."""
        import pandas

        return pandas.DataFrame(self.columns())


def assemble(
    scenario: Scenario, case: ConfiguredPolicy, seed: int, horizon: int, outcomes: dict[Unit, Outcome], R: int
) -> Result:
    """The result of a case from the outcomes of its units and of the references."""
    cases = [outcomes[Unit(case, i)] for i in range(R)]
    walks = [outcomes[Unit(None, i)] for i in range(R)]
    curves = {name: np.array([outcome.curves[i] for outcome in cases]) for i, name in enumerate(CURVES)}
    for i, name in enumerate(REFERENCES):
        curves[f"regret_{name}"] = np.array([outcome.curves[i] for outcome in walks]) - curves["reward"]
    curves["regret_bound"] = _bounds(scenario, seed, R)[:, None] * checkpoints(horizon) - curves["reward"]
    return Result(
        scenario,
        case.policy.name,
        case.label,
        case.values,
        seed,
        checkpoints(horizon),
        curves,
        np.array([outcome.plays for outcome in cases]),
        state=None if any(outcome.state is None for outcome in cases) else tuple(outcome.state for outcome in cases),
        note=cases[0].note,
        seconds=np.array([outcome.seconds for outcome in cases]),
    )


@lru_cache(maxsize=16)
def _bounds(scenario: Scenario, seed: int, R: int) -> Floats:
    """(R,) the bound of each replication, the same for all policies on it; nan where there is none."""
    found = [bound(scenario, path_parameters(scenario, seed, i)[0]) for i in range(R)]
    return np.array([np.nan if one is None else one for one in found])


def simulate(
    scenario: Any,
    policy_: "str | Policy | ConfiguredPolicy | type",
    /,
    *,
    horizon: Any = 100_000,
    replications: Any = 5,
    seed: Any = 0,
    record: str | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Result:
    """Run one policy on a scenario.

    Keywords that are not named here are parameters of the policy. `record="slots"` keeps every slot of a short run.

    >>> result = simulate("S1", "mp-ucb", horizon=1000, replications=2, L=1.0)
    >>> result.regret("static").shape, int(result.plays.sum())
    ((2, 50), 10000)
    """
    world, case = make_scenario(scenario), policy(policy_, **parameters)
    T, R, seed = check_size(horizon, replications, seed)
    if record not in (None, "slots"):
        raise InputError(f"record = {record!r}: must be 'slots' or left out")
    if record == "slots" and T * R * world.K > MAX_RECORDED:
        most = MAX_RECORDED // (R * world.K)
        raise InputError(
            f"experiment.horizon = {T}: too long to record every slot; at most {most} with {R} replications"
        )
    outcomes: dict[Unit, Outcome] = {}
    units = [Unit(c, i) for i in range(R) for c in (None, case)]
    run_units(world, units, T, seed, outcomes.__setitem__, threads=threads)
    result = assemble(world, case, seed, T, outcomes, R)
    if record == "slots":
        return Result(**{**vars(result), "slots": record_slots(world, case, T, R, seed)})
    return result


def check_size(horizon: Any, replications: Any, seed: Any) -> tuple[int, int, int]:
    """Horizon, replications and seed, validated."""
    return (
        validation.whole(horizon, "experiment.horizon", 1, MAX_SLOTS),
        validation.whole(replications, "experiment.replications", 1, MAX_REPLICATIONS),
        validation.whole(seed, "experiment.seed", 0, MAX_SEED),
    )


def record_slots(
    scenario: Scenario, case: ConfiguredPolicy, horizon: int, replications: int, seed: int
) -> "pandas.DataFrame":
    """Every slot of a short run: one row per replication, slot and channel (numbered from 0)."""
    import pandas

    K, d = scenario.K, scenario.dimension
    shape = (replications, horizon, K)
    columns: dict[str, npt.NDArray[Any]] = {
        "available": np.zeros(shape, np.bool_),
        "picked": np.zeros(shape, np.bool_),
        "state": np.zeros(shape, np.int64),
        "good": np.zeros(shape, np.bool_),
        "perturbation": np.zeros(shape),
        "expected_reward": np.zeros(shape),
        "reward": np.full(shape, np.nan),  # of picked channels
    }
    contexts = np.zeros((*shape, d))
    rows = scenario.available
    for i in range(replications):
        run = PolicyRun.start(scenario, case, horizon, seed, i)
        world = run.path
        for t in range(horizon):
            run.to(t + 1)
            picks = run.tally.picks[: run.tally.picked[0]]
            good = world.good[np.arange(K), world.s]
            columns["available"][i, t] = rows[t % len(rows)]
            columns["picked"][i, t, picks] = True
            columns["state"][i, t] = world.s
            columns["good"][i, t] = good
            columns["perturbation"][i, t] = world.n
            columns["expected_reward"][i, t] = world.expected
            for k in picks:
                columns["reward"][i, t, k] = reward(world.reward, world.h[k, world.s[k]], good[k], world.n[k])
            contexts[i, t] = world.x
    places = np.indices(shape).reshape(3, -1)
    table = {"replication": places[0], "t": places[1] + 1, "channel": places[2]}
    table |= {name: column.ravel() for name, column in columns.items()}
    table |= {f"x{j}": contexts[..., j].ravel() for j in range(d)}
    return pandas.DataFrame(table)
