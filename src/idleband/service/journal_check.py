"""Checks of a journal: what is damaged, missing or older than the rest, in plain words.

They read rows, in whatever database these are stored.

Every check reports through a function. The service raises an InputError at the first fault; `idleband journal verify`
collects all of them.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from idleband.errors import counted
from idleband.service.journal import Event, Stored

FORMAT = 2

Report = Callable[[str], None]


class Chain(NamedTuple):
    """The ends of the chain of an allocator's events."""

    first: int  # number of the oldest event that is kept
    anchor: int  # checksum of the event before it
    last: int  # number of the last event; first - 1 if no event is kept
    head: int  # its checksum


class SnapshotRow(NamedTuple):
    """What is stored of a snapshot beside its parts."""

    seq: int
    chain: int  # checksum of the event `seq`
    snapshot: int  # number under which the parts are stored
    size: int
    checksum: int


class StateDigest:
    """The checksum of a snapshot, computed part by part."""

    def __init__(self, allocator: int, seq: int, chain: int) -> None:
        self._digest = hashlib.blake2b(f"{allocator} {seq} {chain}".encode(), digest_size=8)
        self.size = 0

    def update(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)

    @property
    def checksum(self) -> int:
        return int.from_bytes(self._digest.digest(), "little", signed=True)


class Rows(ABC):
    """The rows of a journal of the present format. Damaged ones may contain anything."""

    @abstractmethod
    def allocators(self) -> Iterable[tuple[Any, ...]]:
        """Return number, name, settings and checksum of each allocator, by number."""

    @abstractmethod
    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        """Return first, anchor, last and head of the chain of an allocator."""

    @abstractmethod
    def snapshot(self, allocator: int) -> tuple[Any, ...] | None:
        """Return the row of the snapshot of an allocator, in the order of `SnapshotRow`."""

    @abstractmethod
    def parts(self, snapshot: int) -> Iterable[Any]:
        """Return the parts of a snapshot in order."""

    @abstractmethod
    def events(self, allocator: int, after: int) -> Iterable[tuple[Any, ...]]:
        """Return the fields of `Event` and the checksum of each event after this number, in order."""

    @abstractmethod
    def mentioned(self, table: str) -> Iterable[int]:
        """Return the numbers of the allocators in the table events, chains or snapshots."""

    @abstractmethod
    def base(self) -> int:
        """Return the number of events that were written before those in the chains."""


def stored_allocators(rows: Rows, report: Report) -> list[Stored]:
    """Return all allocators; report those whose settings are damaged."""
    found = []
    for *row, checksum in rows.allocators():
        stored = Stored(*row)
        if stored.checksum != checksum:
            report(f"the settings of allocator {stored.name!r} are damaged")
        found.append(stored)
    return found


def chain_of(rows: Rows, stored: Stored, report: Report) -> Chain:
    """Return the ends of the chain of an allocator."""
    row = rows.chain(stored.number)
    if row is None or not all(isinstance(one, int) for one in row):
        report(f"the number of events of allocator {stored.name} is missing")
        return Chain(1, stored.checksum, 0, stored.checksum)
    chain = Chain(*row)
    if chain.first == 1 and chain.anchor != stored.checksum:
        report(f"the events of allocator {stored.name} do not belong to it")
    return chain


def read_snapshot(rows: Rows, stored: Stored, chain: Chain, report: Report) -> tuple[SnapshotRow, bytes] | None:
    """Return the snapshot of an allocator, if it has one."""
    name = stored.name
    row = rows.snapshot(stored.number)
    if row is None:
        if chain.first != 1:
            report(f"the snapshot of allocator {name} is missing, and its events begin with number {chain.first}")
        return None
    found = SnapshotRow(*row)
    digest, parts = StateDigest(stored.number, found.seq, found.chain), []
    for data in rows.parts(found.snapshot):
        if not isinstance(data, bytes):
            break
        digest.update(data)
        parts.append(data)
    if (digest.size, digest.checksum) != (found.size, found.checksum):
        report(f"the snapshot of allocator {name} is damaged")
    elif found.seq < chain.first - 1:
        report(f"{_missing(found.seq + 1, chain.first - 1, name)}: its snapshot is older than its events")
    elif found.seq > chain.last:
        report(f"{_missing(chain.last + 1, found.seq, name)}: its snapshot is newer than its events")
    return found, b"".join(parts)


def checked_events(
    rows: Rows, stored: Stored, chain: Chain, snapshot: SnapshotRow | None, start: int, report: Report
) -> Iterator[Event]:
    """Yield the events of an allocator with numbers above `start`, in order.

    `start` is the number before the first event that is kept, or that of the snapshot.
    """
    name, expected = stored.name, start + 1
    previous: int | None = chain.anchor
    if snapshot is not None and start == snapshot.seq:
        if start == chain.first - 1 and snapshot.chain != chain.anchor:
            report(f"the snapshot of allocator {name} does not belong to its events")
        previous = snapshot.chain
    for *row, checksum in rows.events(stored.number, start):
        event = Event(*row)
        if event.seq != expected:
            report(_missing(expected, event.seq - 1, name))
        elif not isinstance(event.body, bytes) or (previous is not None and checksum != event.checksum(previous)):
            report(f"event {event.seq} of allocator {name} is damaged, or does not follow the one before it")
        if snapshot is not None and event.seq == snapshot.seq and checksum != snapshot.chain:
            report(f"the snapshot of allocator {name} does not belong to its events")
        expected, previous = event.seq + 1, checksum
        yield event
    if expected <= chain.last:
        report(_missing(expected, chain.last, name))
    elif expected - 1 != chain.last or (previous is not None and previous != chain.head):
        report(f"the last event of allocator {name} is not the one that was written last")


def _missing(first: int, last: int, name: str) -> str:
    numbers = f"event {first}" if first == last else f"events {first} to {last}"
    return f"{numbers} of allocator {name} {'is' if first == last else 'are'} missing"


class Summary(NamedTuple):
    """What a journal contains."""

    allocators: int
    events: int  # that are kept
    written: int  # ever
    faults: list[str]

    def __str__(self) -> str:
        return f"{counted(self.allocators, 'allocator')}, {counted(self.events, 'event')}"


def summary(rows: Rows, recorded: tuple[int, int, int]) -> Summary:
    """Check a whole journal of the present format. `recorded` are the numbers in its lock file."""
    faults: list[str] = []
    kept = written = 0
    allocators = stored_allocators(rows, faults.append)
    for stored in allocators:
        chain = chain_of(rows, stored, faults.append)
        snapshot = read_snapshot(rows, stored, chain, faults.append)
        row = None if snapshot is None else snapshot[0]
        kept += sum(1 for _ in checked_events(rows, stored, chain, row, chain.first - 1, faults.append))
        written += chain.last
    numbers = [stored.number for stored in allocators]
    for table in ("events", "chains", "snapshots"):
        for number in rows.mentioned(table):
            if number not in numbers:
                faults.append(f"allocator number {number} is missing, but not its {table}")
    written += rows.base()
    faults += count_faults(written, len(allocators), recorded)
    return Summary(len(allocators), kept, written, faults)


def count_faults(written: int, allocators: int, recorded: tuple[int, int, int]) -> list[str]:
    """Return whether fewer events or allocators are there than were written. SQLite reads a damaged log as one that
    ends before the damage."""
    last, number, _ = recorded
    found = []
    if written < last:
        found.append(f"{last} events were written, but only {written} can be read")
    if allocators < number:
        found.append(f"{number} allocators were written, but only {allocators} can be read")
    return found
