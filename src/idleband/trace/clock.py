"""Times of sweeps or rows: the duration of a slot, and slots that are missing."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Ints
from idleband.errors import InputError, counted, shown

ISO = re.compile(
    r"(\d{4})[-/](\d\d?)[-/](\d\d?)(?:[T ,]\s*(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?"
)
YEARS = (1970, 2200)
MAX_TIME = 7.26e9  # seconds from 1970 to 2200
FOLLOW = 0.1  # share of the difference by which the phase of slots follows the times


def parse_time(text: str) -> float | None:
    """Return a time as seconds since 1970 in UTC: an ISO time, or a number of seconds; None for other text.

    >>> parse_time("2024-01-01 00:00:10.5") - parse_time("2024-01-01T00:00:00Z")
    10.5
    """
    text = text.strip()
    if found := ISO.fullmatch(text):
        year, month, day, hour, minute, second, fraction, zone = found.groups()
        try:
            moment = datetime.datetime(
                int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=datetime.UTC
            )
        except ValueError:
            return None
        if not YEARS[0] <= moment.year < YEARS[1]:
            return None
        seconds = moment.timestamp() + float(f"0.{fraction}" if fraction else 0)
        if zone and zone not in ("Z", "UTC"):
            sign = -1 if zone[0] == "-" else 1
            seconds -= sign * (3600 * int(zone[1:3]) + 60 * int(zone[-2:]))
        return seconds
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def iso_time(seconds: float) -> str | None:
    """Return a time as ISO text in UTC; None for numbers that are no times since 1971.

    >>> iso_time(1432171042)
    '2015-05-21T01:17:22Z'
    """
    if not 3e7 < seconds < 7e9:
        return None
    moment = datetime.datetime.fromtimestamp(round(seconds, 6), datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Clock:
    """Slot of each sweep, and the duration of a slot."""

    slot_s: float
    slots: Ints  # slot of each sweep, from 0; slots that no sweep has are missing
    start: str | None
    notes: tuple[str, ...] = ()

    @property
    def T(self) -> int:
        """Number of slots, with missing ones."""
        return int(self.slots[-1]) + 1


def clock_of(
    times: Sequence[float], places: Sequence[str], resolution: float, max_gap: int, slot_s: float | None
) -> Clock:
    """Return the slots of sweeps from their times.

    Parameters
    ----------
    times
        Time of each sweep in seconds.
    places
        File and line of each sweep, for messages.
    resolution
        Unit to which times are rounded in the file.
    max_gap
        Number of consecutive slots that may be missing.
    slot_s
        Duration of a slot if there is only one sweep; otherwise it is measured.

    Raises
    ------
    InputError
        If times are missing, go back or are not in seconds, or too many slots are missing in a row.
    """
    t = np.asarray(times, float)
    if (unknown := np.flatnonzero(np.isnan(t))).size:
        raise InputError(f"{places[int(unknown[0])]}: has no time")
    if (far := np.flatnonzero(np.abs(t) > MAX_TIME)).size:
        raise InputError(
            f"{places[int(far[0])]}: the time {t[far[0]]:.15g} is beyond the year 2200; times must be in"
            " seconds, not in milliseconds or smaller units"
        )
    steps = np.diff(t)
    if (back := np.flatnonzero(steps < 0)).size:
        place = places[int(back[0]) + 1]
        raise InputError(f"{place}: the time is {-steps[back[0]]:g} s before the previous one")
    start = iso_time(float(t[0]))
    if not len(steps) or t[-1] == t[0]:
        note = f"the times in the file do not determine the slot; it is taken as {slot_s or 1.0:g} s"
        return Clock(slot_s or 1.0, np.arange(len(t)), start, () if slot_s else (note,))
    middle = float(np.median(steps))
    regular = steps[steps <= 1.5 * middle + resolution]
    measured = float(np.mean(regular)) if middle > 0 else float((t[-1] - t[0]) / len(steps))
    missing = _missing(t, measured)
    if (long := np.flatnonzero(missing > max_gap)).size:
        place = places[int(long[0]) + 1]
        raise InputError(
            f"{place}: {int(missing[long[0]])} slots of {measured:.6g} s are missing before this time, more than"
            f" {max_gap}; allow more with --fill, or cut the file here"
        )
    slots = np.concatenate([[0], np.cumsum(missing + 1)])
    absent = int(missing.sum())
    notes = (f"{counted(absent, 'sweep')} missing by the times in the file",) if absent else ()
    return Clock(float(f"{(t[-1] - t[0]) / slots[-1]:.6g}"), slots, start, notes)


def _missing(times: Any, slot_s: float) -> Ints:
    """Return how many slots are missing before each sweep but the first.

    The phase of the slots follows the times slowly, so that neither rounded times nor a small error of `slot_s` add up.
    """
    found = np.zeros(len(times) - 1, np.int64)
    phase = times[0]
    for i, time in enumerate(times[1:].tolist()):
        passed = max(1, round((time - phase) / slot_s))
        found[i] = passed - 1
        phase += passed * slot_s
        phase += FOLLOW * (time - phase)
    return found


def slot_multiple(wanted: float, measured: float) -> int:
    """Return how many measured slots make one wanted slot; it must be a whole number, within 1%."""
    ratio = wanted / measured
    if ratio < 0.99 or abs(ratio - round(ratio)) > 0.01 * ratio:
        raise InputError(
            f"--slot = {shown(wanted)}: must be a whole multiple of the recording's slot of {measured:.6g} s"
        )
    return round(ratio)
