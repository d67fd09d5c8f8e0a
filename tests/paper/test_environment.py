"""Simulated states, contexts and rewards have the distributions of the scenario.

Every share, correlation and mean of a long path lies within five standard errors of its exact value. The standard
errors are computed from the transition matrices and not from the sample, which could itself be wrong.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import idleband as ib
from idleband.kernels.rng import CONTEXTS, STATES, stream
from idleband.scenario.reward import reward
from idleband.simulation.loop import SamplePath, advance, enter
from idleband.simulation.path import new_path

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

T = 200_000

THREE_STATES = ib.scenario(
    name="three states",
    transition=[
        [[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.05, 0.15, 0.8]],
        [[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [0.7, 0.0, 0.3]],  # a cycle: not reversible
    ],
    good=[[2], [1, 2]],
    users=1,
    context={"dimension": 5},
    perturbation={"kind": "linear", "clear": 0.6, "per_channel": True},
)
SCENARIOS = {**{name: ib.scenario(name) for name in ("S1", "S2", "S3", "S4")}, "three states": THREE_STATES}


@numba.njit
def follow(path: SamplePath, states: Ints, rewards: Floats, contexts: Floats) -> None:
    """Record states and rewards of all channels in every slot, and the contexts of the first slots."""
    enter(path)
    for t in range(len(states)):
        advance(path)
        for k in range(path.s.size):
            s = path.s[k]
            states[t, k] = s
            rewards[t, k] = reward(path.reward, path.h[k, s], path.good[k, s], path.n[k])
        if t < len(contexts):
            contexts[t] = path.contexts


class Path(NamedTuple):
    """A recorded sample path."""

    scenario: ib.Scenario
    theta: Floats  # (K, d)
    states: Ints  # (slots, K)
    rewards: Floats  # (slots, K)
    contexts: Floats  # (kept slots, K d)

    @classmethod
    def of(cls, scenario: ib.Scenario, slots: int, *, seed: int, replication: int = 0, kept: int = 0) -> "Path":
        theta = scenario.theta(seed, replication).copy()
        states, rewards = np.zeros((slots, scenario.K), np.int64), np.zeros((slots, scenario.K))
        contexts = np.zeros((kept, scenario.K * scenario.dimension))
        follow(new_path(scenario, seed, replication, theta), states, rewards, contexts)
        return cls(scenario, theta, states, rewards, contexts)

    def of_states(self, tables: tuple[npt.NDArray[np.generic], ...]) -> Floats:
        """Return a function of the state, given as one table of values per channel; shape (slots, K)."""
        return np.column_stack([np.asarray(table, float)[self.states[:, k]] for k, table in enumerate(tables)])


@pytest.fixture(scope="module", params=SCENARIOS)
def path(request: pytest.FixtureRequest) -> Path:
    return Path.of(SCENARIOS[request.param], T, seed=5)


# --- exact distributions and variances, computed independently of the package ----------------------------------------


def stationary_distribution(P: Floats) -> Floats:
    """Return the stationary distribution as the solution of linear equations."""
    equations = np.vstack([P.T - np.eye(len(P)), np.ones(len(P))])
    return np.linalg.lstsq(equations, np.append(np.zeros(len(P)), 1.0), rcond=None)[0]


def long_run_variance(P: Floats, f: Floats) -> float:
    """Return T Var(mean of f over T slots) for large T: the variance of f plus twice the sum of its autocovariances.

    With g = f - pi f and the fundamental matrix Z = (I - P + 1 pi)^-1, the sum over l >= 0 of P^l g is Z g. The
    relative error for finite T is of order 1/T.
    """
    pi = stationary_distribution(P)
    g = f - pi @ f
    Z = np.linalg.inv(np.eye(len(P)) - P + pi)
    return float(pi @ (g * (2 * Z @ g - g)))


def pair_chain(P: Floats) -> Floats:
    """Return the chain of (s_t, s_t+1): from (i, j) to (j, k) with probability P[j, k]."""
    S = len(P)
    Q = np.zeros((S, S, S, S))
    for j in range(S):
        Q[:, j, j, :] = P[j]
    return Q.reshape(S * S, S * S)


def test_long_run_variance_of_known_chains() -> None:
    """For two states it is pi (1 - pi) (1 + r) / (1 - r) with r = 1 - p01 - p10."""
    for p01, p10 in ((0.01, 0.08), (0.3, 0.7), (0.9, 0.8)):
        P, share, r = np.array([[1 - p01, p01], [p10, 1 - p10]]), p01 / (p01 + p10), 1 - p01 - p10
        exact = share * (1 - share) * (1 + r) / (1 - r)
        assert long_run_variance(P, np.array([0.0, 1.0])) == pytest.approx(exact, rel=1e-9)
        first_of_pair = np.array([0.0, 0.0, 1.0, 1.0])
        assert long_run_variance(pair_chain(P), first_of_pair) == pytest.approx(exact, rel=1e-9)


def assert_within_5_sigma(found: Floats, exact: Floats, variances: list[float] | Floats, samples: int) -> None:
    sigmas = (found - exact) / np.sqrt(np.asarray(variances) / samples)
    assert np.all(np.abs(sigmas) < 5), sigmas


# --- states ----------------------------------------------------------------------------------------------------------


def test_shares_of_good_states_are_exact_within_5_sigma(path: Path) -> None:
    scenario = path.scenario
    shares = path.of_states(scenario.good).mean(axis=0)
    variances = [long_run_variance(P, g.astype(float)) for P, g in zip(scenario.transition, scenario.good, strict=True)]
    assert_within_5_sigma(shares, scenario.good_shares, variances, T)


def test_shares_of_all_states_are_exact_within_5_sigma(path: Path) -> None:
    for k, P in enumerate(path.scenario.transition):
        shares = np.bincount(path.states[:, k], minlength=len(P)) / T
        variances = [long_run_variance(P, np.arange(len(P)) == s) for s in range(len(P))]
        assert_within_5_sigma(shares, stationary_distribution(P), variances, T)


def test_autocorrelations_are_exact_within_5_sigma(path: Path) -> None:
    """With the exact mean and variance of h, (h_t - mean)(h_t+1 - mean) / variance is a function of the pair chain. Its
    mean is the autocorrelation, and its variance follows from the fundamental matrix of that chain."""
    scenario = path.scenario
    found, variances = [], []
    for P, h, values in zip(scenario.transition, scenario.rewards, path.of_states(scenario.rewards).T, strict=True):
        pi = stationary_distribution(P)
        g = (h - pi @ h) / math.sqrt(pi @ h**2 - (pi @ h) ** 2)
        along = (values - pi @ h) / math.sqrt(pi @ h**2 - (pi @ h) ** 2)
        found.append(float(np.mean(along[:-1] * along[1:])))
        variances.append(long_run_variance(pair_chain(P), np.outer(g, g).ravel()))
    assert_within_5_sigma(np.array(found), scenario.autocorrelations, variances, T - 1)


def test_channels_change_states_independently(path: Path) -> None:
    """The product of the centred good states of two channels has mean zero. Two independent channels form one chain
    with the Kronecker product of their matrices."""
    scenario = path.scenario
    centred = path.of_states(scenario.good) - scenario.good_shares
    tables = [g - share for g, share in zip(scenario.good, scenario.good_shares, strict=True)]
    pairs = [(i, j) for j in range(scenario.K) for i in range(j)]
    found = np.array([np.mean(centred[:, i] * centred[:, j]) for i, j in pairs])
    variances = [
        long_run_variance(np.kron(scenario.transition[i], scenario.transition[j]), np.kron(tables[i], tables[j]))
        for i, j in pairs
    ]
    assert_within_5_sigma(found, np.zeros(len(pairs)), variances, T)


PERIODIC = ib.scenario(
    name="periodic",
    transition=[[[0, 1], [1, 0]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]],
    good=[[1], [2]],
    users=1,
)


@pytest.mark.parametrize(
    "scenario", [SCENARIOS["S1"], SCENARIOS["S4"], THREE_STATES, PERIODIC], ids=lambda scenario: scenario.name
)
def test_first_states_have_the_stationary_distribution(scenario: ib.Scenario) -> None:
    """Counts of states over replications are binomial in slots 1 and 2."""
    R, slots = 1500, 2
    scenario = ib.scenario(scenario, perturbation="none")  # drawing a theta 1500 times would take most of the time
    states = np.array([Path.of(scenario, slots, seed=1, replication=i).states for i in range(R)])
    for k, P in enumerate(scenario.transition):
        pi = stationary_distribution(P)
        for slot in range(slots):
            shares = np.bincount(states[:, slot, k], minlength=len(P)) / R
            assert_within_5_sigma(shares, pi, pi * (1 - pi), R)


# --- contexts and rewards --------------------------------------------------------------------------------------------


def test_contexts_are_uniform_and_independent() -> None:
    slots = 20_000
    x = Path.of(SCENARIOS["S1"], slots, seed=3, kept=slots).contexts
    assert x.min() >= 0
    assert x.max() < 1
    one = np.ones(x.shape[1])
    centred = x - 0.5
    assert_within_5_sigma(x.mean(axis=0), 0.5 * one, one / 12, slots)
    assert_within_5_sigma((centred**2).mean(axis=0), one / 12, one * (1 / 80 - 1 / 144), slots)  # E u^4 - (E u^2)^2
    shares = np.bincount((x * 16).astype(int).ravel(), minlength=16) / x.size
    assert_within_5_sigma(shares, np.full(16, 1 / 16), np.full(16, 1 / 16 * 15 / 16), x.size)
    # 12 u v has mean 0 and variance 1 for independent entries, in the same slot and in successive slots
    within = 12 * centred.T @ centred / slots
    across = 12 * centred[:-1].T @ centred[1:] / (slots - 1)
    pairs = within[np.triu_indices_from(within, 1)]
    assert_within_5_sigma(pairs, np.zeros(pairs.shape), np.ones(pairs.shape), slots)
    assert_within_5_sigma(across, np.zeros(across.shape), np.ones(across.shape), slots - 1)


class RewardModel(NamedTuple):
    """Threshold reward of a channel for n >= 0: in good slots 1 with probability `clear`, else 0.1."""

    mean: float
    variance: float  # of one slot
    long_run: float  # of the mean of many slots, times their number


def reward_distributions(scenario: ib.Scenario, theta: Floats) -> list[RewardModel]:
    """Return mean and variances of the reward of every channel.

    Perturbations of different slots are independent, so only E[r | s] is correlated over time: the long-run variance
    is that of E[r | s] along the chain plus the mean of Var(r | s).
    """
    assert np.all(theta >= 0)
    clear, error = scenario.probabilities_below(theta, 1.0)
    assert error == 0
    models = []
    for P, good, c in zip(scenario.transition, scenario.good, clear, strict=True):
        probability = stationary_distribution(P) @ (good * c)
        spread = 0.81 * stationary_distribution(P) @ (good * c * (1 - c))
        long_run = long_run_variance(P, 0.9 * c * good) + spread
        models.append(RewardModel(0.1 + 0.9 * probability, 0.81 * probability * (1 - probability), long_run))
    return models


def test_mean_rewards_are_exact_within_5_sigma(path: Path) -> None:
    means, error = path.scenario.mean_rewards(path.theta)
    assert error == 0
    models = reward_distributions(path.scenario, path.theta)
    np.testing.assert_allclose(means, [model.mean for model in models], rtol=1e-12)
    assert_within_5_sigma(path.rewards.mean(axis=0), means, [model.long_run for model in models], T)


@pytest.mark.parametrize("users", [1, 5, 10])
def test_random_selection_has_m_times_the_mean_reward_of_all_channels(users: int) -> None:
    slots, R = 50_000, 4
    scenario = ib.scenario("S1", users=users)
    result = ib.simulate(scenario, "mp-random", horizon=slots, replications=R, seed=2)
    K, M = scenario.K, scenario.users
    one, two = M / K, M * (M - 1) / (K * (K - 1))  # probabilities that a channel, and a pair of channels, is played
    exact, variance = 0.0, 0.0
    for replication in range(R):  # each with another theta
        models = reward_distributions(scenario, scenario.theta(2, replication))
        mu = np.array([model.mean for model in models])
        squares = sum(model.variance + model.mean**2 for model in models)
        within_slot = one * squares + two * (mu.sum() ** 2 - mu @ mu) - (one * mu.sum()) ** 2
        between_slots = one**2 * sum(
            model.long_run - model.variance for model in models
        )  # channels are selected anew in every slot
        exact += M * mu.mean() / R
        variance += (within_slot + between_slots) / slots / R**2
    assert abs(result.reward[:, -1].mean() / slots - exact) < 5 * math.sqrt(variance)


# --- sample paths of policies -----------------------------------------------------------------------------------------


def slots_of(policy: str, *, seed: int = 0, replications: int = 1, **changes: object) -> pd.DataFrame:
    scenario = ib.scenario("S1", **changes)
    slots = ib.simulate(scenario, policy, horizon=50, replications=replications, seed=seed, record="slots").slots
    assert slots is not None
    return slots


def environment(slots: pd.DataFrame) -> pd.DataFrame:
    contexts = [f"x{i}" for i in range(8)]
    return slots[["replication", "t", "channel", "state", "good", "perturbation", *contexts]]


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("rca-m", {}),
        ("mp-lucb", {}),
        ("mp-random", {"users": 2}),
        ("mp-random", {"users": 10}),
        ("mp-random", {"sensing": "all"}),
        ("mp-lucb", {"sensing": "all"}),
        ("mp-lucb", {"feedback": "reward"}),
        ("rca-m", {"reward": "additive"}),
        ("mp-random", {"availability": [[0, 1] * 5, [1, 0] * 5]}),
    ],
)
def test_sample_path_does_not_depend_on_the_policy(policy: str, changes: dict[str, object]) -> None:
    first, other = slots_of("mp-random"), slots_of(policy, **changes)
    pd.testing.assert_frame_equal(environment(other), environment(first), check_exact=True)
    same = policy == "mp-random" and "sensing" in changes  # mp-random does not use states
    assert (other["picked"] == first["picked"]).all() == same


def test_states_and_contexts_have_separate_streams() -> None:
    path = new_path(SCENARIOS["S1"], 6, 7, SCENARIOS["S1"].theta(6, 7))
    assert path.state_rng.tolist() == stream(6, 7, STATES).tolist()
    assert path.context_rng.tolist() == stream(6, 7, CONTEXTS).tolist()


def test_seeds_and_replications_have_different_sample_paths() -> None:
    both = slots_of("mp-random", replications=2)
    first, second = (both[both["replication"] == i].reset_index(drop=True) for i in (0, 1))
    other = slots_of("mp-random", seed=1)
    for a, b in ((first, second), (first, other), (second, other)):
        assert (a["state"] != b["state"]).any()
        assert not (a["x0"] == b["x0"]).any()
        assert not (a["perturbation"] == b["perturbation"]).any()


def test_replication_does_not_depend_on_the_number_of_replications() -> None:
    two = slots_of("mp-random", replications=2)
    pd.testing.assert_frame_equal(two[two["replication"] == 0], slots_of("mp-random"), check_exact=True)
