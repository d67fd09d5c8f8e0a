"""Contracts of every policy, on every kind of scenario."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.learner import Learner
from idleband.allocator.slot_kernels import TERMS
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import PARAMETERS, STATES_SEEN
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.reward import reward
from idleband.simulation.environment import state_reward
from idleband.simulation.path import path_parameters
from idleband.simulation.run import PolicyRun
from tests.allocator.helpers import loaded, state_of
from tests.conftest import ROOT
from tests.contracts.configurations import (
    CONFIGURED,
    EVERY,
    ONE_PER_MODULE,
    PAIRS,
    SCENARIOS,
    WORLDS,
    scenario_interpreted,
    slots_interpreted,
    world_of,
)
from tests.contracts.digest import CUDA_SLOTS, slot_by_slot

INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}
SIMULATED_GPU = {"NUMBA_DISABLE_JIT": "1", "NUMBA_ENABLE_CUDASIM": "1"}


def in_another_process(environment: dict[str, str], *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.contracts.digest", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr  # no warnings
    return dict(json.loads(done.stdout))


def leaves(state: Any) -> list[np.ndarray]:
    return [leaf for part in state for leaf in (leaves(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize(("label", "where"), PAIRS)
def test_picks_are_valid_and_state_stays_finite(label: str, where: str) -> None:
    """A policy selects M distinct available channels in every slot (all, if fewer are available)."""
    scenario, slots = EVERY[where], 200
    rows = scenario.available
    run = PolicyRun.start(scenario, CONFIGURED[label], slots, seed=1, replication=0)
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


@pytest.mark.parametrize("label", ONE_PER_MODULE)
def test_same_seed_same_result_for_any_threads_and_segments(label: str) -> None:
    configured = CONFIGURED[label]
    one, two = (ib.simulate("S1", configured, horizon=600, replications=4, seed=9, threads=n) for n in (1, 2))
    other = ib.simulate("S1", configured, horizon=600, replications=4, seed=10)
    check_threads_and_segments(EVERY[world_of(label)], configured)
    for column in one.curves:
        assert np.array_equal(one.curves[column], two.curves[column])
    assert np.array_equal(one.plays, two.plays)
    assert not np.array_equal(one.reward, other.reward)
    whole = PolicyRun.start(ib.scenario("S1"), configured, 600, seed=9, replication=3)
    whole.to(600)  # in one piece, where simulate ran segments
    assert np.array_equal(whole.tally.curves[0], one.reward[3])


@pytest.mark.parametrize("label", CONFIGURED)
def test_a_run_does_not_change_what_later_runs_begin_with(label: str) -> None:
    """Runs of a scenario share what none of them writes."""
    scenario, configured = EVERY[world_of(label)], CONFIGURED[label]
    first, before = (PolicyRun.start(scenario, configured, 60, seed=4, replication=1) for _ in range(2))
    first.to(60)
    after = PolicyRun.start(scenario, configured, 60, seed=4, replication=1)
    for one, other in zip(memory_of(before), memory_of(after), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    after.to(60)
    for one, other in zip(memory_of(first), memory_of(after), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def memory_of(run: PolicyRun) -> list[np.ndarray]:
    return leaves((run.setup, run.path, run.tally, run.state, run.rng))


def check_threads_and_segments(scenario: ib.Scenario, configured: ConfiguredPolicy) -> None:
    one, two = (ib.simulate(scenario, configured, horizon=200, replications=2, seed=9, threads=n) for n in (1, 2))
    for column in one.curves:
        assert np.array_equal(one.curves[column], two.curves[column], equal_nan=True)
    assert np.array_equal(one.plays, two.plays)
    whole = PolicyRun.start(scenario, configured, 200, seed=9, replication=1)
    whole.to(200)
    assert np.array_equal(whole.tally.curves[0], one.reward[1])


def test_compiled_equals_interpreted() -> None:
    interpreted = in_another_process(INTERPRETED, "slots")
    assert list(interpreted) == list(CONFIGURED)
    for label in CONFIGURED:
        assert interpreted[label] == slot_by_slot(label), label


def test_simulated_cuda_kernel_gives_the_same_plays() -> None:
    for label, found in in_another_process(SIMULATED_GPU, "cuda").items():
        slots = min(CUDA_SLOTS, slots_interpreted(label))
        run = PolicyRun.start(EVERY[scenario_interpreted(label)], CONFIGURED[label], slots, seed=5, replication=1)
        run.to(slots)
        assert found["plays"] == run.tally.plays.tolist(), label
        assert found["curves"] == run.tally.curves.tolist(), label


# --- policies in an allocator ----------------------------------------------------------------------------------------


def allocator_for(label: str, scenario: ib.Scenario, **settings: Any) -> ib.Allocator:
    configured = CONFIGURED[label]
    return ib.Allocator(configured.policy.name, parameters=configured.values, scenario=scenario, **settings)


@pytest.mark.parametrize("label", CONFIGURED)
def test_allocator_on_a_sample_path_equals_simulate(label: str) -> None:
    """The decisions are those of the simulation and the state at the end is the same bit for bit, although the
    allocator is saved and loaded midway. With partial, late and missing reports the decisions stay valid."""
    turn = list(CONFIGURED).index(label)
    for where in ("S1", LIVE_SCENARIOS[turn % len(LIVE_SCENARIOS)], LIVE_WORLDS[turn % len(LIVE_WORLDS)]):
        scenario = EVERY[where]
        if scenario.perturbation.noise and STATES_SEEN in CONFIGURED[label].policy.knows:
            continue  # the genie observes noise, which an allocator does not have
        check_as_simulated(label, scenario, slots=40)
    check_with_irregular_reports(label, SCENARIOS["S1"], slots=40)


LIVE_SCENARIOS = ("channels come and go", "reward feedback", "three states")
LIVE_WORLDS = [name for name, world in WORLDS.items() if world.recording is None]  # traces must be files


def check_as_simulated(label: str, scenario: ib.Scenario, slots: int) -> None:
    run = PolicyRun.start(scenario, CONFIGURED[label], slots, seed=3, replication=2)
    allocator = allocator_for(label, scenario, seed=3, replication=2)
    world, rows, measured = run.path, scenario.available, scenario.feedback == "perturbation"
    for t in range(1, slots + 1):
        run.to(t)
        picks = tuple(run.tally.picks[: run.tally.picked[0]].tolist())
        shown = world.observed if world.errors else world.s
        genie = run.tally.sees_states
        seen = (world.s if genie else shown) if run.tally.sensing else None
        decision = allocator.decide(world.x, available=rows[(t - 1) % len(rows)], states=seen)
        assert (decision.channels, decision.by) == (picks, "policy"), (
            label,
            scenario.name,
            t,
            allocator.policy_failure,
        )
        states = [int(shown[k]) for k in picks]
        allocator.report(
            decision.request_id,
            rewards=[
                reward(world.reward, state_reward(world, k, s), world.good[k, s], world.n[k])
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


def check_with_irregular_reports(label: str, scenario: ib.Scenario, slots: int) -> None:
    """Numbers of users, available and vacated channels and slots vary; reports are complete, partial, late, repeated or
    missing. As many allowed channels as possible are assigned."""
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
            # The feedback of a channel does not depend on when and how often it is reported.
            returned = {k: float((late.slot * 7 + k) % 2) * 0.9 + 0.1 for k in late.channels if rng.random() < 0.7}
            allocator.report(late.request_id, returned, {k: (late.slot + k) % 2 for k in returned})
    rest = np.zeros((scenario.K, scenario.dimension)), None, None, np.zeros(scenario.K)
    assert allocator.decide(*rest, slot=10_240).by == "policy"  # a slot in which the supervisor checks the whole state
    assert not allocator.policy_failure, label


@pytest.mark.parametrize("label", ONE_PER_MODULE)
def test_policies_with_300_channels(label: str) -> None:
    """K = 300, M = 60: selection partitions instead of comparing all pairs."""
    scenario = ib.scenario(p01=[0.1] * 300, p10=[0.1 + 0.8 * k / 300 for k in range(300)], users=60)
    result = ib.simulate(scenario, CONFIGURED[label], horizon=200, replications=1)
    assert result.plays.sum() == 200 * 60


# --- policies in an environment --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", CONFIGURED)
def test_policy_that_steps_an_environment_equals_simulate(label: str) -> None:
    """A policy that sees what an environment shows selects the same channels, earns the same reward and learns the same
    state, bit for bit. Oracles and the genie see what is hidden, too."""
    for where in ("S1", world_of(label)):
        check_stepped(label, EVERY[where], slots=40)


def check_stepped(label: str, scenario: ib.Scenario, slots: int) -> None:
    configured, K, knows = CONFIGURED[label], scenario.K, CONFIGURED[label].policy.knows
    run = PolicyRun.start(scenario, configured, slots, seed=3, replication=2)
    environment = ib.Environment(scenario, horizon=slots, seed=3, replication=2)
    truth = truth_of(scenario, *path_parameters(scenario, 3, 2)) if PARAMETERS in knows else None
    learner = Learner(configured, setup_of(scenario, configured.params), truth, seed=3, replication=2)
    path = environment._episode.path  # what is hidden
    picks, terms, every = np.zeros(K, np.int64), np.zeros((K, TERMS)), np.ones(K, np.bool_)
    observation, done = environment.reset(), False
    while not done:
        n = path.n.copy() if STATES_SEEN in knows else path.f.copy() if PARAMETERS in knows else np.full(K, np.nan)
        sensed = path.s.copy() if STATES_SEEN in knows else observation.sensed
        slot = (observation.t, scenario.users, observation.contexts, np.array(observation.available), sensed, n)
        count = learner.choose(learner.block, *slot, picks, terms)
        run.to(observation.t)
        assert picks[:count].tolist() == run.tally.picks[: run.tally.picked[0]].tolist(), (scenario.name, observation.t)
        _, feedback, observation, done = environment.step(picks[:count])
        returned = np.zeros((3, K))
        for i, one in enumerate(feedback):
            returned[:, i] = one.reward, one.state, one.perturbation
        learner.learn(learner.block, *slot, picks[:count].copy(), every, returned)
        assert environment.total_reward == run.tally.now[0]
    for ours, theirs in zip(leaves(learner.state), leaves(run.state), strict=True):
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
