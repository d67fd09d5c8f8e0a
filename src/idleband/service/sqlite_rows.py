"""The rows of a SQLite journal, for its checks, and the checks of its file."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from idleband.service.journal_check import FORMAT, Rows


class SqliteRows(Rows):
    """The rows that a connection reads."""

    def __init__(self, reader: sqlite3.Connection) -> None:
        self._reader = reader

    def allocators(self) -> Iterable[tuple[Any, ...]]:
        return self._reader.execute("SELECT number, name, settings, checksum FROM allocators ORDER BY number")

    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT first, anchor, last, head FROM chains WHERE allocator = ?", allocator)

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


def file_faults(reader: sqlite3.Connection, limit: int) -> Iterator[str]:
    """Yield what is wrong with the file as a whole. After the first fault nothing else may be readable."""
    if not reader.execute("SELECT count(*) FROM sqlite_master WHERE name = 'about'").fetchone()[0]:
        yield "was not written by idleband"
        return
    row = reader.execute("SELECT format FROM about").fetchone()
    found = None if row is None else row[0]
    if found not in (1, FORMAT):
        yield f"has format {found!r}; this version reads 1 and {FORMAT}"
        return
    for (line,) in reader.execute(f"PRAGMA integrity_check({limit})"):
        if line != "ok":
            yield f"is damaged ({' '.join(str(line).split())})"
