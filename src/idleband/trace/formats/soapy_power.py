"""Outputs of soapy_power: CSV like that of rtl_power, text of rtl_power_fftw, and binary.

Each row or block is one hop of the tuner, with a time of its own; a sweep ends where a frequency comes again.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from idleband.errors import InputError, shown
from idleband.trace.clock import parse_time
from idleband.trace.files import exactly, head_of, lines_of, opened
from idleband.trace.formats.rtl_power import first_row
from idleband.trace.formats.sweep_csv import csv_rows
from idleband.trace.recording import ImportOptions, Recording
from idleband.trace.sweeps import Row, SweepFormat, read_sweeps

DESCRIPTION = "soapy_power: CSV, text of rtl_power_fftw, or binary"

MAGIC = b"SDRFF"
HEADER = struct.Struct("<BdddddQQ2x")  # version, start and stop time, first and last frequency, step, samples, bytes
VERSION = 2
MAX_HOP = 2**26  # bytes of readings


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file is one of the three outputs."""
    return head.startswith(MAGIC) or _is_fftw(head) or first_row(head) is not None


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a recording."""
    head = head_of(paths[0])
    if head.startswith(MAGIC):
        form = SweepFormat("soapy_power", _binary_rows, one_time=False, place="byte")
    elif _is_fftw(head):
        form = SweepFormat("soapy_power", _text_rows, one_time=False)
    else:
        form = SweepFormat("soapy_power", _csv_rows, one_time=False)
    return read_sweeps(form, paths, options)


def _csv_rows(path: Path, values: bool) -> Iterator[Row]:
    return csv_rows(path, values, repeated=False)


def _is_fftw(head: bytes) -> bool:
    text = head.decode("utf-8-sig", "replace")
    return text.startswith("#") and "# frequency [Hz]" in text


def _binary_rows(path: Path, values: bool) -> Iterator[Row]:
    """Yield the hops of a binary file."""
    with opened(path) as file:
        offset = 0
        while magic := file.read(len(MAGIC)):
            if magic != MAGIC:
                raise InputError(f"{path}, byte {offset}: expected {MAGIC.decode()}, found {shown(magic)}")
            packed = exactly(file, HEADER.size, path, offset, "a header")
            version, _, time, low, high, step, _, size = HEADER.unpack(packed)
            place = f"{path}, byte {offset}"
            if version != VERSION:
                raise InputError(f"{place}: version {version} is not known; expected {VERSION}")
            if not (np.isfinite([time, low, high, step]).all() and 0 <= low < high < 1e13 and step > 1e-3):
                raise InputError(f"{place}: {low:g} to {high:g} Hz in steps of {step:g} Hz is not a range")
            count = round((high - low) / step)
            if not 0 < size <= MAX_HOP or size not in (4 * count, 8 * count):
                raise InputError(f"{place}: {size} bytes of readings for {count} bins")
            data = exactly(file, size, path, offset, "readings")
            found = np.frombuffer(data, np.dtype("<f4" if size == 4 * count else "<f8")) if values else None
            yield Row(offset, time, low, step, count, found)
            offset += len(MAGIC) + HEADER.size + size


def _text_rows(path: Path, values: bool) -> Iterator[Row]:
    """Yield the hops of a text file: pairs of frequency and reading, ended by an empty line."""
    time: float | None = None
    pairs: list[tuple[float, float]] = []
    start = number = 0
    for number, line in lines_of(path):
        if line.startswith("#"):
            if pairs:  # a header without an empty line before it
                yield _hop(pairs, time, start, path, values)
                pairs = []
            if line.startswith("# Acquisition end:"):
                time = parse_time(line.partition(":")[2])
        elif not line.strip():
            if pairs:
                yield _hop(pairs, time, start, path, values)
            pairs = []
        else:
            start = start if pairs else number
            try:
                frequency, reading = map(float, line.split())
            except ValueError:
                raise InputError(f"{path}, line {number}: expected a frequency and a reading: {shown(line)}") from None
            pairs.append((frequency, reading))
    if pairs:
        yield _hop(pairs, time, start, path, values)


def _hop(pairs: list[tuple[float, float]], time: float | None, line: int, path: Path, values: bool) -> Row:
    place = f"{path}, line {line}"
    if time is None:
        raise InputError(f"{place}: no line '# Acquisition end:' with a time before the readings")
    frequency = np.array([pair[0] for pair in pairs])
    if len(pairs) < 2:
        raise InputError(f"{place}: one reading only; the file may end early")
    step = float(frequency[-1] - frequency[0]) / (len(pairs) - 1)
    if not (step > 0 and np.abs(np.diff(frequency) / step - 1).max() < 0.1 and frequency[0] >= 0):
        raise InputError(f"{place}: the frequencies are not in equal steps upwards")
    return Row(line, time, float(frequency[0]), step, len(pairs), [pair[1] for pair in pairs] if values else None)
