"""Allocators whose slots may take long run in threads of their own, so that other clients need not wait for them.

In a thread a slot costs about 0.1 ms more. The slots of most policies take less than that, whatever happens, and run in
the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from idleband.allocator.settings import Settings
from idleband.allocator.worker import Worker
from idleband.service.journal import JournalError

# Built-in policies whose slots take a time that their sizes bound. The others train networks, search for indices or
# have a memory of any length, sometimes only in every hundredth slot.
QUICK_POLICIES = frozenset([
    "c2ucb", "exp3-m", "linucb", "mp-adaptive", "mp-adaptive-lucb", "mp-belief", "mp-belief-lucb", "mp-ducb",
    "mp-klucb", "mp-lucb", "mp-lucb-printed", "mp-lucb-rca", "mp-random", "mp-stay", "mp-ts", "mp-ucb", "rca-m",
])  # fmt: skip
MAX_QUICK_WORK = 1e7  # multiplications of a slot in which every model is computed anew, about 10 ms
MAX_QUICK_SECONDS = 0.05  # of processor time in a slot; an allocator that takes longer moves into a thread

T = TypeVar("T")


def is_quick(settings: Settings) -> bool:
    """Return whether no slot of an allocator can take long."""
    policies = [settings.policy, settings.fallback, *([] if settings.incumbent is None else [settings.incumbent])]
    names = [name.partition(":")[0] for name in policies]
    work = settings.channels * (settings.dimension + 1) ** 3
    return (
        settings.source is None
        and settings.deadline is None
        and all(name in QUICK_POLICIES for name in names)
        and work <= MAX_QUICK_WORK
    )


class SlotThread:
    """The thread of one allocator. Calls run one after the other, in the order in which they were made."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._turn = asyncio.Lock()
        self._ended = False
        self.calls = 0  # that are made or wait for their turn
        self.busy = False  # whether the allocator is being changed, or read, in the thread

    async def call(self, work: Callable[[], T], then: Callable[[T], object] = lambda _: None) -> T:
        """Return the result of `work` in the thread. `then` is called with it before any other call begins.

        Both happen even if the caller is cancelled meanwhile.
        """
        self.calls += 1
        task = asyncio.ensure_future(self._call(work, then))
        task.add_done_callback(self._called)
        return await asyncio.shield(task)

    def _called(self, task: "asyncio.Task[T]") -> None:
        self.calls -= 1
        if not task.cancelled():
            task.exception()  # the caller may have been cancelled

    async def _call(self, work: Callable[[], T], then: Callable[[T], object]) -> T:
        async with self._turn:
            if self._ended:
                raise JournalError("the allocator was restored from the journal meanwhile")
            self.busy = True
            try:
                result = await asyncio.wrap_future(self._worker.submit(work))
                then(result)
                return result
            finally:
                self.busy = False

    def end(self) -> None:
        """Let the thread end after the present call; later ones raise a JournalError."""
        self._ended = True
        self._worker.finish()
