"""Garbage collection that does not delay requests.

Memory is freed by reference counts; Python's collector only looks for cycles. A complete collection visits every object
of the process, which takes 0.15 s for those of the imported modules alone, and a good deal more with many open
allocators. Their objects are in no cycles. The service therefore exempts what exists at the start, leaves the short
collections of new objects on, and makes complete ones when no requests come, or seldom.
"""

import gc
import threading
import time
from collections.abc import Callable

INTERVAL = 1.0  # seconds between two looks; without a request in between, the service is idle
IDLE_INTERVAL, BUSY_INTERVAL = 30.0, 600.0  # seconds between two complete collections, at least
NEW_OBJECTS = 10_000  # between two collections of new objects


class SeldomCollection:
    """A context in which complete collections are made seldom. `requests` returns the number of requests so far."""

    def __init__(self, requests: Callable[[], int]) -> None:
        self.collections = 0
        self._requests = requests
        self._seen = -1
        self._last = time.monotonic()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="idleband-garbage", daemon=True)

    def __enter__(self) -> "SeldomCollection":
        self._thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS, self._thresholds[1], 2**30)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _run(self) -> None:
        while not self._ending.wait(INTERVAL):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Make a complete collection if it is time."""
        seen = self._requests()
        idle, self._seen = seen == self._seen, seen
        if now - self._last >= (IDLE_INTERVAL if idle else BUSY_INTERVAL):
            gc.collect()
            self.collections += 1
            self._last = now
