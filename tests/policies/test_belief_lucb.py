"""MP-Belief-LUCB: regression, index, learning from rewards alone, and forgetting."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

import idleband as ib
from idleband.kernels.whittle import whittle
from idleband.simulation.run import PolicyRun
from idleband.simulation.statistics import paired_difference
from tests.policies.station import Station

TWO: dict[str, Any] = {"p01": [0.1, 0.4, 0.7], "p10": [0.2, 0.5, 0.1]}


def one_channel(**settings: Any) -> ib.Scenario:
    """Return a scenario of one channel, which is always played, with a nonlinear perturbation model."""
    combined: dict[str, Any] = {"perturbation": "cosine", "context": {"dimension": 4}, **settings}
    return ib.scenario(p01=[0.3], p10=[0.2], users=1, **combined)


def samples(run: PolicyRun, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Advance a run to slot `to` and return the contexts, with a constant entry, and perturbations of channel 0."""
    x, n = [], []
    for t in range(run.at + 1, to + 1):
        run.to(t)
        x.append([*run.path.x[0], 1.0])
        n.append(run.path.n[0])
    return np.array(x), np.array(n)


# --- the regression ----------------------------------------------------------------------------------------------


def test_theta_is_ridge_regression_after_many_updates() -> None:
    """10^5 sequential updates give the solution of the normal equations."""
    run = PolicyRun.start(one_channel(), ib.policy("mp-belief-lucb", lambda_=0.5), 100_000, seed=1, replication=0)
    x, n = samples(run, 100_000)
    A = 0.5 * np.eye(5) + x.T @ x
    np.testing.assert_allclose(run.state.theta[0], np.linalg.solve(A, x.T @ n), rtol=0, atol=1e-8)
    np.testing.assert_allclose(run.state.A_inv[0] @ A, np.eye(5), rtol=0, atol=1e-8)


def test_theta_is_weighted_ridge_regression_with_forgetting() -> None:
    """After 10^6 updates sample i has weight exp(-(T - i) / 50), so that only the last 3000 matter.

    A^-1 is exactly symmetric.
    """
    T = 1_000_000
    run = PolicyRun.start(one_channel(), ib.policy("mp-belief-lucb", forget=50.0), T, seed=1, replication=0)
    run.to(T - 3000)
    x, n = samples(run, T)
    weights = np.exp(np.arange(-2999, 1) / 50)
    A = (x * weights[:, None]).T @ x
    np.testing.assert_allclose(run.state.A_inv[0], np.linalg.inv(A), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(run.state.theta[0], np.linalg.solve(A, x.T @ (weights * n)), rtol=0, atol=1e-8)
    assert np.array_equal(run.state.A_inv[0], run.state.A_inv[0].T)


def test_shared_model_learns_from_all_channels() -> None:
    station = Station("mp-belief-lucb", M=2, scenario=TWO, shared=True, lambda_=0.3)
    A, b, rng = 0.3 * np.eye(3), np.zeros(3), np.random.default_rng(1)
    for _ in range(100):
        x, n = rng.uniform(0, 1, (3, 2)), rng.uniform(0, 1.5, 3)
        for k in station.play(rng.integers(0, 2, 3).tolist(), n=n.tolist(), x=x):
            u = np.append(x[k], 1.0)
            A += np.outer(u, u)
            b += n[k] * u
    assert station.state.theta.shape == (1, 3)
    np.testing.assert_allclose(station.state.theta[0], np.linalg.solve(A, b), rtol=0, atol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_late_feedback_is_learned_with_the_context_of_its_slot(shared: bool) -> None:
    """Late feedback of two slots, in either order, gives the same model as prompt feedback."""
    contexts = [[[1.0, 0.2]], [[0.3, 0.9]]]
    scenario = {"p01": [0.5], "p10": [0.5]}
    prompt = Station("mp-belief-lucb", scenario=scenario, shared=shared)
    for x in contexts:
        prompt.play([1], x=x, n=[4 * x[0][0]])
    for order in ((0, 1), (1, 0)):
        late, slots = Station("mp-belief-lucb", scenario=scenario, shared=shared), []
        for x in contexts:
            late.choose(x=x)
            slots.append(late.slot)
        for i in order:
            late.slot = slots[i]
            late.learn(0, 1, n=4 * contexts[i][0][0])
        np.testing.assert_allclose(late.state.A_inv, prompt.state.A_inv, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(late.state.theta, prompt.state.theta, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_forgetting_stays_finite_with_a_constant_context(shared: bool) -> None:
    """The context is always the same, so that nothing is learned in the directions orthogonal to it.

    No variance exceeds that of the prior, 1 / lambda, and the prediction for this context is right, also after the
    perturbation changes.
    """
    station = Station("mp-belief-lucb", scenario={"p01": [0.5], "p10": [0.5]}, forget=2.0, lambda_=0.1, shared=shared)
    for t in range(6000):
        station.play([t % 2], x=[[0.5, 0.25]], n=[0.3 if t < 4000 else 0.8])
        if t in (3999, 5999):
            n_hat = np.zeros(1)
            ib.POLICIES["mp-belief-lucb"].predict(  # type: ignore[misc]
                station.setup, station.state, np.array([[0.5, 0.25]]), n_hat
            )
            assert n_hat[0] == pytest.approx(0.3 if t == 3999 else 0.8, abs=1e-6)
    inverse = station.state.A_inv[0]
    assert np.diag(inverse).max() <= 10 * (1 + 1e-9)
    assert np.linalg.eigvalsh(inverse).min() > -1e-9


def test_long_gaps_between_plays_give_finite_values() -> None:
    station = Station("mp-belief-lucb", scenario={"p01": [0.5], "p10": [0.5]}, forget=1e-3)
    for t in (1, 2, 10**7, 10**9):
        station.t = t - 1
        station.play([1], x=[[0.4, 0.8]], n=[0.3])
    assert np.isfinite(station.state.A_inv).all()
    assert np.isfinite(station.state.theta).all()


# --- the index ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"look_ahead": False}, {"shared": True}, {"redraw": 1}])
def test_index_equals_recomputed_index(settings: dict[str, Any]) -> None:
    """The reward of the good state is 0.1 + 0.9 Phi((1 - n_hat - z e sqrt(q)) / e).

    The index scales it by the Whittle index, or without look-ahead by the belief.
    """
    station = Station("mp-belief-lucb", M=2, scenario=TWO, lambda_=0.2, **settings)
    models = 1 if settings.get("shared") else 3
    A, b = np.tile(0.2 * np.eye(3), (models, 1, 1)), np.zeros((models, 3))
    square, count = np.ones(models), np.full(models, 10.0)
    rng = np.random.default_rng(4)
    for _ in range(80):
        x, n = rng.uniform(0, 1, (3, 2)), rng.uniform(0, 1.5, 3)
        picks = station.choose(x=x)
        chains, z = station.state.chains, station.state.success.deviate
        for k in range(3):
            m, u = k % models, np.append(x[k], 1.0)
            q, e = u @ np.linalg.solve(A[m], u), math.sqrt(square[m])
            n_hat = np.linalg.solve(A[m], b[m]) @ u + z[k] * e * math.sqrt(q)
            w = chains.belief[k, 1]
            if settings.get("look_ahead", True):
                w = whittle(chains.P[k, 0, 1], chains.P[k, 1, 0], w)
            expected = 0.1 + 0.9 * stats.norm.cdf((1 - n_hat) / e) * w
            assert station.slot.indices[k] == pytest.approx(expected, abs=1e-8)
        for k in picks:
            m, u = k % models, np.append(x[k], 1.0)
            q, error = u @ np.linalg.solve(A[m], u), n[k] - np.linalg.solve(A[m], b[m]) @ u
            count[m] += 1
            square[m] += (error**2 / (1 + q) - square[m]) / count[m]
            A[m] += np.outer(u, u)
            b[m] += n[k] * u
            station.learn(k, int(rng.integers(0, 2)), n[k])
        np.testing.assert_allclose(station.state.success.square, square, rtol=0, atol=1e-9)


def test_deviate_is_drawn_with_the_chain_and_kept() -> None:
    station = Station("mp-belief-lucb", scenario=TWO, redraw=6)
    before, draws = np.zeros(3), []
    for t in range(1, 3001):
        station.choose()
        z = station.state.success.deviate
        for k in range(3):
            fresh = t == 1 or (t + k) % 6 == 0
            assert (z[k] != before[k]) == fresh
            draws += [z[k]] * fresh
        before = z.copy()
    assert stats.kstest(draws, stats.norm.cdf).pvalue > 1e-6


def test_index_of_a_sensed_state_is_its_reward() -> None:
    station = Station("mp-belief-lucb", scenario=TWO)
    station.choose(sensed=[0, 1, -1])
    assert station.slot.indices[:2].tolist() == station.state.success.pays[[0, 1], [0, 1]].tolist()


# --- feedback = reward -----------------------------------------------------------------------------------------------


def test_additive_rewards_reveal_the_perturbation() -> None:
    """n = h - r, so that both kinds of feedback give the same model."""
    states = []
    for feedback in ("perturbation", "reward"):
        scenario = ib.scenario("S4", reward="additive", feedback=feedback)
        result = ib.simulate(scenario, "mp-belief-lucb", horizon=2000, replications=1)
        assert result.state is not None
        states.append((result.state[0].theta, result.plays))
    assert np.array_equal(states[0][1], states[1][1])
    np.testing.assert_allclose(states[0][0], states[1][0], rtol=0, atol=1e-8)


def test_failure_probability_is_learned_from_good_slots_only() -> None:
    """The model is a sequential logistic regression, recomputed here in NumPy; bad slots do not change it."""
    station = Station("mp-belief-lucb", scenario={"feedback": "reward", "p01": [0.5], "p10": [0.5]}, lambda_=0.5)
    A, theta, rng = 0.5 * np.eye(3), np.zeros(3), np.random.default_rng(3)
    for _ in range(60):
        x, s, n = rng.uniform(0, 1, 2), int(rng.integers(0, 2)), float(rng.uniform(0, 1.6))
        u = np.append(x, 1.0)
        station.choose(x=[x])
        score = theta @ u + station.state.success.deviate[0] * math.sqrt(u @ np.linalg.solve(A, u))
        pays = station.state.success.pays[0]
        assert pays.tolist() == pytest.approx([0.1, 0.1 + 0.9 / (1 + math.exp(score))], abs=1e-8)
        station.learn(0, s, n)
        if s == 1:
            y, v, before = float(n >= 1), np.linalg.solve(A, u), float(theta @ u)
            at = brentq(lambda a, c=(before, u @ v, y): a - c[0] - c[1] * (c[2] - 1 / (1 + math.exp(-a))), -99, 99)
            p = 1 / (1 + math.exp(-at))
            theta += v * (y - p)
            A += p * (1 - p) * np.outer(u, u)
        np.testing.assert_allclose(station.state.theta[0], theta, rtol=0, atol=1e-8)
    assert station.state.success.perturbed[0] > 10


def test_contexts_increase_the_reward_with_reward_feedback() -> None:
    """The reward is 5% above that of MP-Belief, which ignores contexts (99% interval of paired differences)."""
    scenario = ib.scenario("S2", feedback="reward")
    size: dict[str, Any] = {"horizon": 10_000, "replications": 4, "seed": 2}
    contexts, none = (ib.simulate(scenario, name, **size).reward[:, -1] for name in ("mp-belief-lucb", "mp-belief"))
    assert paired_difference(contexts, 1.05 * none, level=0.99).low > 0


# --- in simulations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["perturbation", "reward"])
def test_negative_perturbations_give_rewards_in_bad_states(feedback: str) -> None:
    """n = 1.5 (x0 - x1) is negative in half of the slots, in which bad states give the full reward.

    With measured n the policy earns 97% of the reward of oracle-belief; from rewards alone it earns more than
    MP-Belief. With both kinds of feedback it observes that bad slots can give the full reward.
    """
    model = {"perturbation": {"theta": [1.5, -1.5]}, "context": {"dimension": 2}, "feedback": feedback}
    scenario = ib.scenario("S2", **model)
    size: dict[str, Any] = {"horizon": 10_000, "replications": 4, "seed": 1}
    result = ib.simulate(scenario, "mp-belief-lucb", **size)
    plain, best = (ib.simulate(scenario, name, **size).reward[:, -1] for name in ("mp-belief", "oracle-belief"))
    assert paired_difference(result.reward[:, -1], plain, level=0.99).low > 0
    if feedback == "perturbation":
        assert paired_difference(result.reward[:, -1], 0.97 * best, level=0.99).low > 0
    assert result.state is not None
    for state in result.state:
        share = state.success.spared / np.maximum(state.success.spared + state.success.perturbed, 1)
        assert share[state.success.perturbed > 100].min() > 0.3


def test_reward_under_a_nonlinear_perturbation_equals_mp_belief() -> None:
    """Under the quadratic perturbation model the reward is within 0.5% of that of MP-Belief."""
    scenario = ib.scenario("S1", perturbation="quadratic")
    size: dict[str, Any] = {"horizon": 10_000, "replications": 4, "seed": 1}
    linear, none = (ib.simulate(scenario, name, **size).reward[:, -1] for name in ("mp-belief-lucb", "mp-belief"))
    assert paired_difference(linear, 0.995 * none, level=0.99).low > 0
    assert paired_difference(linear, 1.005 * none, level=0.99).high < 0


def test_learned_measures_small_prediction_errors() -> None:
    """The error of a linear perturbation is below 1% of its spread, with one model per channel and a shared one."""
    for settings in ({}, {"shared": True}):
        found = ib.learned("S1", "mp-belief-lucb", horizon=2000, replications=1, **settings)
        assert found.played_last[0] < 0.01
