"""The source of kernels: numbers that change nothing but numbers need no other kernel."""

from typing import Any

import pytest

import idleband as ib
from idleband.simulation.gpu import replications
from idleband.simulation.gpu.kernel import source_of
from idleband.simulation.gpu.replications import Simulation


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns the source of the kernel of a policy, with the name of its code."""
    build = replications.build_kernel

    def keep(layout: Any, arguments: str, loop: Any, name: str, **options: Any) -> Any:
        return source_of(layout, arguments) + name, build(layout, arguments, loop, name, **options)

    def source(policy: str, horizon: int = 100, seed: int = 0, scenario: str = "S1", **changes: Any) -> str:
        return str(Simulation(ib.scenario(scenario, **changes), ib.policy(policy), horizon, seed)._kernel[0])

    monkeypatch.setattr(replications, "build_kernel", keep)
    return source


def test_other_fractions_horizons_and_seeds_need_no_other_kernel(source: Any) -> None:
    first = source("mp-lucb:beta=0.5")
    assert source("mp-lucb:beta=0.7") == first
    assert source("mp-lucb:beta=0.5", horizon=5000) == first
    assert source("mp-lucb:beta=0.5", seed=9) == first
    assert source("mp-lucb:beta=0.5", scenario="S2") == first


def test_other_shapes_flags_and_policies_need_another_kernel(source: Any) -> None:
    sources = [
        source("mp-lucb:beta=0.5"),
        source("mp-lucb:beta=0"),
        source("mp-lucb:beta=0.5,shared=true"),
        source("mp-lucb:beta=0.5", users=4),
        source("mp-ucb"),
    ]
    assert len(set(sources)) == len(sources)


def test_a_kernel_has_the_slots_and_marks_replications_that_do_not_return(source: Any) -> None:
    lines = source("mp-ucb").splitlines()
    assert "curves, checkpoints, numbers, first, last, broken):" in lines[0]
    call = next(i for i, line in enumerate(lines) if line.startswith("    result = loop("))
    assert lines[call - 1] == "    broken[i] = -1"
    assert any(line.startswith("    broken[i] = result") for line in lines[call:])
