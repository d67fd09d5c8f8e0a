"""Replace missing values by the last measurement of the channel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from idleband.channels import channel_text
from idleband.errors import InputError

MAX_FILL = 10  # slots in a row, by default
LIMIT = 1000  # what may be asked for


class Filler:
    """Forward-fill missing values, nan, in consecutive chunks of slots.

    A channel may miss up to `limit` slots in a row. Missing values before its first measurement are replaced by that
    measurement, under the same limit.
    """

    def __init__(self, K: int, limit: int, names: Sequence[str], source: str) -> None:
        self.limit, self.names, self.source = limit, names, source
        self.last: Any = np.full(K, np.nan)  # last measurement
        self.age = np.zeros(K, np.int64)  # slots since
        self.slots = 0
        self.filled = 0

    def fill(self, values: Any) -> Any:
        """Return a chunk of shape (n, K) without missing values."""
        valid = ~np.isnan(values)
        n = len(values)
        if valid.all():
            self.last, self.age = values[-1].copy(), np.zeros_like(self.age)
            self.slots += n
            return values
        rows = np.arange(n)[:, None]
        last = np.maximum.accumulate(np.where(valid, rows, -1), axis=0)
        age = np.where(last >= 0, rows - last, rows + 1 + self.age)
        begin = np.isnan(self.last) & valid.any(axis=0)  # channels with their first measurement in this chunk
        first = np.argmax(valid, axis=0)
        late = begin & (self.age + first > self.limit)
        bad = np.argwhere((age > self.limit) & ~(begin & (last < 0))) if not late.any() else np.argwhere(late[None, :])
        if len(bad):
            self._refuse(int(bad[0][0]), int(bad[0][1]))
        before = np.where(begin, values[first, np.arange(values.shape[1])], self.last)
        filled = np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=0), before)
        if np.isnan(filled).any():  # not measured in the whole chunk, nor before
            row, k = np.argwhere(np.isnan(filled))[0]
            self._refuse(int(row), int(k))
        self.filled += int((~valid).sum())
        self.last, self.age = filled[-1].copy(), age[-1]
        self.slots += n
        return filled.astype(values.dtype, copy=False)

    def _refuse(self, row: int, k: int) -> None:
        raise InputError(
            f"{self.source}: {channel_text(k, self.names)} has no measurement for more than {self.limit} slots in a"
            f" row, near slot {self.slots + row + 1}; allow more with --fill, or leave the channel or this time out"
        )

    @property
    def rule(self) -> str:
        """A sentence about what was replaced."""
        if not self.filled:
            return "no value was missing"
        return f"missing values replaced by the last measurement of the channel, up to {self.limit} slots in a row"
