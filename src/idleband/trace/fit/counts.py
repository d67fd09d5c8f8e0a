"""Counts of transitions by channel, state, age and block of time, from which most of a fit is computed.

The age of a slot is the number of slots that a channel has been in its present state, this one included. Slots of the
first period of a channel have an unknown age, because the period may have begun before the trace; they are in bin 0.
Up to 15 slots every age has a bin of its own; later bins begin at 16, 24, 32, 48, 64, ... slots.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Floats, Ints

IDLE, BUSY = 0, 1
STATES = ("idle", "busy")
BLOCKS = 30  # blocks of consecutive slots, of equal length
FOLDS = 5  # groups of consecutive blocks, held out one after the other
MIN_AGE_CAP, MAX_AGE_CAP = 64, 1024
MAX_HAZARDS = 25_000  # values per state in a scenario file, about


@dataclass(frozen=True)
class Counts:
    """Numbers of slots that are followed by another slot, and of transitions out of the state at their end."""

    T: int
    edges: Ints  # first age of each bin from bin 1 on; the last bin has no end
    slots: Ints  # (2, K, blocks, 1 + bins), first axis: idle, busy
    leaves: Ints  # the same shape
    busy: Floats  # (blocks, K): share of busy slots

    @property
    def K(self) -> int:
        """Number of channels."""
        return int(self.slots.shape[1])

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.slots.shape[2])

    def folds(self) -> Ints:
        """Return the fold of each block."""
        return np.arange(self.blocks) * FOLDS // self.blocks


def block_count(T: int) -> int:
    """Return the number of blocks of a trace: at least two slots in each."""
    return max(1, min(BLOCKS, (T - 1) // 2))


def block_starts(T: int, blocks: int) -> Ints:
    """Return the first transition of each block, and T - 1; transition t leads from slot t to slot t + 1."""
    return np.arange(blocks + 1) * (T - 1) // blocks


def age_edges(T: int, K: int) -> Ints:
    """Return the first age of each bin.

    >>> age_edges(5000, 400).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 48, 64]
    """
    cap = min(T, max(MIN_AGE_CAP, min(MAX_AGE_CAP, MAX_HAZARDS // K)))
    found = {*range(1, 16), *(factor * 2**power for factor in (1, 3) for power in range(20))}
    return np.array(sorted(edge for edge in found if edge <= cap), dtype=np.int64)


def ages(busy: Any) -> tuple[Any, Any]:
    """Return the age of each slot of a channel, and whether it is known.

    >>> age, known = ages(np.array([True, True, False, False, True]))
    >>> age.tolist(), known.tolist()
    ([1, 2, 1, 2, 1], [False, False, True, True, True])
    """
    slot = np.arange(len(busy))
    begin = np.zeros(len(busy), np.int64)
    begin[1:] = np.where(busy[1:] != busy[:-1], slot[1:], 0)
    first = np.maximum.accumulate(begin)
    return slot - first + 1, first > 0


def count(busy: Any) -> Counts:
    """Count the transitions of a trace, an array of shape (T, K)."""
    T, K = busy.shape
    edges, blocks = age_edges(T, K), block_count(T)
    starts = block_starts(T, blocks)
    block = np.repeat(np.arange(blocks), np.diff(starts))
    width = 1 + len(edges)
    size = 2 * blocks * width
    slots = np.zeros((2, K, blocks, width), np.int64)
    leaves = np.zeros_like(slots)
    for k in range(K):
        states = np.ascontiguousarray(busy[:, k])
        age, known = ages(states)
        place = np.where(known, np.searchsorted(edges, age, side="right"), 0)[:-1]
        cell = (states[:-1] * blocks + block) * width + place
        slots[:, k] = np.bincount(cell, minlength=size).reshape(2, blocks, width)
        left = cell[states[1:] != states[:-1]]
        leaves[:, k] = np.bincount(left, minlength=size).reshape(2, blocks, width)
    share = np.add.reduceat(busy[:-1], starts[:-1], axis=0, dtype=float) / np.diff(starts)[:, None]
    return Counts(T, edges, slots, leaves, share)
