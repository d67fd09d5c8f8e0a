"""Restless-UCB: its exploration, the optimistic probabilities, and the index that it commits to."""

import math
from typing import Any

import numpy as np
import pytest

from tests.policies.station import Station
from tests.policies.test_learned_whittle import expected_index

TWO: dict[str, Any] = {"p01": [0.2, 0.4], "p10": [0.3, 0.5]}


def test_number_of_observations_and_probabilities_by_hand() -> None:
    """With T = 30 and scale 0.3, m = floor(0.3 30^(2/3)) + 1 = 3.

    Channel 0 is seen in 0 0 1 1 0 1 0 1: it leaves or stays in state 0 three times until slot 6, moving twice, and in
    state 1 three times until slot 7, moving twice. Channel 1 comes next.
    """
    station = Station("restless-ucb", scenario=TWO, slots=30, scale=0.3)
    assert station.state.needed.tolist() == [3.0, 30 / 4]
    for s in (0, 0, 1, 1, 0, 1, 0):
        assert station.play([s, 0]) == [0]
    assert station.state.moves[0].tolist() == [[1, 2], [2, 1]]
    assert station.choose() == [1]
    radius = math.sqrt(math.log(30) / 6)
    np.testing.assert_allclose(station.state.p[0], [1.0, max(2 / 3 - radius, 0.0)])
    assert station.state.explored.tolist() == [True, False]


def test_radius_of_the_authors_code() -> None:
    """rad = sqrt(log(T) / 2 / m) and m = floor(T^(2/3)) + 1, for T = 50,000 in `Game_ReUCB`; m = 1358."""
    station = Station("restless-ucb", scenario=TWO, slots=50_000)
    assert station.state.needed[0] == 1358
    station.state.moves[0] = [[1000.0, 358.0], [500.0, 1500.0]]
    station.choose()
    radius = math.sqrt(math.log(50_000) / 2 / 1358)
    np.testing.assert_allclose(station.state.p[0], [358 / 1358 + radius, 0.25 - radius], rtol=1e-12)


def test_index_is_the_whittle_index_of_the_fixed_probabilities() -> None:
    station = Station("restless-ucb", M=1, scenario=TWO, slots=30, scale=0.3)
    rng, fixed = np.random.default_rng(3), None
    for _ in range(150):
        picks = station.choose()
        channels = station.state.channels
        if station.state.explored.all():
            fixed = station.state.p.copy() if fixed is None else fixed
            for k in range(2):
                pay = channels.total[k] / channels.slots[k]
                age = station.t - int(channels.last_observation.slot[k])
                index = expected_index(*fixed[k], int(channels.last_observation.state[k]), age, *pay)
                assert station.slot.indices[k] == pytest.approx(index, abs=1e-9)
        for k in picks:
            station.learn(k, int(rng.integers(0, 2)), float(rng.uniform(0, 1.5)))
    assert fixed is not None
    assert np.array_equal(fixed, station.state.p)


def test_exploration_of_several_channels_at_once() -> None:
    """The first two channels that are not explored are played; the last place goes to an explored one, by index."""
    four = {"p01": [0.2] * 4, "p10": [0.3] * 4}
    station = Station("restless-ucb", M=2, scenario=four, slots=8, scale=0.0)  # one observation of each state
    assert station.state.needed.tolist() == [1.0, 2.0]
    assert station.play([0, 0, 0, 0]) == [0, 1]
    assert station.play([1, 0, 0, 0]) == [0, 1]
    assert station.play([1, 0, 0, 0]) == [0, 1]  # both have two observations, half of their share of 8 slots
    assert station.play([1, 0, 0, 0]) == [2, 3]
    assert station.play([1, 0, 1, 0], available=[1, 1, 1, 0])[1] == 2
    assert station.play([1, 0, 1, 0]) == [2, 3]


def test_states_that_a_channel_lacks_are_not_waited_for() -> None:
    """A channel that is always good needs m observations of that state only, and has the highest index."""
    scenario = {"transition": [[[1.0]], [[0.5, 0.5], [0.5, 0.5]]], "good": [[0], [1]]}
    station = Station("restless-ucb", scenario=scenario, slots=1000, scale=0.02)
    assert station.state.needed[0] == 2
    assert [station.play([0, 0]) for _ in range(3)] == [[0]] * 3
    assert station.play([0, 0]) == [1]
    assert station.state.p[0].tolist() == [1.0, 0.0]
    assert station.slot.indices[0] == pytest.approx(1.0)


def test_rare_states_do_not_keep_a_channel_in_exploration() -> None:
    """Half of a channel's share of T = 40 slots are 10 observations of each of two channels."""
    station = Station("restless-ucb", scenario=TWO, slots=40)
    played = [station.play([0, 0])[0] for _ in range(22)]
    assert played == [0] * 11 + [1] * 11
    station.choose()
    radius = math.sqrt(math.log(40) / 20)
    np.testing.assert_allclose(station.state.p, [[radius, 0.0]] * 2)  # no estimate of p10: 0 is most favourable
