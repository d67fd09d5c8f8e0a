"""Statistics of a trace: occupancy, dwell times, transitions and correlation between channels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.channels import channel_label

MAX_CORRELATED = 1000  # channels for which the matrix of correlations is computed


def run_lengths(busy: Any) -> tuple[Any, Ints, Ints]:
    """Return the runs of a sequence of states: whether each is busy, its first slot (from 0), and its length.

    >>> state, start, length = run_lengths(np.array([False, False, True, False]))
    >>> state.tolist(), start.tolist(), length.tolist()
    ([False, True, False], [0, 2, 3], [2, 1, 1])
    """
    busy = np.asarray(busy, bool)
    start = np.concatenate([[0], np.flatnonzero(busy[1:] != busy[:-1]) + 1])
    return busy[start], start, np.diff(np.concatenate([start, [len(busy)]]))


@dataclass(frozen=True)
class DwellTimes:
    """Lengths of the complete runs of one state, over one or more channels.

    Runs that are cut by the beginning or the end of the trace are not counted.
    """

    counts: dict[int, int]  # number of runs by length

    @property
    def runs(self) -> int:
        """Number of runs."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean length in slots; nan without runs."""
        return sum(length * n for length, n in self.counts.items()) / self.runs if self.counts else math.nan

    @property
    def cv2(self) -> float:
        """Squared coefficient of variation: sample variance / mean^2; nan with fewer than two runs."""
        if self.runs < 2:
            return math.nan
        mean = self.mean
        squares = math.fsum(n * (length - mean) ** 2 for length, n in self.counts.items())
        return squares / (self.runs - 1) / mean**2

    @property
    def geometric_cv2(self) -> float:
        """Squared coefficient of variation of geometric lengths with the same mean, 1 - 1 / mean."""
        return 1 - 1 / self.mean

    def survival(self) -> tuple[Ints, Floats]:
        """Return lengths n = 1, ... that occur, and the share of runs that are at least n slots long."""
        lengths = np.array(sorted(self.counts), dtype=np.int64)
        n = np.array([self.counts[int(length)] for length in lengths], dtype=float)
        return lengths, n[::-1].cumsum()[::-1] / max(1.0, n.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics for JSON."""
        return {
            "runs": self.runs,
            "mean": _finite(self.mean),
            "cv2": _finite(self.cv2),
            "geometric_cv2": _finite(self.geometric_cv2),
        }


@dataclass(frozen=True)
class ChannelStatistics:
    """Statistics of one channel. p01 is the probability from busy to idle, p10 from idle to busy, per slot."""

    channel: int
    name: str
    occupancy: float  # share of slots that are busy
    p01: float  # nan where the channel was never busy before the last slot
    p10: float
    idle: DwellTimes
    busy: DwellTimes

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics for JSON."""
        return {
            "channel": self.channel,
            "name": self.name,
            "occupancy": self.occupancy,
            "p01": _finite(self.p01),
            "p10": _finite(self.p10),
            "idle_runs": self.idle.to_dict(),
            "busy_runs": self.busy.to_dict(),
        }


@dataclass(frozen=True)
class TraceStatistics:
    """Statistics of a trace."""

    slots: int
    slot_s: float
    channels: tuple[ChannelStatistics, ...]
    correlation: Floats | None = field(repr=False)  # (K, K), nan for channels that never change; None for many channels
    mean_correlation: float  # over pairs of different channels
    adjacent_correlation: float  # over pairs of neighbours in the order of the trace

    @property
    def idle(self) -> DwellTimes:
        """Idle dwell times of all channels together."""
        return _pooled([channel.idle for channel in self.channels])

    @property
    def busy(self) -> DwellTimes:
        """Busy dwell times of all channels together."""
        return _pooled([channel.busy for channel in self.channels])

    def median(self, name: str) -> float:
        """Return the median over channels of occupancy, p01, p10, or of cv2 of idle or busy runs ("idle", "busy")."""
        found = [getattr(channel, name) for channel in self.channels]
        values = [value.cv2 if isinstance(value, DwellTimes) else value for value in found]
        known = [value for value in values if math.isfinite(value)]
        return float(np.median(known)) if known else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics for JSON; null where a value is not defined."""
        occupancy = [channel.occupancy for channel in self.channels]
        return {
            "slots": self.slots,
            "slot_s": self.slot_s,
            "occupancy": {"min": min(occupancy), "median": float(np.median(occupancy)), "max": max(occupancy)},
            "p01_median": _finite(self.median("p01")),
            "p10_median": _finite(self.median("p10")),
            "idle_cv2_median": _finite(self.median("idle")),
            "busy_cv2_median": _finite(self.median("busy")),
            "idle_runs": self.idle.to_dict(),
            "busy_runs": self.busy.to_dict(),
            "correlation": {"mean": _finite(self.mean_correlation), "adjacent": _finite(self.adjacent_correlation)},
            "channels": [channel.to_dict() for channel in self.channels],
        }


def statistics_of(chunks: Iterable[Any], K: int, slot_s: float, names: Sequence[str]) -> TraceStatistics:
    """Compute the statistics of consecutive chunks of `busy`, each of shape (slots, K)."""
    sums = _Sums(K)
    for busy in chunks:
        sums.add(np.asarray(busy, bool))
    return sums.result(slot_s, names)


class _Sums:
    """Counts from which the statistics are computed."""

    def __init__(self, K: int) -> None:
        self.K, self.T = K, 0
        self.busy = np.zeros(K)
        self.left = np.zeros((2, K))  # transitions out of idle, out of busy
        self.before = np.zeros((2, K))  # slots before another slot, idle and busy
        self.both = np.zeros((K, K)) if K <= MAX_CORRELATED else None  # slots in which two channels are busy
        self.both_adjacent = np.zeros(max(0, K - 1))
        self.last: Any = None
        self.open = np.zeros(K, np.int64)  # length of the present run, negative if it began with the trace
        self.first = np.ones(K, bool)  # the present run began with the trace
        self.runs: list[list[dict[int, int]]] = [[{}, {}] for _ in range(K)]

    def add(self, busy: Any) -> None:
        floats = busy.astype(np.float32)
        self.busy += busy.sum(axis=0)
        if self.both is not None:
            self.both += floats.T @ floats
        self.both_adjacent += (busy[:, 1:] & busy[:, :-1]).sum(axis=0)
        whole = busy if self.last is None else np.concatenate([self.last[None], busy])
        self.before[1] += whole[:-1].sum(axis=0)
        self.before[0] += (~whole[:-1]).sum(axis=0)
        self.left[1] += (whole[:-1] & ~whole[1:]).sum(axis=0)
        self.left[0] += (~whole[:-1] & whole[1:]).sum(axis=0)
        for k in range(self.K):
            self._add_runs(k, busy[:, k])
        self.last = busy[-1]
        self.T += len(busy)

    def _add_runs(self, k: int, busy: Any) -> None:
        state, _, length = run_lengths(busy)
        if self.last is not None:
            if state[0] == self.last[k]:
                length[0] += self.open[k]
            else:
                self._close(k, bool(self.last[k]), np.array([self.open[k]]))
        inner = length[:-1]
        if len(inner):
            self._close(k, bool(state[0]), inner[:1])
            for value in (False, True):
                self._close(k, value, inner[1:][state[1:-1] == value])
        self.open[k] = length[-1]

    def _close(self, k: int, state: bool, lengths: Ints) -> None:
        if not len(lengths):
            return
        if self.first[k]:  # began with the trace: its length is not known
            self.first[k] = False
            return
        counts = self.runs[k][int(state)]
        for length, n in zip(*np.unique(lengths, return_counts=True), strict=True):
            counts[int(length)] = counts.get(int(length), 0) + int(n)

    def result(self, slot_s: float, names: Sequence[str]) -> TraceStatistics:
        share = self.busy / self.T
        with np.errstate(invalid="ignore", divide="ignore"):
            p10, p01 = self.left / self.before
            deviation = np.sqrt(share * (1 - share))
            adjacent = (self.both_adjacent / self.T - share[1:] * share[:-1]) / (deviation[1:] * deviation[:-1])
            matrix = None
            if self.both is not None:
                matrix = (self.both / self.T - np.outer(share, share)) / np.outer(deviation, deviation)
                matrix[~np.isfinite(matrix)] = np.nan
        pairs = matrix[np.triu_indices(self.K, 1)] if matrix is not None else np.array([np.nan])
        channels = tuple(
            ChannelStatistics(
                k, channel_label(k, names), float(share[k]), float(p01[k]), float(p10[k]),
                DwellTimes(self.runs[k][0]), DwellTimes(self.runs[k][1]),
            )
            for k in range(self.K)
        )  # fmt: skip
        return TraceStatistics(self.T, slot_s, channels, matrix, _mean(pairs), _mean(adjacent))


def _pooled(parts: Sequence[DwellTimes]) -> DwellTimes:
    counts: dict[int, int] = {}
    for part in parts:
        for length, n in part.counts.items():
            counts[length] = counts.get(length, 0) + n
    return DwellTimes(counts)


def _mean(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
