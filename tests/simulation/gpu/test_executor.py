"""Experiments on a simulated GPU: every task is reported once, stored, and not run again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.experiments.store import task_keys
from idleband.progress import Progress
from idleband.simulation.gpu.executor import CudaExecutor
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult

POLICIES = ["mp-ucb", "mp-random"]
SIZE: dict[str, Any] = {"horizon": 20, "replications": 3, "seed": 4}


class Counting(Progress):
    def __init__(self) -> None:
        self.slots, self.names = 0.0, list[str]()

    def compiling(self, policy: str) -> None:
        self.names.append(policy)

    def advance(self, slots: float) -> None:
        self.slots += slots


def test_every_task_is_done_once_and_all_slots_are_reported() -> None:
    scenario, done = ib.scenario("S1"), list[tuple[Task, TaskResult]]()
    policies = [None, *map(ib.policy, POLICIES)]
    progress = Counting()

    def keep(task: Task, result: TaskResult) -> None:
        done.append((task, result))

    tasks = [ScheduledTask(scenario, Task(one, i), 20, 4, keep, progress) for i in (5, 2, 9) for one in policies]
    CudaExecutor().run([*tasks, tasks[0]], progress)
    assert sorted(map(str, (task for task, _ in done))) == sorted(str(one.task) for one in [*tasks, tasks[0]])
    assert progress.slots == 9 * 20
    assert progress.names == ["the references", *POLICIES]
    assert all(result.state is None and result.seconds > 0.0 for _, result in done)


def test_simulate_equals_the_cpu() -> None:
    gpu, cpu = (ib.simulate("S1", "mp-lucb", device=device, **SIZE) for device in ("cuda", "cpu"))
    assert np.array_equal(gpu.plays, cpu.plays)
    for column in cpu.curves:
        assert np.allclose(gpu.curves[column], cpu.curves[column], rtol=0, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_study_is_stored_and_continued(tmp_path: Path, precision: Any) -> None:
    how: dict[str, Any] = {"device": "cuda", "precision": precision, "out": tmp_path / "out"}
    ib.compare("S1", ["mp-random"], **SIZE, **how)
    log = (tmp_path / "out/tasks.log").read_bytes()
    study = ib.compare("S1", POLICIES, **SIZE, **how)
    assert (tmp_path / "out/tasks.log").read_bytes().startswith(log)
    cpu = ib.compare("S1", POLICIES, **SIZE)
    assert np.array_equal(study["mp-random"].plays, cpu["mp-random"].plays)
    assert ib.load(tmp_path / "out").table().equals(study.table())
    text = (tmp_path / "out/experiment.toml").read_text()
    assert 'device = "cuda"' in text
    assert ("precision" in text) == (precision == "float32")
    again = ib.compare("S1", POLICIES, **SIZE, **how)
    assert again.table().equals(study.table())


def test_results_of_another_device_are_not_mixed(tmp_path: Path) -> None:
    ib.compare("S1", ["mp-random"], **SIZE, out=tmp_path)
    for precision, shown in (("float64", "cuda"), ("float32", "cuda with float32")):
        with pytest.raises(InputError, match=rf"holds another experiment \(device cpu, not {shown}\)"):
            ib.compare("S1", ["mp-random"], **SIZE, out=tmp_path, device="cuda", precision=precision)  # type: ignore[arg-type]


def test_keys_of_devices_differ() -> None:
    from idleband.experiments.spec import experiment

    keys = set[str]()
    for device, precision in (("cpu", None), ("cuda", None), ("cuda", "float32")):
        spec = experiment(ib.scenario("S1"), [ib.policy("mp-ucb")], 20, 1, 0, device, precision)
        keys |= set(task_keys(spec, spec.tasks).values())
    assert len(keys) == 6


def test_an_error_keeps_what_is_finished(tmp_path: Path) -> None:
    @ib.register(name="wrong")
    class Wrong:
        def init(setup):  # type: ignore[no-untyped-def]
            return ()

        def select(setup, state, slot, picks):  # type: ignore[no-untyped-def]
            return 0

        def update(setup, state, slot, feedback):  # type: ignore[no-untyped-def]
            pass

    with pytest.raises(InputError, match=r"^policy wrong: picks = \[\] in slot 1; must be 5"):
        ib.compare("S1", ["mp-random", "wrong"], **SIZE, out=tmp_path, device="cuda")
    assert len((tmp_path / "tasks.log").read_bytes()) > 0
    study = ib.compare("S1", ["mp-random"], **SIZE, out=tmp_path, device="cuda")
    assert study["mp-random"].plays.sum() == 3 * 20 * 5
