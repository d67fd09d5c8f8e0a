"""What holds for every policy, on every kind of scenario."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.simulation.engine import CaseRun
from tests.conftest import ROOT
from tests.contracts.cases import CASES, SCENARIOS, places_interpreted, slots_interpreted
from tests.contracts.digest import slot_by_slot

INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}
SIMULATED_GPU = {"NUMBA_DISABLE_JIT": "1", "NUMBA_ENABLE_CUDASIM": "1"}
ON_GPU = ("mp-ucb", "rca-m", "mp-lucb", "mp-lucb-rca", "mp-nucb", "mp-nucb D=4", "mp-belief-lucb")


def elsewhere(environment: dict[str, str], *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.contracts.digest", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no warnings either
    return dict(json.loads(done.stdout))


def leaves(state: Any) -> list[np.ndarray]:
    return [leaf for part in state for leaf in (leaves(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize("where", SCENARIOS)
@pytest.mark.parametrize("label", CASES)
def test_picks_and_state(label: str, where: str) -> None:
    """M distinct available channels in every slot (all of them, if fewer are available); everything stays finite."""
    scenario, slots = SCENARIOS[where], 200
    rows = scenario.available
    run = CaseRun.start(scenario, CASES[label], slots, seed=1, replication=0)
    for t in range(1, slots + 1):
        run.to(t)
        picks = run.tally.picks[: run.tally.picked[0]].tolist()
        available = np.flatnonzero(rows[(t - 1) % len(rows)])
        assert len(set(picks)) == len(picks) == min(scenario.users, len(available))
        assert set(picks) <= set(available.tolist())
    assert all(np.isfinite(leaf).all() for leaf in leaves(run.state))
    assert np.isfinite(run.tally.curves).all()
    assert run.tally.plays.sum() == sum(
        min(scenario.users, int(row.sum())) for row in rows[np.arange(slots) % len(rows)]
    )


@pytest.mark.parametrize("label", CASES)
def test_same_seed_same_result_for_any_threads_and_segments(label: str) -> None:
    case = CASES[label]
    one, two = (ib.simulate("S1", case, horizon=600, replications=4, seed=9, threads=n) for n in (1, 2))
    other = ib.simulate("S1", case, horizon=600, replications=4, seed=10)
    for column in one.curves:
        assert np.array_equal(one.curves[column], two.curves[column])
    assert np.array_equal(one.plays, two.plays)
    assert not np.array_equal(one.reward, other.reward)
    whole = CaseRun.start(ib.scenario("S1"), case, 600, seed=9, replication=3)
    whole.to(600)  # in one piece, where simulate ran segments
    assert np.array_equal(whole.tally.curves[0], one.reward[3])


def test_compiled_equals_interpreted() -> None:
    slots = 150  # three times the longest window of the variants
    interpreted = elsewhere(INTERPRETED, "slots", slots)
    assert len(interpreted) == sum(len(places_interpreted(label)) for label in CASES)
    for label in CASES:
        for where in places_interpreted(label):
            compiled = slot_by_slot(label, where, slots_interpreted(label, slots))
            assert interpreted[f"{label} on {where}"] == compiled, (label, where)


def test_the_same_plays_inside_a_simulated_cuda_kernel() -> None:
    for name, found in elsewhere(SIMULATED_GPU, "cuda", 30, *ON_GPU).items():
        label, _, where = name.partition(" on ")
        slots = slots_interpreted(label, 30)
        for replication in range(2):
            run = CaseRun.start(SCENARIOS[where], CASES[label], slots, seed=5, replication=replication)
            run.to(slots)
            assert found["plays"][replication] == run.tally.plays.tolist(), name
            assert found["curves"][replication] == run.tally.curves.tolist(), name


@pytest.mark.parametrize("label", CASES)
def test_more_channels_than_a_handful(label: str) -> None:
    """K = 300, M = 60: selection takes its other path, and nothing is out of bounds."""
    scenario = ib.scenario(p01=[0.1] * 300, p10=[0.1 + 0.8 * k / 300 for k in range(300)], users=60)
    result = ib.simulate(scenario, CASES[label], horizon=200, replications=1)
    assert result.plays.sum() == 200 * 60
