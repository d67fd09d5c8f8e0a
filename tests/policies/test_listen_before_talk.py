"""MP-LBT: idle channels are kept; busy channels are not tried before their back-off ends."""

import numpy as np

from tests.policies.station import Station


def test_idle_channels_are_kept() -> None:
    station = Station("mp-lbt", K=6, M=2)
    kept = station.play([1] * 6)
    for _ in range(20):
        assert station.play([1] * 6) == kept


def test_windows_double_and_are_reset() -> None:
    """The back-off is uniform on 1 to w slots, with w = 2, 4, 8, 16, 16, ... after busy observations in a row."""
    longest = np.zeros(6, int)
    station = Station("mp-lbt", K=1, M=1, window=2, max_window=16)
    for _ in range(200):
        for i in range(6):
            station.play([0])
            wait = int(station.state.ready[0]) - station.t - 1
            assert wait >= 1
            longest[i] = max(longest[i], wait)
        station.play([1])
    assert longest.tolist() == [2, 4, 8, 16, 16, 16]


def test_channel_in_back_off_is_played_only_if_too_few_others_are_left() -> None:
    station = Station("mp-lbt", K=4, M=2, window=1000, max_window=1000)
    first = station.play([0] * 4)
    assert set(station.play([0] * 4)) == set(range(4)) - set(first)
    ready = station.state.ready
    for _ in range(5):  # all are in back-off now: those whose back-off ends first
        assert station.choose() == sorted(np.argsort(ready, kind="stable")[:2].tolist())


def test_replacement_is_random() -> None:
    seconds = set()
    for _ in range(5):
        station = Station("mp-lbt", K=5, M=1)
        for _ in range(60):
            seconds.add(station.choose()[0])
    assert seconds == set(range(5))


def test_late_report_starts_no_back_off() -> None:
    station = Station("mp-lbt", K=1, M=1)
    station.choose()
    early = station.slot
    station.play([1])
    station.slot = early
    station.learn(0, 0)
    assert station.state.ready[0] == 0


def test_sensed_idle_channels_are_selected() -> None:
    station = Station("mp-lbt", K=4, M=2)
    assert station.choose(sensed=[0, 1, 0, 1]) == [1, 3]
