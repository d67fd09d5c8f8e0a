"""A trace reduced to an image of limited size."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Floats

MAX_ROWS = 1500
MAX_COLUMNS = 2000


@dataclass(frozen=True)
class Waterfall:
    """Busy share, and mean power or reward where one is known, in blocks of consecutive slots and channels."""

    busy: Floats  # (rows, columns)
    level: Floats | None  # power, or reward
    kind: str  # busy, power or reward: what the image shows
    slots_per_row: int
    channels_per_column: int
    slots: int
    channels: int


def waterfall_of(chunks: Iterable[dict[str, Any]], T: int, K: int) -> Waterfall:
    """Return the image of consecutive chunks with the layer busy, and power or reward where one is known."""
    per_row, per_column = -(-T // MAX_ROWS), -(-K // MAX_COLUMNS)
    rows = -(-T // per_row)
    sums = {"busy": np.zeros((rows, K))}
    at = 0
    for chunk in chunks:
        row = (at + np.arange(len(chunk["busy"]))) // per_row
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for name in ("busy", "power", "reward"):
            if name in chunk:
                total = sums.setdefault(name, np.zeros((rows, K)))
                total[row[starts]] += np.add.reduceat(chunk[name], starts, axis=0, dtype=float)
        at += len(chunk["busy"])
    kind = next(name for name in ("power", "reward", "busy") if name in sums)
    counts = np.minimum(per_row, T - per_row * np.arange(rows))[:, None]
    means = {name: _columns(total / counts, per_column) for name, total in sums.items()}
    level = None if kind == "busy" else means[kind]
    return Waterfall(means["busy"], level, kind, per_row, per_column, T, K)


def _columns(values: Floats, per_column: int) -> Floats:
    if per_column == 1:
        return values
    starts = np.arange(0, values.shape[1], per_column)
    return np.add.reduceat(values, starts, axis=1) / np.diff(np.append(starts, values.shape[1]))
