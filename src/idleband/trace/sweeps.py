"""Join the rows of swept spectra, each a part of the band, to slots with one value per frequency."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idleband.errors import InputError
from idleband.trace.clock import Clock, clock_of
from idleband.trace.metadata import MAX_CHANNELS, Metadata, describing, names_of_frequencies
from idleband.trace.recording import MAX_POWER, Chunk, ImportOptions, Recording, chunk_slots


class Row(NamedTuple):
    """Readings of consecutive frequencies."""

    line: int  # line number, or byte offset
    time: float
    low: float  # lower edge of the first bin, Hz
    step: float  # width of a bin, Hz
    bins: int
    values: Any  # list of readings, or None in the first pass


# Yields the rows of a file, with values in the second pass only.
RowReader = Callable[[Path, bool], Iterator[Row]]


@dataclass(frozen=True)
class SweepFormat:
    """How the rows of a format make sweeps."""

    name: str
    rows: RowReader
    one_time: bool  # all rows of a sweep have the same time
    unit: str = "dB"
    place: str = "line"  # or byte: what Row.line counts


def read_sweeps(form: SweepFormat, paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Return the recording of one or more files, consecutive in time.

    The files are read twice: first for times and frequencies, then for values. A sweep ends before a row whose
    frequency it has already, or whose time differs where all rows of a sweep have one time. An incomplete last sweep is
    left out.
    """
    table = _Table(form)
    for path in paths:
        table.scan(path)
    if not table.times:
        raise InputError(f"{paths[0]}: contains no sweep")
    notes = []
    if table.rows_in_last < len(table.segments) and len(table.times) > 1:
        table.drop_last()
        notes.append("the last sweep is incomplete and was left out")
    clock = clock_of(table.times, table.places, table.resolution, options.fill, options.slot_s)
    with describing(paths[0]):
        metadata = table.metadata(clock, options)
    notes += clock.notes

    def chunks() -> Iterator[Chunk]:
        yield from _values(table, clock, paths)

    return Recording(form.name, metadata, ("power",), chunks, notes=notes)


class _Table:
    """Frequencies and times of all sweeps."""

    def __init__(self, form: SweepFormat) -> None:
        self.form = form
        self.segments: dict[tuple[float, float, int], int] = {}  # (low, step, count) -> number
        self.lows: dict[float, tuple[float, float, int]] = {}
        self.times: list[float] = []
        self.places: list[str] = []
        self.resolution = 1.0
        self.rows_in_last = 0

    def scan(self, path: Path) -> None:
        seen: set[float] = set()
        time = None
        for row in self.form.rows(path, False):
            key = (row.low, row.step, row.bins)
            place = f"{path}, {self.form.place} {row.line}"
            if key not in self.segments:
                self._add(key, place)
            if row.low in seen or time is None or (self.form.one_time and row.time != time):
                seen = set()
                self.times.append(row.time)
                self.places.append(place)
                if row.time % 1:
                    self.resolution = 0.0
            time = row.time
            seen.add(row.low)
            self.rows_in_last = len(seen)

    def _add(self, key: tuple[float, float, int], place: str) -> None:
        low, step, count = key
        if low in self.lows:
            _, other_step, other = self.lows[low]
            raise InputError(
                f"{place}: {count} bins of {step:g} Hz from {low:.0f} Hz; an earlier row has {other} of"
                f" {other_step:g} Hz"
            )
        self.segments[key] = len(self.segments)
        self.lows[low] = key
        if sum(segment[2] for segment in self.segments) > MAX_CHANNELS:
            raise InputError(f"{place}: more than {MAX_CHANNELS} frequencies; the rows do not repeat as sweeps do")

    def drop_last(self) -> None:
        self.times.pop()
        self.places.pop()

    def offsets(self) -> dict[float, int]:
        """Return the index of the first channel of each row, ascending in frequency."""
        found, at = {}, 0
        for low, _, count in sorted(self.segments):
            found[low] = at
            at += count
        return found

    def metadata(self, clock: Clock, options: ImportOptions) -> Metadata:
        edges = [
            (low + i * step, low + (i + 1) * step) for low, step, count in sorted(self.segments) for i in range(count)
        ]
        lows, highs = (tuple(round(edge, 3) for edge in side) for side in zip(*edges, strict=True))
        for k in range(len(lows) - 1):
            if highs[k] - lows[k + 1] > 0.5 * (highs[k] - lows[k]):
                raise InputError(f"rows overlap near {lows[k + 1]:.0f} Hz; sweeps of different ranges are mixed")
        names = names_of_frequencies([(low + high) / 2 for low, high in zip(lows, highs, strict=True)])
        return Metadata(
            K=len(lows), slot_s=clock.slot_s, channel_names=names, freq_low_hz=lows, freq_high_hz=highs,
            power_unit=self.form.unit, start=clock.start,
        )  # fmt: skip


def _values(table: _Table, clock: Clock, paths: Sequence[Path]) -> Iterator[Chunk]:
    """Read the values in chunks; slots without a sweep and absent rows are nan."""
    offsets = table.offsets()
    K = sum(count for _, _, count in table.segments)
    size = chunk_slots(K)
    buffer = np.full((min(size, clock.T), K), np.nan, np.float32)
    first = 0  # slot of the first row of the buffer
    sweep = -1
    for path in paths:
        seen: set[float] = set()
        time = None
        for row in table.form.rows(path, True):
            if row.low in seen or time is None or (table.form.one_time and row.time != time):
                seen = set()
                sweep += 1
                if sweep == len(table.times):
                    break  # the incomplete last sweep
            time = row.time
            seen.add(row.low)
            slot = int(clock.slots[sweep])
            while slot - first >= len(buffer):
                yield {"power": buffer}
                first += len(buffer)
                buffer = np.full((min(size, clock.T - first), K), np.nan, np.float32)
            at = offsets[row.low]
            values = np.array(row.values, np.float32)
            _check(values, f"{path}, {table.form.place} {row.line}")
            buffer[slot - first, at : at + row.bins] = values
    yield {"power": buffer}


def _check(values: Any, place: str) -> None:
    """Take -inf, the logarithm of nothing, as missing; refuse other readings that cannot be powers."""
    values[np.isneginf(values)] = np.nan
    if np.abs(values, out=np.zeros_like(values), where=~np.isnan(values)).max(initial=0) > MAX_POWER:
        bad = values[np.abs(values) > MAX_POWER][0]
        raise InputError(f"{place}: a reading of {bad:g} dB is not plausible")
