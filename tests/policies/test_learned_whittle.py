"""MP-Whittle, and the reduction to good and bad states that it shares with MP-TS-Episodes."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from idleband.kernels.rng import POLICY, beta, stream
from idleband.kernels.whittle import whittle
from tests.policies.station import Station

TWO: dict[str, Any] = {"p01": [0.1, 0.4, 0.7], "p10": [0.2, 0.5, 0.1]}
# A channel with three states, of which the first and the last are good, and a channel that is always good.
LUMPED: dict[str, Any] = {
    "transition": [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [[1.0]]],
    "rewards": [[1.0, 0.1, 1.0], [1.0]],
    "good": [[0, 2], [0]],
}


def expected_index(p01: float, p10: float, seen: int | None, age: int, bad: float, good: float) -> float:
    """Return the Whittle index of a channel observed good (1) or bad (0) `age` slots ago, or never (None)."""
    pi = p01 / (p01 + p10)
    w = pi if seen is None else pi + (1 - p01 - p10) ** age * (seen - pi)
    return bad + (good - bad) * whittle(p01, p10, w)


def test_indices_equal_recomputed_indices() -> None:
    """p01 ~ Beta(1 + transitions to good, 1 + stays in bad) over consecutive slots, and p10 accordingly.

    Both are drawn channel by channel in every slot. The index is the Whittle index scaled to the mean rewards of bad
    and good slots.
    """
    station = Station("mp-whittle", M=2, scenario=TWO)
    expected, rng = stream(0, 0, POLICY), np.random.default_rng(2)
    moves, seen = np.ones((3, 2, 2)), dict[int, tuple[int, int]]()
    total, slots = np.tile([0.1, 1.0], (3, 1)), np.ones((3, 2))  # one pseudo-observation of each
    for t in range(1, 150):
        picks = station.choose(available=rng.uniform(size=3) < 0.8)
        pay = total / slots
        for k in range(3):
            p01, p10 = beta(expected, moves[k, 0, 1], moves[k, 0, 0]), beta(expected, moves[k, 1, 0], moves[k, 1, 1])
            good, when = seen.get(k, (None, t))
            index = expected_index(p01, p10, good, t - when, *pay[k])
            assert station.slot.indices[k] == pytest.approx(index, abs=1e-9)
        for k in picks:
            s, n = int(rng.integers(0, 2)), float(rng.uniform(-0.2, 1.5))
            station.learn(k, s, n)
            if k in seen and seen[k][1] == t - 1:
                moves[k, seen[k][0], s] += 1
            seen[k] = s, t
            total[k, s] += 1.0 if s - n > 0 else 0.1
            slots[k, s] += 1
    assert np.array_equal(station.state.moves, moves)
    assert moves.sum() > 100


@pytest.mark.parametrize("name", ["mp-whittle", "mp-ts-episodes"])
def test_states_are_reduced_to_good_and_bad(name: str) -> None:
    """States 0 and 2 are good. The pseudo-observations are the full reward in good states and the low one in others.

    Under the additive reward they are the mean rewards of the states.
    """
    state_rewards = {"reward": "additive", "rewards": [[1.0, 0.4, 0.6], [0.7]]}
    additive = Station(name, M=2, scenario={**LUMPED, **state_rewards}).state.channels.total
    np.testing.assert_allclose([*additive[0], additive[1, 1]], [0.4, 0.8, 0.7])
    station = Station(name, M=2, scenario=LUMPED)
    channels = station.state.channels
    np.testing.assert_allclose(channels.total, [[0.1, 1.0], [0.1, 1.0]])
    for s, good in ((0, 1), (2, 1), (1, 0), (2, 1)):
        station.play([s, 0], n=[1.5, 0.0])
        assert channels.last_observation.state.tolist() == [good, 1]
    np.testing.assert_allclose(channels.total, [[0.1 + 0.1, 1.0 + 3 * 0.1], [0.1, 1.0 + 4 * 1.0]])
    np.testing.assert_allclose(channels.slots, [[2, 4], [1, 5]])
    if name == "mp-whittle":
        assert station.state.moves.tolist() == [[[1, 2], [2, 2]], [[1, 1], [1, 4]]]


@pytest.mark.parametrize("name", ["mp-whittle", "mp-ts-episodes"])
def test_index_of_a_sensed_state_is_its_mean_reward(name: str) -> None:
    station = Station(name, M=2, scenario=LUMPED)
    station.play([0, 0], n=[1.5, 0.0])
    for s, good in ((0, 1), (1, 0), (2, 1)):
        station.choose(sensed=[s, 0])
        pay = station.state.channels.total / station.state.channels.slots
        assert station.slot.indices.tolist() == [pay[0, good], pay[1, 1]]


def test_draws_follow_the_posterior() -> None:
    """One slot after an observed bad state the index equals p01 for every p10.

    3000 indices have the distribution Beta(5, 12) of the counted transitions: Kolmogorov-Smirnov test at level 1e-6.
    """
    station = Station("mp-whittle", scenario={"p01": [0.2], "p10": [0.4]})
    station.state.moves[0] = [[12.0, 5.0], [3.0, 9.0]]
    station.play([0])
    station.state.channels.total[:], station.state.channels.slots[:] = [[0.0, 1.0]], 1.0
    draws = []
    for _ in range(3000):
        station.choose()
        station.t -= 1  # the same slot again
        draws.append(float(station.slot.indices[0]))
    assert stats.kstest(draws, stats.beta(5, 12).cdf).pvalue > 1e-6
