"""The journal: what was acknowledged, in one SQLite file, whatever happens to the process.

State = the last snapshot + the events after it, in order. An event is acknowledged when its transaction is committed:
write-ahead log, synced at every commit, many events to a commit. Rows carry checksums, because SQLite notices a torn
page but not a flipped bit. Decisions are kept for some time after a snapshot has them, so that a request that is
repeated late gets its answer again.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idleband.errors import InputError

FORMAT = 1
NAME = "journal.sqlite"

DECIDE, REPORT, LATE, VACATE, RESTORE, RESET = range(6)  # kinds of events

_TABLES = """
CREATE TABLE about (format INTEGER NOT NULL);
CREATE TABLE allocators (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL);
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


class Event(NamedTuple):
    seq: int
    allocator: int
    kind: int
    request: str | None
    body: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(f"{self.seq} {self.allocator} {self.kind} {self.request}".encode(), zlib.crc32(self.body))


class Snapshot(NamedTuple):
    allocator: int
    seq: int  # of the last event that is in it
    state: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(f"{self.allocator} {self.seq}".encode(), zlib.crc32(self.state))


class Stored(NamedTuple):
    """An allocator as the journal has it."""

    number: int
    name: str
    settings: str
    seq: int  # of the last event that is in the snapshot, 0 if there is none
    state: bytes | None


class JournalError(Exception):
    """The journal cannot be written now: nothing of what was to be written is."""


class Journal:
    """One folder's journal. Several threads may write; one reads."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.path = folder / NAME
        self.keep = keep  # events that stay after a snapshot has them
        self._one_at_a_time = threading.Lock()
        with self._readable():
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
            try:
                new = not self.path.exists()
                self._writer, self._reader = self._connect(), self._connect()
                if new or not self._tables():
                    with self._writer:
                        self._writer.executescript(f"BEGIN; {_TABLES} INSERT INTO about VALUES ({FORMAT}); COMMIT;")
                self._check()
            except BaseException:
                os.close(self._lock)
                raise
        self._last = self._one("SELECT max(seq) FROM events") or 0
        self._oldest = self._one("SELECT min(seq) FROM events") or 1
        self._covered = 0

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _tables(self) -> bool:
        return bool(self._one("SELECT count(*) FROM sqlite_master WHERE name = 'about'"))

    def _one(self, question: str, *values: Any) -> Any:
        row = self._reader.execute(question, values).fetchone()
        return None if row is None else row[0]

    def _check(self) -> None:
        """Refuse a file that is damaged or not ours."""
        found = self._one("SELECT format FROM about")
        if found != FORMAT:
            raise InputError(f"{self.path}: has format {found!r}; this version reads {FORMAT}")
        said = self._one("PRAGMA quick_check(1)")
        if said != "ok":
            raise InputError(f"{self.path}: is damaged ({said}); it was left as it is")

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Whatever keeps the file from being read is told in one line, and the file left as it is."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path}: cannot be read ({error}); it was left as it is") from None
        except OSError as error:
            raise InputError(f"{error.filename or self.path}: {error.strerror or error}") from None

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """Number of the last event."""
        return int(self._last)

    def stored(self) -> list[Stored]:
        """All allocators."""
        question = """
            SELECT number, name, settings, coalesce(seq, 0), state, checksum
            FROM allocators LEFT JOIN snapshots ON allocator = number ORDER BY number
        """
        with self._readable():
            rows = self._reader.execute(question).fetchall()
        for number, name, _, seq, state, checksum in rows:
            if state is not None and checksum != Snapshot(number, seq, state).checksum:
                raise InputError(f"{self.path}: the snapshot of allocator {name} is damaged; it was left as it is")
        return [Stored(*row[:5]) for row in rows]

    def events(self, allocator: int, after: int) -> Iterator[Event]:
        """The events of an allocator after one, in order."""
        question = "SELECT seq, allocator, kind, request, body, checksum FROM events WHERE seq > ? AND allocator = ?"
        with self._readable():
            for *row, checksum in self._reader.execute(f"{question} ORDER BY seq", (after, allocator)):
                yield self._sound(Event(*row), checksum)

    def decision(self, allocator: int, request: str) -> Event | None:
        """The event of a decision that is still kept."""
        question = """
            SELECT seq, allocator, kind, request, body, checksum FROM events
            WHERE allocator = ? AND request = ? AND kind = 0
        """
        row = self._reader.execute(question, (allocator, request)).fetchone()
        return None if row is None else self._sound(Event(*row[:5]), row[5])

    def _sound(self, event: Event, checksum: int) -> Event:
        if event.checksum != checksum:
            raise InputError(f"{self.path}: event {event.seq} is damaged; it was left as it is")
        return event

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, events: Sequence[Event], snapshots: Sequence[Snapshot] = (), covered: int = 0) -> None:
        """Events and snapshots in one transaction: durable when this returns. Up to event `covered` all that happened
        is in snapshots now. What of it is too old goes, twice as fast as new events come, so that no call has much to
        do."""
        rows = [(*event, event.checksum) for event in events]
        states = [(*one, one.checksum) for one in snapshots]
        last = events[-1].seq if events else self._last
        covered = max(covered, self._covered)
        until = max(self._oldest, min(self._oldest + 2 * len(events), last - self.keep, covered + 1))
        with self._whole():
            self._writer.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._writer.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", states)
            if until > self._oldest:
                self._writer.execute("DELETE FROM events WHERE seq < ?", (until,))
        self._last, self._oldest, self._covered = last, until, covered

    def add(self, name: str, settings: str) -> int:
        """A new allocator; its number."""
        with self._whole():
            done = self._writer.execute("INSERT INTO allocators (name, settings) VALUES (?, ?)", (name, settings))
        return int(done.lastrowid or 0)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """All of a transaction, or nothing."""
        with self._one_at_a_time:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield
                self._writer.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise JournalError(f"{self.path}: cannot be written: {error}") from None
                raise

    def close(self) -> None:
        self._reader.close()
        with contextlib.suppress(sqlite3.Error):
            self._writer.close()
        os.close(self._lock)


def _lock(folder: Path) -> int:
    """Held as long as the process lives: two that write the same journal would each miss what the other knows."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(f"{folder}: is in use by another process; choose another folder") from None
    return descriptor
