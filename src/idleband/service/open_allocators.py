"""The allocators of a service that are in memory, in the order of their last use, and how much memory they take."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from idleband.service.journaled_allocator import JournaledAllocator


class OpenAllocators:
    """Open allocators by name; iteration begins with the one that has not been used for longest."""

    def __init__(self) -> None:
        self.bytes = 0  # of memory, by the estimate of `JournaledAllocator.size`
        self._allocators: OrderedDict[str, JournaledAllocator] = OrderedDict()
        self._sizes: dict[str, int] = {}  # as they are counted in `bytes`

    def __len__(self) -> int:
        return len(self._allocators)

    def __iter__(self) -> Iterator[JournaledAllocator]:
        return iter(self._allocators.values())

    def __contains__(self, allocator: object) -> bool:
        return isinstance(allocator, JournaledAllocator) and self._allocators.get(allocator.name) is allocator

    def find(self, name: str) -> JournaledAllocator | None:
        """Return an allocator if it is open."""
        return self._allocators.get(name)

    def use(self, name: str) -> JournaledAllocator | None:
        """Return an allocator if it is open, which counts as its latest use."""
        allocator = self._allocators.get(name)
        if allocator is not None:
            self._allocators.move_to_end(name)
        return allocator

    def add(self, allocator: JournaledAllocator) -> None:
        self._allocators[allocator.name] = allocator
        self.measure(allocator)

    def measure(self, allocator: JournaledAllocator) -> None:
        """Count the present size of an allocator."""
        size = allocator.size
        self.bytes += size - self._sizes.get(allocator.name, 0)
        self._sizes[allocator.name] = size

    def remove(self, allocator: JournaledAllocator) -> None:
        del self._allocators[allocator.name]
        self.bytes -= self._sizes.pop(allocator.name)

    def clear(self) -> None:
        self._allocators.clear()
        self._sizes.clear()
        self.bytes = 0


class AllocatorsByName(Mapping[str, JournaledAllocator]):
    """All allocators of a service by name. Looking one up opens it; the names and their number do not."""

    def __init__(self, names: Mapping[str, object], find: Callable[[str], JournaledAllocator]) -> None:
        self._names, self._find = names, find

    def __getitem__(self, name: str) -> JournaledAllocator:
        return self._find(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
