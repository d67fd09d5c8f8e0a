"""The counting copies of functions compute what the compiled loops do, and count what can be counted by hand."""

import importlib
from types import ModuleType

import numpy as np
import pytest

import idleband as ib
from idleband.policies.registry import policy
from idleband.simulation import loop
from idleband.simulation.run import PolicyRun
from tests.conftest import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("counting")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("work_per_slot")


@pytest.mark.parametrize("name", ["mp-ucb", "mp-lucb"])
def test_a_counting_copy_of_the_loop_gives_the_same_result(counting: ModuleType, name: str) -> None:
    runs = [PolicyRun.start(ib.scenario("S1"), policy(name), 200, 0, 0) for _ in range(2)]
    for run in runs:
        run.to(150)
    configured, (compiled, copied) = policy(name), runs
    compiled.to(200)
    bound = {"select": configured.policy.select, "update": configured.policy.update}
    step = counting.counted(loop.run, bound)
    with np.errstate(over="ignore"):
        assert step(copied.setup, copied.path, copied.state, copied.rng, copied.tally, 150, 200) == 0
    assert copied.tally.now == pytest.approx(compiled.tally.now, abs=0)
    assert copied.tally.plays.tolist() == compiled.tally.plays.tolist()


def products(n: int) -> float:
    total = 0.0
    for i in range(n):
        total += 2.0 * i
    return total / 3.0 + max(total, 1.0)


def store(values: np.ndarray) -> None:
    for i in range(1, values.size):
        values[i] = values[i] + values[i - 1]
    values[0] *= 3.0


def test_operations_are_counted(counting: ModuleType) -> None:
    counting.reset()
    assert counting.counted(products)(5) == products(5)
    assert {kind: counting.COUNTS[kind] for kind in ("add", "multiply", "divide", "compare")} == {
        "add": 6,
        "multiply": 5,
        "divide": 1,
        "compare": 1,
    }


def test_elements_are_counted_once(counting: ModuleType) -> None:
    values = np.arange(4.0)
    counting.reset()
    counting.counted(store)(values)
    assert values.tolist() == [0.0, 1.0, 3.0, 6.0]
    assert (len(counting.READ), len(counting.WRITTEN), len(counting.READ_FIRST)) == (4, 4, 4)
    assert counting.COUNTS["bytes read"] == 8 * 7


def test_work_of_mp_lucb_follows_from_its_formula(work: ModuleType) -> None:
    """x' A^-1 x for K channels, rank-one updates for M, and K products with theta, of policy and of scenario."""
    K, M, d = 10, 5, 8
    found = work.count(ib.scenario("S1"), policy("mp-lucb"), slots=3)
    least = K * (d * d + d) + M * (d * d + 2 * d) + 2 * K * d
    assert least <= found.multiplications <= least + K * d + 10 * K
    assert found.random == K * d + K
    assert found.functions == 1


def test_the_table_has_every_policy() -> None:
    table = (BENCHMARKS / "work_per_slot.md").read_text()
    for name, known in ib.POLICIES.items():
        if known.source is None:
            assert f"| {name} |" in table, name
