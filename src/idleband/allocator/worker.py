"""The thread of a policy that has a deadline. It is a daemon: a policy that hangs does not keep the process alive."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Worker:
    """Run tasks one after the other in a thread that starts with the first task."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._started_in = 0  # process in which the thread runs; 0 before it has started
        self._abandoned = False

    @property
    def lost(self) -> bool:
        """Whether the process was forked since the thread was started: the thread exists in the parent only."""
        return self._started_in not in (0, os.getpid())

    def submit(self, task: Callable[[], Any]) -> "Future[Any]":
        """Append a task and return its future."""
        if not self._started_in:
            self._started_in = os.getpid()
            threading.Thread(target=self._run, name="idleband-policy", daemon=True).start()
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future

    def abandon(self) -> None:
        """Let the thread end after the present task; later tasks are not run."""
        self._abandoned = True
        self._tasks.put(None)

    def finish(self) -> None:
        """Let the thread end after all tasks that were submitted."""
        self._tasks.put(None)

    def _run(self) -> None:
        while (item := self._tasks.get()) is not None and not self._abandoned:
            task, future = item
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
            del item, task, future  # do not keep the last task's objects alive while waiting for the next
