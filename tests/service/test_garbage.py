"""Complete collections are made when no requests come, or seldom."""

import gc
import time
import weakref

from idleband.service import garbage
from idleband.service.garbage import SeldomCollection


class Node:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.own = self


def test_cycles_are_collected_when_idle_and_seldom_otherwise() -> None:
    requests = iter([1, 2, 2, 3, 4])
    before = gc.get_threshold()
    collection = SeldomCollection(lambda: next(requests))
    with collection:
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[2] > 10**6
        now = time.monotonic()
        node = Node()
        gc.collect(1)  # it is not new any more
        found = weakref.ref(node)
        del node
        collection.look(now + garbage.IDLE_INTERVAL + 1)  # a first request
        collection.look(now + garbage.IDLE_INTERVAL + 2)  # another one
        gc.collect(1)
        assert found() is not None
        collection.look(now + garbage.IDLE_INTERVAL + 3)
        assert (found(), collection.collections) == (None, 1)
        collection.look(now + 2 * garbage.IDLE_INTERVAL + 10)
        assert collection.collections == 1
        collection.look(now + garbage.IDLE_INTERVAL + garbage.BUSY_INTERVAL + 4)
        assert collection.collections == 2
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
