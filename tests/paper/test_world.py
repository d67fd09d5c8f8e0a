"""Simulated states, contexts and rewards have the distributions of the scenario.

Every share, correlation and mean of a long path lies within five standard errors of its exact value. The standard
errors are computed from the transition matrices and never from the sample, so that a wrong path cannot excuse itself.
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
        [[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [0.7, 0.0, 0.3]],  # goes round: not reversible
    ],
    rewards=[[0.1, 0.4, 1.0], [0.3, 1.0, 1.0]],  # on the second two states are good
    users=1,
    context={"dimension": 5},
    perturbation={"kind": "linear", "clear": 0.6, "per_channel": True},
)
WORLDS = {**{name: ib.scenario(name) for name in ("S1", "S2", "S3", "S4")}, "three states": THREE_STATES}


@numba.njit
def follow(world: SamplePath, states: Ints, rewards: Floats, contexts: Floats) -> None:
    """Record the state of every channel in every slot, what it would pay, and the contexts of the first slots."""
    enter(world)
    for t in range(len(states)):
        advance(world)
        for k in range(world.s.size):
            s = world.s[k]
            states[t, k] = s
            rewards[t, k] = reward(world.reward, world.h[k, s], world.good[k, s], world.n[k])
        if t < len(contexts):
            contexts[t] = world.contexts


class Path(NamedTuple):
    world: ib.Scenario
    theta: Floats  # (K, d)
    states: Ints  # (slots, K)
    rewards: Floats  # (slots, K)
    contexts: Floats  # (slots that are kept, K d)

    @classmethod
    def of(cls, world: ib.Scenario, slots: int, *, seed: int, replication: int = 0, kept: int = 0) -> "Path":
        theta = world.theta(seed, replication).copy()
        states, rewards = np.zeros((slots, world.K), np.int64), np.zeros((slots, world.K))
        contexts = np.zeros((kept, world.K * world.dimension))
        follow(new_path(world, seed, replication, theta), states, rewards, contexts)
        return cls(world, theta, states, rewards, contexts)

    def of_states(self, tables: tuple[npt.NDArray[np.generic], ...]) -> Floats:
        """Return (slots, K) a function of the state, given as one table of values per channel."""
        return np.column_stack([np.asarray(table, float)[self.states[:, k]] for k, table in enumerate(tables)])


@pytest.fixture(scope="module", params=WORLDS)
def path(request: pytest.FixtureRequest) -> Path:
    return Path.of(WORLDS[request.param], T, seed=5)


# --- exact distributions and variances, computed in other ways than the package does ---------------------------------


def path_parameters(P: Floats) -> Floats:
    """Return the stationary distribution as the solution of linear equations."""
    equations = np.vstack([P.T - np.eye(len(P)), np.ones(len(P))])
    return np.linalg.lstsq(equations, np.append(np.zeros(len(P)), 1.0), rcond=None)[0]


def long_run_variance(P: Floats, f: Floats) -> float:
    """T Var(mean of f over T slots), for large T: the variance of f plus twice the sum of all its autocovariances.

    With g = f - pi f and the fundamental matrix Z = (I - P + 1 pi)^-1, the sum over l >= 0 of P^l g is Z g. What the
    limit leaves out is of order 1/T relative to it.
    """
    model = path_parameters(P)
    g = f - model @ f
    Z = np.linalg.inv(np.eye(len(P)) - P + model)
    return float(model @ (g * (2 * Z @ g - g)))


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


def test_shares_of_good_states(path: Path) -> None:
    world = path.world
    shares = path.of_states(world.good).mean(axis=0)
    variances = [long_run_variance(P, g.astype(float)) for P, g in zip(world.transition, world.good, strict=True)]
    assert_within_5_sigma(shares, world.good_shares, variances, T)


def test_shares_of_every_state(path: Path) -> None:
    for k, P in enumerate(path.world.transition):
        shares = np.bincount(path.states[:, k], minlength=len(P)) / T
        variances = [long_run_variance(P, np.arange(len(P)) == s) for s in range(len(P))]
        assert_within_5_sigma(shares, path_parameters(P), variances, T)


def test_autocorrelations(path: Path) -> None:
    """With mean and variance of h known, (h_t - mean)(h_t+1 - mean) / variance is a function of the pair chain whose
    mean is the autocorrelation itself: no bias, and a variance from the fundamental matrix of that chain."""
    world = path.world
    found, variances = [], []
    for P, h, values in zip(world.transition, world.rewards, path.of_states(world.rewards).T, strict=True):
        model = path_parameters(P)
        g = (h - model @ h) / math.sqrt(model @ h**2 - (model @ h) ** 2)
        along = (values - model @ h) / math.sqrt(model @ h**2 - (model @ h) ** 2)
        found.append(float(np.mean(along[:-1] * along[1:])))
        variances.append(long_run_variance(pair_chain(P), np.outer(g, g).ravel()))
    assert_within_5_sigma(np.array(found), world.autocorrelations, variances, T - 1)


def test_channels_move_independently(path: Path) -> None:
    """The product of two channels' centred good states has mean zero; two independent channels are one chain, with the
    Kronecker product of their matrices."""
    world = path.world
    centred = path.of_states(world.good) - world.good_shares
    tables = [g - share for g, share in zip(world.good, world.good_shares, strict=True)]
    pairs = [(i, j) for j in range(world.K) for i in range(j)]
    found = np.array([np.mean(centred[:, i] * centred[:, j]) for i, j in pairs])
    variances = [
        long_run_variance(np.kron(world.transition[i], world.transition[j]), np.kron(tables[i], tables[j]))
        for i, j in pairs
    ]
    assert_within_5_sigma(found, np.zeros(len(pairs)), variances, T)


PERIODIC = ib.scenario(
    name="periodic",
    transition=[[[0, 1], [1, 0]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]],
    rewards=[[0.1, 1], [0, 0.5, 1]],
    users=1,
)


@pytest.mark.parametrize("world", [WORLDS["S1"], WORLDS["S4"], THREE_STATES, PERIODIC], ids=lambda world: world.name)
def test_states_start_stationary(world: ib.Scenario) -> None:
    """Over replications the states of slots 1 and 2 already have the stationary distribution: binomial counts."""
    R, slots = 1500, 2
    world = ib.scenario(world, perturbation="none")  # drawing a theta 1500 times would take most of the time
    states = np.array([Path.of(world, slots, seed=1, replication=i).states for i in range(R)])
    for k, P in enumerate(world.transition):
        model = path_parameters(P)
        for slot in range(slots):
            shares = np.bincount(states[:, slot, k], minlength=len(P)) / R
            assert_within_5_sigma(shares, model, model * (1 - model), R)


# --- contexts and rewards --------------------------------------------------------------------------------------------


def test_contexts_are_uniform_and_independent() -> None:
    slots = 20_000
    x = Path.of(WORLDS["S1"], slots, seed=3, kept=slots).contexts
    assert x.min() >= 0
    assert x.max() < 1
    one = np.ones(x.shape[1])
    centred = x - 0.5
    assert_within_5_sigma(x.mean(axis=0), 0.5 * one, one / 12, slots)
    assert_within_5_sigma((centred**2).mean(axis=0), one / 12, one * (1 / 80 - 1 / 144), slots)  # E u^4 - (E u^2)^2
    shares = np.bincount((x * 16).astype(int).ravel(), minlength=16) / x.size
    assert_within_5_sigma(shares, np.full(16, 1 / 16), np.full(16, 1 / 16 * 15 / 16), x.size)
    # 12 u v has mean 0 and variance 1 for independent entries, in the same slot and from a slot to the next
    within = 12 * centred.T @ centred / slots
    across = 12 * centred[:-1].T @ centred[1:] / (slots - 1)
    pairs = within[np.triu_indices_from(within, 1)]
    assert_within_5_sigma(pairs, np.zeros(pairs.shape), np.ones(pairs.shape), slots)
    assert_within_5_sigma(across, np.zeros(across.shape), np.ones(across.shape), slots - 1)


class RewardModel(NamedTuple):
    """The threshold reward of a channel for n >= 0: 0.1 + 0.9 times a coin of probability `clear` in good slots."""

    mean: float
    variance: float  # of one slot
    long_run: float  # of the mean of many slots, times their number


def reward_distributions(world: ib.Scenario, theta: Floats) -> list[RewardModel]:
    """Perturbations are independent from slot to slot, so all correlation in time comes through E[r | s]: the long-run
    variance is that of E[r | s] along the chain plus the mean of Var(r | s)."""
    assert np.all(theta >= 0)
    clear, error = world.probabilities_below(theta, 1.0)
    assert error == 0
    models = []
    for P, good, c in zip(world.transition, world.good, clear, strict=True):
        probability = path_parameters(P) @ (good * c)
        spread = 0.81 * path_parameters(P) @ (good * c * (1 - c))
        long_run = long_run_variance(P, 0.9 * c * good) + spread
        models.append(RewardModel(0.1 + 0.9 * probability, 0.81 * probability * (1 - probability), long_run))
    return models


def test_mean_rewards(path: Path) -> None:
    means, error = path.world.mean_rewards(path.theta)
    assert error == 0
    models = reward_distributions(path.world, path.theta)
    np.testing.assert_allclose(means, [model.mean for model in models], rtol=1e-12)
    assert_within_5_sigma(path.rewards.mean(axis=0), means, [model.long_run for model in models], T)


@pytest.mark.parametrize("users", [1, 5, 10])
def test_random_play_earns_m_times_the_mean_of_all(users: int) -> None:
    slots, R = 50_000, 4
    world = ib.scenario("S1", users=users)
    result = ib.simulate(world, "mp-random", horizon=slots, replications=R, seed=2)
    K, M = world.K, world.users
    one, two = M / K, M * (M - 1) / (K * (K - 1))  # probabilities that a channel is played, and that a pair is
    exact, variance = 0.0, 0.0
    for replication in range(R):  # each has a theta of its own
        models = reward_distributions(world, world.theta(2, replication))
        mu = np.array([model.mean for model in models])
        squares = sum(model.variance + model.mean**2 for model in models)
        within_slot = one * squares + two * (mu.sum() ** 2 - mu @ mu) - (one * mu.sum()) ** 2
        between_slots = one**2 * sum(
            model.long_run - model.variance for model in models
        )  # channels are drawn again in every slot
        exact += M * mu.mean() / R
        variance += (within_slot + between_slots) / slots / R**2
    assert abs(result.reward[:, -1].mean() / slots - exact) < 5 * math.sqrt(variance)


# --- one path for all ------------------------------------------------------------------------------------------------


def slots_of(policy: str, *, seed: int = 0, replications: int = 1, **changes: object) -> pd.DataFrame:
    world = ib.scenario("S1", **changes)
    slots = ib.simulate(world, policy, horizon=50, replications=replications, seed=seed, record="slots").slots
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
    usual, other = slots_of("mp-random"), slots_of(policy, **changes)
    pd.testing.assert_frame_equal(environment(other), environment(usual), check_exact=True)
    blind = policy == "mp-random" and "sensing" in changes  # it does not look at states
    assert (other["picked"] == usual["picked"]).all() == blind


def test_states_and_contexts_have_separate_streams() -> None:
    world = new_path(WORLDS["S1"], 6, 7, WORLDS["S1"].theta(6, 7))
    assert world.state_rng.tolist() == stream(6, 7, STATES).tolist()
    assert world.context_rng.tolist() == stream(6, 7, CONTEXTS).tolist()


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
