"""The journal in one SQLite file.

SQLite's write-ahead log is synced at every commit of events, and a commit may hold many of them. Checksums are kept
beside those of SQLite, which detects torn pages but neither flipped bits nor a page of an earlier time.

The file is opened read-only until something is written, so that a file that is refused is left unchanged: a connection
that may write would copy the write-ahead log into it when it is closed. Snapshots are written, and old events deleted,
over a second connection that does not sync: their commits become durable with the next commit of events. Whatever is
written holds the write lock for at most about a megabyte, so that events never wait long.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from idleband.errors import InputError
from idleband.service import journal_check, journal_migration
from idleband.service.journal import Event, Journal, JournalError, NewSnapshot, Snapshot, Stored, digest
from idleband.service.journal_chain import (
    DELETED_PARTS,
    PART_BYTES,
    PRUNED_EVENTS,
    ChainEnds,
    Chains,
    SnapshotParts,
    choose_pruned,
    pause,
)
from idleband.service.journal_lock import CLOSED, IN_USE, JournalLock
from idleband.service.sqlite_rows import SqliteRows, file_faults

FILE_NAME = "journal.sqlite"
CHECKPOINT_BYTES = 2**22  # written to the log before it is copied into the file
MAX_LOG_PAGES = 2**14  # at which a commit copies the log into the file itself

TABLES = """
CREATE TABLE about (
    format INTEGER NOT NULL,
    base INTEGER NOT NULL         -- number of events that were written before those in the chains
);
CREATE TABLE allocators (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE chains (
    allocator INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,       -- number of the oldest event that is kept
    anchor INTEGER NOT NULL,      -- checksum of the event before it
    last INTEGER NOT NULL,        -- number of the last event
    head INTEGER NOT NULL         -- its checksum
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    allocator INTEGER NOT NULL,
    seq INTEGER NOT NULL,         -- from 1 for each allocator, without gaps
    kind INTEGER NOT NULL,
    request TEXT,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL     -- covers the checksum of the event before
);
CREATE UNIQUE INDEX places ON events (allocator, seq);
CREATE UNIQUE INDEX decisions ON events (allocator, request) WHERE kind = 0;
CREATE TABLE expired (            -- request_ids of deleted decisions
    allocator INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    PRIMARY KEY (allocator, generation, fingerprint)
) WITHOUT ROWID;
CREATE TABLE snapshots (
    allocator INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,         -- the last event that is in it
    chain INTEGER NOT NULL,       -- the checksum of that event
    snapshot INTEGER NOT NULL,    -- number of its parts
    size INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE snapshot_parts (
    snapshot INTEGER NOT NULL,
    part INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (snapshot, part)
);
"""


class _Cancelled(Exception):
    """A snapshot is not needed any more."""


class SqliteJournal(Journal):
    """The journal of one folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.place = str(self.path)
        self.epoch = 0
        self._log = self.path.with_name(f"{FILE_NAME}-wal")
        self._write_lock = threading.Lock()
        self._chains = Chains()
        self._written = 0  # events in the chains
        self._unmerged = 0  # bytes written to the log since it was copied into the file, about
        self._files: dict[Path, os.stat_result] = {}  # as they were when they were opened
        self._swept = False  # whether the parts of snapshots that an earlier process left were looked for
        with self._refusing():
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = JournalLock(folder)
            try:
                self._open()
            except BaseException:
                self.close()
                raise
        self.interrupted_snapshots = self._lock.snapshots

    def _open(self) -> None:
        """Connect to the file, or create it. Refuse a file that is damaged or of another program."""
        missing = missing_file(self.path.parent, self._lock.status, self._lock.last)
        if missing is not None:
            raise InputError(f"{missing}; put it back, or remove {self._lock.path} to continue without it")
        if not self.path.exists():
            self._create()
        elif not os.access(self.path, os.W_OK):
            raise InputError(f"{self.path}: is not writable")
        self._reader = connect_to_read(self.path)
        if not self._value("SELECT count(*) FROM sqlite_master"):  # the process ended while it created the file
            self._reader.close()
            self._create()
            self._reader = connect_to_read(self.path)
        for fault in file_faults(self._reader, 1):
            self._refuse(fault)
        recorded = self._lock.last, self._lock.allocators, 0
        if self._value("SELECT format FROM about") != journal_check.FORMAT:
            journal_migration.migrate(self._reader, lambda: self._writer, TABLES, PART_BYTES, recorded, self._refuse)
        self._base = self._value("SELECT base FROM about")
        self.reread()
        allocators = self._value("SELECT count(*) FROM allocators")
        for fault in journal_check.count_faults(self.total, allocators, recorded):
            raise InputError(
                f"{self._log}: is damaged: {fault}; left unchanged. Remove {self._lock.path} to continue without the"
                " others"
            )
        self._lock.allocators = allocators  # the lock file may have been removed
        self._files[self.path] = os.stat(self.path)

    def _create(self) -> None:
        self._writer.executescript(f"BEGIN; {TABLES} INSERT INTO about VALUES ({journal_check.FORMAT}, 0); COMMIT;")

    @cached_property
    def _writer(self) -> sqlite3.Connection:
        return self._connect_to_write("FULL")

    @cached_property
    def _background(self) -> sqlite3.Connection:
        return self._connect_to_write("NORMAL")

    def _connect_to_write(self, synchronous: str) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {MAX_LOG_PAGES}")
        return connection

    @property
    def _rows(self) -> SqliteRows:
        return SqliteRows(self._reader)

    def _value(self, query: str, *parameters: Any) -> Any:
        row = self._reader.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _refuse(self, fault: str) -> None:
        raise InputError(f"{self.path}: {fault}; left unchanged")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn errors of a file that cannot be read into an InputError of one line."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: cannot be read ({error}); left unchanged") from None
        except FileExistsError as error:
            raise InputError(f"{error.filename}: must be a folder") from None
        except OSError as error:
            raise InputError(f"{error.filename or self.path}: {error.strerror or error}") from None

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:  # type: ignore[override]
        """Number of all events ever written."""
        return int(self._base) + self._written

    def allocators(self) -> list[Stored]:
        with self._refusing():
            return journal_check.stored_allocators(self._rows, self._refuse)

    def reread(self) -> None:
        with self._write_lock, self._refusing():
            for number, first, last, head in self._reader.execute("SELECT allocator, first, last, head FROM chains"):
                chain = self._chains.setdefault(number, ChainEnds(first, last, head))
                chain.first, chain.last, chain.head = first, last, head
            self._written = sum(one.last for one in self._chains.values())

    def load(self, allocator: Stored, *, complete: bool) -> tuple[Snapshot | None, Iterator[Event]]:
        with self._refusing(), contextlib.ExitStack() as opened:
            reader = opened.enter_context(contextlib.closing(connect_to_read(self.path)))
            reader.execute("BEGIN")  # everything is read as it is now, although old events may be deleted meanwhile
            rows = SqliteRows(reader)
            chain = journal_check.chain_of(rows, allocator, self._refuse)
            found = journal_check.read_snapshot(rows, allocator, chain, self._refuse)
            opened.pop_all()
        row = None if found is None else found[0]
        covered = 0 if row is None else row.seq
        self._chains[allocator.number].snapshot = covered
        start = chain.first - 1 if complete or row is None else row.seq

        def events() -> Iterator[Event]:
            with self._refusing(), contextlib.closing(reader):
                for event in journal_check.checked_events(rows, allocator, chain, row, start, self._refuse):
                    if event.seq > covered:
                        yield event

        return None if found is None else Snapshot(found[0].seq, found[1]), events()

    def last(self, allocator: int) -> int:
        return self._chains[allocator].last

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        query = """
            SELECT e.allocator, e.seq, e.kind, e.request, e.body, e.checksum, coalesce(p.checksum, anchor)
            FROM events AS e
            JOIN chains AS c ON c.allocator = e.allocator
            LEFT JOIN events AS p ON p.allocator = e.allocator AND p.seq = e.seq - 1
            WHERE e.allocator = ? AND e.request = ? AND e.kind = 0
        """
        try:
            row = self._reader.execute(query, (allocator, request_id)).fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # not a mistake of the client
            raise JournalError(f"{self.path}: cannot be read: {error}") from None
        if row is None:
            return None
        event = Event(*row[:5])
        if not isinstance(event.body, bytes) or row[5] != event.checksum(row[6]):
            raise JournalError(f"{self.path}: cannot be read: event {event.seq} of allocator {allocator} is damaged")
        return event

    def is_expired(self, allocator: int, request_id: str) -> bool:
        chain = self._chains[allocator]
        if chain.first == 1:
            return False
        query = "SELECT count(*) FROM expired WHERE allocator = ? AND generation IN (?, ?) AND fingerprint = ?"
        try:
            return bool(self._value(query, allocator, *chain.generations, digest(request_id.encode())))
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be read: {error}") from None

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, name: str, settings: str) -> Stored:
        with self._transaction("_writer") as writer:
            number = 1 + (writer.execute("SELECT max(number) FROM allocators").fetchone()[0] or 0)
            stored = Stored(number, name, settings)
            writer.execute("INSERT INTO allocators VALUES (?, ?, ?, ?)", (*stored, stored.checksum))
            writer.execute("INSERT INTO chains VALUES (?, 1, ?, 0, ?)", (number, stored.checksum, stored.checksum))
        self._chains[number] = ChainEnds(1, 0, stored.checksum)
        self._lock.record(allocators=len(self._chains))
        return stored

    def write(self, events: Sequence[Event]) -> None:
        checksums, heads = self._chains.link(events, self.place)
        rows = [(*event, checksum) for event, checksum in zip(events, checksums, strict=True)]
        with self._transaction("_writer") as writer:
            writer.executemany(
                "INSERT INTO events (allocator, seq, kind, request, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
            writer.executemany(
                "UPDATE chains SET last = ?, head = ? WHERE allocator = ?",
                [(*ends, number) for number, ends in heads.items()],
            )
        self._chains.note(heads)
        self._written += len(events)
        self._unmerged += sum(len(event.body) for event in events) + 3 * 4096
        self._lock.record(last=self.total)

    def check_writable(self) -> None:
        self.check_in_place()
        with self._transaction("_writer") as writer:
            writer.execute("UPDATE about SET format = format")

    @contextlib.contextmanager
    def _transaction(self, name: str) -> Iterator[sqlite3.Connection]:
        """Yield the connection of this name in a transaction."""
        with self._write_lock:
            connection: sqlite3.Connection | None = None
            try:
                connection = getattr(self, name)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
                self._lock.set_status(IN_USE)  # from now on the log contains acknowledged events
                self.check_in_place()  # what was written to a deleted file is not acknowledged
            except BaseException as error:
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise JournalError(f"{self.path}: cannot be written: {error}") from None
                raise

    def check_in_place(self) -> None:
        if self._log not in self._files and "_writer" in vars(self):
            with contextlib.suppress(OSError):
                self._files[self._log] = os.stat(self._log)
        try:
            moved = [path for path, then in self._files.items() if not os.path.samestat(os.stat(path), then)]
        except OSError as error:
            moved = [Path(error.filename)]
        if not moved and not self._lock.is_in_place:
            moved = [self._lock.path]
        if moved:
            raise JournalError(
                f"{moved[0]}: was deleted, moved or replaced while the service was running; put the folder back as it"
                " was, or restart the service"
            )

    # --- snapshots and old events ------------------------------------------------------------------------------------

    def write_snapshot(self, snapshot: NewSnapshot, *, considerate: bool = False) -> bool:
        number, seq = snapshot.allocator, snapshot.seq
        unused: set[int] = set()  # snapshots of which parts may be there that are not needed
        try:
            with self._reading_in_background() as background:
                query = """
                    SELECT checksum FROM events WHERE allocator = ? AND seq = ?
                    UNION ALL SELECT anchor FROM chains WHERE allocator = ? AND first = ?
                """
                found = background.execute(query, (number, seq, number, seq + 1)).fetchone()
                new = 1 + (background.execute("SELECT max(snapshot) FROM snapshot_parts").fetchone()[0] or 0)
                query = "SELECT snapshot FROM snapshots WHERE allocator = ?"
                replaced = background.execute(query, (number,)).fetchone()
            unused = {new}
            if found is None:
                raise JournalError(f"{self.path}: event {seq} of allocator {number} is not there")

            def store(part: int, data: bytes) -> None:
                self._check_epoch(snapshot)
                with self._transaction("_background") as background:
                    background.execute("INSERT INTO snapshot_parts VALUES (?, ?, ?)", (new, part, data))
                self._unmerged += len(data)
                self.maintain()

            parts = SnapshotParts(snapshot, found[0], store, considerate)
            snapshot.write_to(parts)  # type: ignore[arg-type]
            parts.finish()
            state = parts.state
            with self._transaction("_writer") as writer:
                self._check_epoch(snapshot)
                row = (number, seq, found[0], new, state.size, state.checksum)
                writer.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)
            self._chains[number].snapshot = seq
            unused = set(replaced or ())
        except _Cancelled:
            return False
        finally:
            with contextlib.suppress(JournalError):
                self._delete_parts(unused, considerate)
        return True

    def _check_epoch(self, snapshot: NewSnapshot) -> None:
        if snapshot.epoch != self.epoch:
            raise _Cancelled

    def cancel_snapshots(self) -> None:
        with self._write_lock:  # a snapshot is complete, or will notice
            self.epoch += 1

    def record_snapshots(self, begun: int) -> None:
        self._lock.record(snapshots=begun)

    @contextlib.contextmanager
    def _reading_in_background(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._background
        except sqlite3.Error as error:
            raise JournalError(f"{self.path}: cannot be read: {error}") from None

    def _delete_parts(self, unused: set[int], considerate: bool) -> None:
        """Delete the parts of snapshots that were replaced or not completed."""
        with self._reading_in_background() as background:
            if not self._swept:
                query = "SELECT DISTINCT snapshot FROM snapshot_parts EXCEPT SELECT snapshot FROM snapshots"
                unused |= {snapshot for (snapshot,) in background.execute(query)}
            self._swept = False  # unless all are deleted
            for snapshot in unused:
                (last,) = background.execute(
                    "SELECT max(part) FROM snapshot_parts WHERE snapshot = ?", (snapshot,)
                ).fetchone()
                for first in range(0, -1 if last is None else last + 1, DELETED_PARTS):
                    began = time.monotonic()
                    with self._transaction("_background"):
                        background.execute(
                            "DELETE FROM snapshot_parts WHERE snapshot = ? AND part >= ? AND part < ?",
                            (snapshot, first, first + DELETED_PARTS),
                        )
                    pause(began, considerate)
            self._swept = True

    def prune(self, allocator: int, keep: int) -> bool:
        chain = self._chains[allocator]
        end = chain.first_to_keep(keep)
        if end is None:
            return False
        with self._transaction("_background") as background:
            query = """
                SELECT seq, kind, request, length(body), checksum FROM events WHERE allocator = ? AND seq < ?
                ORDER BY seq LIMIT ?
            """
            pruned = choose_pruned(background.execute(query, (allocator, end, PRUNED_EVENTS)))
            last = pruned.last
            expired = [(allocator, *one) for one in pruned.fingerprints]
            background.execute("DELETE FROM events WHERE allocator = ? AND seq <= ?", (allocator, last))
            background.executemany("INSERT OR IGNORE INTO expired VALUES (?, ?, ?)", expired)
            background.execute(
                "DELETE FROM expired WHERE (allocator, generation, fingerprint) IN (SELECT allocator, generation,"
                " fingerprint FROM expired WHERE allocator = ? AND generation < ? LIMIT ?)",
                (allocator, pruned.oldest_generation, 2 * PRUNED_EVENTS),
            )
            background.execute(
                "UPDATE chains SET first = ?, anchor = ? WHERE allocator = ?", (last + 1, pruned.anchor, allocator)
            )
        chain.first = last + 1
        self._unmerged += pruned.size // 8
        return True

    def maintain(self) -> None:
        if self._unmerged < CHECKPOINT_BYTES or "_writer" not in vars(self):
            return
        self._unmerged = 0
        with contextlib.suppress(sqlite3.Error):  # tried again later
            self._background.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            with self._write_lock:  # what was written meanwhile; then the log begins anew
                self._background.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        if "_reader" in vars(self):
            self._reader.close()
        with contextlib.suppress(sqlite3.Error):
            if "_background" in vars(self):
                self._background.close()
        if "_writer" in vars(self):
            with contextlib.suppress(JournalError):
                if self._files:
                    self.check_in_place()
                self._lock.set_status(CLOSED)
            with contextlib.suppress(sqlite3.Error):
                self._writer.close()
        if hasattr(self, "_lock"):
            self._lock.close()


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)


def missing_file(folder: Path, status: str, last: int) -> str | None:
    """Return which file of a journal is missing, given what its lock file records."""
    # Without its log, or with an empty one, the journal would appear intact and contain an earlier state. Where the
    # number of events is known it is the better check, because a backup may have merged the log.
    in_log = status == IN_USE and last == 0
    for needed, file in ((status != "", folder / FILE_NAME), (in_log, folder / f"{FILE_NAME}-wal")):
        if needed and not (file.exists() and file.stat().st_size):
            return f"{file}: is missing or empty, but was not when it was last used"
    return None
