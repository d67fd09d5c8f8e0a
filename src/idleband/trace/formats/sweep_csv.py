"""Rows of the CSV family of rtl_power: date, time, hz_low, hz_high, hz_step, samples, dB, dB, ..."""

from collections.abc import Iterator
from pathlib import Path

from idleband.errors import InputError, shown
from idleband.trace.clock import parse_time
from idleband.trace.files import lines_of
from idleband.trace.sweeps import Row

FIELDS = 6  # before the readings


def csv_rows(path: Path, values: bool, repeated: bool) -> Iterator[Row]:
    """Yield the rows of a file; `repeated` if the last reading of a row is printed twice."""
    before, time = "", None
    for number, line in lines_of(path):
        if not line.strip() or line.startswith("#"):
            continue
        place = f"{path}, line {number}"
        date, clock, low, high, step, _, rest = _fields(line, place)
        if time is None or before != date + clock:
            before, time = date + clock, parse_time(f"{date.strip()} {clock.strip()}")
        if time is None:
            raise InputError(f"{place}: {shown(f'{date},{clock}')} is not a date and a time")
        try:
            start, stop, width = float(low), float(high), float(step)
        except ValueError:
            raise InputError(f"{place}: hz_low, hz_high and hz_step must be numbers: {shown(line[:60])}") from None
        rest = rest.rstrip(", ")
        count = rest.count(",") + 1 - repeated
        if not (0 <= start < stop < 1e13 and width > 0):
            raise InputError(f"{place}: hz_low {start:g}, hz_high {stop:g} and hz_step {width:g} are not a range")
        if not count or abs((stop - start) / width - count) > 0.5 + 0.001 * count:
            expected = round((stop - start) / width) + repeated
            raise InputError(f"{place}: has {count + repeated} readings, expected {expected}")
        readings = None
        if values:
            try:
                readings = list(map(float, rest.split(",")))[:count]
            except ValueError:
                bad = next(text for text in rest.split(",") if not _is_number(text))
                raise InputError(f"{place}: {shown(bad.strip())} is not a number") from None
        yield Row(number, time, start, (stop - start) / count, count, readings)


def is_sweep_csv(line: str) -> bool:
    """Return whether a line has the form of the family."""
    fields = line.split(",")
    if len(fields) <= FIELDS or parse_time(f"{fields[0].strip()} {fields[1].strip()}") is None:
        return False
    return "-" in fields[0] and ":" in fields[1] and all(map(_is_number, fields[2:6]))


def _fields(line: str, place: str) -> list[str]:
    fields = line.split(",", FIELDS)
    if len(fields) <= FIELDS:
        raise InputError(
            f"{place}: has {len(fields)} fields; expected date, time, hz_low, hz_high, hz_step, samples, dB"
        )
    return fields


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
