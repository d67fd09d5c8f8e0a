"""Chains of events and parts of snapshots, in the form in which every journal stores them.

An event is stored with a checksum that covers the checksum of the event before it. A snapshot is stored in parts, so
that none of them delays a commit of events. Which old events may be deleted follows from the snapshot and from how many
are to be kept. The journals share all of this and differ in how they store rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from idleband.service.journal import DECIDE, Event, JournalError, NewSnapshot, digest
from idleband.service.journal_check import StateDigest

PART_BYTES = 2**18  # of a snapshot, written in one transaction
DELETED_PARTS = 4  # of an old snapshot, in one transaction
PRUNED_EVENTS, PRUNED_BYTES = 256, 2**20  # deleted in one transaction, at most
MAX_PAUSE = 0.05  # seconds between two parts of a snapshot
# The request_ids of deleted decisions are kept for at least so many events, as 64 bits each.
GENERATION = 10_000_000


@dataclass
class ChainEnds:
    """What is in the journal of one allocator. Events and snapshots are written by different threads."""

    first: int
    last: int
    head: int
    snapshot: int = 0  # number of the last event that is in the snapshot

    @property
    def generations(self) -> tuple[int, int]:
        """The generations of fingerprints that are kept."""
        return self.first // GENERATION, self.first // GENERATION - 1

    def first_to_keep(self, keep: int) -> int | None:
        """Return the number of the first event to keep; None if too few events before it could be deleted."""
        end = min(self.snapshot, self.last - keep) + 1
        return None if end - self.first <= min(PRUNED_EVENTS, keep // 8) else end


class Chains(dict[int, ChainEnds]):
    """The ends of the chains of allocators, by their numbers."""

    def link(self, events: Sequence[Event], place: str) -> tuple[list[int], dict[int, tuple[int, int]]]:
        """Return the checksums of new events, and the new last number and its checksum by allocator."""
        heads: dict[int, tuple[int, int]] = {}
        checksums = []
        for event in events:
            number = event.allocator
            last, head = heads.get(number) or (self[number].last, self[number].head)
            if event.seq != last + 1:
                raise JournalError(f"{place}: event {event.seq} of allocator {number} does not follow {last}")
            checksum = event.checksum(head)
            heads[number] = event.seq, checksum
            checksums.append(checksum)
        return checksums, heads

    def note(self, heads: dict[int, tuple[int, int]]) -> None:
        """Note the ends of chains that were written."""
        for number, (last, head) in heads.items():
            chain = self[number]
            chain.last, chain.head = last, head


class Pruned(NamedTuple):
    """Events that are to be deleted in one transaction."""

    last: int  # number of the last one
    anchor: int  # its checksum
    fingerprints: list[tuple[int, int]]  # generation and fingerprint of each of their decisions
    size: int  # of their bodies

    @property
    def oldest_generation(self) -> int:
        """The first generation of fingerprints that has to be kept."""
        return self.last // GENERATION - 1


def choose_pruned(rows: Iterable[tuple[int, int, str, int, int]]) -> Pruned:
    """Choose events to delete from rows of number, kind, request_id, size of the body and checksum."""
    size = 0
    chosen, fingerprints = [], []
    for number, kind, request, length, checksum in rows:
        chosen.append((number, checksum))
        if kind == DECIDE:
            fingerprints.append((number // GENERATION, digest(request.encode())))
        size += length
        if size > PRUNED_BYTES:
            break
    return Pruned(*chosen[-1], fingerprints, size)


class SnapshotParts:
    """A file whose content is stored part by part by a function of the number and the content of a part."""

    def __init__(
        self, snapshot: NewSnapshot, chain: int, store: Callable[[int, bytes], None], considerate: bool
    ) -> None:
        self.state = StateDigest(snapshot.allocator, snapshot.seq, chain)
        self._store, self._considerate = store, considerate
        self._buffer = bytearray()
        self._count = 0
        self._began = time.monotonic()

    def write(self, data: bytes) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PART_BYTES):
            self._buffer += view[start : start + PART_BYTES]
            while len(self._buffer) >= PART_BYTES:
                self._store_part(bytes(self._buffer[:PART_BYTES]))
                del self._buffer[:PART_BYTES]
        return len(view)

    def flush(self) -> None:
        """Do nothing: parts are stored when they are complete."""

    def finish(self) -> None:
        """Store what is left."""
        if self._buffer:
            self._store_part(bytes(self._buffer))
            self._buffer.clear()

    def _store_part(self, data: bytes) -> None:
        self.state.update(data)
        self._store(self._count, data)
        self._count += 1
        pause(self._began, self._considerate)
        self._began = time.monotonic()


def pause(began: float, considerate: bool) -> None:
    """Sleep for as long as work took that began at this time, so that other threads get half of the time."""
    if considerate:
        time.sleep(min(MAX_PAUSE, time.monotonic() - began))
