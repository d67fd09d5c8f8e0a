"""Test whether dwell times are geometric, by channel and state.

Dwell times are geometric if the probability of leaving a state does not depend on the age. The statistic compares the
number of transitions in bins of age with the number that one probability for all ages predicts:

    X^2 = sum over bins of (x_b - n_b p)^2 / (n_b p (1 - p)),

which has a chi-square distribution with one degree of freedom less than bins if the dwell times of the channel are
independent and geometric. Periods that are cut by the end of the trace count until they are cut; the first period of a
channel is left out. At least five transitions, and five slots without one, are expected in each bin.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from idleband.arrays import Floats
from idleband.trace.fit.counts import STATES, Counts
from idleband.trace.fit.intervals import SIGNIFICANT, combined_p_value, holm
from idleband.trace.fit.transitions import finite

MIN_EXPECTED = 5.0


@dataclass(frozen=True)
class GeometricTest:
    """Test of geometric dwell times in one state, for all channels."""

    state: str
    p_values: Floats  # per channel; nan: too few transitions
    adjusted: Floats  # by Holm's method
    pooled: float  # p-value that the dwell times of all channels are geometric

    @property
    def tested(self) -> int:
        """Number of channels with enough transitions."""
        return int(np.isfinite(self.p_values).sum())

    @property
    def rejected(self) -> int:
        """Number of channels whose dwell times are not geometric, at a family-wise error rate of 1%."""
        return int(np.sum(self.adjusted < SIGNIFICANT))

    def to_dict(self) -> dict[str, object]:
        """Return the test for JSON."""
        return {"tested": self.tested, "rejected": self.rejected, "pooled_p_value": finite(self.pooled)}


def geometric_tests(counts: Counts) -> tuple[GeometricTest, GeometricTest]:
    """Test idle and busy dwell times of all channels."""
    found = []
    for state, name in enumerate(STATES):
        slots, leaves = counts.slots[state].sum(axis=1)[:, 1:], counts.leaves[state].sum(axis=1)[:, 1:]
        p = np.array([age_test(n, x) for n, x in zip(slots, leaves, strict=True)])
        found.append(GeometricTest(name, p, holm(p), combined_p_value(p)))
    return found[0], found[1]


def age_test(slots: Floats, leaves: Floats) -> float:
    """Return the p-value of the test that the probability of leaving is the same in all bins of age."""
    n, x = slots.sum(), leaves.sum()
    if not 0 < x < n:
        return float("nan")
    p = x / n
    needed = MIN_EXPECTED / min(p, 1 - p)
    merged: list[list[float]] = []
    open_bin = [0.0, 0.0]
    for size, left in zip(slots, leaves, strict=True):
        open_bin = [open_bin[0] + size, open_bin[1] + left]
        if open_bin[0] >= needed:
            merged.append(open_bin)
            open_bin = [0.0, 0.0]
    if merged:
        merged[-1] = [merged[-1][0] + open_bin[0], merged[-1][1] + open_bin[1]]
    if len(merged) < 2:
        return float("nan")
    size, left = np.array(merged).T
    statistic = float(np.sum((left - size * p) ** 2 / (size * p * (1 - p))))
    return float(stats.chi2.sf(statistic, len(merged) - 1))
