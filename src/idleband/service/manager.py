"""All allocators of a data folder: opened by name, changed through the journal, restored from it.

The manager applies a request to an allocator and appends the change that it returns. Its methods that change an
allocator must be followed by `commit` (or `await flush`) before the answer leaves the process. After a failed write the
allocators are restored from the journal, as after a crash.

An allocator is restored when it is needed. When the open ones take more memory than they may, those that have not been
used for longest are closed, and continue from the journal when they are needed again, as after a crash.
"""

import asyncio
import contextlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Report, StepResult
from idleband.allocator.serialization import StateCopy
from idleband.allocator.settings import Settings
from idleband.allocator.supervisor import SETTLE_TIMEOUT
from idleband.errors import ConflictError, InputError, UnknownRequestError, shown
from idleband.service.group_commit import GroupCommit
from idleband.service.housekeeping import Housekeeping
from idleband.service.journal import (
    DELETE,
    Change,
    Journal,
    JournalError,
    NewSnapshot,
    SharedJournal,
    Stored,
    read_change,
)
from idleband.service.journaled_allocator import JournaledAllocator, check_size
from idleband.service.messages import NAME
from idleband.service.open_allocators import AllocatorsByName, OpenAllocators
from idleband.service.slot_thread import SlotThread, is_quick
from idleband.service.sqlite_journal import SqliteJournal

SNAPSHOT_EVERY = 20_000  # events that are not in a snapshot, of up to 100 open allocators
SNAPSHOT_ALLOCATORS = 100  # with more open allocators, more events in proportion
SNAPSHOT_TIMEOUT = 0.1  # seconds to wait for a policy that is behind; requests of its allocator wait meanwhile
KEEP_EVENTS = 200_000  # of each allocator after a snapshot contains them, so that repeated requests get the same answer
KEEP_BYTES = 2**30  # limit on the size of the kept events of an allocator whose contexts are large
RETRY_INTERVAL = 1.0  # seconds between two attempts to recover from a failed write, or to open a damaged allocator
RELEASE_INTERVAL = 0.01  # seconds between two looks at an allocator that is to be released
MAX_ALLOCATORS = 20_000
MEMORY = 2**30  # bytes of open allocators
MAX_REPLAYED = 200  # events, about 5 ms of replay; an allocator with more is closed after a snapshot
MAX_LOOKED_AT = 32  # allocators in one search for some that can be closed
CLOSE_TIMEOUT = 5.0  # seconds in which snapshots are written at the end; later starts replay the other events

log = logging.getLogger("idleband.service")
T = TypeVar("T")


def check_name(name: str) -> None:
    """Refuse a name that an allocator may not have."""
    if not re.fullmatch(NAME, name):
        raise InputError(f"name = {shown(name)}: must be 1 to 80 letters, digits or . _ -, a letter or digit first")


class Size(msgspec.Struct, frozen=True):
    """The size of an allocator, from its stored settings."""

    channels: int
    users: int
    dimension: int


_decode_size = msgspec.json.Decoder(Size).decode


class AllocatorManager:
    """Allocators by name. All methods belong to one thread.

    Attributes
    ----------
    allocators : mapping of str to JournaledAllocator
        All allocators. Looking one up opens it in this thread; see `opened` for one that serves requests.
    open_allocators : OpenAllocators
        Those that are in memory.
    counts_by_size : Counter of Size
        Number of allocators of each size.
    closed_failures : dict of str to str
        Why the policies of allocators were out of service when these were closed.
    openings, closings : int
        How often allocators were restored, and closed for want of memory.
    """

    def __init__(
        self,
        data: Path | Journal,
        *,
        keep: int = KEEP_EVENTS,
        snapshot_every: int = SNAPSHOT_EVERY,
        memory: int = MEMORY,
        closed: Callable[[int], None] = lambda number: None,
    ) -> None:
        """Use a journal, or open that of a folder. `closed` is called with the number of a closed allocator."""
        self.journal = data if isinstance(data, Journal) else SqliteJournal(data)
        self.commits = GroupCommit(self.journal)
        self.open_allocators = OpenAllocators()
        self.closed_failures: dict[str, str] = {}
        self.openings = self.closings = 0
        self._stored: dict[str, Stored] = {}  # by name
        self._fences: dict[str, int] = {}  # by name, where other processes share the journal
        self._given_up: set[str] = set()  # names of allocators that other processes have taken over
        self._sizes: dict[str, Size] = {}  # by name
        self.counts_by_size: Counter[Size] = Counter()
        self.allocators = AllocatorsByName(self._stored, self._open_now)
        self._memory, self._closed = memory, closed
        self._checked: set[int] = set()  # numbers of allocators of which this process has checked all events
        self._held: Counter[str] = Counter()  # names of allocators that stay open
        self._opening: dict[str, asyncio.Task[JournaledAllocator]] = {}
        self._damaged: dict[str, tuple[float, InputError]] = {}  # name -> when and why it could not be opened
        self._opener = ThreadPoolExecutor(1, "idleband-open")
        self._generation = 0  # increased when allocators have to be restored again
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep, self._snapshot_every = keep, snapshot_every
        self._kept: dict[int, int] = {}  # number of events that an allocator keeps, by its number
        self._housekeeping = Housekeeping(self.journal, self._kept, self._snapshot_ended, self._journal_failed)
        self._slow_slots: dict[str, int] = {}
        self._changing_names: set[str] = set()  # that are given or taken away by an event that is not durable yet
        self._copying: JournaledAllocator | None = None  # of which a snapshot is taken or written
        self._failed_snapshots: dict[int, int] = {}  # in a row, by the number of the allocator
        self._begun = self.journal.interrupted_snapshots
        self._uncovered = 0  # events that are in no snapshot
        try:
            for stored in self.journal.allocators():
                self._learn_of(stored)
        except BaseException:
            self.journal.close()
            raise
        # A process that did not survive a snapshot, for want of memory perhaps, must not end the next one as well.
        self._next_snapshot = snapshot_every
        self._was_interrupted = self._begun > 0
        if self._was_interrupted:
            self._next_snapshot = self._uncovered + snapshot_every * 2 ** min(self._begun - 1, 10)
            log.warning("snapshot was interrupted", extra={"times": self._begun, "next_at": self._next_snapshot})

    def reload(self) -> None:
        """Let all allocators be restored from the journal. Changes that are not in it are lost."""
        self.journal.cancel_snapshots()
        self._housekeeping.forget()
        self._copying = None
        for allocator in self.open_allocators:
            if allocator.thread is not None:
                allocator.thread.end()
        self.open_allocators.clear()
        self._kept.clear()
        self._damaged.clear()
        self._generation += 1
        self.journal.reread()
        present = {one.name: one for one in self.journal.allocators()}
        for name in [name for name in self._stored if name not in present]:
            self._give_up(name)
        for stored in present.values():
            self._learn_of(stored)
        self.commits.restart()
        self._uncovered = 0

    # --- opening -----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> JournaledAllocator | None:
        """Return an allocator if it is open. It is one of the last that will be closed."""
        return self.open_allocators.use(name)

    def size_of(self, name: str) -> Size | None:
        """Return the size of an allocator, open or not; None if there is none of this name."""
        return self._sizes.get(name)

    def _learn_of(self, stored: Stored) -> None:
        """Add an allocator of the journal, which need not be open, or note its present settings."""
        if isinstance(self.journal, SharedJournal):
            self._fences[stored.name] = self.journal.fence(stored.number)
            self._given_up.discard(stored.name)
        if self._stored.get(stored.name) == stored:
            return
        try:
            size = _decode_size(stored.settings)
        except msgspec.DecodeError:  # written by an earlier version
            settings = Settings.restored(json.loads(stored.settings))
            size = Size(settings.channels, settings.users, settings.dimension)
        if stored.name in self._stored:
            self._forget_name(stored.name)
        self._stored[stored.name], self._sizes[stored.name] = stored, size
        self.counts_by_size[size] += 1

    def _forget_name(self, name: str) -> None:
        """Forget that there is an allocator of this name."""
        del self._stored[name]
        self.counts_by_size[self._sizes.pop(name)] -= 1
        self.closed_failures.pop(name, None)

    # --- owners ------------------------------------------------------------------------------------------------------

    def owns(self, name: str) -> bool:
        """Return whether this process has an allocator of this name, and has not lost it to another one."""
        stored = self._stored.get(name)
        if stored is None or not isinstance(self.journal, SharedJournal):
            return stored is not None
        return 0 != self.journal.fence(stored.number) == self._fences[name]

    def was_given_up(self, name: str) -> bool:
        """Return whether another process has taken over an allocator of this one."""
        return name in self._given_up

    def _give_up(self, name: str) -> None:
        self._checked.discard(self._stored[name].number)
        self._forget_name(name)
        if isinstance(self.journal, SharedJournal):
            self._given_up.add(name)
            log.info("allocator given up", extra={"allocator": name})

    def _owners_changed(self) -> None:
        """Learn of allocators that this process has taken over.

        If it has lost some, its changes of them cannot be written, so that all allocators are restored.
        """
        if not all(self.owns(name) for name in self._stored):
            self.commits.fail(JournalError("the lease of this process ended; its allocators are restored"))
        else:
            self._start(self._learn_of_others())

    async def _learn_of_others(self) -> None:
        try:
            for stored in await asyncio.to_thread(self.journal.allocators):
                if stored.name not in self._stored:
                    self._learn_of(stored)
                    log.info("allocator taken over", extra={"allocator": stored.name})
        except (JournalError, InputError) as error:
            self.commits.fail(error)

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def opened(self, name: str) -> JournaledAllocator:
        """Return an allocator; open it in another thread if it is not open.

        Raises InputError if it is damaged, and UnknownRequestError if there is none of this name.
        """
        while (found := self.find(name)) is None:
            opening = self._opening.get(name)
            if opening is None:
                assert self._loop is not None
                opening = self._opening[name] = self._loop.create_task(self._open_in_thread(name))
                opening.add_done_callback(lambda done: self._ended_opening(name, done))
            with self.holding(name):  # until it is used
                await asyncio.shield(opening)  # other requests may wait for it, too
        return found

    def _ended_opening(self, name: str, task: "asyncio.Task[JournaledAllocator]") -> None:
        del self._opening[name]
        if not task.cancelled():
            task.exception()  # the requests may have been cancelled

    async def _open_in_thread(self, name: str) -> JournaledAllocator:
        while True:
            stored, generation = self._known(name), self._generation
            try:
                allocator = await asyncio.wrap_future(self._opener.submit(self._restore, stored))
            except InputError as error:
                self._note_damage(name, error)
                raise
            found = self.find(name)
            if found is not None:  # it was opened in this thread meanwhile
                return found
            # Otherwise it was changed meanwhile, and perhaps closed again.
            present = generation == self._generation and self._stored.get(name) is stored
            if present and allocator.seq == self.journal.last(allocator.number):
                self._add(allocator)
                return allocator

    def _open_now(self, name: str) -> JournaledAllocator:
        """Return an allocator, opened in this thread if it is not open."""
        found = self.find(name)
        if found is None:
            if name not in self._stored:
                raise KeyError(name)
            found = self._restore(self._known(name))
            self._add(found)
        return found

    def _known(self, name: str) -> Stored:
        """Return what is known of an allocator; refuse one that was found damaged a moment ago."""
        when, error = self._damaged.get(name, (0.0, None))
        if error is not None and time.monotonic() - when < RETRY_INTERVAL:
            raise error
        stored = self._stored.get(name)
        if stored is None:
            raise UnknownRequestError(f"allocator {shown(name)}: does not exist")
        return stored

    def _note_damage(self, name: str, error: InputError) -> None:
        if name not in self._damaged:
            log.error("allocator cannot be opened", extra={"allocator": name, "reason": str(error)})
        self._damaged[name] = time.monotonic(), error

    def _restore(self, stored: Stored) -> JournaledAllocator:
        """Restore an allocator, in any thread.

        The first time all its events are checked, unless another process may have written them, because clients wait.
        """
        complete = stored.number not in self._checked and not isinstance(self.journal, SharedJournal)
        snapshot, events = self.journal.load(stored, complete=complete)
        return JournaledAllocator(stored, snapshot, events, self.commits, self.journal.place)

    def _add(self, allocator: JournaledAllocator) -> None:
        """Add an allocator that was restored or created, and close others if there is no memory for it."""
        self.openings += 1
        self._checked.add(allocator.number)
        self._damaged.pop(allocator.name, None)
        self.closed_failures.pop(allocator.name, None)
        self.open_allocators.add(allocator)
        self._uncovered += allocator.uncovered
        if self._was_interrupted:
            self._next_snapshot += allocator.uncovered
        # Keep fewer events where they are large: half of them are decisions, with a context for every channel.
        settings = allocator.core.settings
        numbers = settings.channels * max(1, settings.dimension)
        self._kept[allocator.number] = min(self._keep, 1000 + 2 * KEEP_BYTES // (8 * numbers))
        if self._loop is not None and not is_quick(settings):
            self._move_into_thread(allocator)
        self._close_unused(allocator)

    # --- closing -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Keep an allocator open, once it is, although it has not been used for long."""
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]

    async def release(self, name: str) -> None:
        """Close an allocator as soon as its changes are durable and nothing is under way in it.

        It continues from the journal when it is opened again, here or, if the journal allows it, in another process.
        Nothing may be requested of it meanwhile. Raises JournalError if its changes cannot be written.
        """
        while (allocator := self.open_allocators.find(name)) is not None:
            await self.flush()
            if self._is_unused(allocator):
                self.forget(allocator)
            else:
                await asyncio.sleep(RELEASE_INTERVAL)

    def forget(self, allocator: JournaledAllocator) -> None:
        """Close an allocator at once. What is not durable is lost to its next opening; requests under way fail."""
        if self._copying is allocator:
            self.journal.cancel_snapshots()
            self._housekeeping.forget()
            self._end_snapshot(allocator, allocator.snapshot_seq, False)
        self.open_allocators.remove(allocator)
        self._uncovered -= allocator.uncovered
        self._kept.pop(allocator.number, None)
        self.commits.forget(allocator.number)
        if allocator.core.policy_failure:
            self.closed_failures[allocator.name] = allocator.core.policy_failure
        if allocator.thread is not None:
            allocator.thread.end()
        self._closed(allocator.number)

    def _is_unused(self, allocator: JournaledAllocator) -> bool:
        """Return whether an allocator can be closed: all is durable, and nothing is under way in it."""
        return (
            allocator.is_idle
            and allocator is not self._copying
            and self.journal.last(allocator.number) == allocator.seq
        )

    def _close_unused(self, used: JournaledAllocator) -> None:
        """Close allocators while they take more memory than they may, but not the one in use."""
        for _ in range(min(MAX_LOOKED_AT, len(self.open_allocators))):
            if self.open_allocators.bytes <= self._memory:
                return
            oldest = next(iter(self.open_allocators))
            if oldest is not used and not self._held[oldest.name] and self._is_unused(oldest):
                if oldest.uncovered <= MAX_REPLAYED or self._was_interrupted:
                    self._close_one(oldest)
                    continue
                if self._copying is None:
                    self._take_snapshot(oldest)  # it is closed afterwards
            self.open_allocators.use(oldest.name)  # look at others first

    def _close_one(self, allocator: JournaledAllocator) -> None:
        self.closings += 1
        self.forget(allocator)

    # --- creating ----------------------------------------------------------------------------------------------------

    def open(self, name: str, settings: Settings, core: AllocatorCore | None = None) -> JournaledAllocator:
        """Return the allocator of this name; create it if there is none. Refuse other settings than it has.

        Those with which it was created are accepted, too, so that a start with the same options as before succeeds
        after a change. `core` is what `prepare` returned for these settings.
        """
        check_name(name)
        if name in self._stored:
            allocator = self._open_now(name)
            if not allocator.agrees_with(settings):
                difference = allocator.core.settings.difference(settings)
                raise ConflictError(f"allocator {name}: exists with {difference}; choose another name")
            return allocator
        self._check_unchanging(name)
        if len(self._stored) >= MAX_ALLOCATORS:
            raise InputError(f"name = {name!r}: there are {MAX_ALLOCATORS} allocators, which is the limit")
        core = core or prepare(name, settings)
        stored = self.journal.add(name, json.dumps(settings.to_dict()))
        self._learn_of(stored)
        allocator = JournaledAllocator(stored, None, (), self.commits, self.journal.place, core)
        self._add(allocator)
        return allocator

    # --- changes -----------------------------------------------------------------------------------------------------

    def decide(self, allocator: JournaledAllocator, *arguments: Any, **options: Any) -> Decision:
        return self._append(allocator, *allocator.decide(*arguments, **options))

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

    async def rename_or_change(self, allocator: JournaledAllocator, name: str, given: Mapping[str, Any]) -> None:
        """Give an allocator this name, which may be the one that it has, and other settings. Durable on return."""
        names = {name, allocator.name} if name != allocator.name else set()
        if names:
            check_name(name)
            elsewhere = isinstance(self.journal, SharedJournal) and await self.journal.find_owner(name) is not None
            if elsewhere or name in self._stored:
                raise ConflictError(f"name = {name!r}: is the name of another allocator; choose another one")
            for one in names:
                self._check_unchanging(one)
        with self._changing(names):
            if allocator.thread is None:
                self._append_change(allocator, *allocator.change(name, given))
            else:
                await allocator.thread.call(
                    lambda: allocator.change(name, given), lambda found: self._append_change(allocator, *found)
                )
            await self.flush()

    def _append_change(self, allocator: JournaledAllocator, answer: None, change: Change | None) -> None:
        """Append a change of the name or the settings; requests find the allocator under the new name from now on."""
        self._append(allocator, answer, change)
        if change is None:
            return
        before = self._stored[allocator.name]
        name, settings = read_change(change.body)
        created = before.created or (before.name, before.settings)
        if name != allocator.name:
            self.open_allocators.remove(allocator)
            self._forget_name(allocator.name)
            allocator.name = name
            self.open_allocators.add(allocator)
        self._learn_of(Stored(allocator.number, name, settings, created, allocator.seq))
        if self._loop is not None and allocator.thread is None and not is_quick(allocator.core.settings):
            self._move_into_thread(allocator)

    async def delete(self, allocator: JournaledAllocator) -> None:
        """Delete an allocator with all that it has learned. Durable on return."""
        self._check_unchanging(allocator.name)
        with self._changing({allocator.name}):
            if allocator.thread is None:
                self._remove(allocator)
            else:  # after the request that it works on
                await allocator.thread.call(lambda: None, lambda _: self._remove(allocator))
            await self.flush()

    def _remove(self, allocator: JournaledAllocator) -> None:
        """Append the last event of an allocator. Requests find it no longer."""
        self._check_open(allocator)
        self.commits.append(Change(allocator.number, DELETE, None, b""))
        self.forget(allocator)
        self._forget_name(allocator.name)
        self._failed_snapshots.pop(allocator.number, None)
        self._slow_slots.pop(allocator.name, None)

    def _check_unchanging(self, name: str) -> None:
        if name in self._changing_names:
            raise ConflictError(f"name = {name!r}: an allocator of this name is being renamed or deleted; try again")

    @contextlib.contextmanager
    def _changing(self, names: set[str]) -> Iterator[None]:
        self._changing_names |= names
        try:
            yield
        finally:
            self._changing_names -= names

    async def change(self, allocator: JournaledAllocator, work: Callable[[], tuple[Any, ...]]) -> Any:
        """Apply changes to an allocator that has a thread, and return its answer."""
        assert allocator.thread is not None
        answer, *_ = await allocator.thread.call(work, lambda found: self._append(allocator, *found))
        return answer

    def _append(self, allocator: JournaledAllocator, answer: T, *changes: Change | None) -> T:
        """Append the changes of one request, which are written in one transaction."""
        self._check_open(allocator)
        for change in changes:
            if change is not None:
                allocator.seq = self.commits.append(change)
                self._uncovered += 1
        self.open_allocators.measure(allocator)
        # After all of them, because the state contains all of them.
        if self._uncovered >= self._next_snapshot and self._copying is None:
            self._take_snapshot(max(self.open_allocators, key=self._urgency))
        if self.open_allocators.bytes > self._memory:
            self._close_unused(allocator)
        return answer

    def _check_open(self, allocator: JournaledAllocator) -> None:
        if allocator not in self.open_allocators:
            raise JournalError(f"allocator {allocator.name}: was restored from the journal meanwhile, or deleted")

    def note_duration(self, allocator: JournaledAllocator, seconds: float) -> None:
        """Note the processor time of a slow request. The second one moves the allocator into a thread.

        Code may have been compiled in the request before them, which is not noted, and in the first one.
        """
        name = allocator.name
        self._slow_slots[name] = self._slow_slots.get(name, 0) + 1
        if self._slow_slots[name] > 1 and self._loop is not None and allocator.thread is None:
            log.warning("slow allocator runs in a thread", extra={"allocator": name, "seconds": round(seconds, 3)})
            self._move_into_thread(allocator)

    def _move_into_thread(self, allocator: JournaledAllocator) -> None:
        allocator.status()
        allocator.thread = SlotThread()

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def _take_snapshot(self, allocator: JournaledAllocator) -> None:
        self._begin_snapshot(allocator)
        if allocator.thread is None:
            self._copied(allocator, self._copy(allocator))
        else:
            self._start(self._copy_in_thread(allocator, allocator.thread))

    async def _copy_in_thread(self, allocator: JournaledAllocator, thread: SlotThread) -> None:
        with contextlib.suppress(JournalError):  # the allocator was deleted, or restored from the journal
            await thread.call(lambda: self._copy(allocator), lambda copy: self._copied(allocator, copy))

    def _urgency(self, allocator: JournaledAllocator) -> float:
        """Return how much an allocator needs a snapshot: the number of events outside of its last one."""
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
        self._was_interrupted = False
        self.journal.record_snapshots(0)
        self._uncovered = sum(one.uncovered for one in self.open_allocators)
        if written:
            self._failed_snapshots.pop(allocator.number, None)
            self._next_snapshot = self._snapshot_every * max(1, len(self.open_allocators) // SNAPSHOT_ALLOCATORS)
            unused = allocator.uncovered == 0 and not self._held[allocator.name] and self._is_unused(allocator)
            if unused and self.open_allocators.bytes > self._memory:
                self._close_one(allocator)
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
            loop.call_soon(self._owners_changed)  # since the allocators were listed
        self._housekeeping.start()
        for allocator in self.open_allocators:
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
            self._opener.shutdown(cancel_futures=True)
            self.journal.cancel_snapshots()  # a newer one follows
            self._housekeeping.stop()
            if self.commits.stop() and not self.failure:
                self.commits.commit()
                self._write_last_snapshots()
        finally:
            self._loop = None
            self.journal.close()

    def _write_last_snapshots(self) -> None:
        """Write the snapshots of allocators that have changed, one after the other, as long as there is time."""
        until = time.monotonic() + CLOSE_TIMEOUT
        for allocator in sorted(self.open_allocators, key=lambda one: one.uncovered, reverse=True):
            if allocator.uncovered == 0 or time.monotonic() > until:
                break
            if allocator.thread is not None and allocator.thread.busy:
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
    check_size(name, core, settings.patience)
    return core
