"""What the agents of studies/reinforcement_learning.py observe, recounted; the study itself needs PyTorch."""

import importlib.util
import math
import sys
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.conftest import ROOT

pytest.importorskip("gymnasium")

PLAYED = np.array([[1, 0, 1, 0, 1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]], np.int8)
PLAY, STATE, DECAYED, AGE, PERTURBATION, CONTEXTS = 0, 1, slice(2, 5), 5, 8, slice(9, 17)


@pytest.fixture(scope="module")
def module() -> Any:
    spec = importlib.util.spec_from_file_location("agent_environment", ROOT / "studies/agent_environment.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def steps(copy: int, horizon: int, seed: int = 3) -> tuple[list[Any], list[Any]]:
    """Return the observations of the slots of a copy that always plays the same channels, and the steps."""
    environment = ib.Environment("S1", horizon=horizon, seed=seed, replication=copy)
    seen, taken = [environment.reset()], []
    for _ in range(horizon):
        taken.append(environment.step(np.flatnonzero(PLAYED[copy % 2]).tolist()))
        seen.append(taken[-1].observation)
    return seen, taken


def test_features_equal_a_recount(module: Any) -> None:
    environment = module.AgentEnvironment(ib.scenario("S1"), 2, 20, 3)
    features = environment.reset()
    assert features.shape == (2, 10, environment.size)
    assert not features[:, :, [PLAY, STATE, PERTURBATION]].any()
    recounts = [steps(copy, 20) for copy in (0, 1)]
    for t in range(6):
        turn = environment.step(PLAYED)
        for copy, (seen, taken) in enumerate(recounts):
            assert turn.rewards[copy] == taken[t].reward
            np.testing.assert_allclose(
                turn.features[copy][:, CONTEXTS], 2 * seen[t + 1].contexts - 1, rtol=0, atol=1e-6
            )
            for one in taken[t].feedback:
                row, state = turn.features[copy, one.channel], 2 * one.state - 1
                assert row[[PLAY, STATE]].tolist() == [1, state]
                assert row[DECAYED] == pytest.approx([state * math.exp(-1 / decay) for decay in (4, 16, 64)])
                assert row[AGE] == pytest.approx(math.log(2) / 5)
                assert row[PERTURBATION] == pytest.approx(one.perturbation)
            unseen = turn.features[copy][PLAYED[copy] == 0]
            assert not unseen[:, [PLAY, STATE, 2, 3, 4, PERTURBATION]].any()
            assert (unseen[:, AGE] == np.float32(1.5)).all()


def test_the_next_episode_starts_in_the_last_step(module: Any) -> None:
    environment = module.AgentEnvironment(ib.scenario("S1"), 2, 3, 3, regression=True)
    environment.reset()
    turns = [environment.step(PLAYED) for _ in range(3)]
    assert [turn.last is None for turn in turns] == [True, True, False]
    features, summary = turns[-1].last
    assert features[:, :, STATE].any()
    assert summary.any()
    assert not turns[-1].features[:, :, STATE].any()
    assert not environment.summary.any()
    for copy in (0, 1):  # replications 2 and 3
        first = ib.Environment("S1", horizon=3, seed=3, replication=2 + copy).reset()
        np.testing.assert_allclose(turns[-1].features[copy][:, CONTEXTS], 2 * first.contexts - 1, rtol=0, atol=1e-6)
    predicted = turns[-1].features[:, :, -2]
    assert not predicted.any()


def test_the_regression_is_that_of_the_normal_equations(module: Any) -> None:
    environment = module.AgentEnvironment(ib.scenario("S1"), 2, 40, 3, regression=True)
    environment.reset()
    for _ in range(30):
        turn = environment.step(PLAYED)
    for copy in (0, 1):
        seen, taken = steps(copy, 40)
        for k in np.flatnonzero(PLAYED[copy]):
            x = np.array([np.append(seen[t].contexts[k], 1) for t in range(30)], np.float32).astype(float)
            n = [next(one.perturbation for one in taken[t].feedback if one.channel == k) for t in range(30)]
            A = module.PENALTY * np.eye(9) + x.T @ x
            now = np.append(seen[30].contexts[k], 1)
            q = now @ np.linalg.solve(A, now)
            found = turn.features[copy, k, -2:]
            assert found == pytest.approx([now @ np.linalg.solve(A, x.T @ n), q / (1 + q)], abs=1e-4)


def test_the_summary_is_of_the_channels_that_were_played(module: Any) -> None:
    environment = module.AgentEnvironment(ib.scenario("S1"), 2, 10, 3)
    environment.reset()
    environment.step(PLAYED)
    for copy in (0, 1):
        seen, taken = steps(copy, 10)
        feedback = taken[0].feedback
        n = np.array([one.perturbation for one in feedback])
        x = np.array([seen[0].contexts[one.channel] for one in feedback]) - 0.5
        low, high = ib.scenario("S1").reward_range()
        rewards = [(one.reward - low) / (high - low) for one in feedback]
        expected = [np.mean([one.state for one in feedback]), np.mean(rewards), n.mean()]
        expected += [*(n[:, None] * x).mean(axis=0), *x.mean(axis=0)]
        assert environment.summary[copy] == pytest.approx(expected, abs=1e-5)
    assert environment.summary_size == len(expected)


def test_a_recording_has_no_contexts(module: Any) -> None:
    trace = ib.Trace.from_arrays(busy=np.arange(60).reshape(20, 3) % 4 == 0)
    environment = module.AgentEnvironment(ib.scenario(trace, users=1), 2, 20, 0)
    assert environment.reset().shape == (2, 3, 8)
    assert environment.summary_size == 2
