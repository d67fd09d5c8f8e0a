"""Text tables with one row per slot: separated by commas, semicolons, tabs or spaces, with or without a header."""

import contextlib
import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import InputError, counted, shown
from idleband.trace.clock import parse_time
from idleband.trace.files import head_of, lines_of
from idleband.trace.recording import MAX_POWER, ImportOptions, Recording
from idleband.trace.tables import Batch, Columns, batch_size, interpret, read_table, select_columns

DESCRIPTION = "text table: a row per slot, a column per channel"

MISSING = {"", "na", "nan", "null", "none", "-", "n/a"}


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file is text whose first rows have numbers."""
    try:
        text = head.decode("utf-8-sig") if len(head) < 2**20 else head.decode("utf-8-sig", "ignore")
    except UnicodeDecodeError:
        return False
    rows = [line for line in text.splitlines()[:50] if line.strip() and not line.startswith("#")]
    if not rows or "\0" in text:
        return False
    dialect = _Dialect(rows)
    return any(_number(field, dialect.comma) is not None for row in rows[-2:] for field in dialect.split(row))


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a table. Several files are read as one after the other; they must have the same columns."""
    tables = [_Text(path, options) for path in paths]
    first = tables[0]
    for other in tables[1:]:
        if other.header != first.header or other.width != first.width:
            raise InputError(f"{other.path}: has other columns than {first.path}")

    def batches(values: bool) -> Iterator[Batch]:
        for table in tables:
            yield from table.batches(values)

    place = str(first.path) if len(paths) == 1 else f"{first.path} and following"
    return read_table("csv", first.columns, batches, options, place, "line")


class _Dialect:
    """The separator and the decimal sign of a text."""

    def __init__(self, rows: Sequence[str]) -> None:
        def common(sign: str) -> bool:
            return sum(sign in row for row in rows) > len(rows) / 2

        self.separator: str | None = next((sign for sign in (";", "\t") if common(sign)), None)
        if self.separator is None and common(","):
            words = rows[-1].split()
            decimal = len(words) > 1 and all(re.fullmatch(r"-?\d+,\d+", word) for word in words)
            self.separator = None if decimal else ","
        self.comma = self.separator != ","  # a comma may be a decimal sign

    def split(self, line: str) -> list[str]:
        if '"' in line and self.separator:
            with contextlib.suppress(csv.Error):
                return next(csv.reader([line], delimiter=self.separator))
        return line.split(self.separator)


class _Text:
    """One file."""

    def __init__(self, path: Path, options: ImportOptions) -> None:
        self.path = path
        text = head_of(path).decode("utf-8-sig", "replace").splitlines()
        rows = [line for line in text[:50] if line.strip() and not line.startswith("#")]
        if not rows:
            raise InputError(f"{path}: contains no row of values")
        self.dialect = _Dialect(rows)
        fields = self.dialect.split(rows[0])
        self.width = len(fields)
        numbers = [_number(field, self.dialect.comma) for field in fields]
        named = any(value is None and parse_time(field) is None for value, field in zip(numbers, fields, strict=True))
        named |= all(value is not None and MAX_POWER < value < np.inf for value in numbers)  # frequencies in Hz
        self.header: list[str] | None = [field.strip() for field in fields] if named else None
        place = f"{path}, line {text.index(rows[0]) + 1}"
        columns = interpret(self.header or [""] * self.width, options, place, named=named)
        if not named and len(fields) > 1 and _number(fields[0], self.dialect.comma) is None:  # times, without a header
            unnamed = Columns({"": tuple(range(1, self.width))}, (), ((), ()), 0)
            columns = select_columns(unnamed, options)
        self.columns = columns

    def batches(self, values: bool) -> Iterator[Batch]:
        """Yield rows as numbers."""
        size = batch_size(self.width)
        places: list[int] = []
        times: list[float] = []
        rows: list[list[float]] = []
        header = self.header
        for number, line in lines_of(self.path):
            if not line.strip() or line.startswith("#"):
                continue
            fields = self.dialect.split(line)
            if header is not None:
                header = None
                continue
            place = f"{self.path}, line {number}"
            if len(fields) != self.width:
                raise InputError(f"{place}: has {counted(len(fields), 'field')}, expected {self.width}")
            if self.columns.time is not None:
                times.append(self._time(fields[self.columns.time], place))
                fields[self.columns.time] = "nan"
            places.append(number)
            if values:
                rows.append(self._numbers(fields, place))
            if len(places) == size:
                yield Batch(places, times or None, np.array(rows) if values else None)
                places, times, rows = [], [], []
        if places:
            yield Batch(places, times or None, np.array(rows) if values else None)

    def _time(self, field: str, place: str) -> float:
        time = parse_time(field.replace(",", ".") if self.dialect.comma else field)
        if time is None:
            raise InputError(f"{place}: {shown(field)} is not a time: seconds, or YYYY-MM-DD hh:mm:ss")
        return time

    def _numbers(self, fields: list[str], place: str) -> list[float]:
        try:
            return list(map(float, fields))
        except ValueError:
            found = [_number(field, self.dialect.comma) for field in fields]
            used = {i for columns in self.columns.layers.values() for i in columns}
            for i, value in enumerate(found):
                if value is None and i in used:
                    name = f" ({self.header[i]})" if self.header else ""
                    raise InputError(
                        f"{place}: {shown(fields[i].strip())} is not a number, in column {i}{name};"
                        " name the columns to read with --channels"
                    ) from None
            return [np.nan if value is None else value for value in found]


def _number(field: str, comma: bool) -> Any:
    """Return the number of a field, nan where it is empty, None where it is other text."""
    text = field.strip().strip('"')
    if text.lower() in MISSING:
        return np.nan
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return float(text.replace(",", ".") if comma else text)
    except ValueError:
        return None
