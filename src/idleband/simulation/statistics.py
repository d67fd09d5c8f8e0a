"""Intervals over replications."""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats


class Interval(NamedTuple):
    """A mean and its confidence interval; infinite where one replication gives no interval."""

    mean: float
    low: float
    high: float
    replications: int

    def __str__(self) -> str:
        if self.replications < 2:
            return f"{self.mean:.6g} (one replication, no interval)"
        return f"{self.mean:.6g} [{self.low:.6g}, {self.high:.6g}]"


def student_t(values: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Mean over replications (the first axis) and the half width of its Student t interval.

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
    """The mean of one number per replication, with its Student t interval."""
    mean, half = student_t(values, level)
    return Interval(float(mean), float(mean - half), float(mean + half), len(values))


def paired_difference(a: Floats, b: Floats, level: float = 0.95) -> Interval:
    """The mean of a - b, replication by replication: both ran on the same sample paths, so it varies little.

    >>> paired_difference(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    Interval(mean=2.0, low=2.0, high=2.0, replications=2)
    """
    return interval(np.asarray(a) - np.asarray(b), level)


def p_value(differences: Floats) -> float:
    """The two-sided p-value of paired differences, by Student's t: below 0.05 where the 95% interval leaves out zero.

    >>> round(p_value(np.array([1.0, 2.0, 3.0])), 4)
    0.0742
    """
    R, mean = len(differences), float(np.mean(differences))
    if R < 2 or mean == 0:
        return 1.0
    spread = float(np.std(differences, ddof=1))
    if spread == 0:  # every replication gave the same
        return 0.0
    from scipy.special import stdtr

    return float(2 * stdtr(R - 1, -abs(mean) / (spread / math.sqrt(R))))
