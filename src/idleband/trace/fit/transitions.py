"""Estimates of p01 and p10 with intervals, and a test whether transitions cluster in time.

In a two-state Markov channel the slots in one state end with a transition independently of each other and with the same
probability. The number of transitions is then binomial given the number of slots, and the interval of the probability
is a binomial one. Where transitions cluster or dwell times are not geometric, in this channel or in the channels
together, the interval is that of the long-run frequency of transitions. Its width comes from the variance between
overlapping blocks, 10 to 30 with at least four periods each if possible. This assumes that the channel is stationary
and that blocks are nearly independent. In a short trace of one channel the tests have little power, and a binomial
interval may be too narrow.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from idleband.arrays import Floats
from idleband.trace.fit.counts import BUSY, STATES, Counts
from idleband.trace.fit.intervals import binomial_interval, combined_p_value, effective_interval

SIGNIFICANT = 0.05
MIN_EXPECTED = 5  # transitions in a block of the test for clusters
MIN_BLOCKS, MAX_BLOCKS = 10, 30  # of an interval from blocks
PERIODS_PER_BLOCK = 4
MIN_PER_BLOCK = 2  # slots


@dataclass(frozen=True)
class TransitionEstimate:
    """Probability of leaving a state of one channel, per slot, with a 95% interval."""

    probability: float  # transitions / slots; nan where the state was never left a next slot
    low: float
    high: float
    method: str  # "binomial" (assumes a two-state Markov channel) or "blocks" (assumes a stationary one)
    slots: int  # slots in the state that are followed by another slot
    transitions: int
    binomial: tuple[float, float]  # the binomial interval
    blocks: tuple[float, float]  # the interval from blocks; nan where the trace is too short
    design_effect: float  # variance between blocks / binomial variance
    cluster_p_value: float  # test that transitions are spread evenly over the slots of the state; nan: too few

    def to_dict(self) -> dict[str, object]:
        """Return the estimate for JSON; null where a value is not defined."""
        return {
            "probability": finite(self.probability),
            "interval": [self.low, self.high],
            "method": self.method,
            "slots": self.slots,
            "transitions": self.transitions,
            "binomial_interval": list(self.binomial),
            "block_interval": None if np.isnan(self.blocks[0]) else list(self.blocks),
            "design_effect": finite(self.design_effect),
            "cluster_p_value": finite(self.cluster_p_value),
        }


def finite(value: float) -> float | None:
    """Return a number, or None for nan and infinity."""
    return float(value) if np.isfinite(value) else None


def estimate_transitions(
    busy: Any, counts: Counts, dwell_p_values: Floats
) -> tuple[list[TransitionEstimate], list[TransitionEstimate]]:
    """Return the estimates of p10 (out of idle) and of p01 (out of busy) of all channels.

    `dwell_p_values` of shape (2, K) are those of the test for geometric dwell times, idle and busy.
    """
    found: list[list[TransitionEstimate]] = [[], []]
    for state in range(len(STATES)):
        sequences = [_in_state(busy[:, k], state) for k in range(counts.K)]
        clusters = np.array([cluster_test(left[inside]) for inside, left in sequences])
        tests = np.stack([clusters, dwell_p_values[state]])
        together = min(np.nan_to_num([combined_p_value(p) for p in tests], nan=1.0)) < SIGNIFICANT
        rejected = together | (np.nan_to_num(tests, nan=1.0).min(axis=0) < SIGNIFICANT)
        for (inside, left), p, blocks in zip(sequences, clusters, rejected, strict=True):
            found[state].append(_estimate(inside, left, float(p), bool(blocks)))
    return found[0], found[1]


def _in_state(busy: Any, state: int) -> tuple[Any, Any]:
    """Return whether a channel is in a state, and whether it leaves it at the end of the slot, for each transition."""
    inside = busy[:-1] if state == BUSY else ~busy[:-1]
    return inside, inside & (busy[1:] != busy[:-1])


def _estimate(inside: Any, left: Any, clusters: float, rejected: bool) -> TransitionEstimate:
    n, x = int(np.count_nonzero(inside)), int(np.count_nonzero(left))
    low, high = (float(end) for end in binomial_interval(x, n))
    wide = (float("nan"), float("nan"))
    effect, freedom = design_effect(inside, left)
    if np.isfinite(effect):
        ends = effective_interval(x, n, effect, freedom)
        wide = (float(ends[0]), float(ends[1]))
    use_blocks = rejected and bool(np.isfinite(wide[0]))
    chosen = wide if use_blocks else (low, high)
    method = "blocks" if use_blocks else "binomial"
    probability = x / n if n else float("nan")
    return TransitionEstimate(probability, *chosen, method, n, x, (low, high), wide, effect, clusters)


def cluster_test(left: Any) -> float:
    """Return the p-value of a chi-square test that transitions have the same probability at all times.

    `left` states for each slot in a state whether it was the last one. The slots are divided into up to 30 parts of
    equal size; at least five transitions, and five slots without one, are expected in each. nan: too few for two parts.
    """
    n, x = len(left), int(np.count_nonzero(left))
    parts = min(30, min(x, n - x) // MIN_EXPECTED)
    if parts < 2:
        return float("nan")
    starts = np.arange(parts) * n // parts
    size = np.diff(np.append(starts, n))
    observed = np.add.reduceat(left, starts, dtype=float)
    p = x / n
    statistic = float(np.sum((observed - size * p) ** 2 / (size * p * (1 - p))))
    return float(stats.chi2.sf(statistic, parts - 1))


def design_effect(inside: Any, left: Any) -> tuple[float, float]:
    """Return the variance of transitions / slots between overlapping blocks relative to binomial, and its freedom."""
    n, x, length = int(np.count_nonzero(inside)), int(np.count_nonzero(left)), len(inside)
    if length < MIN_BLOCKS * MIN_PER_BLOCK or not 0 < x < n:
        return float("nan"), 0.0
    blocks = int(np.clip(x // PERIODS_PER_BLOCK, MIN_BLOCKS, min(MAX_BLOCKS, length // MIN_PER_BLOCK)))
    size = length // blocks
    p = x / n
    total = np.concatenate([[0.0], np.cumsum(left - p * inside)])
    sums = total[size:] - total[:-size]
    share = size / length
    variance = float(np.mean(sums**2)) / share / (1 - share)  # of the sum over the trace (Meketon and Schmeiser 1984)
    return variance / (n * p * (1 - p)), 1.5 * (blocks - 1)


def block_effect(slots: Floats, leaves: Floats) -> Floats:
    """Return the same for counts per block, of shape (blocks, ...), from blocks that do not overlap."""
    n, x = slots.sum(axis=0), leaves.sum(axis=0)
    blocks = len(slots)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = x / n
        variance = np.sum((leaves - p * slots) ** 2, axis=0) * blocks / max(1, blocks - 1)
        return variance / (n * p * (1 - p))
