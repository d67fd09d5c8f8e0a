"""The policy of an allocator, which may be late, raise, break the rules or lose its numbers, and does no harm by it:
then it has no say, and where it is broken it is out of service until it begins anew.

With a deadline it works in a thread of its own, and goes through everything in order, however late.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from idleband.allocator import slot_kernels
from idleband.allocator.events import Decided
from idleband.allocator.learner import Learner
from idleband.allocator.settings import Settings
from idleband.allocator.worker import Worker
from idleband.arrays import Floats, Ints
from idleband.errors import InputError

CHECKED_EVERY = 1024  # slots between two looks at all that was learned
MAX_PENDING = 1000  # tasks that it may be behind
SETTLE_TIMEOUT = 5.0  # seconds, for one that is behind, before its state is saved
REPLAY_WAIT = 30.0  # seconds, for each thing that it did before
MAX_REASON_LENGTH = 300  # characters


class Behind(InputError):
    """It has not done yet what it was given."""


class Supervisor:
    """A policy at work. Not for several threads, but for its own."""

    def __init__(self, settings: Settings, make: Callable[[], Learner]) -> None:
        self._settings, self._make = settings, make
        self.learner = make()
        self.broken = ""  # why it is out of service; empty if it is not
        self.replaying = False  # what happened before is gone through again: there is no hurry
        self._slot = 0
        self._worker = None if settings.deadline is None else self._new_worker()
        self._waiting: deque[Future[Any]] = deque()

    def _new_worker(self) -> Worker:
        worker = Worker()
        weakref.finalize(self, worker.abandon).atexit = False  # its thread ends with it
        return worker

    def propose(self, sees: tuple[Any, ...], terms: Floats, then: Decided | None) -> tuple[Ints | None, str]:
        """What it picks, None if it has no say; and why it is out of service, if it is. `then` is what came of the same
        question before."""
        self._slot = sees[0]
        picks = np.empty(self._settings.channels, np.int64)
        own = terms.copy() if self._worker is not None else terms  # where it is too late, the fallback writes to these
        count = self._choose_in_time(sees, picks, own) if not self.broken else slot_kernels.BROKEN
        if then is not None:  # it may have been late then, or found to be behind: neither comes again by itself
            self.broken = then.broken or self.broken
            if then.decision.proposed is None:
                return None, then.broken
        if count < 0:
            return None, self.broken
        if own is not terms:
            terms[:] = own
        return picks[:count], self.broken

    def learn(self, lesson: tuple[Any, ...]) -> None:
        """What `slot_kernels.learn` takes but for the block."""
        if self.broken:
            return
        if self._worker is None:
            self._learn(self.learner, lesson)
            return
        *before, kept = lesson
        learner, own = self.learner, (*before, kept.copy())  # what comes later is not for this lesson
        doing = self._submit(lambda: self._learn(learner, own))
        if self.replaying:
            self._wait_for(doing, lesson[0])

    def settle(self, longest: float = SETTLE_TIMEOUT) -> None:
        """Wait for it where it is behind, for some seconds; not if it is out of service, and may hang."""
        until = time.monotonic() + longest
        while self._waiting and not self.broken:
            try:
                self._waiting[0].result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise Behind(f"policy {self._settings.policy}: is {len(self._waiting)} tasks behind; wait") from None
            self._waiting.popleft()

    def reset(self) -> None:
        """Begin anew, having learned nothing."""
        if self._worker is not None:  # the other may hang
            self._worker.abandon()
            self._worker = self._new_worker()
            self._waiting.clear()
        self.learner = self._make()
        self.broken = ""

    # --- in its own thread, if it has one ----------------------------------------------------------------------------

    def _choose(self, learner: Learner, sees: tuple[Any, ...], picks: Ints, terms: Floats) -> int:
        """How many channels it picks, or less than 0: then it is out of service."""
        t = sees[0]
        if t % CHECKED_EVERY == 0 and not self.broken and not learner.finite():
            self._fail(learner, t, "there is a nan in what it has learned")
        if self.broken:
            return slot_kernels.BROKEN
        try:
            count = learner.choose(learner.block, *sees, picks, terms)
        except Exception as error:
            self._raised(learner, t, error)
            return slot_kernels.BROKEN
        if count < 0:
            what = "an index is not a number" if count == slot_kernels.NOT_FINITE else "its picks break the rules"
            self._fail(learner, t, what)
        return count

    def _learn(self, learner: Learner, lesson: tuple[Any, ...]) -> None:
        if not self.broken:
            try:
                learner.learn(learner.block, *lesson)
            except Exception as error:
                self._raised(learner, lesson[0], error)

    def _raised(self, learner: Learner, t: int, error: Exception) -> None:
        """What a user's own policy raises takes it out of service, and not the allocator."""
        if self._settings.source is None:
            raise error
        self._fail(learner, t, f"{type(error).__name__}: {error}")

    def _fail(self, learner: Learner, t: int, what: str) -> None:
        if learner is self.learner:  # and not one that was given up
            self.broken = f"slot {t}: {what[:MAX_REASON_LENGTH]}"

    # --- giving it things to do --------------------------------------------------------------------------------------

    def _choose_in_time(self, sees: tuple[Any, ...], picks: Ints, terms: Floats) -> int:
        """As `_choose`, and less than 0 also where it is too late."""
        learner = self.learner
        if self._worker is None:
            return self._choose(learner, sees, picks, terms)
        count = self._wait_for(self._submit(lambda: self._choose(learner, sees, picks, terms)), sees[0])
        return slot_kernels.BROKEN if count is None else count

    def _submit(self, task: Callable[[], Any]) -> "Future[Any]":
        """Have its thread do something, after all that it was given before."""
        assert self._worker is not None
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft().result()
        if len(self._waiting) >= MAX_PENDING and not self.broken:
            self._fail(self.learner, self._slot, f"it is {MAX_PENDING} tasks behind")
        future = self._worker.submit(task)
        self._waiting.append(future)
        return future

    def _wait_for(self, doing: "Future[Any]", t: int) -> Any:
        """What its thread makes of a task; None if that is not there in time."""
        try:
            return doing.result(REPLAY_WAIT if self.replaying else self._settings.deadline)
        except TimeoutError:
            if self.replaying:  # a policy that hangs does not keep its allocator from starting again
                self._fail(self.learner, t, f"it took more than {REPLAY_WAIT:g} s")
            return None
