"""Work on the journal beside the requests: snapshots, deletion of old events, and a look at its files.

While requests are served a thread does this work. It never holds the journal for long, and nothing that is acknowledged
depends on it. One snapshot is written at a time.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from idleband.service.journal import Journal, JournalError, NewSnapshot

INTERVAL = 0.5  # seconds between two looks at the journal

log = logging.getLogger("idleband.service")


class Housekeeping:
    """The work on one journal.

    `keep` has the number of events that each allocator keeps, by its number. `finished` is called after a snapshot with
    the number of its allocator, the number of its last event and whether it was written; `failed` when the journal was
    deleted or moved.
    """

    def __init__(
        self,
        journal: Journal,
        keep: Mapping[int, int],
        finished: Callable[[int, int, bool], None],
        failed: Callable[[JournalError], None],
    ) -> None:
        self._journal, self._keep = journal, keep
        self._finished, self._failed = finished, failed
        self._snapshot: NewSnapshot | None = None
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Work in a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="idleband-housekeeping", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the work at hand and end the thread."""
        if self._thread is not None:
            self._ending.set()
            self._wake.set()
            self._thread.join()
            self._thread = None

    def write_soon(self, snapshot: NewSnapshot) -> None:
        """Write a snapshot; without a thread, at the next `work`."""
        self._snapshot = snapshot
        self._wake.set()

    def forget(self) -> None:
        """Do not write the snapshot that is due."""
        self._snapshot = None

    def work(self) -> None:
        """Do all that is due, in this thread."""
        self._write_snapshot(considerate=False)
        try:
            self._prune()
            self._journal.maintain()
        except JournalError as error:
            log.error("old events not deleted", extra={"reason": str(error)})

    def _run(self) -> None:
        in_place = True
        while not self._ending.is_set():
            self._wake.wait(INTERVAL)
            self._wake.clear()
            try:
                in_place = self._look(in_place)
                if in_place:
                    self._write_snapshot(considerate=True)
                    self._prune()
                    self._journal.maintain()
            except JournalError as error:
                log.error("old events not deleted", extra={"reason": str(error)})
            except Exception:  # a defect must not end the thread
                log.exception("housekeeping failed")

    def _look(self, was_in_place: bool) -> bool:
        """Return whether the journal is where it was opened; report it once if it is not."""
        try:
            self._journal.check_in_place()
            return True
        except JournalError as error:
            if was_in_place:
                self._failed(error)
            unwritten = self._snapshot
            self._snapshot = None
            if unwritten is not None:
                self._finished(unwritten.allocator, unwritten.seq, False)
            return False

    def _write_snapshot(self, considerate: bool) -> None:
        snapshot = self._snapshot
        self._snapshot = None
        if snapshot is None:
            return
        written = False
        try:
            written = self._journal.write_snapshot(snapshot, considerate=considerate)
        except Exception as error:  # events are durable without it
            log.error("snapshot failed", extra={"reason": str(error) or repr(error)})
        finally:
            number, seq = snapshot.allocator, snapshot.seq
            del snapshot  # and the copy of the state
            self._finished(number, seq, written)

    def _prune(self) -> None:
        for allocator, keep in list(self._keep.items()):
            while self._journal.prune(allocator, keep):
                if self._ending.is_set():
                    return
                if self._thread is not None:
                    time.sleep(0)  # let a waiting commit go first
