"""Times: parsing, the duration of a slot, missing slots."""

import numpy as np
import pytest

import idleband as ib
from idleband.trace.clock import clock_of, iso_time, parse_time


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-01-02 03:04:05", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.25Z", "2024-01-02T03:04:05.250000Z"),
        ("2024/01/02, 03:04:05", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"),
        ("1704164645", "2024-01-02T03:04:05Z"),
    ],
)
def test_times_are_parsed(text: str, iso: str) -> None:
    time = parse_time(text)
    assert time is not None
    assert iso_time(time) == iso


@pytest.mark.parametrize("text", ["", "soon", "2024-13-01", "2024-01-01 25:00:00", "nan", "9999-01-01"])
def test_text_that_is_not_a_time_is_refused(text: str) -> None:
    assert parse_time(text) is None


def test_rounded_times_give_the_mean_duration() -> None:
    times = np.floor(np.arange(200) * 1.5)
    clock = clock_of(times, ["x"] * 200, 1.0, 10, None)
    assert clock.slot_s == pytest.approx(1.5, abs=0.01)
    assert clock.T == 200


def test_missing_slots_are_found() -> None:
    times = np.delete(np.arange(50.0) * 10, [7, 8, 30])
    clock = clock_of(times, [f"line {i}" for i in range(47)], 1.0, 10, None)
    assert (clock.slot_s, clock.T) == (10.0, 50)
    assert sorted(set(range(50)) - set(clock.slots.tolist())) == [7, 8, 30]
    with pytest.raises(ib.InputError, match="line 7: 2 slots"):
        clock_of(times, [f"line {i}" for i in range(47)], 1.0, 1, None)
