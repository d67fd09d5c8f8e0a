"""The journal: a durable log of decisions and reports in one SQLite file.

The state of an allocator is its last snapshot and the events after it, in order. An event is acknowledged when its
transaction is committed: SQLite's write-ahead log is synced at every commit, and a commit may hold many events. Rows
carry checksums, because SQLite detects torn pages but not flipped bits.

The file is opened read-only until something is written, so that a file that is refused is left unchanged: a connection
that may write would copy the write-ahead log into it when it is closed. Decisions are kept for some time after a
snapshot contains them, so that a request that is repeated late gets the same answer.
"""

import contextlib
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from idleband.errors import InputError, StorageError
from idleband.service.journal_lock import CLOSED, IN_USE, JournalLock

FORMAT = 1
FILE_NAME = "journal.sqlite"

DECIDE, REPORT, LATE, VACATE, RESTORE, RESET = range(6)  # kinds of events

_TABLES = """
CREATE TABLE about (format INTEGER NOT NULL);
CREATE TABLE allocators (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,      -- one order for all allocators
    allocator INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    request TEXT,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX decisions ON events (allocator, request) WHERE kind = 0;
CREATE TABLE snapshots (
    allocator INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,         -- the last event that is in it
    state BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
"""


class Change(NamedTuple):
    """A change of an allocator that is to become an event."""

    allocator: int  # number of the allocator
    kind: int
    request_id: str | None
    body: bytes


class Event(NamedTuple):
    """A change with its number in the order of all events."""

    seq: int
    allocator: int
    kind: int
    request_id: str | None
    body: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(f"{self.seq} {self.allocator} {self.kind} {self.request_id}".encode(), zlib.crc32(self.body))


class Snapshot(NamedTuple):
    """The serialized state of an allocator after one event."""

    allocator: int
    seq: int
    state: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(f"{self.allocator} {self.seq}".encode(), zlib.crc32(self.state))


class Stored(NamedTuple):
    """An allocator as stored in the journal."""

    number: int
    name: str
    settings: str
    seq: int  # of the last event in the snapshot; 0 without a snapshot
    state: bytes | None


def _settings_checksum(name: str, settings: str) -> int:
    return zlib.crc32(f"{name} {settings}".encode())


class JournalError(StorageError):
    """The journal cannot be written or read now. Nothing of the transaction was written."""


class Journal:
    """The journal of one folder. Several threads may write; one reads."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.path = folder / FILE_NAME
        self.keep = keep  # events kept after a snapshot contains them
        self._write_lock = threading.Lock()
        with self._refusing():
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = JournalLock(folder)
            try:
                self._open()
                self._last = self._value("SELECT max(seq) FROM events") or 0
                if self._last < self._lock.last:  # SQLite reads a damaged log as one that ends earlier
                    raise InputError(
                        f"{self.path}-wal: is damaged: {self._lock.last} events were written, but only {self._last} can"
                        f" be read; left unchanged. Remove {self._lock.path} to continue without the others"
                    )
                allocators = self._value("SELECT count(*) FROM allocators")
                if allocators < self._lock.allocators:
                    raise InputError(
                        f"{self.path}-wal: is damaged: {self._lock.allocators} allocators were written, but only"
                        f" {allocators} can be read; left unchanged. Remove {self._lock.path} to continue without the"
                        " others"
                    )
                self._lock.allocators = allocators  # the lock file may have been removed
                self._oldest = self._value("SELECT min(seq) FROM events") or 1
            except BaseException:
                self.close()
                raise
        self._covered = 0

    def _open(self) -> None:
        """Connect to the file, or create it. Refuse a file that is damaged or of another program."""
        log = self.path.with_name(f"{FILE_NAME}-wal")
        # Without its log, or with an empty one, the journal would appear intact and contain an earlier state. Where the
        # number of events is known it is the better check, because a backup may have merged the log.
        in_log = self._lock.status == IN_USE and self._lock.last == 0
        for needed, file in ((self._lock.status != "", self.path), (in_log, log)):
            if needed and not (file.exists() and file.stat().st_size):
                raise InputError(
                    f"{file}: is missing or empty, but was not when it was last used; put it back, or remove"
                    f" {self._lock.path} to continue without it"
                )
        if not self.path.exists():
            self._create()
        elif not os.access(self.path, os.W_OK):
            raise InputError(f"{self.path}: is not writable")
        self._reader = self._connect_to_read()
        if not self._value("SELECT count(*) FROM sqlite_master"):  # the process ended while it created the file
            self._reader.close()
            self._create()
            self._reader = self._connect_to_read()
        self._check()

    def _connect_to_read(self) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)

    @cached_property
    def _writer(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _create(self) -> None:
        self._writer.executescript(f"BEGIN; {_TABLES} INSERT INTO about VALUES ({FORMAT}); COMMIT;")

    def _value(self, query: str, *parameters: Any) -> Any:
        row = self._reader.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def _check(self) -> None:
        """Refuse a file that is damaged or was not written by this program."""
        if not self._value("SELECT count(*) FROM sqlite_master WHERE name = 'about'"):
            raise InputError(f"{self.path}: was not written by idleband; left unchanged")
        found = self._value("SELECT format FROM about")
        if found != FORMAT:
            raise InputError(f"{self.path}: has format {found!r}; this version reads {FORMAT}")
        result = self._value("PRAGMA integrity_check(1)")
        if result != "ok":
            raise InputError(f"{self.path}: is damaged ({result}); left unchanged")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn errors of a file that cannot be read into an InputError of one line."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: cannot be read ({error}); left unchanged") from None
        except FileExistsError as error:
            raise InputError(f"{error.filename}: must be a folder") from None
        except OSError as error:
            raise InputError(f"{error.filename or self.path}: {error.strerror or error}") from None

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """Number of the last event."""
        return int(self._last)

    def stored(self) -> list[Stored]:
        """Return all allocators."""
        query = """
            SELECT number, name, settings, coalesce(seq, 0), state, allocators.checksum, snapshots.checksum
            FROM allocators LEFT JOIN snapshots ON allocator = number ORDER BY number
        """
        with self._refusing():
            rows = self._reader.execute(query).fetchall()
        for number, name, settings, seq, state, settings_checksum, checksum in rows:
            if settings_checksum != _settings_checksum(name, settings):
                raise InputError(f"{self.path}: the settings of allocator {name!r} are damaged; left unchanged")
            if state is not None and not (
                isinstance(state, bytes) and checksum == Snapshot(number, seq, state).checksum
            ):
                raise InputError(f"{self.path}: the snapshot of allocator {name} is damaged; left unchanged")
        return [Stored(*row[:5]) for row in rows]

    def events(self, allocator: int, after: int) -> Iterator[Event]:
        """Yield the events of an allocator with numbers above `after`, in order."""
        query = "SELECT seq, allocator, kind, request, body, checksum FROM events WHERE seq > ? AND allocator = ?"
        with self._refusing():
            for *row, checksum in self._reader.execute(f"{query} ORDER BY seq", (after, allocator)):
                yield self._verified(Event(*row), checksum)

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is still kept."""
        query = """
            SELECT seq, allocator, kind, request, body, checksum FROM events
            WHERE allocator = ? AND request = ? AND kind = 0
        """
        try:
            row = self._reader.execute(query, (allocator, request_id)).fetchone()
            return None if row is None else self._verified(Event(*row[:5]), row[5])
        except (sqlite3.Error, UnicodeDecodeError, InputError) as error:  # not a mistake of the client
            raise JournalError(f"{self.path}: cannot be read: {error}") from None

    def _verified(self, event: Event, checksum: int) -> Event:
        if not (isinstance(event.body, bytes) and event.checksum == checksum):
            raise InputError(f"{self.path}: event {event.seq} is damaged; left unchanged")
        return event

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = (), covered: int = 0) -> None:
        """Write events and snapshots in one transaction; they are durable when this returns.

        All events up to number `covered` are contained in snapshots. Those of them that are too old are deleted, at
        most two for every new event, so that no call takes long.
        """
        rows = [(*event, event.checksum) for event in events]
        states = [(*snapshot, snapshot.checksum) for snapshot in snapshots]
        last = events[-1].seq if events else self._last
        covered = max(covered, self._covered)
        oldest = max(self._oldest, min(self._oldest + 2 * len(events), last - self.keep, covered + 1))
        with self._transaction():
            self._writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._writer.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", states)
            if oldest > self._oldest:
                self._writer.execute("DELETE FROM events WHERE seq < ?", (oldest,))
        self._last, self._oldest, self._covered = last, oldest, covered
        self._lock.record(last=last)

    def add(self, name: str, settings: str) -> int:
        """Add an allocator; return its number."""
        with self._transaction():
            row = (name, settings, _settings_checksum(name, settings))
            done = self._writer.execute("INSERT INTO allocators (name, settings, checksum) VALUES (?, ?, ?)", row)
        number = int(done.lastrowid or 0)
        self._lock.record(allocators=number)  # allocators are never removed, so this is their count
        return number

    def check_writable(self) -> None:
        """Write without changing anything; raise JournalError if that fails."""
        with self._transaction():
            self._writer.execute("UPDATE about SET format = format")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield
                self._writer.execute("COMMIT")
                self._lock.set_status(IN_USE)  # from now on the log contains acknowledged events
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise JournalError(f"{self.path}: cannot be written: {error}") from None
                raise

    def close(self) -> None:
        """Close the file and release the folder."""
        if "_reader" in vars(self):
            self._reader.close()
        if "_writer" in vars(self):
            self._lock.set_status(CLOSED)
            with contextlib.suppress(sqlite3.Error):
                self._writer.close()
        self._lock.close()
