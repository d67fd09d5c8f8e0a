"""A thread of its own for a policy that has a deadline. Unlike an executor's it does not keep a process from ending: a
policy that hangs would."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class Worker:
    """Does what it is given, one thing after the other; the thread is there from the first."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._begun = self._abandoned = False

    def submit(self, task: Callable[[], Any]) -> "Future[Any]":
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._run, name="idleband-policy", daemon=True).start()
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future

    def abandon(self) -> None:
        """Nothing that it has not begun is done any more."""
        self._abandoned = True
        self._tasks.put(None)

    def _run(self) -> None:
        while (given := self._tasks.get()) is not None and not self._abandoned:
            task, future = given
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
            del given, task, future  # while it waits for the next, it must not keep alive what the last one worked on
