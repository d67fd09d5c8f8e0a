"""MP-Belief: posterior of the rewards of states, draws from it, and discounting by age."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.policies import belief
from tests.policies.station import Station

TWO: dict[str, Any] = {"p01": [0.1, 0.4], "p10": [0.2, 0.5]}


def test_reward_is_learned_per_state() -> None:
    """The prior is Beta(1, 1). The full reward counts as a success of the state and 0.1 as a failure."""
    station = Station("mp-belief", M=2, scenario=TWO)
    for s, n in ((1, 0.5), (1, 0.5), (1, 1.5), (0, 0.5), (0, -0.5)):
        station.play([s, 0], n=[n, 1.0])
    np.testing.assert_allclose(station.state.successes, [[2, 3], [1, 1]])
    np.testing.assert_allclose(station.state.failures, [[2, 2], [6, 1]])


def test_additive_reward_is_rescaled_to_the_range() -> None:
    scenario = TWO | {"reward": "additive", "perturbation": {"theta": [0.6, 0.9]}}  # rewards in [0.1 - 1.5, 1]
    station = Station("mp-belief", scenario=scenario)
    station.choose()
    station.learn(0, 1, n=0.7)
    assert station.state.successes[0].tolist() == pytest.approx([1, 1 + 1.7 / 2.4])
    assert station.state.failures[0].tolist() == pytest.approx([1, 1 + 0.7 / 2.4])


def test_reward_is_drawn_from_its_posterior() -> None:
    """3000 draws have the distribution Beta(a, b) on the range: Kolmogorov-Smirnov test at level 1e-6."""
    station = Station("mp-belief", scenario=TWO, redraw=1)
    station.state.successes[1, 1], station.state.failures[1, 1] = 7.0, 3.0
    sample = []
    for _ in range(3000):
        station.choose()
        sample.append(station.state.pays.copy())
    shares = (np.array(sample) - 0.1) / 0.9
    assert stats.kstest(shares[:, 1, 1], stats.beta(7, 3).cdf).pvalue > 1e-6
    assert stats.kstest(shares[:, 0, 0], stats.beta(1, 1).cdf).pvalue > 1e-6


def test_reward_draw_is_kept_until_the_next_draw() -> None:
    station = Station("mp-belief", scenario=TWO, redraw=5)
    before = np.zeros((2, 2))
    for t in range(1, 40):
        station.play([1, 1])
        for k in (0, 1):
            assert np.array_equal(station.state.pays[k], before[k]) == (t > 1 and (t + k) % 5 != 0)
        before = station.state.pays.copy()


@pytest.mark.parametrize("forget", [0.5, 20.0])
def test_rewards_are_discounted_by_age(forget: float) -> None:
    """A success of t slots ago has weight exp(-t / forget), whether or not the channel was played since."""
    station = Station("mp-belief", scenario=TWO, redraw=3, forget=forget)
    rng, reported = np.random.default_rng(1), []
    for t in range(1, 300):
        station.choose()
        if rng.uniform() < (0.5 if t < 200 else 0.02):
            s, n = int(rng.integers(0, 2)), float(rng.choice([-0.5, 0.5, 1.5]))
            station.learn(0, s, n=n)
            reported.append((t, s, n < s))
    now = station.state.since[0]
    assert now > station.t - 3  # the discount is applied with every draw
    for s in (0, 1):
        weights = [(math.exp((t - now) / forget), full) for t, state, full in reported if state == s]
        assert station.state.successes[0, s] == pytest.approx(1 + sum(w for w, full in weights if full), abs=1e-9)
        assert station.state.failures[0, s] == pytest.approx(1 + sum(w for w, full in weights if not full), abs=1e-9)


def test_order_of_states_does_not_change_the_mean_reward() -> None:
    """Reversing the order of the states changes the mean reward by less than four standard errors of the difference.

    Both orders earn at least 0.15 per slot more than MP-Random.
    """
    P = [[[0.95, 0.05], [0.1, 0.9]], [[0.7, 0.3], [0.3, 0.7]], [[0.9, 0.1], [0.05, 0.95]]]
    reversed_P = [np.array(one)[::-1, ::-1].tolist() for one in P]
    size: dict[str, Any] = {"horizon": 4000, "replications": 20, "seed": 2}
    common: dict[str, Any] = {"users": 1, "perturbation": "none", "context": {"dimension": 1}}
    last = ib.scenario(transition=P, rewards=[0.1, 1.0], good=[1], **common)
    first = ib.scenario(transition=reversed_P, rewards=[1.0, 0.1], good=[0], **common)
    one, other = (ib.simulate(scenario, "mp-belief", **size).reward[:, -1] / 4000 for scenario in (last, first))
    random = ib.simulate(first, "mp-random", **size).reward[:, -1] / 4000
    error = math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 20)
    assert abs(one.mean() - other.mean()) < 4 * error
    assert error < 0.01
    assert other.mean() > random.mean() + 0.15


def test_reset_returns_to_the_state_of_init() -> None:
    station = Station("mp-belief", M=2, scenario=TWO)
    for s in (1, 0, 1, 1, 0) * 4:
        station.play([s, 1 - s])
    fresh = Station("mp-belief", M=2, scenario=TWO).state
    belief.reset(station.setup, station.state)
    for one, other in zip(leaves(station.state), leaves(fresh), strict=True):
        np.testing.assert_array_equal(one, other)


def leaves(state: Any) -> list[Any]:
    return [leaf for part in state for leaf in (leaves(part) if isinstance(part, tuple) else [part])]
