"""The journal: what was acknowledged, in one SQLite file, whatever happens to the process.

State = the last snapshot + the events after it, in order. An event is acknowledged when its transaction is committed:
write-ahead log, synced at every commit, many events to a commit. Rows carry checksums, because SQLite notices a torn
page but not a flipped bit. The file is opened to read only until something is written, so that one that is refused is
left as it is: a connection that may write copies the log into it when it is closed. Decisions are kept for some time
after a snapshot has them, so that a request that is repeated late gets its answer again.
"""

import contextlib
import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from idleband.errors import InputError

FORMAT = 1
NAME = "journal.sqlite"

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


def _of_settings(name: str, settings: str) -> int:
    """Their checksum."""
    return zlib.crc32(f"{name} {settings}".encode())


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
            self._lock = _Lock(folder)
            try:
                self._open()
                self._last = self._one("SELECT max(seq) FROM events") or 0
                if self._last < self._lock.last:  # SQLite takes a damaged log for one that ends earlier
                    raise InputError(
                        f"{self.path}-wal: is damaged: {self._lock.last} events were written, and {self._last} can be"
                        f" read; it was left as it is. Remove {self._lock.path} to go on without the others"
                    )
                allocators = self._one("SELECT count(*) FROM allocators")
                if allocators < self._lock.allocators:
                    raise InputError(
                        f"{self.path}-wal: is damaged: there were {self._lock.allocators} allocators, and {allocators}"
                        f" can be read; it was left as it is. Remove {self._lock.path} to go on without the others"
                    )
                self._lock.allocators = allocators  # a lock that was removed knows of none
                self._oldest = self._one("SELECT min(seq) FROM events") or 1
            except BaseException:
                self.close()
                raise
        self._covered = 0

    def _open(self) -> None:
        """Connect to a file that is ours and sound; made, if there is none."""
        log = self.path.with_name(f"{NAME}-wal")
        # Without the log after a crash, or emptied, the journal would look sound and be of an earlier time.
        # How many events there must be tells it better, where it is known: a backup may have merged the log.
        in_log = self._lock.said == IN_USE and self._lock.last == 0
        for needed, file in ((self._lock.said != "", self.path), (in_log, log)):
            if needed and not (file.exists() and file.stat().st_size):
                raise InputError(
                    f"{file}: is missing or empty, and was not when it was used last; put it back, or remove"
                    f" {self._lock.path} to go on without"
                )
        if not self.path.exists():
            self._create()
        elif not os.access(self.path, os.W_OK):
            raise InputError(f"{self.path}: may not be written to")
        self._reader = self._connect_to_read()
        if not self._one("SELECT count(*) FROM sqlite_master"):  # the process ended while it was made
            self._reader.close()
            self._create()
            self._reader = self._connect_to_read()
        self._check()

    def _connect_to_read(self) -> sqlite3.Connection:
        place = f"file:{quote(str(self.path.absolute()))}?mode=ro"
        return sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)

    @cached_property
    def _writer(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _create(self) -> None:
        self._writer.executescript(f"BEGIN; {_TABLES} INSERT INTO about VALUES ({FORMAT}); COMMIT;")

    def _one(self, question: str, *values: Any) -> Any:
        row = self._reader.execute(question, values).fetchone()
        return None if row is None else row[0]

    def _check(self) -> None:
        """Refuse a file that is damaged or not ours."""
        if not self._one("SELECT count(*) FROM sqlite_master WHERE name = 'about'"):
            raise InputError(f"{self.path}: was not written by idleband; it was left as it is")
        found = self._one("SELECT format FROM about")
        if found != FORMAT:
            raise InputError(f"{self.path}: has format {found!r}; this version reads {FORMAT}")
        said = self._one("PRAGMA integrity_check(1)")
        if said != "ok":
            raise InputError(f"{self.path}: is damaged ({said}); it was left as it is")

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Whatever keeps the file from being read is told in one line, and the file left as it is."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: cannot be read ({error}); it was left as it is") from None
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
        """All allocators."""
        question = """
            SELECT number, name, settings, coalesce(seq, 0), state, allocators.checksum, snapshots.checksum
            FROM allocators LEFT JOIN snapshots ON allocator = number ORDER BY number
        """
        with self._readable():
            rows = self._reader.execute(question).fetchall()
        for number, name, settings, seq, state, own, checksum in rows:
            if own != _of_settings(name, settings):
                raise InputError(f"{self.path}: the settings of allocator {name!r} are damaged; it was left as it is")
            if state is not None and not (
                isinstance(state, bytes) and checksum == Snapshot(number, seq, state).checksum
            ):
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
        try:
            row = self._reader.execute(question, (allocator, request)).fetchone()
            return None if row is None else self._sound(Event(*row[:5]), row[5])
        except (sqlite3.Error, UnicodeDecodeError, InputError) as error:  # no mistake of whoever asks
            raise JournalError(f"{self.path}: cannot be read: {error}") from None

    def _sound(self, event: Event, checksum: int) -> Event:
        if not (isinstance(event.body, bytes) and event.checksum == checksum):
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
        self._lock.note(last=last)

    def add(self, name: str, settings: str) -> int:
        """A new allocator; its number."""
        with self._whole():
            row = (name, settings, _of_settings(name, settings))
            done = self._writer.execute("INSERT INTO allocators (name, settings, checksum) VALUES (?, ?, ?)", row)
        number = int(done.lastrowid or 0)
        self._lock.note(allocators=number)  # none is ever removed: so many there are
        return number

    def try_to_write(self) -> None:
        """Write something that changes nothing: a JournalError, if that cannot be done."""
        with self._whole():
            self._writer.execute("UPDATE about SET format = format")

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """All of a transaction, or nothing."""
        with self._one_at_a_time:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield
                self._writer.execute("COMMIT")
                self._lock.say(IN_USE)  # from now on the log has what was acknowledged
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise JournalError(f"{self.path}: cannot be written: {error}") from None
                raise

    def close(self) -> None:
        if "_reader" in vars(self):
            self._reader.close()
        if "_writer" in vars(self):
            self._lock.say(CLOSED)
            with contextlib.suppress(sqlite3.Error):
                self._writer.close()
        self._lock.close()


IN_USE, CLOSED = "in use\n", "closed\n"


class _Lock:
    """A file that is locked as long as the process lives: two that write the same journal would each miss what the
    other knows. In it stands what must be beside it: a journal; and, while it is in use or after a crash, its log, with
    at least so many events, and allocators."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._one_at_a_time = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise InputError(f"{folder}: is in use by another process; choose another folder") from None
        found = os.pread(self._descriptor, 100, 0).decode(errors="replace")
        self.said = found[: len(IN_USE)]
        self.last, self.allocators = (int(n) if n.isdecimal() else 0 for n in (*found.split("\n"), "", "")[1:3])

    def say(self, what: str) -> None:
        if self.said != what:
            with contextlib.suppress(OSError):  # then the next time
                os.pwrite(self._descriptor, what.encode(), 0)
                os.fsync(self._descriptor)
                self.said = what

    def note(self, last: int = 0, allocators: int = 0) -> None:
        """The last event that was written, and how many allocators there are. Not synced: what the system forgets here
        when it fails makes it too small, and what it is compared with was synced before."""
        with self._one_at_a_time, contextlib.suppress(OSError):
            self.last, self.allocators = max(self.last, last), max(self.allocators, allocators)
            os.pwrite(self._descriptor, f"{self.last:020d}\n{self.allocators:010d}\n".encode(), len(IN_USE))

    def close(self) -> None:
        os.close(self._descriptor)
