"""Discrete distributions of the perturbation between which the optimum under the true distribution lies.

The value of the best set of a slot is the expectation of a maximum of sums of rewards. Under the additive reward it is
a convex function of every perturbation. If the range of a perturbation is divided into bins, its expectation is at
least that under the distribution that is concentrated in the means of the bins (Jensen's inequality), and at most that
under the distribution that is concentrated in the ends of the bins and has the same mean in each (the
Edmundson-Madansky inequality; from memory). Perturbations of different channels are independent, so this holds for all
of them together.

Under the threshold reward the perturbation matters by whether n < 0 and n < 1 only, and both distributions are the true
one.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import levels, padded

POINTS = 4096  # at which the distribution function of an additive perturbation is evaluated
INTEGRATION_ERROR = 1e-6  # mean absolute error of the means of bins; it was at most 6e-7 in 32 examples of all models


class Levels(NamedTuple):
    """Levels of the perturbation of every channel; levels of probability 0 fill up the arrays."""

    probability: Floats  # (K, L)
    pay: Floats  # (K, L, S) reward in a state


class Bracket(NamedTuple):
    """Distributions below and above the true one, and what they leave open."""

    lower: Levels
    upper: Levels
    exact: bool  # whether both are the true distribution
    sampling_error: float  # change of the reward per slot for one standard error of sampled probabilities, at most


def bracket(scenario: Scenario, theta: Floats, bins: int) -> Bracket:
    """Return distributions of the perturbation; under the additive reward with this many bins.

    Contexts are uniform. Rewards are those of a slot after sensing.
    """
    factor = scenario.reward_factor
    if scenario.reward == "threshold":
        _, probability, pay = levels(scenario, theta)
        reached = (probability > 0.0).any(axis=0)
        found = Levels(probability[:, reached], factor * pay[:, reached])
        errors = [scenario.probabilities_below(theta, end)[1] for end in (0.0, 1.0)]
        return Bracket(found, found, True, factor * scenario.K * (HIGH - LOW) * sum(errors))
    known = {row: _binned(scenario, np.array(row), bins) for row in set(map(tuple, theta.tolist()))}
    rows = [known[tuple(row)] for row in theta.tolist()]
    h = padded(scenario.rewards, 0.0)
    lower, upper = (
        Levels(
            padded(tuple(point.probability for point in points), 0.0),
            factor * (h[:, None, :] - padded(tuple(point.n for point in points), 0.0)[:, :, None]),
        )
        for points in ([row.means for row in rows], [row.ends for row in rows])
    )
    return Bracket(lower, upper, False, factor * sum(row.sampling_error for row in rows))


class Points(NamedTuple):
    """A discrete distribution of the perturbation of one channel."""

    n: Floats
    probability: Floats


class Binned(NamedTuple):
    """Distributions in the means and in the ends of bins."""

    means: Points
    ends: Points
    sampling_error: float  # of the mean of a function whose slope is at most 1, for one standard error


def _binned(scenario: Scenario, theta: Floats, bins: int) -> Binned:
    known = _distribution(scenario.perturbation.model, theta.tobytes(), scenario.dimension)
    n, below, integral = known.n, known.below, known.integral
    if len(n) == 1:
        always = Points(n, np.ones(1))
        return Binned(always, always, 0.0)
    ends = _ends(n, below, bins)
    probability = np.diff(below[ends])
    moment = np.diff(n[ends] * below[ends]) - np.diff(integral[ends])
    reached = probability > 0.0
    left, right, probability = n[ends[:-1]][reached], n[ends[1:]][reached], probability[reached]
    means = (moment[reached] / probability).clip(left, right)
    share = probability * (right - means) / (right - left)
    merged, place = np.unique(np.concatenate([left, right]), return_inverse=True)
    split = np.zeros(len(merged))
    np.add.at(split, place, np.concatenate([share, probability - share]))
    return Binned(Points(means, probability), Points(merged, split), known.error * float(np.ptp(n)))


class Distribution(NamedTuple):
    """Distribution function of a perturbation at some points; a single one if it is constant."""

    n: Floats
    below: Floats  # P(perturbation < n)
    integral: Floats  # of the distribution function, from the first point
    error: float  # standard error of `below`, at most


@lru_cache(maxsize=32)
def _distribution(model: PerturbationModel, row: bytes, d: int) -> Distribution:
    theta = np.frombuffer(row)
    mean = model.mean(theta, d)[0]
    low, high = model.bounds(theta)
    if not high > low:
        return Distribution(np.array([mean]), np.ones(1), np.zeros(1), 0.0)
    # Points are dense near both ends, where a density may be infinite, as that of a cosine is.
    n = low + (high - low) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, POINTS)))
    found = [model.probability_below(theta, d, point) for point in n[1:-1].tolist()]
    below = np.concatenate([[0.0], np.maximum.accumulate([p for p, _ in found]).clip(0.0, 1.0), [1.0]])
    integral = np.concatenate([[0.0], np.cumsum(0.5 * (below[1:] + below[:-1]) * np.diff(n))])
    n = n + (mean - (n[-1] - integral[-1]))  # so that the mean of the whole distribution is exact
    return Distribution(n, below, integral, max(error for _, error in found))


def _ends(points: Floats, below: Floats, bins: int) -> Ints:
    """Return the ends of bins as places in `points`; a bin has little probability or is narrow."""
    even = (points - points[0]) / (points[-1] - points[0])
    places = np.searchsorted(0.5 * (below + even), np.linspace(0.0, 1.0, bins + 1))
    return np.unique(np.concatenate([[0], places[1:-1], [len(points) - 1]]))


def mean_of_largest(distributions: Levels, stationary: Floats, M: int) -> float:
    """Return the expected sum of the M largest rewards of independent channels.

    It is the integral over t of the expected number, at most M, of rewards above t, plus M times the smallest reward.
    """
    K = len(stationary)
    values = distributions.pay.reshape(K, -1)
    weights = (distributions.probability[:, :, None] * stationary[:, None, :]).reshape(K, -1)
    at = np.unique(values[weights > 0.0])
    played = np.zeros((M + 1, len(at)))  # probability of j rewards above at[i]; row M: of M or more
    played[0] = 1.0
    for k in range(K):
        order = np.argsort(values[k])
        total = np.concatenate([[0.0], np.cumsum(weights[k][order])])
        above = 1.0 - total[np.searchsorted(values[k][order], at, side="right")] / total[-1]
        played[M] += above * played[M - 1]
        for j in range(M - 1, 0, -1):
            played[j] = (1.0 - above) * played[j] + above * played[j - 1]
        played[0] *= 1.0 - above
    expected = np.arange(M + 1) @ played
    return float(M * at[0] + expected[:-1] @ np.diff(at))
