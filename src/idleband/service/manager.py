"""All desks of a folder, and the one place where events become durable.

Events gather while the last ones are being written, and go together in the next transaction: the more callers there
are, the more events share one sync. Where a write fails (a full disk), what was not written was not acknowledged
either; desks are then made anew from the journal, as after a crash.
"""

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from idleband.allocator.core import AllocatorCore
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT
from idleband.errors import ConflictError, InputError, shown
from idleband.service.journal import DECIDE, Event, Journal, JournalError, Snapshot, Stored
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.messages import NAME

SNAPSHOT_EVERY = 20_000  # events
SNAPSHOT_WAIT = 0.1  # seconds, for a policy that is behind; everybody waits meanwhile
KEEP = 200_000  # events that stay after a snapshot has them,
KEEP_BYTES = 2**30  # or fewer, where decisions are large
AGAIN_AFTER = 1.0  # seconds between two attempts to come back from a failure
MAX_ALLOCATORS = 100
MAX_STATE = 9 * 10**8  # bytes of a snapshot: SQLite takes 10^9

log = logging.getLogger("idleband.service")


def check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise InputError(f"name = {shown(name)}: must be 1 to 80 letters, digits or . _ -, a letter or digit first")


class Pictures(NamedTuple):
    """All desks after one event; to be written as snapshots when they have been made bytes of."""

    seq: int
    of: dict[int, Callable[[], bytes]]  # by the number of the desk


class AllocatorManager:
    """Desks by name. Not for several threads: what changes a desk and `commit` or `durable` belong to one."""

    def __init__(self, folder: Path, *, keep: int = KEEP, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self.journal = Journal(folder, keep)
        self._keep = keep
        self.snapshot_every = snapshot_every
        self.failure = ""
        self.commits, self.committed, self.commit_seconds = 0, 0, 0.0
        self.desks: dict[str, JournaledAllocator] = {}
        self._writer: _Writer | None = None
        try:
            self.reload()
        except BaseException:
            self.journal.close()
            raise

    def reload(self) -> None:
        """Make all desks anew from the journal; what is not in it is gone."""
        self._events: list[Event] = []  # not handed to the journal yet
        self._unwritten: dict[tuple[int, str | None], Event] = {}  # decisions that the journal does not have yet
        stored = self.journal.stored()
        # A snapshot may have an event that could not be written after all: its number is not given again.
        self._seq = max([self.journal.last, *(one.seq for one in stored)])
        self.desks = {one.name: JournaledAllocator(one, self.journal, self) for one in stored}
        self._adjust_keep()
        self._snapshots_due = self._seq + self.snapshot_every - sum(desk.replayed for desk in self.desks.values())

    def _adjust_keep(self) -> None:
        """Keep fewer events where they are large: half of them are decisions, with a context for every channel."""
        sizes = [desk.allocator.settings.channels * desk.allocator.settings.dimension for desk in self.desks.values()]
        self.journal.keep = min(self._keep, 1000 + 2 * KEEP_BYTES // (8 * max([1, *sizes])))

    def append(self, allocator: int, kind: int, request: str | None, body: bytes) -> None:
        """Something has happened: to be written, in order."""
        self._seq += 1
        event = Event(self._seq, allocator, kind, request, body)
        self._events.append(event)
        if kind == DECIDE:
            self._unwritten[allocator, request] = event

    def decision(self, allocator: int, request: str) -> Event | None:
        """The event of a decision that is still kept, or is still to be written."""
        return self._unwritten.get((allocator, request)) or self.journal.decision(allocator, request)

    def _have_written(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == DECIDE:
                del self._unwritten[event.allocator, event.request]

    def open(self, name: str, settings: Settings) -> JournaledAllocator:
        """The desk of this name; a new one, if there is none. One with other settings is refused."""
        check_name(name)
        if name in self.desks:
            self.check_same(name, settings)
            return self.desks[name]
        if len(self.desks) >= MAX_ALLOCATORS:
            raise InputError(f"name = {name!r}: there are {MAX_ALLOCATORS} allocators already, and not more")
        # One that cannot be made, or kept, is refused here: the journal would not open with it again.
        size = AllocatorCore(settings).max_snapshot_size
        if size > MAX_STATE:
            raise InputError(
                f"allocator {name}: its state may take {size / 1e9:.1f} GB; must be at most {MAX_STATE / 1e9:g} GB:"
                " fewer channels, entries of a context or slots of patience, or a smaller policy, need less"
            )
        kept = json.dumps(settings.to_dict())
        self.desks[name] = JournaledAllocator(
            Stored(self.journal.add(name, kept), name, kept, 0, None), self.journal, self
        )
        self._adjust_keep()
        return self.desks[name]

    def check_same(self, name: str, settings: Settings) -> None:
        """Refuse other settings than those of a desk that is there."""
        here = self.desks[name].allocator.settings
        if here != settings:
            raise ConflictError(f"allocator {name}: is there with {here.difference(settings)}; choose another name")

    # --- making it durable -------------------------------------------------------------------------------------------

    def _due(self) -> Pictures | None:
        """Pictures, if it is time for them."""
        if self._seq < self._snapshots_due:
            return None
        pictures = self._pictures(SNAPSHOT_WAIT)
        self._snapshots_due = self._seq + (self.snapshot_every if pictures else 1 + self.snapshot_every // 20)
        return pictures

    def _pictures(self, longest: float) -> Pictures | None:
        """Of all desks; or none, where one cannot be made now. Events are what is durable, and they go on."""
        try:
            return Pictures(self._seq, {desk.number: desk.allocator.snapshot(longest) for desk in self.desks.values()})
        except Exception as error:  # a policy that is behind, or no memory
            log.error("no snapshot", extra={"reason": str(error)})
            return None

    def commit(self) -> None:
        """Write all events there are, here and now."""
        events, self._events = self._events, []
        if events:
            self.journal.write(events)
            self._have_written(events)
        _write_snapshots(self.journal, self._due())

    def close(self) -> None:
        """Write everything, with snapshots, so that the next start is quick."""
        works = self._writer.stop() if self._writer is not None else True
        events, self._events = self._events, []
        try:
            if works and not self.failure:
                self.journal.write(events)
                _write_snapshots(self.journal, self._pictures(SETTLE_TIMEOUT))
        finally:
            self.journal.close()

    # --- the same while other callers go on --------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a thread write what `durable` waits for."""
        self._loop = loop
        self._writer = _Writer(self.journal, lambda *done: loop.call_soon_threadsafe(self._written, *done))
        self._gathering: asyncio.Future[None] | None = None  # for events that gather
        self._writing: asyncio.Future[None] | None = None  # for those that are being written

    async def durable(self) -> None:
        """Return when all that has happened up to now is in the journal; raises JournalError if it cannot be."""
        if self.failure:
            raise JournalError(self.failure)
        if self._events and self._gathering is None:
            self._gathering = self._loop.create_future()
            self._gathering.add_done_callback(asyncio.Future.exception)  # nobody may be waiting any more
            if self._writing is None:
                self._loop.call_soon(self._hand_over)  # what others do in this turn of the loop goes with it
        waiting = self._gathering or self._writing
        if waiting is not None:
            await asyncio.shield(waiting)

    def _hand_over(self) -> None:
        if self._gathering is None or self._writing is not None:
            return
        self._writing, self._gathering = self._gathering, None
        events, self._events = self._events, []
        assert self._writer is not None
        self._writer.queue.put((events, self._due()))

    def _written(self, events: list[Event], seconds: float, error: JournalError | None) -> None:
        writing, self._writing = self._writing, None
        assert writing is not None
        if error is None:
            self.commits += 1
            self.committed += len(events)
            self.commit_seconds += seconds
            self._have_written(events)
            writing.set_result(None)
            self._hand_over()
            return
        self.failure, self._failed_at = str(error), time.monotonic()
        for waiting in (writing, self._gathering):
            if waiting is not None:
                waiting.set_exception(error)
        self._gathering = None

    def recover(self) -> bool:
        """After a failure: go back to what the journal has. Whether there is no failure (any more)."""
        if self.failure and time.monotonic() - self._failed_at > AGAIN_AFTER:
            try:
                self.journal.try_to_write()
                self.reload()
                self.failure = ""
            except (JournalError, InputError) as error:
                self.failure, self._failed_at = str(error), time.monotonic()
        return not self.failure


class _Writer:
    """The thread that writes."""

    works = True  # the last write did

    def __init__(self, journal: Journal, done: Callable[[list[Event], float, JournalError | None], Any]) -> None:
        self.queue: SimpleQueue[Any] = SimpleQueue()
        self._journal, self._done = journal, done
        self._thread = threading.Thread(target=self._run, name="idleband-journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (work := self.queue.get()) is not None:
            events, pictures = work
            began, error = time.perf_counter(), None
            try:
                self._journal.write(events)
            except Exception as failure:  # whatever it is, whoever waits is told
                error = failure if isinstance(failure, JournalError) else JournalError(repr(failure))
            self.works = error is None
            self._done(events, time.perf_counter() - began, error)
            if self.works:
                _write_snapshots(self._journal, pictures)

    def stop(self) -> bool:
        """Write what there is; whether that worked."""
        self.queue.put(None)
        self._thread.join()
        return self.works


def _write_snapshots(journal: Journal, pictures: Pictures | None) -> None:
    """Where they cannot be written, events still can."""
    if pictures is not None and pictures.of:
        try:
            snapshots = [Snapshot(number, pictures.seq, made()) for number, made in pictures.of.items()]
            journal.write([], snapshots, pictures.seq)
        except Exception as error:  # whatever it is, the thread that writes goes on
            log.error("no snapshot", extra={"reason": str(error)})
