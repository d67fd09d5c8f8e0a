"""Hazard by age: the probability of leaving a state after a given number of slots in it.

The hazard of one channel has binomial intervals, which assume that its dwell times are independent (a semi-Markov
channel). The pooled hazard of all channels has intervals from the variance between blocks of 1/30 of the trace, because
channels in the same slot may depend on each other.

The observed frequencies of the semi-Markov model are shrunk towards products r_b p_k of a level of the channel and a
shape over age that all channels share:

    h_kb = (x_kb + s r_b p_k) / (n_kb + s).

The weight s, in slots, maximises the beta-binomial likelihood of the counts.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from idleband.arrays import Floats, Ints
from idleband.trace.fit.counts import STATES, Counts
from idleband.trace.fit.intervals import binomial_interval, effective_interval
from idleband.trace.fit.transitions import block_effect, finite

WEIGHTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 1e4, 1e5)  # candidates for s
MIN_LEAVES = 20  # transitions in the last bin of age, at least
MIN_HAZARD, MAX_HAZARD = 1e-7, 1 - 1e-7
ROUNDS = 8  # alternations between levels and shape


@dataclass(frozen=True)
class Hazard:
    """Probability of leaving a state by age, with 95% intervals. Ages are in slots; the last bin has no end."""

    state: str
    channel: int | None  # None: all channels together
    first_age: Ints
    slots: Ints
    transitions: Ints
    probability: Floats  # nan where no slot had this age
    low: Floats
    high: Floats
    geometric: Floats  # what geometric dwell times give: one probability per channel for all ages

    def to_dict(self) -> dict[str, object]:
        """Return the hazard for JSON."""
        return {
            "first_age": self.first_age.tolist(),
            "slots": self.slots.tolist(),
            "transitions": self.transitions.tolist(),
            "probability": [finite(value) for value in self.probability],
            "low": [finite(value) for value in self.low],
            "high": [finite(value) for value in self.high],
            "geometric": [finite(value) for value in self.geometric],
        }


def bins_in_use(counts: Counts, state: int) -> int:
    """Return the number of bins of age; later ones are merged into the last, which has at least 20 transitions."""
    after = counts.leaves[state].sum(axis=(0, 1))[1:][::-1].cumsum()[::-1]
    return max(1, int(np.sum(after >= MIN_LEAVES)))


def merged(values: Ints, bins: int) -> Ints:
    """Return counts whose last axis has unknown age, and then `bins` bins."""
    last = values[..., bins:].sum(axis=-1, keepdims=True)
    return np.concatenate([values[..., :bins], last], axis=-1)


def hazard(counts: Counts, state: int, channel: int | None = None) -> Hazard:
    """Return the hazard of one channel, or of all channels together."""
    bins = bins_in_use(counts, state)
    slots, leaves = merged(counts.slots[state], bins), merged(counts.leaves[state], bins)
    chosen = slice(None) if channel is None else slice(channel, channel + 1)
    n, x = slots[chosen].sum(axis=(0, 1))[1:], leaves[chosen].sum(axis=(0, 1))[1:]
    total, left = slots[chosen].sum(axis=(1, 2)), leaves[chosen].sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        p = x / n
        level = np.where(total > 0, left / total, 0.0)
        geometric = level @ slots[chosen].sum(axis=1)[:, 1:] / n
    if channel is None:
        # The variance around the pooled hazard, with channels of a block taken together.
        effect = np.maximum(1.0, np.nan_to_num(block_effect(slots.sum(axis=0), leaves.sum(axis=0))[1:], nan=1.0))
        low, high = effective_interval(x, n, effect, counts.blocks - 1)
    else:
        low, high = binomial_interval(x, n)
    return Hazard(STATES[state], channel, counts.edges[:bins].copy(), n, x, p, low, high, geometric)


@dataclass(frozen=True)
class SharedHazards:
    """Hazards of the semi-Markov model in one state."""

    first_age: Ints
    level: Floats  # per channel, for slots of unknown age
    values: Floats  # (K, bins)
    weight: float  # s

    def table(self) -> Floats:
        """Return the hazards by bin of age, with that of unknown age first."""
        return np.concatenate([self.level[:, None], self.values], axis=1)


def shrunk_levels(slots: Floats, leaves: Floats) -> Floats:
    """Return (x + 1/2) / (n + 1/(2 p)) per channel, where p is the frequency of all channels together."""
    pooled = (leaves.sum() + 0.5) / (slots.sum() + 1.0)
    return np.clip((leaves + 0.5) / (slots + 0.5 / pooled), MIN_HAZARD, MAX_HAZARD)


def fit_hazards(slots: Ints, leaves: Ints, first_age: Ints) -> SharedHazards:
    """Fit the hazards of one state to counts of shape (K, 1 + bins)."""
    n, x = slots[:, 1:].astype(float), leaves[:, 1:].astype(float)
    level = shrunk_levels(slots.sum(axis=1), leaves.sum(axis=1))
    pooled = (leaves.sum() + 0.5) / (slots.sum() + 1.0)
    shape = np.ones(n.shape[1])
    p = level.copy()
    for _ in range(ROUNDS):
        expected = p @ n
        shape = (x.sum(axis=0) + 0.5) / (expected + 0.5)
        p = (x.sum(axis=1) + 0.5) / (n @ shape + 0.5 / pooled)
    prior = np.clip(np.outer(p, shape), MIN_HAZARD, 0.999)
    weight = max(WEIGHTS, key=lambda s: _likelihood(x, n, prior, s))
    values = np.clip((x + weight * prior) / (n + weight), MIN_HAZARD, MAX_HAZARD)
    return SharedHazards(first_age, level, values, weight)


def _likelihood(x: Floats, n: Floats, prior: Floats, s: float) -> float:
    a, b = s * prior, s * (1 - prior)
    return float(np.sum(special.betaln(x + a, n - x + b) - special.betaln(a, b)))
