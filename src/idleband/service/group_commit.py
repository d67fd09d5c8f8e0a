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
from typing import Any

from idleband.service.histogram import Histogram
from idleband.service.journal import DECIDE, Change, Event, Journal, JournalError

log = logging.getLogger("idleband.service")

_Waiting = list["asyncio.Future[None]"]  # one for each request that waits


class GroupCommit:
    """Events on their way to the journal.

    All methods belong to one thread, the event loop's after `start`; `find_decision` and `is_expired` may be called in
    any thread.
    """

    def __init__(self, journal: Journal) -> None:
        self.failure = ""  # reason of the last failed write; empty while the journal can be written
        self.failed_at = 0.0
        self.commits, self.committed_events, self.commit_seconds = 0, 0, Histogram()
        self._journal = journal
        self._writer: _WriterThread | None = None
        self._gathering: _Waiting | None = None  # for the events that gather now, if any request waits
        self._writing: _Waiting | None = None  # for those being written
        self.restart()

    def restart(self) -> None:
        """Forget the events that were not written."""
        if self.failure:
            log.info("journal can be written again", extra={"journal": self._journal.place})
        self.total = self._journal.total  # events appended so far
        self.failure = ""
        self._last: dict[int, int] = {}  # number of the last event by allocator, where it differs from the journal
        self._events: list[Event] = []
        self._unwritten_decisions: dict[tuple[int, str | None], Event] = {}

    def append(self, change: Change) -> int:
        """Append a change as the next event of its allocator; return its number."""
        number = change.allocator
        last = self._last.get(number)
        seq = 1 + (self._journal.last(number) if last is None else last)
        self._last[number] = seq
        self.total += 1
        event = Event(number, seq, change.kind, change.request_id, change.body)
        self._events.append(event)
        if event.kind == DECIDE:
            self._unwritten_decisions[number, event.request_id] = event
        return seq

    def forget(self, allocator: int) -> None:
        """Take the number of the last event of an allocator from the journal again."""
        self._last.pop(allocator, None)

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        """Return the DECIDE event with this request_id if it is kept or still to be written."""
        found = self._unwritten_decisions.get((allocator, request_id))
        return found if found is not None else self._journal.find_decision(allocator, request_id)

    def is_expired(self, allocator: int, request_id: str) -> bool:
        """Return whether a decision with this request_id was deleted; to be called after `find_decision`."""
        return self._journal.is_expired(allocator, request_id)

    def _take(self) -> list[Event]:
        group, self._events = self._events, []
        return group

    def _note_written(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == DECIDE:
                self._unwritten_decisions.pop((event.allocator, event.request_id), None)

    def commit(self) -> None:
        """Write all events now, in this thread."""
        events = self._take()
        if events:
            self._journal.write(events)
            self._note_written(events)

    # --- while requests are served -----------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the writer thread; from now on `flush` is used instead of `commit`."""
        self._loop = loop
        self._writer = _WriterThread(self._journal, lambda *done: loop.call_soon_threadsafe(self._written, *done))

    @property
    def is_writing(self) -> bool:
        """Whether a group is being written, or waits for it."""
        return self._writing is not None or self._gathering is not None

    async def flush(self) -> None:
        """Return when all events appended so far are durable; raise JournalError if they cannot be."""
        if self.failure:
            raise JournalError(self.failure)
        if self._events and self._gathering is None:
            self._gathering = []
            if self._writing is None:
                # After the other requests of this iteration of the loop, and those that were read meanwhile.
                self._loop.call_soon(self._loop.call_soon, self._hand_over)
        waiting = self._writing if self._gathering is None else self._gathering
        if waiting is not None:
            durable = self._loop.create_future()  # of this request alone, which may be cancelled
            waiting.append(durable)
            await durable

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
            self.commit_seconds.add(seconds)
            self._note_written(events)
            self._hand_over()  # first, so that the next group is written meanwhile
            for durable in writing:
                if not durable.done():
                    durable.set_result(None)
            return
        self.fail(error)
        for durable in (*writing, *(self._gathering or ())):
            if not durable.done():
                durable.set_exception(error)
        self._gathering = None

    def fail(self, error: Exception) -> None:
        """Record that the journal cannot be written, and log it once."""
        if not self.failure:
            log.error("journal cannot be written; requests are refused", extra={"reason": str(error)})
        self.failure, self.failed_at = str(error), time.monotonic()

    def stop(self) -> bool:
        """End the writer thread after it has written its groups; return whether the last write succeeded."""
        return self._writer is None or self._writer.stop()


class _WriterThread:
    """Writes groups of events in order."""

    def __init__(self, journal: Journal, done: Callable[[list[Event], float, JournalError | None], Any]) -> None:
        self.queue: SimpleQueue[list[Event] | None] = SimpleQueue()
        self._succeeded = True
        self._journal, self._done = journal, done
        self._thread = threading.Thread(target=self._run, name="idleband-journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (events := self.queue.get()) is not None:
            began, error = time.perf_counter(), None
            try:
                self._journal.write(events)
            except Exception as failure:  # any error is passed on to the requests that wait
                error = failure if isinstance(failure, JournalError) else JournalError(repr(failure))
            self._succeeded = error is None
            self._done(events, time.perf_counter() - began, error)

    def stop(self) -> bool:
        self.queue.put(None)
        self._thread.join()
        return self._succeeded
