"""MP-Stay: which channels are kept, and in which order the others are tried."""

import numpy as np

from tests.policies.station import Station


def test_idle_channels_are_kept() -> None:
    station = Station("mp-stay", K=6, M=2)
    kept = station.play([1] * 6)
    for _ in range(20):
        assert station.play([1] * 6) == kept


def test_every_channel_is_tried_before_one_is_tried_again() -> None:
    """Of channels that are always busy, six in groups of two are all tried in three slots, in an order that repeats."""
    station = Station("mp-stay", K=6, M=2)
    order = [station.play([0] * 6) for _ in range(9)]
    assert sorted([*order[0], *order[1], *order[2]]) == list(range(6))
    assert order[3:6] == order[:3]
    assert order[6:] == order[:3]


def test_busy_channel_is_replaced_by_the_one_with_the_oldest_observation() -> None:
    station = Station("mp-stay", K=4, M=1)
    order = [station.play([0] * 4)[0] for _ in range(4)]
    idle = station.play([1] * 4)
    assert idle == [order[0]]
    assert station.play([0] * 4) == idle
    assert station.play([0] * 4) == [order[1]]


def test_order_of_channels_never_observed_is_random() -> None:
    firsts = set()
    station = Station("mp-stay", K=5, M=1)
    for _ in range(60):
        firsts.add(station.choose()[0])  # no feedback
    assert firsts == set(range(5))


def test_late_report_does_not_replace_a_later_one() -> None:
    station = Station("mp-stay", K=2, M=1)
    for _ in range(2):
        station.play([0, 0])
    k = station.choose()[0]
    early = station.slot
    station.choose()
    station.learn(k, 1)
    station.slot = early
    station.learn(k, 0)
    assert station.state.last_observation.state[k] == 1


def test_sensed_idle_channels_are_selected() -> None:
    station = Station("mp-stay", K=4, M=2)
    assert station.choose(sensed=[0, 1, 0, 1]) == [1, 3]


def test_unavailable_channel_is_kept_for_later() -> None:
    station = Station("mp-stay", K=3, M=1)
    kept = station.play([1] * 3)
    available = np.ones(3, bool)
    available[kept] = False
    assert station.play([0] * 3, available=available) != kept
    assert station.play([1] * 3) == kept
