"""Which request_ids an allocator may have seen: a Bloom filter, so that a new one is recognised without a query."""

import threading

BITS = 16  # per fingerprint; with four positions, one new request_id in 400 is taken for a known one
MIN_CAPACITY = 256


class RequestFilter:
    """A set of fingerprints that may seem to contain more than was added, but never less.

    Fingerprints are hashes of 64 bits, as signed numbers.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(MIN_CAPACITY, capacity)
        self.count = 0
        self.is_complete = False  # whether everything that was there before is in it
        self._bits = bytearray(self.capacity * BITS // 8)
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether so many were added that a larger filter would save queries."""
        return self.count > 2 * self.capacity

    def add(self, fingerprint: int) -> None:
        with self._lock:  # a byte is read and written
            self.count += 1
            for place in self._places(fingerprint):
                self._bits[place >> 3] |= 1 << (place & 7)

    def may_contain(self, fingerprint: int) -> bool:
        bits = self._bits
        return all(bits[place >> 3] >> (place & 7) & 1 for place in self._places(fingerprint))

    def _places(self, fingerprint: int) -> list[int]:
        size, step = len(self._bits) * 8, fingerprint >> 32 | 1
        return [(fingerprint + i * step) % size for i in range(4)]
