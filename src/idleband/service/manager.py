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
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt, Report, StepResult
from idleband.allocator.serialization import StateCopy
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT
from idleband.errors import ConflictError, InputError, shown
from idleband.service.group_commit import GroupCommit
from idleband.service.housekeeping import Housekeeping
from idleband.service.journal import Change, Journal, JournalError, NewSnapshot, SharedJournal, Stored
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.messages import NAME
from idleband.service.slot_thread import SlotThread, is_quick
from idleband.service.sqlite_journal import SqliteJournal

SNAPSHOT_EVERY = 20_000  # events of all allocators that are not in a snapshot
SNAPSHOT_TIMEOUT = 0.1  # seconds to wait for a policy that is behind; requests of its allocator wait meanwhile
KEEP_EVENTS = 200_000  # of each allocator after a snapshot contains them, so that repeated requests get the same answer
KEEP_BYTES = 2**30  # limit on the size of the kept events of an allocator whose contexts are large
RETRY_INTERVAL = 1.0  # seconds between two attempts to recover from a failed write
MAX_ALLOCATORS = 100
MAX_STATE_BYTES = 9 * 10**8  # of an allocator; a snapshot takes about as much memory while it is written

log = logging.getLogger("idleband.service")
T = TypeVar("T")


def check_name(name: str) -> None:
    """Refuse a name that an allocator may not have."""
    if not re.fullmatch(NAME, name):
        raise InputError(f"name = {shown(name)}: must be 1 to 80 letters, digits or . _ -, a letter or digit first")


class AllocatorManager:
    """Allocators by name. All methods belong to one thread."""

    def __init__(self, data: Path | Journal, *, keep: int = KEEP_EVENTS, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self.journal = data if isinstance(data, Journal) else SqliteJournal(data)
        self.commits = GroupCommit(self.journal)
        self.allocators: dict[str, JournaledAllocator] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep, self._snapshot_every = keep, snapshot_every
        self._kept: dict[int, int] = {}  # number of events that an allocator keeps, by its number
        self._housekeeping = Housekeeping(self.journal, self._kept, self._snapshot_ended, self._journal_failed)
        self._slow_slots: dict[str, int] = {}
        self._copying: JournaledAllocator | None = None  # of which a snapshot is taken or written
        self._failed_snapshots: dict[int, int] = {}  # in a row, by the number of the allocator
        self._begun = self.journal.interrupted_snapshots
        self._uncovered = 0  # events that are in no snapshot
        try:
            self._load(complete=True)
        except BaseException:
            self.journal.close()
            raise
        # A process that did not survive a snapshot, for want of memory perhaps, must not end the next one as well.
        self._next_snapshot = snapshot_every
        if self._begun:
            self._next_snapshot = self._uncovered + snapshot_every * 2 ** min(self._begun - 1, 10)
            log.warning("snapshot was interrupted", extra={"times": self._begun, "next_at": self._next_snapshot})

    def reload(self) -> None:
        """Restore all allocators from the journal. Changes that are not in it are lost."""
        self.journal.cancel_snapshots()
        self._housekeeping.forget()
        self._copying = None
        for allocator in self.allocators.values():
            if allocator.thread is not None:
                allocator.thread.end()
        self._load(complete=False)

    def _load(self, *, complete: bool) -> None:
        restored = {one.name: self._restore(one, complete=complete) for one in self.journal.allocators()}
        self.allocators = restored
        self._fences = {one.number: self._fence(one.number) for one in restored.values()}
        self.commits.restart()
        self._uncovered = sum(one.uncovered for one in restored.values())
        for allocator in restored.values():
            self._added(allocator)

    def _fence(self, number: int) -> int:
        return self.journal.fence(number) if isinstance(self.journal, SharedJournal) else 0

    def _owners_changed(self) -> None:
        """Forget allocators that this process does not own any more, and restore those that it has taken over."""
        for name, allocator in list(self.allocators.items()):
            if self._fence(allocator.number) != self._fences[allocator.number]:
                del self.allocators[name]
                self.commits.forget(allocator.number)
                log.info("allocator given up", extra={"allocator": name})
        for stored in self.journal.allocators():
            if stored.name not in self.allocators:
                self._fences[stored.number] = self._fence(stored.number)
                self.allocators[stored.name] = self._restore(stored, complete=False)
                self._added(self.allocators[stored.name])
                log.info("allocator taken over", extra={"allocator": stored.name})

    def _restore(self, stored: Stored, *, complete: bool) -> JournaledAllocator:
        snapshot, events = self.journal.load(stored, complete=complete)
        return JournaledAllocator(stored, snapshot, events, self.commits, self.journal.place)

    def _added(self, allocator: JournaledAllocator) -> None:
        """Keep fewer events where they are large: half of them are decisions, with a context for every channel."""
        settings = allocator.core.settings
        numbers = settings.channels * max(1, settings.dimension)
        self._kept[allocator.number] = min(self._keep, 1000 + 2 * KEEP_BYTES // (8 * numbers))
        if self._loop is not None and not is_quick(settings):
            self._move_into_thread(allocator)

    def open(self, name: str, settings: Settings, core: AllocatorCore | None = None) -> JournaledAllocator:
        """Return the allocator of this name; create it if there is none. Refuse other settings than it has.

        `core` is what `prepare` returned for these settings.
        """
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
        core = core or prepare(name, settings)
        stored = self.journal.add(name, json.dumps(settings.to_dict()))
        self._fences[stored.number] = self._fence(stored.number)
        self.allocators[name] = JournaledAllocator(stored, None, (), self.commits, self.journal.place, core)
        self._added(self.allocators[name])
        return self.allocators[name]

    # --- changes -----------------------------------------------------------------------------------------------------

    def decide(self, allocator: JournaledAllocator, *arguments: Any, **options: Any) -> Decision:
        return self._append(allocator, *allocator.decide(*arguments, **options))

    def report(self, allocator: JournaledAllocator, request_id: str, report: Report | None) -> Receipt:
        return self._append(allocator, *allocator.report(request_id, report))

    def step(
        self, allocator: JournaledAllocator, report: dict[str, Any] | None, decide: dict[str, Any] | None
    ) -> tuple[StepResult, Report | None]:
        return self._append(allocator, *allocator.step(report, decide))

    def vacate(self, allocator: JournaledAllocator, channels: Any) -> tuple[int, ...]:
        return self._append(allocator, *allocator.vacate(channels))

    def restore(self, allocator: JournaledAllocator, channels: Any) -> None:
        self._append(allocator, *allocator.restore(channels))

    def reset(self, allocator: JournaledAllocator) -> None:
        self._append(allocator, *allocator.reset())

    async def change(self, allocator: JournaledAllocator, work: Callable[[], tuple[Any, ...]]) -> Any:
        """Apply changes to an allocator that has a thread, and return its answer."""
        assert allocator.thread is not None
        answer, *_ = await allocator.thread.call(work, lambda found: self._append(allocator, *found))
        return answer

    def _append(self, allocator: JournaledAllocator, answer: T, *changes: Change | None) -> T:
        """Append the changes of one request, which are written in one transaction."""
        if self.allocators.get(allocator.name) is not allocator:
            raise JournalError(f"allocator {allocator.name}: was restored from the journal meanwhile")
        for change in changes:
            if change is not None:
                allocator.seq = self.commits.append(change)
                self._uncovered += 1
        # After all of them, because the state contains all of them.
        if self._uncovered >= self._next_snapshot and self._copying is None:
            self._take_snapshot()
        return answer

    def note_duration(self, allocator: JournaledAllocator, seconds: float) -> None:
        """Note the processor time of a slow request. The third one moves the allocator into a thread.

        The first decision and the first report may be slow because code is compiled.
        """
        name = allocator.name
        self._slow_slots[name] = self._slow_slots.get(name, 0) + 1
        if self._slow_slots[name] > 2 and self._loop is not None and allocator.thread is None:
            log.warning("slow allocator runs in a thread", extra={"allocator": name, "seconds": round(seconds, 3)})
            self._move_into_thread(allocator)

    def _move_into_thread(self, allocator: JournaledAllocator) -> None:
        allocator.status()
        allocator.thread = SlotThread()

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _take_snapshot(self) -> None:
        """Take a snapshot of the allocator that has most events outside of its last one."""
        allocator = max(self.allocators.values(), key=self._urgency)
        self._begin_snapshot(allocator)
        if allocator.thread is None:
            self._copied(allocator, self._copy(allocator))
        else:
            thread = allocator.thread
            self._start(thread.call(lambda: self._copy(allocator), lambda copy: self._copied(allocator, copy)))

    def _urgency(self, allocator: JournaledAllocator) -> float:
        return allocator.uncovered / 2 ** self._failed_snapshots.get(allocator.number, 0)

    def _begin_snapshot(self, allocator: JournaledAllocator) -> None:
        self._copying = allocator
        self._begun += 1
        self.journal.record_snapshots(self._begun)

    def _copy(self, allocator: JournaledAllocator) -> StateCopy | None:
        try:
            return allocator.core.snapshot(SNAPSHOT_TIMEOUT)
        except Exception as error:  # a policy that is behind, or not enough memory; events are durable without it
            log.error("snapshot failed", extra={"allocator": allocator.name, "reason": str(error) or repr(error)})
            return None

    def _copied(self, allocator: JournaledAllocator, copy: StateCopy | None) -> None:
        """Write a copied state when its events are durable."""
        if self._copying is not allocator:  # all allocators were restored meanwhile
            return
        if copy is None:
            self._end_snapshot(allocator, allocator.seq, False)
            return
        snapshot = NewSnapshot(allocator.number, allocator.seq, self.journal.epoch, copy.write_to)
        if self._loop is None:
            self._housekeeping.write_soon(snapshot)
        else:
            self._start(self._write_when_durable(allocator, snapshot))

    async def _write_when_durable(self, allocator: JournaledAllocator, snapshot: NewSnapshot) -> None:
        try:
            await self.commits.flush()
        except JournalError:
            self._end_snapshot(allocator, snapshot.seq, False)
        else:
            if snapshot.epoch == self.journal.epoch:
                self._housekeeping.write_soon(snapshot)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself keeps no reference
        task.add_done_callback(self._tasks.discard)

    def _snapshot_ended(self, number: int, seq: int, written: bool) -> None:
        """Note the end of a snapshot, in any thread."""
        allocator = self._copying
        if allocator is None or allocator.number != number:
            return
        if self._loop is None or self._loop.is_closed():
            self._end_snapshot(allocator, seq, written)
        else:
            self._loop.call_soon_threadsafe(self._end_snapshot, allocator, seq, written)

    def _end_snapshot(self, allocator: JournaledAllocator, seq: int, written: bool) -> None:
        if written:
            allocator.snapshot_seq = max(allocator.snapshot_seq, seq)
        if self._copying is not allocator:
            return
        self._copying = None
        self._begun = 0
        self.journal.record_snapshots(0)
        self._uncovered = sum(one.uncovered for one in self.allocators.values())
        if written:
            self._failed_snapshots.pop(allocator.number, None)
            self._next_snapshot = self._snapshot_every
        else:  # try again soon, perhaps with another one
            self._failed_snapshots[allocator.number] = self._failed_snapshots.get(allocator.number, 0) + 1
            self._next_snapshot = self._uncovered + 1 + self._snapshot_every // 20

    # --- durability --------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to write in a thread while requests are served."""
        self._loop = loop
        self.commits.start(loop)
        if isinstance(self.journal, SharedJournal):
            self.journal.on_change(lambda: loop.call_soon_threadsafe(self._owners_changed))
        self._housekeeping.start()
        for allocator in self.allocators.values():
            if not is_quick(allocator.core.settings):
                self._move_into_thread(allocator)

    async def names(self) -> list[str]:
        """Return the names of all allocators, also of other processes that share the journal."""
        return await self.journal.names() if isinstance(self.journal, SharedJournal) else list(self.allocators)

    async def flush(self) -> None:
        """Return when all changes so far are durable; raise JournalError if they cannot be."""
        await self.commits.flush()

    def commit(self) -> None:
        """Write all changes now."""
        self.commits.commit()
        self._housekeeping.work()

    @property
    def failure(self) -> str:
        """Why the journal cannot be written; empty while it can."""
        return self.commits.failure

    def _journal_failed(self, error: JournalError) -> None:
        """Refuse requests from now on; called in another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.commits.fail, error)

    def recover(self) -> bool:
        """Return whether the journal can be written. After a failure, try to restore the allocators from it."""
        if isinstance(self.journal, SharedJournal) and self.journal.failure:
            self.commits.fail(JournalError(self.journal.failure))
        waited = time.monotonic() - self.commits.failed_at > RETRY_INTERVAL
        if self.failure and waited and not self.commits.is_writing:
            try:
                self.journal.check_writable()
                self.reload()
            except (JournalError, InputError) as error:
                self.commits.fail(error)
        return not self.failure

    def close(self) -> None:
        """Write all changes and snapshots, so that the next start replays nothing."""
        try:
            self.journal.cancel_snapshots()  # a newer one follows
            self._housekeeping.stop()
            if self.commits.stop() and not self.failure:
                self.commits.commit()
                self._write_last_snapshots()
        finally:
            self._loop = None
            self.journal.close()

    def _write_last_snapshots(self) -> None:
        """Write the snapshots of all allocators that have changed, one after the other."""
        for allocator in self.allocators.values():
            if allocator.uncovered == 0 or (allocator.thread is not None and allocator.thread.busy):
                continue
            self._begin_snapshot(allocator)
            try:
                copy = allocator.core.snapshot(SETTLE_TIMEOUT)
                snapshot = NewSnapshot(allocator.number, allocator.seq, self.journal.epoch, copy.write_to)
                self.journal.write_snapshot(snapshot)
                while self.journal.prune(allocator.number, self._kept[allocator.number]):
                    pass
            except Exception as error:  # events are durable without it
                log.error("snapshot failed", extra={"allocator": allocator.name, "reason": str(error) or repr(error)})
        self.journal.record_snapshots(0)


def prepare(name: str, settings: Settings) -> AllocatorCore:
    """Return the core of a new allocator. One that is too large for a snapshot is refused."""
    core = AllocatorCore(settings)
    size = core.max_snapshot_size
    if size > MAX_STATE_BYTES:
        raise InputError(
            f"allocator {name}: its state may take {size / 1e9:.1f} GB; must be at most {MAX_STATE_BYTES / 1e9:g} GB:"
            " use fewer channels, a smaller dimension, less patience or another policy"
        )
    return core
