"""GLR-klUCB: the test for a change, what it remembers, restarts, and forced exploration."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import idleband as ib
from idleband.policies import glr_klucb
from tests.policies.station import Station

NO_EXPLORATION: dict[str, Any] = {"alpha": 0.0, "delta": 1.0, "every": 1}


def kl(p: float, q: float) -> float:
    return sum(a * math.log(a / b) for a, b in ((p, q), (1 - p, 1 - q)) if a > 0)


def statistic(rewards: list[float], s: int) -> float:
    """Return the statistic of the test for a split after s rewards, as in the code of the authors."""
    before, after, mean = np.mean(rewards[:s]), np.mean(rewards[s:]), float(np.mean(rewards))
    return s * kl(float(before), mean) + (len(rewards) - s) * kl(float(after), mean)


def splits(n: int) -> list[int]:
    """Return the splits that are tried after n rewards, by merging sums of 2^level rewards one at a time."""
    levels: list[int] = [0] * glr_klucb.LEVELS
    for _ in range(n):
        level = 0
        while levels[level] == glr_klucb.SIZE:
            levels[level] -= 1  # two become one of the next level, and one is added
            level += 1
        levels[level] += 1
    sizes = [2**level for level, used in enumerate(levels) for _ in range(used)]
    return [n - int(later) for later in np.cumsum(sizes) if later < n]


def test_change_by_hand() -> None:
    """Four bad slots and two good ones: 6 H(1/3) = 3.819 > ln(3 6^1.5) = 3.786, with H the entropy, for delta = 1.

    After one good slot 5 H(1/5) = 2.502 < ln(3 5^1.5) = 3.513.
    """
    station = Station("glr-klucb", K=1, M=1, **NO_EXPLORATION)
    for s in (0, 0, 0, 0, 1):
        station.play([s])
    assert station.state.plays.tolist() == [5]
    station.play([1])
    assert station.state.plays.tolist() == [0]
    assert station.state.restarts.tolist() == [1, 6]
    assert station.state.since.tolist() == [6]
    station.choose()
    assert station.slot.indices.tolist() == [math.inf]


def test_statistic_and_threshold_equal_their_definitions() -> None:
    """Rewards with a change of the mean, until it is found: in no slot earlier, and at the split with this evidence."""
    station = Station("glr-klucb", K=1, M=1, scenario={"reward": "additive"}, alpha=0.0, delta=0.01, every=1)
    rng, rewards = np.random.default_rng(5), []
    low, high = station.setup.low, station.setup.high
    for t in range(1, 1000):
        station.choose()
        n = float(rng.uniform(0, 0.6) if t < 300 else rng.uniform(0.2, 1.0))
        station.learn(0, 1, n)
        rewards.append(min(1.0, max(0.0, (station.setup.h[0, 1] - n - low) / (high - low))))
        size = len(rewards)
        threshold = math.log(3 * size**1.5 / 0.01)
        found = any(statistic(rewards, s) >= threshold for s in splits(size)) if size > 1 else False
        assert found == (station.state.plays[0] == 0), t
        if found:
            break
    assert 310 < t < 900


def test_sums_are_those_of_the_latest_rewards() -> None:
    """Each split is at most a seventh of its distance from the end away from any other."""
    sums, used, rewards = np.zeros((1, 20, 8)), np.zeros((1, 20), np.int64), []
    rng = np.random.default_rng(0)
    for n in range(1, 1500):
        rewards.append(float(rng.uniform()))
        assert glr_klucb.append(sums, used, 0, rewards[-1]) == -1.0
        if n % 97 and n > 20:
            continue
        flat = [(2**level, sums[0, level, i]) for level in range(20) for i in range(used[0, level] - 1, -1, -1)]
        end = n
        for size, total in flat:
            assert total == pytest.approx(sum(rewards[end - size : end]))
            assert size <= max(1, (n - end + size) / 7 + 1)
            end -= size
        assert end == 0
    full = np.ones((1, 20, 8)), np.full((1, 20), 8)
    assert glr_klucb.append(*full, 0, 1.0) == 2.0  # the two oldest sums leave the last level


def test_index_counts_from_the_restart() -> None:
    station = Station("glr-klucb", K=3, M=2, alpha=0.0)
    rng = np.random.default_rng(1)
    for _ in range(50):
        station.play(rng.integers(0, 2, 3).tolist())
    station.state.since[:] = [0, 20, 45]
    station.state.last[:] = 1.0
    station.choose()
    for k in range(3):
        plays, total = station.state.plays[k], station.state.total[k]
        budget = math.log(station.t - station.state.since[k]) / plays
        root = brentq(lambda q, mean=total / plays, b=budget: kl(mean, q) - b, total / plays, 1 - 1e-15, xtol=1e-14)
        assert station.slot.indices[k] == pytest.approx(root, abs=1e-9)


@pytest.mark.parametrize(("restart", "left"), [("local", [0, 6]), ("global", [0, 0])])
def test_restart_of_one_channel_or_of_all(restart: str, left: list[int]) -> None:
    """Late feedback of slots before the restart is ignored."""
    station = Station("glr-klucb", K=2, M=2, restart=restart, **NO_EXPLORATION)
    for s in (0, 0, 0, 0, 1, 1):
        station.choose()
        old = station.slot
        station.learn(1, 0)
        station.learn(0, s)
    assert station.state.plays.tolist() == left
    station.choose()
    station.slot = old
    station.learn(0, 1)
    assert station.state.plays.tolist() == left


def test_forced_exploration() -> None:
    """With T = 100, K = 3 and alpha = 1, a = sqrt(3 ln 100 / 100) = 0.37, and every 9 slots explore channels 0, 1, 2.

    Channel 2 is the best, and the only one that is played otherwise.
    """
    station = Station("glr-klucb", K=3, M=1, slots=100, alpha=1.0, delta=1e-9)
    station.state.total[:], station.state.plays[:], station.state.entropy[:] = [0, 0, 1e5], 1e5, 0.0
    played = [station.choose()[0] for _ in range(26)]
    assert played == [1, 2, 2, 2, 2, 2, 2, 2, *[0, 1, *[2] * 7] * 2]
    station.state.restarts[:] = [3, 26]  # the share is twice as large, and the count begins in the slot after
    assert [station.choose()[0] for _ in range(9)] == [1, 2, 2, 2, 0, 1, 2, 2, 2]


def test_restarts_pay_where_means_change() -> None:
    """Five segments of 1000 slots: the means of the example in the documentation of SMPyBandits (NonStationaryBandits).

    The slots of a channel are independent. Without restarts, because delta is 0 for practical purposes, the policy
    earns less by more than four standard errors.
    """
    means = [[0.4, 0.5, 0.9], [0.5, 0.4, 0.7], [0.6, 0.3, 0.5], [0.7, 0.2, 0.3], [0.8, 0.1, 0.1]]
    p10 = [[1 - mean for mean in row] for row in means]
    regimes = {"p01": means, "p10": p10, "at": [1000, 2000, 3000, 4000]}
    scenario = ib.scenario(regimes=regimes, users=1, perturbation="none")
    study = ib.compare(
        scenario, ib.grid("glr-klucb", slots=5000, delta=[0.0, 1e-300]), horizon=5000, replications=10, seed=1
    )
    lead = (study.results[0].reward - study.results[1].reward)[:, -1] / 5000
    assert lead.mean() > 4 * lead.std(ddof=1) / math.sqrt(10)
