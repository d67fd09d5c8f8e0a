"""Means over replications and their confidence intervals."""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats


class Interval(NamedTuple):
    """A mean and its confidence interval, which is infinite with a single replication."""

    mean: float
    low: float
    high: float
    replications: int

    def __str__(self) -> str:
        if self.replications < 2:
            return f"{self.mean:.6g} (one replication, no interval)"
        return f"{self.mean:.6g} [{self.low:.6g}, {self.high:.6g}]"


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
        if self.replications < 2:
            return text + "one replication, no interval"
        return text + f"{self.level:.0%} interval {self.low:.4g} to {self.high:.4g}, {self.replications} replications"


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
    Interval(mean=2.0, low=2.0, high=2.0, replications=2)
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
