"""Copy, verification and export of a journal in PostgreSQL, also while services use it."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from idleband.errors import InputError, counted
from idleband.evaluation.decision_log import DecisionLog
from idleband.service import journal_check, journal_files
from idleband.service.journal_check import Summary
from idleband.service.journal_export import decision_log_of
from idleband.service.journal_lock import JournalLock
from idleband.service.postgres_database import SCHEMA, Database
from idleband.service.postgres_journal import PostgresRows, prepared
from idleband.service.postgres_url import PostgresUrl
from idleband.service.sqlite_journal import connect_to_read

COPY_TIMEOUT = 6 * 3600.0  # seconds

# Columns of a table, and the query that returns its rows from SQLite.
_TABLES = {
    "allocators": ("number, name, settings, checksum", "SELECT {} FROM allocators"),
    "chains": (
        "allocator, first, anchor, last, head, fence, changed",
        "SELECT allocator, first, anchor, last, head, 0, changed FROM chains",
    ),
    "changes": ("allocator, name, settings, seq, checksum", "SELECT {} FROM changes"),
    "names": ("name, allocator, until, checksum", "SELECT {} FROM names"),
    "events": (
        "allocator, seq, kind, request, body, checksum",
        "SELECT allocator, seq, kind, CAST(request AS BLOB), body, checksum FROM events ORDER BY id",
    ),
    "expired": ("allocator, generation, fingerprint", "SELECT {} FROM expired"),
    "snapshots": ("allocator, seq, chain, snapshot, size, checksum", "SELECT {} FROM snapshots"),
    "snapshot_parts": (
        "allocator, snapshot, part, data",
        "SELECT {} FROM snapshot_parts JOIN (SELECT allocator, snapshot FROM snapshots) USING (snapshot)",
    ),
}


def verify(url: PostgresUrl) -> Summary:
    """Check a journal completely and change nothing. Raises InputError if there is none that can be read."""
    with _reading(url) as fetch:
        return journal_check.summary(PostgresRows(fetch), (0, 0, 0))


def decision_log(url: PostgresUrl, name: str) -> DecisionLog:
    """Return the decisions of an allocator that the journal keeps, with their feedback."""
    with _reading(url) as fetch:
        return decision_log_of(PostgresRows(fetch), name, str(url))


@contextlib.contextmanager
def _reading(url: PostgresUrl) -> Iterator[Callable[..., list[Any]]]:
    with contextlib.closing(Database(url)) as database, database.reading() as fetch:
        yield fetch


def copy(source: Path, url: PostgresUrl) -> Summary:
    """Copy the journal of a folder into a database without allocators, in one transaction, and check the copy.

    No service may use the source, because what it acknowledges later would be missing in the copy.
    """
    path = journal_files.existing(source)
    try:
        lock = JournalLock(source)
    except InputError:
        raise InputError(f"{source}: is in use by a service; stop it first. Nothing was written") from None
    try:
        found = journal_files.verify(source)
        if found.faults:
            faults = counted(len(found.faults), "fault")
            raise InputError(f"{path}: {faults}, the first: {found.faults[0]}; nothing was written")
        with contextlib.closing(connect_to_read(path)) as reader, contextlib.closing(Database(url)) as database:
            if reader.execute("SELECT format FROM about").fetchone()[0] != journal_check.FORMAT:
                raise InputError(f"{path}: has an older format; open it with `idleband serve` once, which converts it")
            with database.refusing():
                for work in (prepared, lambda connection: _copy(connection, reader)):
                    fault = database.call("writer", work, COPY_TIMEOUT)
                    if fault:
                        raise InputError(f"{url}: {fault}; nothing was written")
    finally:
        lock.close()
    copied = verify(url)
    if copied != found:
        raise InputError(f"{url}: the copy differs from {path}: {copied} instead of {found}")
    return copied


async def _copy(connection: Any, reader: sqlite3.Connection) -> str:
    """Copy all tables; return why that cannot be done, empty if it was."""
    async with connection.transaction():
        await connection.execute("LOCK TABLE allocators IN SHARE ROW EXCLUSIVE MODE")
        if await connection.fetchval("SELECT count(*) FROM allocators"):
            return "has allocators already"
        await connection.execute("UPDATE about SET base = $1", reader.execute("SELECT base FROM about").fetchone()[0])
        for table, (columns, query) in _TABLES.items():
            rows = reader.execute(query.format(columns))
            await connection.copy_records_to_table(
                table, schema_name=SCHEMA, columns=columns.split(", "), records=rows, timeout=COPY_TIMEOUT
            )
        await connection.execute("SELECT setval('snapshot_numbers', coalesce(max(snapshot), 0) + 1) FROM snapshots")
    return ""
