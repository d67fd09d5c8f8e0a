"""Estimates of the mean reward per slot of other selections than those that were played, with intervals.

In slot t the logging policy selects channel k with probability p_tk, given everything before the slot. I_tk is 1 if it
did, and c_tk is the probability with which the target selects it. States do not depend on what is played, so

    IPS:  sum of c_tk I_tk r_tk / p_tk
    DR:   sum of c_tk m_tk + sum of c_tk I_tk (r_tk - m_tk) / p_tk

have, given the rewards of all channels, the expectation sum of c_tk r_tk: what the target would have earned in this
slot. m_tk is a prediction from earlier slots; the better it is, the smaller is the error of DR. (Horvitz and Thompson,
JASA 1952; Robins, Rotnitzky and Zhao, JASA 1994; Dudik, Langford and Li, ICML 2011; from memory.)

The errors of different slots are uncorrelated, whatever the channels do, because the draws of a slot are new: the
errors are martingale differences. Therefore the variance of their mean is the sum of their variances, and needs neither
blocks nor stationary channels. With z = r - m the variance of DR in a slot is

    sum over k of c^2 z^2 (1 - p) / p  +  sum over k != l of c c' z z' (p_kl / (p_k p_l) - 1)

With b = c I z / p sqrt(1 - p), the sum of b^2 estimates the first sum without bias. The second needs the probabilities
p_kl of pairs, which a log does not have. It is 0 on average where the predictions are right on average and channels are
independent. Where residuals are positively correlated, the square of the sum of b is on average at least the variance,
because p_kl <= min(p_k, p_l). The larger of the two totals over all slots is taken. Only residuals that are negatively
correlated, with selections that exclude each other, can make it too small. The error of IPS is that of DR and the sum
of c (I / p - 1) m, which is known in every slot.

Intervals use Student's t with as many degrees of freedom as there are slots of equal weight in the variance: of small
p few slots determine it. The method of the intervals is our own.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.evaluation.decision_log import DecisionLog
from idleband.simulation.statistics import MIN_BLOCKS

AGES = 6  # classes of the age of the last observation: 1, 2-3, 4-7, ... slots
PRIOR_PLAYS = 4.0  # of the mean of a wider class, in the mean of a narrower one


class Estimate(NamedTuple):
    """An estimate with its confidence interval, which is infinite where too few slots determine it."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return 0.5 * (self.high - self.low)


class Estimates(NamedTuple):
    """Estimates by inverse propensities and doubly robust."""

    ips: Estimate
    dr: Estimate


class Plays(NamedTuple):
    """The plays from which rewards are estimated, in slots whose propensities are known: arrays of shape (T, K)."""

    played: Flags  # and reported
    p: Floats  # probability of that
    reward: Floats  # 0 where not played
    predicted: Floats

    def weights(self, clip: float | None) -> Floats:
        """Return I / p, at most `clip`."""
        p = np.where(self.played, self.p, 1.0) if clip is None else np.maximum(self.p, 1.0 / clip)
        return np.where(self.played, 1.0 / p, 0.0)


def estimate(c: Floats, plays: Plays, clip: float | None = None, level: float = 0.95) -> Estimates:
    """Return the estimates of the mean over slots of the sum of c r, with their intervals.

    >>> half = np.full((100, 2), 0.5)
    >>> played = np.tile([[True, False], [False, True]], (50, 1))
    >>> plays = Plays(played, half, np.where(played, 1.0, 0.0), half)
    >>> found = estimate(np.tile([1.0, 0.0], (100, 1)), plays)
    >>> found.ips.value, found.dr.value
    (1.0, 1.0)
    """
    weights = plays.weights(clip)
    z = np.where(plays.played, plays.reward - plays.predicted, 0.0)
    corrections = c * weights * z
    predicted = (c * plays.predicted).sum(axis=1)
    b = corrections * np.sqrt(1.0 - np.minimum(plays.p, 1.0))
    variances = max((b**2).sum(axis=1), b.sum(axis=1) ** 2, key=np.sum)
    known = (c * (weights - 1.0) * plays.predicted).sum(axis=1)
    dr = _interval(predicted + corrections.sum(axis=1), variances, level)
    ips = _interval((c * weights * plays.reward).sum(axis=1), variances + known**2, level)
    return Estimates(ips, dr)


def _interval(values: Floats, variances: Floats, level: float) -> Estimate:
    """Return the mean of values per slot with its interval, given their estimated variances."""
    mean, total = float(values.mean()), float(variances.sum())
    if total <= 0.0:
        return Estimate(mean, mean, mean)
    slots = total**2 / float((variances**2).sum())
    if slots < MIN_BLOCKS:
        return Estimate(mean, -math.inf, math.inf)
    from scipy.special import stdtrit

    half = float(stdtrit(slots - 1.0, 0.5 + level / 2)) * math.sqrt(total) / len(values)
    return Estimate(mean, mean - half, mean + half)


def predict_rewards(log: DecisionLog) -> Floats:
    """Return a prediction of the reward of every channel in every slot, from the feedback of earlier slots.

    It is the mean of the rewards of the channel in the same class, shrunk to that of the channel, and this to that of
    all channels. The class is the sensed state or, where there is none, the last reported state and its age.
    """
    setup = log.problem.setup
    T, K = log.selected.shape
    S, every = int(setup.states.max()), np.arange(K)
    total, count = np.zeros((K, 2 * S + 1, AGES)), np.zeros((K, 2 * S + 1, AGES))
    last, when = np.full(K, -1), np.zeros(K, np.int64)
    channel_total, channel_count = np.zeros(K), np.zeros(K)
    middle = 0.5 * (setup.low + setup.high)
    found = np.empty((T, K))
    for i in range(T):
        sensed = log.sensed[i]
        row = np.where(sensed >= 0, S + sensed, last)  # -1, the last row, before anything was observed
        age = np.where((row < S) & (row >= 0), _age_class(log.slot[i] - when), 0)
        overall = (channel_total.sum() + middle) / (channel_count.sum() + 1.0)
        mean = (channel_total + PRIOR_PLAYS * overall) / (channel_count + PRIOR_PLAYS)
        found[i] = (total[every, row, age] + PRIOR_PLAYS * mean) / (count[every, row, age] + PRIOR_PLAYS)
        new = log.reported_after[i] > 0
        rewards = np.where(new, log.reward[i], 0.0)
        total[every, row, age] += rewards
        count[every, row, age] += new
        channel_total += rewards
        channel_count += new
        seen = new & (log.state[i] >= 0)
        last = np.where(seen, log.state[i], last)
        when[seen] = log.slot[i]
    return found


def _age_class(ages: Ints) -> Ints:
    return np.minimum(np.frexp(np.maximum(ages, 1).astype(float))[1] - 1, AGES - 1)


def effective_plays(c: Floats, plays: Plays, clip: float | None = None) -> float:
    """Return how many plays of equal weight would determine the estimate as well as those that were played."""
    weights = c * plays.weights(clip)
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0
