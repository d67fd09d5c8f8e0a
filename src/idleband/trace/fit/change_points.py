"""Change points and drift of the occupancy.

Change points of one channel. The statistic is the largest deviation of the cumulative number of busy slots from a
straight line (CUSUM). For a channel with independent idle and busy dwell times, which includes two-state Markov
channels, it is the maximum of a Brownian bridge times sqrt(T v) with the variance of an alternating renewal process,

    v = (mean_idle^2 var_busy + mean_busy^2 var_idle) / (mean_idle + mean_busy)^3.

The trace is split where the maximum is significant, and the parts are tested again (binary segmentation).

Common change points. The occupancy of all channels in blocks of slots is compared between the inside and the outside of
every interval, and the squared differences of the channels are added (circular binary segmentation, Olshen et al.
2004). The largest sum is compared with those after random permutations of the blocks, in which the channels stay
together. Both ends of a significant interval are change points, and the parts are tested again. Where fewer than a
tenth of the channels differ, or only one, those are left out of the test. This assumes nothing about the dependence
between channels, and that blocks are exchangeable while nothing changes. They are twenty times as long as the occupancy
of a typical channel is correlated; in traces that have fewer than 24 such blocks they are shorter, and slow variation
counts as a change.

Drift. The slope of a straight line through the occupancy in 30 blocks, with an interval that takes blocks as
independent.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special, stats

from idleband.arrays import Floats, Ints
from idleband.trace.fit.counts import Counts
from idleband.trace.fit.intervals import LEVEL, SIGNIFICANT, holm
from idleband.trace.fit.transitions import finite
from idleband.trace.statistics import run_lengths

MIN_PERIODS = 8  # complete idle and busy periods of a part that is tested
MAX_CHANGES = 50  # of one channel
MAX_BLOCKS, MIN_BLOCKS = 60, 24  # of the test for common changes
MIN_BLOCK = 5  # slots
CORRELATION_TIMES = 20  # of the occupancy of a channel in a block; with 10, twice as many false changes are found
MIN_PART = 2  # blocks before and after a common change
PERMUTATIONS = 999
PRUNING_LEVEL = 0.05


@dataclass(frozen=True)
class ChangePoint:
    """A slot at which the occupancy of a channel, or of many, changes."""

    slot: int  # first slot of the new level, from 0
    before: float  # occupancy from the previous change to this one
    after: float  # occupancy from this change to the next one

    def to_dict(self) -> dict[str, object]:
        """Return the change point for JSON."""
        return {"slot": self.slot, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Changes:
    """Change points and drift of a trace."""

    channels: tuple[tuple[ChangePoint, ...], ...]  # of each channel
    tested: int  # channels with enough periods for the test
    p_values: Floats  # of the first change of each channel; nan: not tested
    common: tuple[ChangePoint, ...]  # of all channels; before and after: mean occupancy
    common_p_value: float  # of the first common change; nan: not tested
    block_slots: int  # length of a block of the test for common changes; 0: not tested
    short_blocks: bool  # blocks are shorter than twenty correlation times: slow variation counts as a change
    drift: Floats  # change of the occupancy of each channel over the trace, along a straight line
    drift_low: Floats
    drift_high: Floats
    drifting: int  # channels with a drift, at a family-wise error rate of 1%
    common_drift: tuple[float, float, float]  # of the mean occupancy, with its interval
    common_drift_p_value: float

    @property
    def changed(self) -> int:
        """Number of channels with a change point."""
        return sum(bool(points) for points in self.channels)

    def to_dict(self) -> dict[str, object]:
        """Return the changes for JSON, without those of single channels."""
        return {
            "channels_tested": self.tested,
            "channels_changed": self.changed,
            "common": [point.to_dict() for point in self.common],
            "common_p_value": finite(self.common_p_value),
            "block_slots": self.block_slots,
            "short_blocks": self.short_blocks,
            "drift": [finite(value) for value in self.common_drift],
            "drift_p_value": finite(self.common_drift_p_value),
            "channels_drifting": self.drifting,
        }


def find_changes(busy: Any, counts: Counts, rng: np.random.Generator) -> Changes:
    """Find the change points of each channel, common ones, and drift."""
    T, K = busy.shape
    first = [_cusum(busy[:, k]) for k in range(K)]
    p_values = np.array([found[0] for found in first])
    tested = int(np.isfinite(p_values).sum())
    level = SIGNIFICANT / max(1, tested)
    channels = []
    for k in range(K):
        cuts = _segment(busy[:, k], level) if p_values[k] < level else []
        channels.append(_described(cuts, busy[:, k], T))
    times = np.array([_correlation_time(busy[:, k]) for k in range(K)])
    wanted = CORRELATION_TIMES * float(np.median(times[np.isfinite(times)])) if tested else 0.0
    size = int(np.clip(wanted, -(-T // MAX_BLOCKS), max(1, T // MIN_BLOCKS)))
    size_is_short = size < wanted
    common: tuple[ChangePoint, ...] = ()
    common_p = float("nan")
    if tested and K > 1 and size >= MIN_BLOCK:
        cuts, common_p = _common(busy, size, rng)
        common = _described(cuts, busy.mean(axis=1), T)
    else:
        size = 0
    drift, low, high, p = _drift(counts.busy)
    mean_drift = _drift(counts.busy.mean(axis=1, keepdims=True))
    drifting = int(np.sum(holm(p) < SIGNIFICANT))
    overall = (float(mean_drift[0][0]), float(mean_drift[1][0]), float(mean_drift[2][0]))
    return Changes(
        tuple(channels), tested, p_values, common, common_p, size, size_is_short, drift, low, high, drifting, overall,
        float(mean_drift[3][0]),
    )  # fmt: skip


def _described(cuts: list[int], level: Any, T: int) -> tuple[ChangePoint, ...]:
    ends = [0, *cuts, T]
    means = [float(np.mean(level[a:b])) for a, b in pairwise(ends)]
    return tuple(ChangePoint(cut, means[i], means[i + 1]) for i, cut in enumerate(cuts))


def _moments(busy: Any) -> tuple[float, float, float, float] | None:
    """Return mean and variance of complete idle and busy periods, or None for too few."""
    state, _, length = run_lengths(busy)
    state, length = state[1:-1], length[1:-1]
    idle, occupied = length[~state], length[state]
    if min(len(idle), len(occupied)) < MIN_PERIODS:
        return None
    return float(idle.mean()), float(idle.var(ddof=1)), float(occupied.mean()), float(occupied.var(ddof=1))


def _variance(busy: Any) -> float:
    """Return the variance of the number of busy slots, per slot."""
    found = _moments(busy)
    if found is None:
        return float("nan")
    idle, idle_variance, occupied, occupied_variance = found
    value = (idle**2 * occupied_variance + occupied**2 * idle_variance) / (idle + occupied) ** 3
    share = float(np.mean(busy))
    return max(value, 0.01 * share * (1 - share))


def _correlation_time(busy: Any) -> float:
    """Return the variance of the number of busy slots divided by that of independent slots; nan: too few periods."""
    share = float(np.mean(busy))
    return _variance(busy) / (share * (1 - share)) if 0 < share < 1 else float("nan")


def _cusum(busy: Any) -> tuple[float, int]:
    """Return the p-value of a change, and the first slot after it."""
    variance = _variance(busy)
    if not variance > 0:
        return float("nan"), 0
    n = len(busy)
    deviation = np.cumsum(busy, dtype=float) - np.arange(1, n + 1) * (np.count_nonzero(busy) / n)
    at = int(np.argmax(np.abs(deviation)))
    return float(special.kolmogorov(abs(deviation[at]) / np.sqrt(n * variance))), at + 1


def _segment(busy: Any, level: float) -> list[int]:
    """Return the change points of one channel."""
    cuts: list[int] = []
    parts = [(0, len(busy))]
    while parts and len(cuts) < MAX_CHANGES:
        begin, end = parts.pop()
        p, at = _cusum(busy[begin:end])
        if p < level and 0 < at < end - begin:
            cuts.append(begin + at)
            parts += [(begin, begin + at), (begin + at, end)]
    return sorted(cuts)


def _common(busy: Any, size: int, rng: np.random.Generator) -> tuple[list[int], float]:
    """Return the common change points, and the p-value of the first."""
    T = len(busy)
    blocks = T // size
    starts = np.arange(blocks) * size
    share = np.add.reduceat(busy[: blocks * size], starts, axis=0, dtype=float) / size
    deviation = share.std(axis=0)
    share = share[:, deviation > 0] / deviation[deviation > 0]
    if not share.size:
        return [], float("nan")
    cuts: list[int] = []
    p_first = float("nan")
    parts = [(0, blocks, np.arange(share.shape[1]))]
    while parts:
        begin, end, channels = parts.pop()
        n = end - begin
        if n < 2 * MIN_PART or len(channels) < 2:
            continue
        part = share[begin:end, channels] - share[begin:end, channels].mean(axis=0)
        products = part @ part.T
        statistic, ends = _largest(products)
        higher = 0
        for _ in range(PERMUTATIONS):
            order = rng.permutation(n)
            higher += _largest(products[order][:, order])[0] >= statistic * (1 - 1e-12)
        p = (1 + higher) / (1 + PERMUTATIONS)
        significant = p <= SIGNIFICANT
        squared = np.sum(part[ends[0] : ends[1]], axis=0) ** 2  # per channel, proportional to the squared difference
        if significant and squared.sum() ** 2 < max(1.5, len(channels) / 10) * np.sum(squared**2):
            few = max(1, len(channels) // 20)  # those that change most have a change of their own
            parts.append((begin, end, np.delete(channels, np.argsort(squared)[-few:])))
            continue
        p_first = p if np.isnan(p_first) else p_first
        if significant:
            inner = [begin + at for at in ends if 0 < at < n]
            cuts += inner
            parts += [(first, last, channels) for first, last in pairwise([begin, *inner, end])]
    kept = _pruned(share, sorted(cuts), rng)
    return sorted({_refined(busy, cut * size, size) for cut in kept}), p_first


def _pruned(share: Floats, cuts: list[int], rng: np.random.Generator) -> list[int]:
    """Leave out cuts at which the blocks up to the neighbouring cuts do not differ, the least significant one first.

    An interval that begins or ends in the middle of a level has such a cut.
    """
    while cuts:
        ends = [0, *cuts, len(share)]
        p_values = [_p_value(share[a:c], b - a, rng) for a, b, c in zip(ends, ends[1:], ends[2:], strict=False)]
        worst = int(np.argmax(p_values))
        if p_values[worst] <= PRUNING_LEVEL:
            break
        cuts = [cut for i, cut in enumerate(cuts) if i != worst]
    return cuts


def _p_value(share: Floats, cut: int, rng: np.random.Generator) -> float:
    """Return the p-value of a difference between the blocks before and after a cut, from permutations."""
    part = share - share.mean(axis=0)
    products = part @ part.T
    statistic = products[:cut, :cut].sum()
    higher = 0
    for _ in range(PERMUTATIONS):
        order = rng.permutation(len(part))[:cut]
        higher += products[np.ix_(order, order)].sum() >= statistic * (1 - 1e-12)
    return (1 + higher) / (1 + PERMUTATIONS)


def _largest(products: Floats) -> tuple[float, tuple[int, int]]:
    """Return the largest difference of an interval of blocks from the others, and its first and last block plus one.

    `products` has the inner products over channels of the occupancy of two blocks, minus its mean over blocks. The
    difference is the sum over channels of (mean inside - mean outside)^2 m (n - m) / n, with m of n blocks inside.
    """
    n = len(products)
    total = np.zeros((n + 1, n + 1))
    total[1:, 1:] = products.cumsum(axis=0).cumsum(axis=1)
    diagonal = np.diag(total)
    squared = diagonal[None, :] + diagonal[:, None] - 2 * total  # of the sum over blocks i to j - 1
    inside = np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None]
    allowed = (inside >= MIN_PART) & (n - inside >= MIN_PART)
    score = np.where(allowed, squared * n / np.where(allowed, inside * (n - inside), 1), -1.0)
    first, end = np.unravel_index(int(np.argmax(score)), score.shape)
    return float(score[first, end]), (int(first), int(end))


def _refined(busy: Any, cut: int, size: int) -> int:
    """Return the slot within one block of a cut that separates the levels before and after best."""
    begin, end = max(0, cut - 2 * size), min(len(busy), cut + 2 * size)
    part = busy[begin:end].astype(float)
    deviation = np.cumsum(part - part.mean(axis=0), axis=0)
    near = np.arange(max(1, cut - begin - size), min(len(part) - 1, cut - begin + size))
    score = np.sum(deviation[near - 1] ** 2, axis=1) * len(part) / (near * (len(part) - near))
    return begin + int(near[np.argmax(score)])


def _drift(share: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the change along a straight line, its interval and its p-value, for columns of occupancy by block."""
    n = len(share)
    if n < 4:
        nan = np.full(share.shape[1], np.nan)
        return nan, nan, nan, nan
    x = (np.arange(n) - (n - 1) / 2) / n
    slope = x @ share / (x @ x)
    rest = share - share.mean(axis=0) - np.outer(x, slope)
    error = np.sqrt(np.sum(rest**2, axis=0) / (n - 2) / (x @ x))
    half = stats.t.ppf(1 - (1 - LEVEL) / 2, n - 2) * error
    with np.errstate(invalid="ignore", divide="ignore"):
        p = 2 * stats.t.sf(np.abs(slope / error), n - 2)
    return slope, slope - half, slope + half, p


def slots_of(points: tuple[ChangePoint, ...]) -> Ints:
    """Return the slots of change points."""
    return np.array([point.slot for point in points], dtype=np.int64)
