"""CSV of rtl_power: the last reading of a row is printed twice; times have a resolution of one second."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from idleband.trace.formats.sweep_csv import csv_rows, is_sweep_csv
from idleband.trace.recording import ImportOptions, Recording
from idleband.trace.sweeps import Row, SweepFormat, read_sweeps

DESCRIPTION = "CSV of rtl_power"


def matches(head: bytes, path: Path) -> bool:
    """Return whether rows have one reading more than bins, and the last two are equal."""
    line = first_row(head)
    if line is None:
        return False
    fields = line.rstrip(", ").split(",")
    low, high, step = map(float, fields[2:5])
    bins = (high - low) / step if step > 0 else 0.0
    return len(fields) > 7 and abs(bins + 1 - (len(fields) - 6)) < 0.5 and fields[-1].strip() == fields[-2].strip()


def first_row(head: bytes) -> str | None:
    """Return the first row of a file of the family, or None."""
    for line in head.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and not line.startswith("#"):
            return line if is_sweep_csv(line) else None
    return None


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a recording."""
    return read_sweeps(SweepFormat("rtl_power", _rows, one_time=True), paths, options)


def _rows(path: Path, values: bool) -> Iterator[Row]:
    return csv_rows(path, values, repeated=True)
