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
    """Busy share, and mean power where it is known, in blocks of consecutive slots and channels."""

    busy: Floats  # (rows, columns)
    power: Floats | None
    slots_per_row: int
    channels_per_column: int
    slots: int
    channels: int


def waterfall_of(chunks: Iterable[dict[str, Any]], T: int, K: int) -> Waterfall:
    """Return the image of consecutive chunks with the layer busy, and power where it is known."""
    per_row, per_column = -(-T // MAX_ROWS), -(-K // MAX_COLUMNS)
    rows = -(-T // per_row)
    busy, power = np.zeros((rows, K)), None
    at = 0
    for chunk in chunks:
        row = (at + np.arange(len(chunk["busy"]))) // per_row
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        busy[row[starts]] += np.add.reduceat(chunk["busy"], starts, axis=0, dtype=float)
        if "power" in chunk:
            power = np.zeros((rows, K)) if power is None else power
            power[row[starts]] += np.add.reduceat(chunk["power"], starts, axis=0, dtype=float)
        at += len(chunk["busy"])
    counts = np.minimum(per_row, T - per_row * np.arange(rows))[:, None]
    return Waterfall(
        _columns(busy / counts, per_column), None if power is None else _columns(power / counts, per_column),
        per_row, per_column, T, K,
    )  # fmt: skip


def _columns(values: Floats, per_column: int) -> Floats:
    if per_column == 1:
        return values
    starts = np.arange(0, values.shape[1], per_column)
    return np.add.reduceat(values, starts, axis=1) / np.diff(np.append(starts, values.shape[1]))
