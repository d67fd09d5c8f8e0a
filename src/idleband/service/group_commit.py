"""Group commit: the events of several requests are written in one transaction.

Events are appended in order. While a writer thread commits one group, further events gather for the next, so all
requests that wait share the cost of a sync to disk. `flush` returns when everything appended before it is durable.
After a failed write nothing more is written until `restart`: the events of the group were not acknowledged, and the
allocators have to be restored from the journal.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from idleband.service.journal import DECIDE, Change, Event, Journal, JournalError, Snapshot

log = logging.getLogger("idleband.service")


class PendingSnapshots(NamedTuple):
    """Snapshots of all allocators after one event. They are serialized when they are written."""

    seq: int
    serialize: dict[int, Callable[[], bytes]]  # number of the allocator -> function that returns its state


class GroupCommit:
    """Events on their way to the journal.

    All methods belong to one thread, the event loop's after `start`.
    """

    def __init__(self, journal: Journal) -> None:
        self.failure = ""  # reason of the last failed write; empty while the journal can be written
        self.failed_at = 0.0
        self.commits, self.committed_events, self.commit_seconds = 0, 0, 0.0
        self._journal = journal
        self._writer: _WriterThread | None = None
        self.restart(0)

    def restart(self, seq: int) -> None:
        """Forget the events that were not written; the last number in use is `seq`."""
        self.seq = seq
        self.failure = ""
        self._events: list[Event] = []
        self._snapshots: PendingSnapshots | None = None
        self._unwritten_decisions: dict[tuple[int, str | None], Event] = {}

    def append(self, change: Change) -> None:
        """Append a change as the next event."""
        self.seq += 1
        event = Event(self.seq, *change)
        self._events.append(event)
        if event.kind == DECIDE:
            self._unwritten_decisions[event.allocator, event.request_id] = event

    def add_snapshots(self, snapshots: PendingSnapshots) -> None:
        """Write snapshots after the events that have been appended."""
        self._snapshots = snapshots

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is kept or still to be written."""
        found = self._unwritten_decisions.get((allocator, request_id))
        return found if found is not None else self._journal.find_decision(allocator, request_id)

    def _take(self) -> tuple[list[Event], PendingSnapshots | None]:
        group = self._events, self._snapshots
        self._events, self._snapshots = [], None
        return group

    def _note_written(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == DECIDE:
                self._unwritten_decisions.pop((event.allocator, event.request_id), None)

    def commit(self) -> None:
        """Write all events now, in this thread."""
        events, snapshots = self._take()
        if events:
            self._journal.write(events)
            self._note_written(events)
        _write_snapshots(self._journal, snapshots)

    # --- while requests are served -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the writer thread; from now on `flush` is used instead of `commit`."""
        self._loop = loop
        self._writer = _WriterThread(self._journal, lambda *done: loop.call_soon_threadsafe(self._written, *done))
        self._gathering: asyncio.Future[None] | None = None  # done when the events that gather now are durable
        self._writing: asyncio.Future[None] | None = None  # done when those being written are

    async def flush(self) -> None:
        """Return when all events appended so far are durable; raise JournalError if they cannot be."""
        if self.failure:
            raise JournalError(self.failure)
        if self._events and self._gathering is None:
            self._gathering = self._loop.create_future()
            self._gathering.add_done_callback(asyncio.Future.exception)  # the requests may have been cancelled
            if self._writing is None:
                self._loop.call_soon(self._hand_over)  # after the other requests of this iteration of the loop
        waiting = self._gathering or self._writing
        if waiting is not None:
            await asyncio.shield(waiting)

    def _hand_over(self) -> None:
        if self._gathering is None or self._writing is not None:
            return
        self._writing, self._gathering = self._gathering, None
        assert self._writer is not None
        self._writer.queue.put(self._take())

    def _written(self, events: list[Event], seconds: float, error: JournalError | None) -> None:
        writing, self._writing = self._writing, None
        assert writing is not None
        if error is None:
            self.commits += 1
            self.committed_events += len(events)
            self.commit_seconds += seconds
            self._note_written(events)
            writing.set_result(None)
            self._hand_over()
            return
        self.fail(error)
        for waiting in (writing, self._gathering):
            if waiting is not None:
                waiting.set_exception(error)
        self._gathering = None

    def fail(self, error: Exception) -> None:
        """Record that the journal cannot be written."""
        self.failure, self.failed_at = str(error), time.monotonic()

    def stop(self) -> bool:
        """End the writer thread after it has written its groups; return whether the last write succeeded."""
        return self._writer is None or self._writer.stop()


class _WriterThread:
    """Writes groups of events in order."""

    def __init__(self, journal: Journal, done: Callable[[list[Event], float, JournalError | None], Any]) -> None:
        self.queue: SimpleQueue[tuple[list[Event], PendingSnapshots | None] | None] = SimpleQueue()
        self._succeeded = True
        self._journal, self._done = journal, done
        self._thread = threading.Thread(target=self._run, name="idleband-journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (group := self.queue.get()) is not None:
            events, snapshots = group
            began, error = time.perf_counter(), None
            try:
                self._journal.write(events)
            except Exception as failure:  # any error is passed on to the requests that wait
                error = failure if isinstance(failure, JournalError) else JournalError(repr(failure))
            self._succeeded = error is None
            self._done(events, time.perf_counter() - began, error)
            if self._succeeded:
                _write_snapshots(self._journal, snapshots)

    def stop(self) -> bool:
        self.queue.put(None)
        self._thread.join()
        return self._succeeded


def _write_snapshots(journal: Journal, pending: PendingSnapshots | None) -> None:
    """Write snapshots. A failure is logged only, because the events are durable without them."""
    if pending is None or not pending.serialize:
        return
    try:
        snapshots = [Snapshot(number, pending.seq, serialize()) for number, serialize in pending.serialize.items()]
        journal.write([], snapshots, pending.seq)
    except Exception as error:  # the writer thread must go on
        log.error("snapshot failed", extra={"reason": str(error)})
