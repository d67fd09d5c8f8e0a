"""The journal: a durable log of decisions and reports, as an interface.

The state of an allocator is its last snapshot and the events after it, in order. An event is acknowledged when it is
durable. The events of an allocator are numbered from 1 without gaps, and the checksum of each covers that of the event
before it, so that a missing, older or reordered event is noticed. `sqlite_journal.py` implements the interface.
"""

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

from idleband.errors import StorageError

DECIDE, REPORT, LATE, VACATE, RESTORE, RESET, CHANGE, DELETE = range(8)  # kinds of events


class Change(NamedTuple):
    """A change of an allocator that is to become an event."""

    allocator: int  # number of the allocator
    kind: int
    request_id: str | None
    body: bytes


class Event(NamedTuple):
    """A change with its number among the events of its allocator."""

    allocator: int
    seq: int
    kind: int
    request_id: str | None
    body: bytes

    def checksum(self, previous: int) -> int:
        """Return the checksum of this event, which covers the checksum of the event before it."""
        line = f"{previous} {self.allocator} {self.seq} {self.kind} {self.request_id} {zlib.crc32(self.body)}"
        return digest(f"{line} {len(self.body)}".encode())


class Stored(NamedTuple):
    """An allocator as stored in the journal."""

    number: int  # never used again
    name: str  # at present
    settings: str  # at present
    created: tuple[str, str] | None = None  # the name and the settings when it was created, if it was changed since
    changed: int = 0  # number of its last CHANGE event, or of its DELETE event; 0 if there is none
    deleted: bool = False

    @property
    def first_settings(self) -> str:
        """The settings when it was created. Events are replayed from these on where there is no snapshot."""
        return self.settings if self.created is None else self.created[1]

    @property
    def checksum(self) -> int:
        """Checksum of the name and the settings when it was created. It stands before that of the first event."""
        name, settings = self.created or (self.name, self.settings)
        return digest(f"{self.number} {name} {settings}".encode())


class Snapshot(NamedTuple):
    """The serialized state of an allocator after one event."""

    seq: int  # of the last event that is in it; 0 before the first
    state: bytes


class NewSnapshot(NamedTuple):
    """A snapshot that is to be written."""

    allocator: int
    seq: int
    epoch: int  # of the journal when the state was copied; see `Journal.cancel_snapshots`
    write_to: Callable[[IO[bytes]], None]  # serializes the state into a file


def change_body(name: str, settings: str) -> bytes:
    """Return the body of a CHANGE event: the name and the settings that the allocator has from then on."""
    return json.dumps([name, settings]).encode()


def read_change(body: bytes) -> tuple[str, str]:
    """Return the name and the settings of a CHANGE event."""
    name, settings = json.loads(body)
    return name, settings


def digest(data: bytes) -> int:
    """Return a checksum of 64 bits, as a signed number."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


class JournalError(StorageError):
    """The journal cannot be written or read now. Nothing of the transaction was written."""


class Journal(ABC):
    """Allocators, their events and their snapshots.

    `write`, `add` and `check_writable` are called by one thread at a time, as are `write_snapshot`, `prune` and
    `maintain`, which another thread may call meanwhile. The other methods may be called by any thread.

    Attributes
    ----------
    place : str
        Where the journal is, for messages.
    total : int
        Number of all events ever written.
    epoch : int
        Increased by `cancel_snapshots`.
    interrupted_snapshots : int
        Number of snapshots in a row that processes before this one began and did not end, because they were killed.
    """

    place: str
    total: int
    epoch: int
    interrupted_snapshots: int

    # --- reading -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocators(self) -> list[Stored]:
        """Return all allocators, with their present names and settings, without those that were deleted."""

    @abstractmethod
    def load(self, allocator: Stored, *, complete: bool) -> tuple[Snapshot | None, Iterator[Event]]:
        """Return the snapshot of an allocator and the events after it.

        The events are checked as they are read; `complete`: all that are kept, not only those after the snapshot.
        Raises InputError where something is damaged or missing. Nothing may be written of this allocator meanwhile,
        except that old events may be deleted.
        """

    @abstractmethod
    def reread(self) -> None:
        """Read again, after a failed write, which events are there."""

    @abstractmethod
    def last(self, allocator: int) -> int:
        """Return the number of the last event of an allocator; 0 if there is none."""

    @abstractmethod
    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is kept."""

    @abstractmethod
    def is_expired(self, allocator: int, request_id: str) -> bool:
        """Return whether this request_id was used for a decision that `find_decision` does not find.

        The decision was deleted because it is old, or it belongs to another allocator that had the name of this one at
        the time: one that was renamed or deleted since. Request_ids outlive deleted allocators for this purpose.
        """

    # --- writing -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def add(self, name: str, settings: str) -> Stored:
        """Add an allocator. Its name must be that of no other, and its number must never have been used."""

    @abstractmethod
    def write(self, events: Sequence[Event]) -> None:
        """Write events in one transaction; they are durable when this returns. Raises JournalError.

        A CHANGE event also changes the name and the settings that `allocators` returns. A DELETE event, which is the
        last one of its allocator, removes the allocator from them, and its snapshot. Both happen in the transaction.
        """

    @abstractmethod
    def write_snapshot(self, snapshot: NewSnapshot, *, considerate: bool = False) -> bool:
        """Replace the snapshot of an allocator; return False if it was cancelled.

        It is written in small parts, between which events may be written. `considerate`: leave time between them.
        """

    @abstractmethod
    def record_snapshots(self, begun: int) -> None:
        """Record how many snapshots were begun in a row and not ended, for `interrupted_snapshots`."""

    @abstractmethod
    def cancel_snapshots(self) -> None:
        """Let no snapshot of a state that was copied before be written. Event numbers may be used again afterwards."""

    @abstractmethod
    def prune(self, allocator: int, keep: int) -> bool:
        """Delete some events that are in the snapshot of an allocator and not among its last `keep` ones.

        The request_ids of their decisions stay known to `is_expired`. Returns whether any were deleted: a few are not.
        """

    @abstractmethod
    def maintain(self) -> None:
        """Do other work that may not delay requests.

        Events of deleted allocators are deleted here, in transactions as small as those of `prune`.
        """

    @abstractmethod
    def check_in_place(self) -> None:
        """Raise JournalError if the journal was deleted, moved or replaced."""

    @abstractmethod
    def check_writable(self) -> None:
        """Write without changing anything; raise JournalError if that fails."""

    @abstractmethod
    def close(self) -> None:
        """Release the journal."""


class Owner(NamedTuple):
    """The owner of an allocator in a journal that several processes share."""

    is_here: bool  # whether it is this process
    address: str | None  # of the process; None if it has ended, or lost its lease


class SharedJournal(Journal):
    """A journal of several processes. Each has some of the allocators; the methods above are about these.

    Attributes
    ----------
    failure : str
        Why the journal could not be reached lately; empty if it could.
    """

    @property
    @abstractmethod
    def failure(self) -> str: ...

    @abstractmethod
    async def find_owner(self, name: str) -> Owner | None:
        """Return the owner of an allocator; None if there is no allocator of this name.

        This process takes over allocators that have no owner.
        """

    @abstractmethod
    async def find_settings(self, name: str) -> tuple[str, str] | None:
        """Return the settings of an allocator of any process, at present and when it was created.

        None if there is no allocator of this name.
        """

    @abstractmethod
    async def names(self) -> list[str]:
        """Return the names of the allocators of all processes."""

    @abstractmethod
    def fence(self, allocator: int) -> int:
        """Return a number that is another one with every change of the owner; 0 if it is not this process."""

    @abstractmethod
    def on_change(self, changed: Callable[[], object]) -> None:
        """Call this function, in another thread, whenever this process has other allocators than before."""
