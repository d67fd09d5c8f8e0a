"""Results, recorded slots, sizes, threads and failures of simulate; intervals and p values."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.policies.registry import policy
from idleband.progress import Progress
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult, run_tasks
from idleband.simulation.statistics import interval, p_value, paired_difference, student_t


def test_result_has_curves_plays_and_state() -> None:
    result = ib.simulate("S1", "mp-lucb", beta=0.5, horizon=1000, replications=3, seed=1)
    assert result.reward.shape == (3, len(result.t))
    assert result.plays.shape == (3, 10)
    assert (result.plays.sum(axis=1) == 5000).all()
    assert result.horizon == 1000
    assert result.parameters["beta"] == 0.5
    assert result.state is not None
    assert result.state[2].estimates.plays.tolist() == result.plays[2].tolist()
    with pytest.raises(ib.InputError, match="reference = 'best': must be one of static, contextual, genie, table"):
        result.regret("best")


def test_default_size_is_that_of_the_paper() -> None:
    result = ib.simulate("S1", "mp-random")
    assert (result.horizon, result.replications) == (100_000, 5)
    assert (result.plays.sum(axis=1) == 5 * 100_000).all()


def test_objects_have_representations_of_one_line() -> None:
    study = ib.compare("S1", ["mp-random", "mp-ucb"], horizon=1000, replications=2)
    assert repr(study) == "Study(S1: 2 policies x 2 replications x 1,000 slots)"
    assert repr(study["mp-ucb"]) == "Result(mp-ucb on S1: 2 replications x 1,000 slots)"
    assert repr(study.scenario) == "Scenario(S1: 10 channels, 5 users)"


def test_table_has_one_row_per_replication_and_checkpoint() -> None:
    result = ib.simulate("S1", "mp-lucb", horizon=100, replications=2)
    table = result.to_pandas()
    assert len(table) == 2 * len(result.t)
    columns = "scenario policy label replication t reward regret_static regret_contextual regret_genie regret_table"
    columns += " regret_bound suboptimal_static suboptimal_contextual collisions"
    assert list(table.columns[:14]) == columns.split()
    assert set(table.columns[14:]) == set(ib.POLICIES["mp-lucb"].parameters)
    last = table.query("replication == 1 and t == 100").iloc[0]
    assert last.regret_genie == result.regret("genie")[1, -1]


def test_recorded_slots_add_up_to_the_result() -> None:
    result = ib.simulate("S1", "mp-ucb", horizon=40, replications=2, record="slots")
    slots = result.slots
    assert slots is not None
    assert len(slots) == 2 * 40 * 10
    total = slots.groupby("replication").reward.sum()
    assert slots.reward.isna().equals(~slots.picked)
    np.testing.assert_allclose(total, result.reward[:, -1])
    plays = slots.groupby(["replication", "channel"]).picked.sum().to_numpy().reshape(2, 10)
    assert np.array_equal(plays, result.plays)
    with pytest.raises(ib.InputError, match="too long to record every slot; at most 500000 with 2 replications"):
        ib.simulate("S1", "mp-ucb", horizon=10**9, replications=2, record="slots")
    with pytest.raises(ib.InputError, match="record = 'all'"):
        ib.simulate("S1", "mp-ucb", horizon=10, record="all")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"horizon": 0}, "experiment.horizon = 0: must be a whole number from 1 to 10^10"),
        ({"horizon": 1e30}, "experiment.horizon = 1e+30"),
        ({"horizon": 10.5}, "experiment.horizon = 10.5"),
        ({"horizon": float("nan")}, "experiment.horizon = nan"),
        ({"horizon": "many"}, "experiment.horizon = many"),
        ({"replications": 0}, "experiment.replications = 0"),
        ({"seed": -1}, "experiment.seed = -1: must be a whole number from 0"),
        ({"threads": 0}, "threads = 0: must be a whole number from 1 to 1024"),
    ],
)
def test_sizes_out_of_range_are_refused(size: dict[str, float], message: str) -> None:
    with pytest.raises(ib.InputError) as error:
        ib.simulate("S1", "mp-ucb", **{"horizon": 10, **size})
    assert message in str(error.value)


def test_size_may_be_text_or_float() -> None:
    assert ib.simulate("S1", "mp-ucb", horizon="1e2", replications=1.0).horizon == 100


def test_sample_paths_are_shared_across_policies_users_and_sensing() -> None:
    """States, contexts and theta do not depend on the policy, M or the sensing mode."""
    variants = [ib.scenario("S1"), ib.scenario("S1", users=2), ib.scenario("S1", sensing="all")]
    paths = []
    for scenario in variants:
        for name in ("mp-random", "mp-ts"):
            slots = ib.simulate(scenario, name, horizon=30, replications=1, record="slots").slots
            assert slots is not None
            paths.append(slots[["state", "perturbation", "x0", "x7"]].to_numpy())
    for other in paths[1:]:
        assert np.array_equal(paths[0], other)


def test_failure_of_one_task_ends_the_others_and_keeps_finished_ones() -> None:
    done: list[Task] = []

    def keep(task: Task, result: TaskResult) -> None:
        if task.replication == 2:
            raise ib.InputError("disk full")
        done.append(task)

    with pytest.raises(ib.InputError, match="disk full"):
        run_tasks(scheduled("mp-ucb", 50, keep, 20_000), threads=1)
    assert [task.replication for task in done] == [0, 1]


class Recorder(Progress):
    """Records what is compiled, and calls a function with it."""

    def __init__(self, then: Callable[[str], None] = lambda name: None) -> None:
        self.compiled: list[str] = []
        self.then = then

    def compiling(self, policy: str) -> None:
        self.compiled.append(policy)
        self.then(policy)


class Signal(Progress):
    """Sets an event when a task has run its first segment."""

    def __init__(self, begun: threading.Event) -> None:
        self.begun = begun

    def advance(self, slots: float) -> None:
        self.begun.set()


def scheduled(
    names: str, number: int, done: Callable[[Task, TaskResult], None], horizon: int = 50
) -> list[ScheduledTask]:
    """Return tasks of several replications of each policy, ordered by replication."""
    scenario = ib.scenario("S1")
    tasks = [Task(policy(name), i) for i in range(number) for name in names.split()]
    return [ScheduledTask(scenario, task, horizon, 0, done) for task in tasks]


def name_of(task: Task) -> str:
    assert task.configured is not None
    return task.configured.policy.name


@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_tasks_run_while_others_are_compiled(threads: int) -> None:
    """The compilation of one loop waits until all tasks that do not need it are done."""
    done: list[Task] = []
    early: list[Task] = []
    finished = threading.Event()

    def keep(task: Task, result: TaskResult) -> None:
        done.append(task)
        if len(done) == 4:
            finished.set()

    def wait(name: str) -> None:
        if name == "mp-ucb":
            assert finished.wait(60)
            early.extend(done)

    wanted = scheduled("mp-random mp-ucb", 4, keep)
    recorder = Recorder(wait)
    run_tasks(wanted, threads=threads, progress=recorder)
    assert recorder.compiled == ["mp-random", "mp-ucb"]
    assert {name_of(task) for task in early} == {"mp-random"}
    assert sorted(done, key=str) == sorted((one.task for one in wanted), key=str)  # each task exactly once


def test_nothing_is_compiled_or_run_after_a_failure() -> None:
    workers: list[threading.Thread] = []

    def fail(task: Task, result: TaskResult) -> None:
        workers.append(threading.current_thread())
        raise ib.InputError("disk full")

    def wait(name: str) -> None:
        if name == "mp-ucb":
            while not workers:
                pass
            workers[0].join()

    recorder = Recorder(wait)
    with pytest.raises(ib.InputError, match="disk full"):
        run_tasks(scheduled("mp-random mp-ucb mp-klucb", 2, fail), threads=1, progress=recorder)
    assert recorder.compiled == ["mp-random", "mp-ucb"]
    assert len(workers) == 1


def test_failure_ends_running_tasks() -> None:
    begun = threading.Event()
    done: list[Task] = []

    def fail(task: Task, result: TaskResult) -> None:
        assert begun.wait(60)
        raise ib.InputError("disk full")

    (long,) = scheduled("mp-random", 1, lambda task, result: done.append(task), 10**10)
    short = scheduled("mp-random", 1, fail)
    with pytest.raises(ib.InputError, match="disk full"):
        run_tasks([long._replace(progress=Signal(begun)), *short], threads=2)
    assert done == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ib.InputError])
def test_error_while_a_loop_is_compiled_keeps_finished_tasks_and_ends_all_threads(error: type[BaseException]) -> None:
    before = threading.active_count()
    done: list[Task] = []
    finished = threading.Event()

    def keep(task: Task, result: TaskResult) -> None:
        done.append(task)
        if len(done) == 2:
            finished.set()

    def wait(name: str) -> None:
        if name == "mp-ucb":
            assert finished.wait(60)
            raise error("enough")

    with pytest.raises(error, match="enough"):
        run_tasks(scheduled("mp-random mp-ucb", 2, keep), threads=2, progress=Recorder(wait))
    assert [name_of(task) for task in done] == ["mp-random", "mp-random"]
    assert threading.active_count() == before


def test_empty_list_of_tasks_compiles_nothing() -> None:
    run_tasks([], threads=2, progress=Recorder(pytest.fail))


def test_memory_of_results_does_not_grow_with_the_horizon() -> None:
    """There are 20 checkpoints per decade: a hundred times the slots add forty."""
    short, long = (ib.simulate("S1", "mp-random", horizon=T, replications=1) for T in (10**3, 10**5))
    assert len(long.t) - len(short.t) == 40


def test_intervals_are_those_of_the_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(size=12)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = paired_difference(a, b)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx((a - b).mean())
    mean, half = student_t(np.stack([a, b], axis=1), 0.9)
    assert mean.shape == half.shape == (2,)
    single = interval(np.array([3.0]))
    assert (single.mean, single.low, single.high) == (3.0, -np.inf, np.inf)
    assert "no interval" in str(single)


def test_p_values_are_those_of_the_t_test() -> None:
    rng = np.random.default_rng(1)
    for R in (2, 3, 5, 20):
        for shift in (-3.0, -0.5, 0.0, 0.1, 8.0):
            values = rng.normal(shift, 1.0, R)
            assert p_value(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-9)
            found = interval(values)
            assert (p_value(values) < 0.05) == (found.low > 0 or found.high < 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2.0], 1.0), ([0.0, 0.0], 1.0), ([1.0, -1.0], 1.0), ([0.5, 0.5], 0.0), ([-0.5, -0.5, -0.5], 0.0)],
)
def test_p_values_without_variance_or_with_one_replication(values: list[float], expected: float) -> None:
    assert p_value(np.array(values)) == expected
