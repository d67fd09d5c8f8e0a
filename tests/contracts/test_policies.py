"""What holds for every policy, on every kind of scenario."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.reward import reward
from idleband.simulation.run import PolicyRun
from tests.allocator.helpers import loaded, state_of
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
def test_picks_are_valid_and_state_stays_finite(label: str, where: str) -> None:
    """M distinct available channels in every slot (all of them, if fewer are available); everything stays finite."""
    scenario, slots = SCENARIOS[where], 200
    rows = scenario.available
    run = PolicyRun.start(scenario, CASES[label], slots, seed=1, replication=0)
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
    whole = PolicyRun.start(ib.scenario("S1"), case, 600, seed=9, replication=3)
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
            run = PolicyRun.start(SCENARIOS[where], CASES[label], slots, seed=5, replication=replication)
            run.to(slots)
            assert found["plays"][replication] == run.tally.plays.tolist(), name
            assert found["curves"][replication] == run.tally.curves.tolist(), name


# --- the same policies as allocators ---------------------------------------------------------------------------------


def allocator_for(label: str, scenario: ib.Scenario, **settings: Any) -> ib.Allocator:
    case = CASES[label]
    return ib.Allocator(case.policy.name, parameters=case.values, scenario=scenario, **settings)


@pytest.mark.parametrize("label", CASES)
def test_allocator_on_a_sample_path_equals_simulate(label: str) -> None:
    """The same choices in every slot and bitwise the same memory and random numbers at the end, though it is saved and
    loaded midway; then it keeps to the rules where a live station does not keep to the simulation's."""
    for where in ("S1", "coming and going", "reward feedback", "three states"):
        as_simulated(label, SCENARIOS[where], slots=40)
    as_it_comes(label, SCENARIOS["S1"], slots=40)


def as_simulated(label: str, scenario: ib.Scenario, slots: int) -> None:
    run = PolicyRun.start(scenario, CASES[label], slots, seed=3, replication=2)
    allocator = allocator_for(label, scenario, seed=3, replication=2)
    world, rows, measured = run.path, scenario.available, scenario.feedback == "perturbation"
    for t in range(1, slots + 1):
        run.to(t)
        picks = tuple(run.tally.picks[: run.tally.picked[0]].tolist())
        seen = world.s if run.tally.sensing else None
        decision = allocator.decide(world.x, available=rows[(t - 1) % len(rows)], states=seen)
        assert (decision.channels, decision.by) == (picks, "policy"), (
            label,
            scenario.name,
            t,
            allocator.policy_failure,
        )
        states = [int(world.s[k]) for k in picks]
        allocator.report(
            decision.request_id,
            rewards=[
                reward(world.reward, world.h[k, s], world.good[k, s], world.n[k])
                for k, s in zip(picks, states, strict=True)
            ],
            states=states,
            perturbations=[world.n[k] for k in picks] if measured else None,
        )
        if t == slots // 2:
            allocator = loaded(state_of(allocator), "saved midway")
    learner = allocator._core.supervisor.learner
    assert np.array_equal(learner.rng, run.rng), (label, scenario.name)
    for ours, theirs in zip(leaves(learner.state), leaves(run.state), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), (label, scenario.name)


def as_it_comes(label: str, scenario: ib.Scenario, slots: int) -> None:
    """Users and channels come and go, slots pass, a channel is to be left, and feedback is whole, partial, late, twice
    or missing: as many allowed channels as there can be, and everything stays finite."""
    rng = np.random.default_rng(1)
    allocator = allocator_for(label, scenario, patience=20)
    waiting: list[ib.Decision] = []
    for _ in range(slots):
        if rng.random() < 0.1:
            allocator.restore(allocator.vacated)
            allocator.vacate([int(rng.integers(scenario.K))])
        users, available = int(rng.integers(scenario.users + 1)), rng.random(scenario.K) < 0.8
        decision = allocator.decide(
            rng.random((scenario.K, scenario.dimension)), users, available, rng.integers(0, 2, scenario.K),
            slot=allocator.slot + int(rng.choice([1, 1, 1, 2, 30])),
        )  # fmt: skip
        allowed = set(np.flatnonzero(available).tolist()) - set(allocator.vacated)
        assert set(decision.channels) <= allowed, label
        assert len(set(decision.channels)) == len(decision.channels) == min(users, len(allowed)), label
        assert decision.by == "policy", (label, allocator.policy_failure)
        waiting.append(decision)
        for _ in range(int(rng.integers(3))):
            late = waiting[-int(rng.integers(1, min(len(waiting), 25) + 1))]
            # What a channel returned does not depend on when it is told, or how often.
            returned = {k: float((late.slot * 7 + k) % 2) * 0.9 + 0.1 for k in late.channels if rng.random() < 0.7}
            allocator.report(late.request_id, returned, {k: (late.slot + k) % 2 for k in returned})
    rest = np.zeros((scenario.K, scenario.dimension)), None, None, np.zeros(scenario.K)
    assert allocator.decide(*rest, slot=10_240).by == "policy"  # it looks at all that was learned in such slots
    assert not allocator.policy_failure, label


@pytest.mark.parametrize("label", CASES)
def test_policies_with_300_channels(label: str) -> None:
    """K = 300, M = 60: selection takes its other path, and nothing is out of bounds."""
    scenario = ib.scenario(p01=[0.1] * 300, p10=[0.1 + 0.8 * k / 300 for k in range(300)], users=60)
    result = ib.simulate(scenario, CASES[label], horizon=200, replications=1)
    assert result.plays.sum() == 200 * 60
