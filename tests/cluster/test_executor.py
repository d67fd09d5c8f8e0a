"""Tasks on the workers of a cluster: the results of threads, whatever happens to workers."""

import os
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed import LocalCluster
from distributed.client import Client

import idleband as ib
from idleband.arrays import Floats
from idleband.cluster.connect import executor_for
from idleband.errors import ClusterError, CompilationWarning, InputError
from idleband.experiments.run import StudyRequest, run_experiment, run_experiments
from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.study import Study
from idleband.progress import Progress
from idleband.simulation.scheduler import ThreadExecutor
from tests.own_model import LOUD

POLICIES = ["mp-random", *ib.grid("mp-ucb", L=[0.5, 2.0])]

# A policy that uses what a file may define: a function compiled by Numba, a constant, annotations that are text.
FROM_FILE = """
from __future__ import annotations
from typing import Annotated, NamedTuple
import numba
import numpy as np
import idleband as ib

STEP = 1.0

@numba.njit
def twice(x):
    return 2.0 * x

class State(NamedTuple):
    plays: np.ndarray

@ib.register(name="least-played")
class LeastPlayed:
    class Params(NamedTuple):
        weight: Annotated[float, ib.AtLeast(0)] = 1.0
    def init(setup):
        return State(np.zeros(setup.K))
    def select(setup, state, slot, picks):
        for k in range(setup.K):
            slot.indices[k] = -setup.params.weight * twice(state.plays[k])
        return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    def update(setup, state, slot, feedback):
        state.plays[feedback.channel] += STEP

@ib.register(name="failing")
class Failing:
    def init(setup):
        return ()
    def select(setup, state, slot, picks):
        if object() and slot.t > 20:
            raise ValueError("no channel is good enough")
        for m in range(setup.M):
            picks[m] = m
        return setup.M
    def update(setup, state, slot, feedback):
        pass
"""


class Recorder(Progress):
    """Progress that counts slots."""

    def __init__(self) -> None:
        self.expected = self.slots = 0.0
        self.compiled: list[str] = []

    def expect(self, slots: float) -> None:
        self.expected += slots

    def compiling(self, policy: str) -> None:
        self.compiled.append(policy)

    def advance(self, slots: float) -> None:
        assert slots > 0.0
        self.slots += slots


def assert_equal(a: Study, b: Study) -> None:
    assert a.labels == b.labels
    for label in a.labels:
        for name, curve in a[label].curves.items():
            assert curve.tobytes() == b[label].curves[name].tobytes(), (label, name)
        assert a[label].plays.tobytes() == b[label].plays.tobytes()
        assert a[label].note == b[label].note


# --- results ---------------------------------------------------------------------------------------------------------


def scale(client: Client, workers: int) -> None:
    client.cluster.scale(workers)
    while len(client.nthreads()) != workers:
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [3, 2, 1])
def test_results_are_those_of_threads_for_any_number_of_workers(client: Client, workers: int) -> None:
    scale(client, workers)
    size: dict[str, Any] = {"horizon": 3000, "replications": 20, "seed": 4}
    with_threads = ib.compare("S4", POLICIES, **size, out="threads", threads=2)
    assert_equal(ib.compare("S4", POLICIES, **size, out="cluster", client=client), with_threads)
    for name in ("results.parquet", "plays.parquet", "experiment.toml"):
        assert Path("cluster", name).read_bytes() == Path("threads", name).read_bytes()


def test_experiments_run_together(client: Client) -> None:
    specs = [experiment(ib.scenario(name), [ib.policy("mp-ucb")], T, 3, 1) for name, T in (("S1", 300), ("S2", 700))]
    recorders = [Recorder(), Recorder()]
    requests = [StudyRequest(spec, progress=recorder) for spec, recorder in zip(specs, recorders, strict=True)]
    compiling = Recorder()
    found = run_experiments(requests, executor=executor_for(None, client), progress=compiling)
    for study, spec, recorder in zip(found, specs, recorders, strict=True):
        assert_equal(study, run_experiment(spec, executor=ThreadExecutor(1)))
        assert recorder.slots == recorder.expected == 2 * 3 * spec.horizon
    assert sorted(compiling.compiled) == ["mp-ucb", "the references"]


def test_users_without_a_base_station(client: Client) -> None:
    scenario = ib.scenario("S1", users={"coordination": "none", "mean_stay": 100, "mean_absence": 50})
    given: dict[str, Any] = {"horizon": 400, "replications": 3}
    assert_equal(
        ib.compare(scenario, ["lbt-random", "mp-ucb"], **given, client=client),
        ib.compare(scenario, ["lbt-random", "mp-ucb"], **given, threads=1),
    )


def test_replay_of_a_recording_with_contexts(client: Client) -> None:
    rng = np.random.default_rng(5)
    trace = ib.Trace.from_arrays(busy=rng.random((600, 6)) < 0.4, contexts=rng.random((600, 6, 3)))
    scenario = ib.scenario(trace, users=2, perturbation="linear")
    given: dict[str, Any] = {"horizon": 1200, "replications": 4}
    assert_equal(
        ib.compare(scenario, POLICIES, **given, client=client), ib.compare(scenario, POLICIES, **given, threads=2)
    )


def test_a_folder_is_continued_and_extended(client: Client) -> None:
    given: dict[str, Any] = {"horizon": 300, "seed": 2}
    ib.compare("S1", ["mp-random"], **given, replications=3, out="out", threads=1)
    before = Path("out/tasks.log").read_bytes()
    study = ib.compare("S1", POLICIES, **given, replications=5, out="out", client=client)
    assert Path("out/tasks.log").read_bytes().startswith(before)
    assert_equal(study, ib.compare("S1", POLICIES, **given, replications=5, threads=1))
    recorder = Recorder()
    spec = experiment(ib.scenario("S1"), [ib.policy(one) for one in POLICIES], 300, 5, 2)
    assert_equal(run_experiment(spec, Path("out"), executor=executor_for(None, client), progress=recorder), study)
    assert recorder.slots == 0


# --- code of users ---------------------------------------------------------------------------------------------------


def test_policy_and_model_from_a_file_travel_to_workers(client: Client) -> None:
    """The file is removed before the workers need it, as if they were on other machines."""
    Path("own.py").write_text(FROM_FILE + LOUD)
    policies = [ib.policy("own.py:least-played", weight=2.0)]
    scenario = ib.scenario("S1", perturbation="own.py:loud")
    Path("own.py").unlink()
    given: dict[str, Any] = {"horizon": 500, "replications": 4}
    found = ib.compare(scenario, policies, **given, out="cluster", client=client)
    assert_equal(found, ib.compare(scenario, policies, **given, threads=1))
    assert len(list(Path("cluster/policies").iterdir())) == len(list(Path("cluster/models").iterdir())) == 1


class PlaysState(NamedTuple):
    plays: Floats


def test_policy_registered_in_python_travels_to_workers(client: Client) -> None:
    weight = 3.0

    @ib.register(name="here")
    class Here:
        def init(setup: Any) -> PlaysState:
            return PlaysState(np.zeros(setup.K))

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            for k in range(setup.K):
                slot.indices[k] = -weight * state.plays[k]
            return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            state.plays[feedback.channel] += 1.0

    given: dict[str, Any] = {"horizon": 200, "replications": 3}
    assert_equal(ib.compare("S1", [Here], **given, client=client), ib.compare("S1", [Here], **given, threads=1))


def test_policy_that_does_not_compile_or_fails_is_reported_as_with_threads(client: Client) -> None:
    Path("own.py").write_text(FROM_FILE)
    messages, studies = [], []
    for where in ({"client": client}, {"threads": 1}):
        given: dict[str, Any] = {"replications": 2, **where}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            studies.append(ib.compare("S1", ["own.py:failing"], horizon=20, **given))
        if not messages:  # a policy is warned of once
            assert [(one.category, Path(one.filename).name) for one in caught] == [(CompilationWarning, "own.py")]
        with pytest.raises(InputError) as raised:
            ib.compare("S1", ["own.py:failing"], horizon=50, **given)
        messages.append(str(raised.value))
        with pytest.raises(InputError, match=r"policy failing does not compile \(.*own\.py, line"):
            ib.compare("S1", ["own.py:failing"], horizon=20, compiled="require", **given)
    assert messages[0] == messages[1]
    assert messages[0].startswith("policy failing: ValueError: no channel is good enough (")
    assert_equal(*studies)
    assert studies[0]["failing"].note


def test_code_that_cannot_travel_is_refused_in_one_line(client: Client) -> None:
    lock = threading.Lock()

    @ib.register(name="locked")
    class Locked:
        def init(setup: Any) -> tuple[()]:
            assert not lock.locked()
            return ()

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            return 0

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            pass

    with pytest.raises(InputError, match=r"^policy locked: cannot be sent to workers: TypeError: .*lock"):
        ib.compare("S1", [Locked], horizon=50, replications=2, client=client)


# --- losses ----------------------------------------------------------------------------------------------------------


class Killer(Recorder):
    """Kills a worker at each of several shares of the work."""

    def __init__(self, client: Client, shares: list[float]) -> None:
        super().__init__()
        self.client, self.shares = client, shares
        self.killed: list[int] = []

    def advance(self, slots: float) -> None:
        super().advance(slots)
        if self.shares and self.slots > self.shares[0] * self.expected:
            pids = [one.pid for one in self.client.cluster.workers.values() if one.pid and one.pid not in self.killed]
            if pids:
                self.shares.pop(0)
                self.killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)


def long_experiment() -> Experiment:
    return experiment(ib.scenario("S1"), [ib.policy("mp-random"), ib.policy("mp-ucb")], 100_000, 12, 3)


def test_killed_workers_change_nothing(client: Client) -> None:
    scale(client, 2)
    killer = Killer(client, [0.2, 0.6])
    found = run_experiment(long_experiment(), executor=executor_for(None, client), progress=killer)
    assert not killer.shares
    assert killer.slots == killer.expected
    assert_equal(found, run_experiment(long_experiment(), executor=ThreadExecutor(2)))


def test_interrupt_stops_the_workers_within_a_segment(client: Client) -> None:
    class Interrupt(Progress):
        sent = False

        def advance(self, slots: float) -> None:
            if not self.sent:
                self.sent = True
                os.kill(os.getpid(), signal.SIGINT)

    spec = experiment(ib.scenario("S1"), [ib.policy("mp-random")], 10**9, 2)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(spec, Path("out"), executor=executor_for(None, client), progress=Interrupt())

    def running(dask_worker: Any) -> int:
        return int(dask_worker.state.executing_count + len(dask_worker.active_threads))

    until = time.monotonic() + 60
    while any(client.run(running).values()):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert {one.status for one in client.futures.values()} <= {"cancelled"}


def test_scheduler_without_workers_is_reported() -> None:
    import dask

    local = LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50)
    soon = dask.config.set({"distributed.comm.timeouts.connect": "300 ms"})
    message = r"^no worker has joined the Dask scheduler tcp://127.0.0.1:\d+ within 0.3 s; start one with: dask worker"
    with (
        local as cluster,
        Client(cluster, set_as_default=False) as client,
        soon,
        pytest.raises(ClusterError, match=message),
    ):
        ib.compare("S1", ["mp-random"], horizon=50, client=client)
