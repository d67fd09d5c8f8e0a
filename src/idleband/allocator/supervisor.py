"""Supervision of an allocator's policy, which may be slow, raise, return invalid channels or compute nan.

A policy that fails is out of service until it is reset; the fallback decides meanwhile. A policy with a deadline runs
in its own thread and processes all its work in order, even when it is late. After a fork the child starts another
thread; work that was pending at the fork is unfinished there, and the policy is out of service.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from idleband.allocator import slot_kernels
from idleband.allocator.events import RecordedDecision
from idleband.allocator.learner import Learner
from idleband.allocator.settings import Settings
from idleband.allocator.worker import Worker
from idleband.arrays import Floats, Ints
from idleband.errors import PolicyBusyError

CHECK_INTERVAL = 1024  # slots between two searches for nan in the state of the policy
MAX_PENDING = 1000  # pending tasks at which the policy is taken out of service
SETTLE_TIMEOUT = 5.0  # seconds to wait for pending tasks before the state is saved
REPLAY_TIMEOUT = 30.0  # seconds per task in a replay
MAX_REASON_LENGTH = 300  # characters


class Supervisor:
    """A policy in service or out of service. Its methods are called from one thread at a time."""

    def __init__(self, settings: Settings, make: Callable[[], Learner]) -> None:
        self._settings, self._make = settings, make
        self.learner = make()
        self.failure = ""  # why the policy is out of service; empty if it is in service
        self.replaying = False  # whether journal events are being replayed; the deadline does not apply then
        self._slot = 0
        self._worker = None if settings.deadline is None else self._new_worker()
        self._pending: deque[Future[Any]] = deque()

    def _new_worker(self) -> Worker:
        worker = Worker()
        weakref.finalize(self, worker.abandon).atexit = False  # the thread ends when the supervisor is deleted
        return worker

    @property
    def is_idle(self) -> bool:
        """Whether the policy has no pending tasks in its thread."""
        return all(task.done() for task in self._pending)

    def propose(
        self, view: tuple[Any, ...], terms: Floats, recorded: RecordedDecision | None
    ) -> tuple[Ints | None, str]:
        """Return the policy's selection, or None, and why the policy is out of service, if it is.

        `view` is what the policy observes. In a replay, `recorded` is what was decided originally.
        """
        self._slot = view[0]
        picks = np.empty(self._settings.channels, np.int64)
        # A late policy must not overwrite the terms of the fallback.
        own_terms = terms.copy() if self._worker is not None else terms
        count = self._choose_in_time(view, picks, own_terms) if not self.failure else slot_kernels.INVALID
        if recorded is not None:  # missed deadlines do not happen again by themselves in a replay
            self.failure = recorded.policy_failure or self.failure
            if recorded.decision.proposed is None:
                return None, recorded.policy_failure
        if count < 0:
            return None, self.failure
        if own_terms is not terms:
            terms[:] = own_terms
        return picks[:count], self.failure

    def learn(self, arguments: tuple[Any, ...]) -> None:
        """Update the policy; `arguments` are those of `slot_kernels.learn` after the block."""
        if self.failure:
            return
        if self._worker is None:
            self._learn(self.learner, arguments)
            return
        *others, feedback = arguments
        learner, copied = self.learner, (*others, feedback.copy())  # later reports write into `feedback`
        task = self._submit(lambda: self._learn(learner, copied))
        if self.replaying:
            self._wait_for(task, arguments[0])

    def settle(self, timeout: float = SETTLE_TIMEOUT) -> None:
        """Wait until the policy has no pending tasks. A policy out of service is not waited for: it may hang."""
        if self._worker is not None and self._worker.lost:
            self._continue_after_fork()
        end = time.monotonic() + timeout
        while self._pending and not self.failure:
            try:
                self._pending[0].result(max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise PolicyBusyError(
                    f"policy {self._settings.policy}: has {len(self._pending)} pending tasks; try again later"
                ) from None
            self._pending.popleft()

    def reset(self) -> None:
        """Replace the policy by one in its initial state, and put it into service."""
        if self._worker is not None:  # the thread may hang
            self._worker.abandon()
            self._worker = self._new_worker()
            self._pending.clear()
        self.learner = self._make()
        self.failure = ""

    # --- in the policy's thread, if it has one -----------------------------------------------------------------------

    def _choose(self, learner: Learner, view: tuple[Any, ...], picks: Ints, terms: Floats) -> int:
        """Return the number of picks, or a negative number if the policy is out of service."""
        t = view[0]
        if t % CHECK_INTERVAL == 0 and not self.failure and not learner.finite():
            self._fail(learner, t, "the state of the policy contains nan")
        if self.failure:
            return slot_kernels.INVALID
        try:
            count = learner.choose(learner.block, *view, picks, terms)
        except Exception as error:
            self._raised(learner, t, error)
            return slot_kernels.INVALID
        if count < 0:
            reason = "an index is nan" if count == slot_kernels.NOT_A_NUMBER else "the selected channels are invalid"
            self._fail(learner, t, reason)
        return count

    def _learn(self, learner: Learner, arguments: tuple[Any, ...]) -> None:
        if not self.failure:
            try:
                learner.learn(learner.block, *arguments)
            except Exception as error:
                self._raised(learner, arguments[0], error)

    def _raised(self, learner: Learner, t: int, error: Exception) -> None:
        """Take a user's policy out of service. An exception in a built-in policy is a defect and is raised."""
        if self._settings.source is None:
            raise error
        self._fail(learner, t, f"{type(error).__name__}: {error}")

    def _fail(self, learner: Learner, t: int, reason: str) -> None:
        if learner is self.learner:  # otherwise it was replaced by a reset
            self.failure = f"slot {t}: {reason[:MAX_REASON_LENGTH]}"

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _choose_in_time(self, view: tuple[Any, ...], picks: Ints, terms: Floats) -> int:
        """Do the same as `_choose`, and return a negative number also if the deadline is missed."""
        learner = self.learner
        if self._worker is None:
            return self._choose(learner, view, picks, terms)
        count = self._wait_for(self._submit(lambda: self._choose(learner, view, picks, terms)), view[0])
        return slot_kernels.INVALID if count is None else count

    def _submit(self, task: Callable[[], Any]) -> "Future[Any]":
        """Append a task to the work of the policy's thread."""
        assert self._worker is not None
        if self._worker.lost:
            self._continue_after_fork()
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()
        if len(self._pending) >= MAX_PENDING and not self.failure:
            self._fail(self.learner, self._slot, f"the policy has {MAX_PENDING} pending tasks")
        future = self._worker.submit(task)
        self._pending.append(future)
        return future

    def _continue_after_fork(self) -> None:
        """Replace the thread, which exists in the parent only."""
        self._worker = self._new_worker()
        unfinished = any(not task.done() for task in self._pending)
        self._pending.clear()
        if unfinished and not self.failure:
            self._fail(self.learner, self._slot, "the process was forked while the policy had pending tasks")

    def _wait_for(self, task: "Future[Any]", t: int) -> Any:
        """Return the result of a task, or None if the deadline is missed."""
        try:
            return task.result(REPLAY_TIMEOUT if self.replaying else self._settings.deadline)
        except TimeoutError:
            if self.replaying:  # a policy that hangs must not prevent a restart
                self._fail(self.learner, t, f"a task took more than {REPLAY_TIMEOUT:g} s")
            return None
