"""Journals of formats 1 and 2, written by earlier versions: their checks, and their conversion to the present format.

In format 1 the events of all allocators had one order, checksums of single rows, and a snapshot was one row. In format
2 allocators could not be changed or deleted; events and snapshots are as they are now.
"""

import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator

from idleband.service.journal import Event, Stored
from idleband.service.journal_check import FORMAT, NameRow, Report, StateDigest, count_faults, summary
from idleband.service.sqlite_rows import Format2Rows, format_of

_EVENTS = "SELECT seq, allocator, kind, request, body, checksum FROM events ORDER BY seq"


def faults(reader: sqlite3.Connection, recorded: tuple[int, int, int]) -> Iterator[str]:
    """Yield what is wrong with a journal of format 1. `recorded` are the numbers in its lock file."""
    names = {}
    for number, name, settings, checksum in reader.execute("SELECT number, name, settings, checksum FROM allocators"):
        names[number] = name
        if checksum != zlib.crc32(f"{name} {settings}".encode()):
            yield f"the settings of allocator {name!r} are damaged"
    covered: dict[int, int] = {}
    for number, seq, state, checksum in reader.execute("SELECT allocator, seq, state, checksum FROM snapshots"):
        name = names.get(number, number)
        if not isinstance(state, bytes) or checksum != zlib.crc32(f"{number} {seq}".encode(), zlib.crc32(state)):
            yield f"the snapshot of allocator {name} is damaged"
        covered[number] = seq
    seen, expected = set(covered), 1
    for seq, number, kind, request, body, checksum in reader.execute(_EVENTS):
        line = f"{seq} {number} {kind} {request}".encode()
        if not isinstance(body, bytes) or checksum != zlib.crc32(line, zlib.crc32(body)):
            yield f"event {seq} is damaged"
        # A number that was in a snapshot was not used again after a failed write. Any other gap is a missing event.
        if seq != expected and (not covered or any(covered.get(one, 0) < seq - 1 for one in seen)):
            yield f"events {expected} to {seq - 1} are missing"
        seen.add(number)
        expected = seq + 1
    yield from count_faults(expected - 1, len(names), recorded)


def migrate(
    reader: sqlite3.Connection,
    writer: Callable[[], sqlite3.Connection],
    tables: str,
    part_bytes: int,
    recorded: tuple[int, int, int],
    report: Report,
) -> None:
    """Convert a journal in one transaction, after it was checked."""
    if format_of(reader) == 1:
        for fault in faults(reader, recorded):
            report(fault)
        _in_transaction(writer(), lambda connection: _convert(connection, tables, part_bytes, recorded[0]))
    else:
        for fault in summary(Format2Rows(reader), recorded).faults:
            report(fault)
        _in_transaction(writer(), lambda connection: _convert_format_2(connection, tables))


def _in_transaction(writer: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
    writer.execute("BEGIN IMMEDIATE")
    try:
        work(writer)
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:
            writer.execute("ROLLBACK")
        raise


def _convert_format_2(writer: sqlite3.Connection, tables: str) -> None:
    """Add the tables of changes and names; a name may be used again, so the table of allocators is written anew."""
    writer.execute("ALTER TABLE allocators RENAME TO old_allocators")
    for statement in _without_comments(tables).split(";"):
        if any(f"CREATE TABLE {table} " in statement for table in ("allocators", "changes", "names")):
            writer.execute(statement)
    writer.execute("INSERT INTO allocators SELECT number, name, settings, checksum FROM old_allocators")
    writer.execute("DROP TABLE old_allocators")
    writer.execute("ALTER TABLE chains ADD COLUMN changed INTEGER NOT NULL DEFAULT 0")
    _write_names(writer)
    writer.execute("UPDATE about SET format = ?", (FORMAT,))


def _write_names(writer: sqlite3.Connection) -> None:
    for number, name in writer.execute("SELECT number, name FROM allocators").fetchall():
        row = NameRow(name, number, 0)
        writer.execute("INSERT INTO names VALUES (?, ?, ?, ?)", (*row, row.checksum))


def _convert(writer: sqlite3.Connection, tables: str, part_bytes: int, last: int) -> None:
    writer.execute("DROP INDEX decisions")
    for table in ("about", "allocators", "events", "snapshots"):
        writer.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in _without_comments(tables).split(";"):
        writer.execute(statement)
    numbers = "SELECT seq FROM old_events UNION ALL SELECT seq FROM old_snapshots"
    (seq,) = writer.execute(f"SELECT max(seq) FROM ({numbers})").fetchone()
    allocators = [Stored(*row) for row in writer.execute("SELECT number, name, settings FROM old_allocators")]
    covered = dict(writer.execute("SELECT allocator, seq FROM old_snapshots").fetchall())
    heads = {one.number: one.checksum for one in allocators}
    counts: Counter[int] = Counter()
    ends = {number: (0, heads[number]) for number in covered}  # number and checksum of the last event in the snapshot
    for one in allocators:
        writer.execute("INSERT INTO allocators VALUES (?, ?, ?, ?)", (*one[:3], one.checksum))
    for old, number, kind, request, body, _ in writer.execute(_EVENTS.replace("events", "old_events")):
        counts[number] += 1
        event = Event(number, counts[number], kind, request, body)
        heads[number] = event.checksum(heads[number])
        writer.execute(
            "INSERT INTO events (allocator, seq, kind, request, body, checksum) VALUES (?, ?, ?, ?, ?, ?)",
            (*event, heads[number]),
        )
        if old <= covered.get(number, 0):
            ends[number] = event.seq, heads[number]
    for one in allocators:
        row = (one.number, 1, one.checksum, counts[one.number], heads[one.number])
        writer.execute("INSERT INTO chains VALUES (?, ?, ?, ?, ?, 0)", row)
    _write_names(writer)
    for number, (end, chain) in ends.items():
        (state,) = writer.execute("SELECT state FROM old_snapshots WHERE allocator = ?", (number,)).fetchone()
        checked = StateDigest(number, end, chain)
        checked.update(state)
        for part, start in enumerate(range(0, len(state), part_bytes)):
            writer.execute(
                "INSERT INTO snapshot_parts VALUES (?, ?, ?)", (number, part, state[start : start + part_bytes])
            )
        writer.execute(
            "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
            (number, end, chain, number, checked.size, checked.checksum),
        )
    total = max(last, seq or 0)
    writer.execute("INSERT INTO about VALUES (?, ?)", (FORMAT, total - counts.total()))
    for table in ("about", "allocators", "events", "snapshots"):
        writer.execute(f"DROP TABLE old_{table}")


def _without_comments(script: str) -> str:
    return "\n".join(line.partition("--")[0] for line in script.splitlines()).strip().removesuffix(";")
