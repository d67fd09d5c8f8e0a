"""CSV of hackrf_sweep: interleaved rows of 5 MHz, one time with microseconds per sweep."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from idleband.trace.formats.rtl_power import first_row
from idleband.trace.formats.sweep_csv import csv_rows
from idleband.trace.recording import ImportOptions, Recording
from idleband.trace.sweeps import Row, SweepFormat, read_sweeps

DESCRIPTION = "CSV of hackrf_sweep"


def matches(head: bytes, path: Path) -> bool:
    """Return whether rows have times with a fraction of a second."""
    line = first_row(head)
    return line is not None and "." in line.split(",")[1]


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a recording."""
    return read_sweeps(SweepFormat("hackrf_sweep", _rows, one_time=True), paths, options)


def _rows(path: Path, values: bool) -> Iterator[Row]:
    return csv_rows(path, values, repeated=False)
