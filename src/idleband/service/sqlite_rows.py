"""The rows of a SQLite journal, for its checks, and the checks of its file."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from idleband.service.journal_check import FORMAT, NameRow, Rows


class SqliteRows(Rows):
    """The rows that a connection reads."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader

    def allocators(self) -> Iterable[tuple[Any, ...]]:
        return self._reader.execute("SELECT number, name, settings, checksum FROM allocators ORDER BY number")

    def changes(self) -> Iterable[tuple[Any, ...]]:
        return self._reader.execute("SELECT allocator, name, settings, seq, checksum FROM changes")

    def names(self) -> Iterable[tuple[Any, ...]]:
        return self._reader.execute("SELECT name, allocator, until, checksum FROM names")

    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT first, anchor, last, head, changed FROM chains WHERE allocator = ?", allocator)

    def snapshot(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT seq, chain, snapshot, size, checksum FROM snapshots WHERE allocator = ?", allocator)

    def parts(self, snapshot: int) -> Iterable[Any]:
        query = "SELECT data FROM snapshot_parts WHERE snapshot = ? ORDER BY part"
        return (data for (data,) in self._reader.execute(query, (snapshot,)))

    def events(self, allocator: int, after: int) -> Iterable[tuple[Any, ...]]:
        query = "SELECT allocator, seq, kind, request, body, checksum FROM events WHERE allocator = ? AND seq > ?"
        return self._reader.execute(f"{query} ORDER BY seq", (allocator, after))

    def mentioned(self, table: str) -> Iterable[int]:
        return (number for (number,) in self._reader.execute(f"SELECT DISTINCT allocator FROM {table}"))

    def base(self) -> int:
        return int(self._reader.execute("SELECT base FROM about").fetchone()[0])

    def _row(self, query: str, *parameters: Any) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._reader.execute(query, parameters).fetchone()
        return found


class Format2Rows(SqliteRows):
    """The rows of a journal of format 2, in which allocators could not be changed or deleted."""

    def changes(self) -> Iterable[tuple[Any, ...]]:
        return ()

    def names(self) -> Iterable[tuple[Any, ...]]:
        for number, name in self._reader.execute("SELECT number, name FROM allocators"):
            row = NameRow(name, number, 0)
            yield (*row, row.checksum)

    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        found = self._row("SELECT first, anchor, last, head FROM chains WHERE allocator = ?", allocator)
        return None if found is None else (*found, 0)


def format_of(reader: sqlite3.Connection) -> int:
    """Return the format of a journal."""
    return int(reader.execute("SELECT format FROM about").fetchone()[0])


def rows_of(reader: sqlite3.Connection) -> SqliteRows:
    """Return the rows of a journal of format 2 or later."""
    return Format2Rows(reader) if format_of(reader) == 2 else SqliteRows(reader)


def file_faults(reader: sqlite3.Connection, limit: int) -> Iterator[str]:
    """Yield what is wrong with the file as a whole. After the first fault nothing else may be readable."""
    if not reader.execute("SELECT count(*) FROM sqlite_master WHERE name = 'about'").fetchone()[0]:
        yield "was not written by idleband"
        return
    row = reader.execute("SELECT format FROM about").fetchone()
    found = None if row is None else row[0]
    if found not in range(1, FORMAT + 1):
        yield f"has format {found!r}; this version reads 1 to {FORMAT}"
        return
    for (line,) in reader.execute(f"PRAGMA integrity_check({limit})"):
        if line != "ok":
            yield f"is damaged ({' '.join(str(line).split())})"
