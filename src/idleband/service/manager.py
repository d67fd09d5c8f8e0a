"""All allocators of a data folder: opened by name, changed through the journal, restored from it.

The manager applies a request to an allocator and appends the change that it returns. Its methods that change an
allocator must be followed by `commit` (or `await flush`) before the answer leaves the process. After a failed write the
allocators are restored from the journal, as after a crash.
"""

import asyncio
import json
import logging
import re
import time
from pathlib import Path
from typing import Any, TypeVar

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt, Report
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT
from idleband.errors import ConflictError, InputError, shown
from idleband.service.group_commit import GroupCommit, PendingSnapshots
from idleband.service.journal import Change, Journal, JournalError, Stored
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.messages import NAME

SNAPSHOT_EVERY = 20_000  # events
SNAPSHOT_TIMEOUT = 0.1  # seconds to wait for a policy that is behind; requests wait meanwhile
KEEP_EVENTS = 200_000  # kept after a snapshot contains them, so that repeated requests get the same answer
KEEP_BYTES = 2**30  # limit on the size of the kept events where contexts are large
RETRY_INTERVAL = 1.0  # seconds between two attempts to recover from a failed write
MAX_ALLOCATORS = 100
MAX_STATE_BYTES = 9 * 10**8  # of a snapshot; SQLite stores at most 10^9 bytes in a row

log = logging.getLogger("idleband.service")
T = TypeVar("T")


def check_name(name: str) -> None:
    """Refuse a name that an allocator may not have."""
    if not re.fullmatch(NAME, name):
        raise InputError(f"name = {shown(name)}: must be 1 to 80 letters, digits or . _ -, a letter or digit first")


class AllocatorManager:
    """Allocators by name. All methods belong to one thread."""

    def __init__(self, folder: Path, *, keep: int = KEEP_EVENTS, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self.journal = Journal(folder, keep)
        self.commits = GroupCommit(self.journal)
        self.allocators: dict[str, JournaledAllocator] = {}
        self._keep, self._snapshot_every = keep, snapshot_every
        try:
            self.reload()
        except BaseException:
            self.journal.close()
            raise

    def reload(self) -> None:
        """Restore all allocators from the journal. Changes that are not in it are lost."""
        stored = self.journal.stored()
        # A snapshot may contain an event that could not be written. Its number is not used again.
        self.commits.restart(max([self.journal.last, *(one.seq for one in stored)]))
        self.allocators = {one.name: self._restore(one) for one in stored}
        self._limit_kept_events()
        replayed = sum(one.replayed for one in self.allocators.values())
        self._next_snapshot = self.commits.seq + self._snapshot_every - replayed

    def _restore(self, stored: Stored) -> JournaledAllocator:
        events = self.journal.events(stored.number, stored.seq)
        return JournaledAllocator(stored, events, self.commits.find_decision, str(self.journal.path))

    def _limit_kept_events(self) -> None:
        """Keep fewer events where they are large: half of them are decisions, with a context for every channel."""
        settings = [one.core.settings for one in self.allocators.values()]
        largest = max((one.channels * max(1, one.dimension) for one in settings), default=1)
        self.journal.keep = min(self._keep, 1000 + 2 * KEEP_BYTES // (8 * largest))

    def open(self, name: str, settings: Settings) -> JournaledAllocator:
        """Return the allocator of this name; create it if there is none. Refuse other settings than it has."""
        check_name(name)
        if name in self.allocators:
            existing = self.allocators[name].core.settings
            if existing != settings:
                raise ConflictError(
                    f"allocator {name}: exists with {existing.difference(settings)}; choose another name"
                )
            return self.allocators[name]
        if len(self.allocators) >= MAX_ALLOCATORS:
            raise InputError(f"name = {name!r}: there are {MAX_ALLOCATORS} allocators, which is the limit")
        # An allocator that cannot be created or stored is refused here; the journal could not be opened with it.
        size = AllocatorCore(settings).max_snapshot_size
        if size > MAX_STATE_BYTES:
            raise InputError(
                f"allocator {name}: its state may take {size / 1e9:.1f} GB; must be at most"
                f" {MAX_STATE_BYTES / 1e9:g} GB: use fewer channels, a smaller dimension, less patience or another"
                " policy"
            )
        text = json.dumps(settings.to_dict())
        self.allocators[name] = self._restore(Stored(self.journal.add(name, text), name, text, 0, None))
        self._limit_kept_events()
        return self.allocators[name]

    # --- changes -----------------------------------------------------------------------------------------------------

    def decide(self, allocator: JournaledAllocator, *arguments: Any, **options: Any) -> Decision:
        return self._append(*allocator.decide(*arguments, **options))

    def report(self, allocator: JournaledAllocator, request_id: str, report: Report | None) -> Receipt:
        return self._append(*allocator.report(request_id, report))

    def vacate(self, allocator: JournaledAllocator, channels: Any) -> tuple[int, ...]:
        return self._append(*allocator.vacate(channels))

    def restore(self, allocator: JournaledAllocator, channels: Any) -> None:
        self._append(*allocator.restore(channels))

    def reset(self, allocator: JournaledAllocator) -> None:
        self._append(*allocator.reset())

    def _append(self, answer: T, change: Change | None) -> T:
        if change is not None:
            self.commits.append(change)
            if self.commits.seq >= self._next_snapshot:
                self._take_snapshots()
        return answer

    def _take_snapshots(self) -> None:
        """Take snapshots of all allocators after the last event. Try again soon if one cannot be taken now."""
        snapshots = self._snapshots(SNAPSHOT_TIMEOUT)
        if snapshots is None:
            self._next_snapshot = self.commits.seq + 1 + self._snapshot_every // 20
        else:
            self._next_snapshot = self.commits.seq + self._snapshot_every
            self.commits.add_snapshots(snapshots)

    def _snapshots(self, timeout: float) -> PendingSnapshots | None:
        try:
            taken = {one.number: one.core.snapshot(timeout) for one in self.allocators.values()}
        except Exception as error:  # a policy that is behind, or not enough memory; events are durable without it
            log.error("snapshot failed", extra={"reason": str(error)})
            return None
        return PendingSnapshots(self.commits.seq, taken)

    # --- durability --------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to write in a thread while requests are served."""
        self.commits.start(loop)

    async def flush(self) -> None:
        """Return when all changes so far are durable; raise JournalError if they cannot be."""
        await self.commits.flush()

    def commit(self) -> None:
        """Write all changes now."""
        self.commits.commit()

    @property
    def failure(self) -> str:
        """Why the journal cannot be written; empty while it can."""
        return self.commits.failure

    def recover(self) -> bool:
        """Return whether the journal can be written. After a failure, try to restore the allocators from it."""
        if self.failure and time.monotonic() - self.commits.failed_at > RETRY_INTERVAL:
            try:
                self.journal.check_writable()
                self.reload()
            except (JournalError, InputError) as error:
                self.commits.fail(error)
        return not self.failure

    def close(self) -> None:
        """Write all changes and snapshots, so that the next start replays nothing."""
        try:
            if self.commits.stop() and not self.failure:
                snapshots = self._snapshots(SETTLE_TIMEOUT)
                if snapshots is not None:
                    self.commits.add_snapshots(snapshots)
                self.commits.commit()
        finally:
            self.journal.close()
