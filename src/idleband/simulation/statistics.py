"""Means and their confidence intervals: over replications or, where a trace is replayed, over blocks of it."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.errors import counted

STUDENT_T, BLOCK_BOOTSTRAP = "Student t", "block bootstrap"
DRAWS = 2000  # of the bootstrap
MIN_BLOCKS = 5  # for an interval; of fewer, the smallest and the largest miss the mean in more than 6% of cases


class Interval(NamedTuple):
    """A mean and its confidence interval, which is infinite with a single replication or with too few blocks."""

    mean: float
    low: float
    high: float
    replications: int
    blocks: int = 0  # of the recording that is replayed; 0: Student t over replications

    @property
    def method(self) -> str:
        """How the interval was computed."""
        return BLOCK_BOOTSTRAP if self.blocks else STUDENT_T

    @property
    def basis(self) -> str:
        """What the interval is based on, in words."""
        if not self.blocks:
            return f"{self.replications:,} replications" if self.replications > 1 else "one replication, no interval"
        blocks = f"{counted(self.blocks, 'block')} of one recording"
        return f"{self.method} over {blocks}" if math.isfinite(self.low) else f"{blocks}, no interval"

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return 0.5 * (self.high - self.low) if self.blocks else self.high - self.mean

    def __str__(self) -> str:
        if not math.isfinite(self.low):
            return f"{self.mean:.6g} ({self.basis})"
        text = f"{self.mean:.6g} [{self.low:.6g}, {self.high:.6g}]"
        return f"{text} ({self.basis})" if self.blocks else text


class Difference(Interval):
    """A paired difference of two policies and its confidence interval, with the names that its text needs."""

    a: str
    b: str
    column: str
    unit: str
    level: float

    @classmethod
    def of(cls, found: Interval, a: str, b: str, column: str, unit: str, level: float = 0.95) -> "Difference":
        """Return an interval with the names of the policies, the quantity and the unit."""
        difference = cls(*found)
        difference.a, difference.b, difference.column, difference.unit, difference.level = a, b, column, unit, level
        return difference

    def __str__(self) -> str:
        """Return one line that names the policies, the quantity, the unit and the interval.

        >>> print(Difference.of(Interval(0.123, 0.11, 0.136, 5), "mp-lucb", "mp-ucb", "reward", "per slot"))
        mp-lucb minus mp-ucb: reward +0.123 per slot, 95% interval 0.11 to 0.136, 5 replications
        """
        text = f"{self.a} minus {self.b}: {self.column} {self.mean:+.4g} {self.unit}, "
        if not math.isfinite(self.low):
            return text + self.basis
        return text + f"{self.level:.0%} interval {self.low:.4g} to {self.high:.4g}, {self.basis}"


def student_t(values: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the mean over replications (the first axis) and the half width of its Student t interval.

    >>> mean, half = student_t(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)
    (2.0, 2.484)
    """
    R = len(values)
    mean = np.asarray(values.mean(axis=0))
    if R < 2:
        return mean, np.full(mean.shape, np.inf)
    from scipy.special import stdtrit  # slow to import, and not always needed

    half = stdtrit(R - 1, 0.5 + level / 2) * values.std(axis=0, ddof=1) / math.sqrt(R)
    return mean, np.asarray(half)


def interval(values: Floats, level: float = 0.95) -> Interval:
    """Return the mean of one number per replication, with its Student t interval."""
    mean, half = student_t(values, level)
    return Interval(float(mean), float(mean - half), float(mean + half), len(values))


def paired_difference(a: Floats, b: Floats, level: float = 0.95) -> Interval:
    """Return the mean of a - b, taken replication by replication on the same sample paths, with its interval.

    >>> paired_difference(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    Interval(mean=2.0, low=2.0, high=2.0, replications=2, blocks=0)
    """
    return interval(np.asarray(a) - np.asarray(b), level)


def p_value(differences: Floats) -> float:
    """Return the two-sided p-value of paired differences (Student t); below 0.05 if the 95% interval excludes 0.

    >>> round(p_value(np.array([1.0, 2.0, 3.0])), 4)
    0.0742
    """
    R, mean = len(differences), float(np.mean(differences))
    if R < 2 or mean == 0:
        return 1.0
    spread = float(np.std(differences, ddof=1))
    if spread == 0:  # all replications are equal
        return 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(R - 1, -abs(mean) / (spread / math.sqrt(R))))


# --- blocks of a recording -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Samples:
    """Values from which a mean is estimated: one per replication, or one per block of a replayed recording.

    >>> a, b = Samples(np.array([3.0, 4.0]), 2), Samples(np.array([1.0, 2.0]), 2)
    >>> (a - b).interval()
    Interval(mean=2.0, low=2.0, high=2.0, replications=2, blocks=0)
    """

    values: Floats  # (n,)
    replications: int
    weights: Floats | None = None  # (n,) shares of blocks in the slots of all replications; None: no blocks

    @property
    def mean(self) -> float:
        """The estimated mean."""
        return float(self.values.mean() if self.weights is None else self.weights @ self.values)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the mean with its interval."""
        if self.weights is None:
            return interval(self.values, level)
        blocks = effective_number(self.weights)
        return Interval(self.mean, *block_bootstrap(self.values, self.weights, level), self.replications, blocks)

    def __sub__(self, other: "Samples") -> "Samples":
        """Return the paired differences; both must be of the same sample paths."""
        return replace(self, values=self.values - other.values)

    def __mul__(self, factor: float) -> "Samples":
        return replace(self, values=factor * self.values)


def effective_number(weights: Floats) -> int:
    """Return how many blocks of equal weight have the same spread of weights, rounded.

    >>> effective_number(np.array([0.25, 0.25, 0.25, 0.25])), effective_number(np.array([0.98, 0.01, 0.01]))
    (4, 1)
    """
    return round(float(weights.sum() ** 2 / (weights**2).sum()))


def block_bootstrap(values: Floats, weights: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a weighted mean over successive blocks of a recording.

    Circular moving-block bootstrap: runs of successive blocks are drawn, as many blocks as there are, because what
    happens in one block continues in the next. Runs have the length n^(1/3), rounded down. The interval contains the
    given share of the means of all draws, enlarged as Student's t is wider than a normal distribution: without that,
    intervals of 20 blocks cover too rarely (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section
    4.5). It is infinite with fewer than MIN_BLOCKS blocks.

    Parameters
    ----------
    values
        One value per block, in the order of the recording.
    weights
        The share of each block in the slots.
    level
        Confidence level.
    """
    count = effective_number(weights)
    if count < MIN_BLOCKS:
        return -math.inf, math.inf
    from scipy.special import ndtr, stdtrit

    length = run_length(count)
    drawn = _drawn_blocks(len(values), length)
    means = (drawn @ (weights * values)) / (drawn @ weights)
    runs = count / length
    tail = float(ndtr(math.sqrt(runs / (runs - 1.0)) * stdtrit(runs - 1.0, 0.5 - level / 2)))
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def run_length(count: int) -> int:
    """Return the number of successive blocks that are drawn together, the integer part of the cube root.

    >>> [run_length(n) for n in (5, 8, 20, 27, 1000)]
    [1, 2, 2, 3, 10]
    """
    return max(length for length in range(1, count + 1) if length**3 <= count)


@lru_cache(maxsize=8)
def _drawn_blocks(count: int, length: int) -> Floats:
    """Return how often each draw contains each block, shape (DRAWS, count); always the same draws."""
    rng = np.random.default_rng(20)
    first = rng.integers(count, size=(DRAWS, -(-count // length)))
    drawn = ((first[:, :, None] + np.arange(length)) % count).reshape(DRAWS, -1)[:, :count]
    cells = np.arange(DRAWS)[:, None] * count + drawn
    return np.bincount(cells.ravel(), minlength=DRAWS * count).reshape(DRAWS, count).astype(float)
