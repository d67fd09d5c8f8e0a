"""MP-Belief-NUCB: expected reward from the prediction and width of its network, and its training samples.

These tests inspect simulation runs slot by slot, because the functions of a network policy take long to compile alone.
"""

import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.kernels.whittle import whittle
from idleband.simulation.run import PolicyRun
from idleband.simulation.statistics import paired_difference
from tests.conftest import ROOT

CHANNELS: dict[str, Any] = {"p01": [0.1, 0.4, 0.7, 0.5], "p10": [0.2, 0.5, 0.1, 0.5], "users": 2}
COSINE: dict[str, Any] = {"context": {"dimension": 3}, "perturbation": "cosine"}


def started(parameters: dict[str, Any] | None = None, **settings: Any) -> PolicyRun:
    """Return a run at its start; `settings` are those of the scenario."""
    scenario = ib.scenario(**CHANNELS, **COSINE, **settings)
    configured = ib.policy("mp-belief-nucb", **(parameters or {"D": 4}))
    return PolicyRun.start(scenario, configured, 1000, seed=2, replication=0)


@pytest.mark.parametrize("parameters", [{"D": 4}, {"D": 4, "look_ahead": False, "redraw": 1, "lambda_": 0.3}])
def test_index_and_errors_equal_recomputed_values(parameters: dict[str, Any]) -> None:
    """q = g' A^-1 g / D with the diagonal of A = lambda I + sum g g' / D, and e^2 is the mean of error^2 / (1 + q).

    The expected reward of a good state is 0.1 + 0.9 Phi((1 - n_hat - z e sqrt(q)) / e). Indices are compared only for
    channels that were not selected, whose beliefs have not changed since the ranking.
    """
    run = started(parameters=parameters)
    net, success, chains = run.state.net, run.state.success, run.state.chains
    A = np.full((4, net.vectors.g[0].size), float(parameters.get("lambda_", 1.0)))
    square, count = np.ones(4), np.full(4, 10.0)
    for t in range(1, 120):
        run.to(t)
        picks = run.tally.picks[: run.tally.picked[0]].tolist()
        for k in range(4):
            g, e = net.vectors.g[k].ravel(), math.sqrt(square[k])
            q = float((g**2 / A[k]).sum()) / 4
            assert net.estimates.q[k] == pytest.approx(q, rel=1e-9)
            n_hat = net.estimates.n_hat[k] + success.deviate[k] * e * math.sqrt(q)
            pays = 0.1 + 0.9 * stats.norm.cdf((1 - n_hat) / e)
            assert success.pays[k].tolist() == pytest.approx([0.1, pays], abs=1e-8)
            if k not in picks:
                w = chains.belief[k, 1]
                if parameters.get("look_ahead", True):
                    w = whittle(chains.P[k, 0, 1], chains.P[k, 1, 0], w)
                assert run.tally.indices[k] == pytest.approx(0.1 + (pays - 0.1) * w, abs=1e-8)
            else:
                error = run.path.n[k] - net.estimates.n_hat[k]
                count[k] += 1
                square[k] += (error**2 / (1 + q) - square[k]) / count[k]
                A[k] += g**2 / 4
        np.testing.assert_allclose(success.square, square, rtol=1e-9)
    assert (count > 12).all()


def test_samples_are_contexts_and_perturbations() -> None:
    run = started()
    samples, reported = run.state.net.samples, dict[int, list[Any]]()
    for t in range(1, 50):
        run.to(t)
        for k in run.tally.picks[: run.tally.picked[0]].tolist():
            reported.setdefault(k, []).append([*(2 * run.path.x[k] - 1), 1.0, run.path.n[k]])
    for k, rows in reported.items():
        assert samples.seen[k] == len(rows)
        np.testing.assert_allclose(samples.inputs[k, : len(rows)], np.array(rows)[:, :-1])
        np.testing.assert_allclose(samples.y[k, : len(rows)], np.array(rows)[:, -1])


def test_failure_probability_is_learned_from_rewards_of_good_slots() -> None:
    """The target of a good slot is 1 with the low reward and 0 with the full one; bad slots give no sample."""
    run = started(feedback="reward")
    samples, good = run.state.net.samples, np.zeros(4, int)
    for t in range(1, 200):
        run.to(t)
        for k in run.tally.picks[: run.tally.picked[0]].tolist():
            if run.path.s[k] == 1:
                assert samples.y[k, good[k]] == float(run.path.n[k] >= 1)
                good[k] += 1
        success, net = run.state.success, run.state.net
        for k in set(range(4)) - set(run.tally.picks[: run.tally.picked[0]].tolist()):
            failure = net.estimates.n_hat[k] + success.deviate[k] * math.sqrt(success.square[k] * net.estimates.q[k])
            assert success.pays[k, 1] == pytest.approx(0.1 + 0.9 * (1 - min(1, max(0, failure))), abs=1e-12)
    assert samples.seen.tolist() == good.tolist()
    assert (good > 10).sum() >= 2


def test_late_feedback_uses_the_context_of_its_slot() -> None:
    """Error, width and sample use the context of the reported slot; the last observation stays the newer one."""
    command = [sys.executable, "-m", "tests.policies.late_network"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout):
        np.testing.assert_allclose(found["input"], [0.8, -0.6, 1.0], rtol=0, atol=1e-12)
        assert found["y"] == 0.8
        assert found["last_observation"] == [1, 9]
        assert found["added"] == pytest.approx(found["error"] ** 2 / (1 + found["q"]), rel=1e-6)


def test_both_kinds_of_feedback_agree_under_additive_rewards() -> None:
    plays = []
    for feedback in ("perturbation", "reward"):
        scenario = ib.scenario(**CHANNELS, **COSINE, reward="additive", feedback=feedback)
        plays.append(ib.simulate(scenario, "mp-belief-nucb", D=4, horizon=500, replications=2).plays)
    assert np.array_equal(*plays)


def test_nonlinear_perturbation_is_learned() -> None:
    """After 3000 slots of the cosine model the error on played channels is below half of the perturbation's spread.

    The error of MP-Belief-LUCB is above 80% of it, and its reward is at least 5% smaller in paired differences.
    """
    scenario = ib.scenario("S4", perturbation="cosine")
    net, linear = (
        ib.learned(scenario, name, horizon=3000, replications=1, seed=3)
        for name in ("mp-belief-nucb", "mp-belief-lucb")
    )
    assert net.played_last[0] < 0.5
    assert linear.played_last[0] > 0.8
    size: dict[str, Any] = {"horizon": 5000, "replications": 4, "seed": 3}
    one, other = (ib.simulate(scenario, name, **size).reward[:, -1] for name in ("mp-belief-nucb", "mp-belief-lucb"))
    assert paired_difference(one, 1.05 * other, level=0.99).low > 0
