"""DSEE: the sequence of its epochs, its index, and channels that are not available."""

import math

import numpy as np
import pytest

from tests.policies.station import ADDITIVE, Recount, Station


def test_epochs_of_a_worked_example() -> None:
    """Three channels, one play, D = 1; channel 2 is always good and the others are always bad.

    Explorations have 1 and 4 slots per channel, because 0 <= ln 1 and 1 <= ln 4, but 5 > ln t for t up to 148. After
    exploitations of 2, 8, 32 and 128 slots, in slot 186, 5 <= ln 186, and each channel is explored in 16 slots.
    """
    station = Station("dsee", K=3, M=1, D=1.0)
    played = [station.play([0, 0, 1])[0] for _ in range(235)]
    assert played[:3] == [0, 1, 2]
    assert played[3:15] == [0] * 4 + [1] * 4 + [2] * 4
    assert played[15:185] == [2] * 170
    assert played[185:233] == [0] * 16 + [1] * 16 + [2] * 16
    assert played[233:] == [2, 2]
    assert station.state.epochs[:2].tolist() == [3, 5]


def test_exploration_with_several_plays() -> None:
    """Channels are explored two at a time. A free place goes to the best, at first to the lowest without plays."""
    station = Station("dsee", K=5, M=2, D=1.0)
    states = [0, 1, 0, 1, 0]
    assert [station.play(states) for _ in range(3)] == [[0, 1], [2, 3], [0, 4]]
    assert [station.play(states) for _ in range(12)] == [[0, 1]] * 4 + [[2, 3]] * 4 + [[1, 4]] * 4
    assert station.play(states) == [1, 3]  # slot 16: 5 > ln 16


@pytest.mark.parametrize("L", [0.0, 2.0])
def test_index_is_that_of_the_beginning_of_an_exploitation(L: float) -> None:
    station = Station("dsee", K=4, M=2, scenario=ADDITIVE, D=0.5, L=L)
    recount, rng, checked = Recount(station), np.random.default_rng(2), 0
    for t in range(1, 400):
        exploits, left = station.state.epochs[1:].tolist()
        rewards = [[r for _, k, r in recount.feedback if k == channel] for channel in range(4)]
        picks = station.choose()
        if station.state.epochs[1] > exploits:  # an exploitation has begun
            span = station.setup.span
            expected = np.array([np.mean(r) + span * math.sqrt(L * math.log(t) / len(r)) for r in rewards])
            checked += 1
        if left > 0 or station.state.epochs[1] > exploits:
            np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)
        for k in picks:
            recount.learn(k, int(rng.integers(0, 2)), rng.uniform(0, 1.4))
    assert checked >= 4


def test_channels_that_are_not_available() -> None:
    """They miss the rest of an exploration when all others are finished; an exploitation plays the next best."""
    station = Station("dsee", K=3, M=1, D=1.0)
    without = {"available": [1, 0, 1]}
    assert [station.play([0, 0, 1], **without) for _ in range(2)] == [[0], [2]]
    assert station.play([0, 0, 1], available=[0, 0, 0]) == []
    assert station.state.epochs[0] == 1  # a slot without channels begins no epoch
    assert [station.play([0, 0, 1], **without) for _ in range(8)] == [[0]] * 4 + [[2]] * 4
    assert station.state.plays.tolist() == [5, 0, 5]
    assert station.play([0, 0, 1], **without) == [2]  # slot 12: 5 > ln 12
    assert station.play([0, 0, 1]) == [1]  # it has no plays yet
    assert station.state.epochs.tolist() == [2, 1, 0]
