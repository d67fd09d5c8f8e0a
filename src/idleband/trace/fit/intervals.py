"""Intervals of proportions, and p-values of several tests together."""

from typing import Any

import numpy as np
from scipy import special, stats

from idleband.arrays import Floats

LEVEL = 0.95
SIGNIFICANT = 0.01  # family-wise error rate of the tests of all channels; there are about five such tests in a fit
MIN_EFFECT, MAX_EFFECT = 0.05, 1e6


def binomial_interval(successes: Any, trials: Any) -> tuple[Floats, Floats]:
    """Return the Jeffreys interval of a proportion: quantiles of Beta(x + 1/2, n - x + 1/2).

    It assumes independent trials. Without successes it begins at 0, without failures it ends at 1. Numbers need not be
    whole.

    >>> low, high = binomial_interval(5, 50)
    >>> float(low.round(3)), float(high.round(3))
    (0.039, 0.205)
    """
    x, n = np.asarray(successes, float), np.asarray(trials, float)
    tail = (1 - LEVEL) / 2
    low = special.betaincinv(x + 0.5, n - x + 0.5, tail)
    high = special.betaincinv(x + 0.5, n - x + 0.5, 1 - tail)
    return np.where(x <= 0, 0.0, low), np.where(x >= n, 1.0, high)


def effective_interval(successes: Any, trials: Any, effect: Any, freedom: float) -> tuple[Floats, Floats]:
    """Return the binomial interval of fewer trials: as many as have the variance that was observed between blocks.

    Parameters
    ----------
    successes, trials
        Observed numbers.
    effect
        Design effect: observed variance of the proportion divided by the binomial variance.
    freedom
        Degrees of freedom of the observed variance. The trials are reduced further by the squared ratio of the normal
        and the t quantile, as Korn and Graubard (1998) do for surveys.
    """
    x, n = np.asarray(successes, float), np.asarray(trials, float)
    quantile = 1 - (1 - LEVEL) / 2
    ratio = (stats.norm.ppf(quantile) / stats.t.ppf(quantile, max(1.0, freedom))) ** 2
    scale = np.minimum(1 / np.clip(effect, MIN_EFFECT, MAX_EFFECT), 1 / MIN_EFFECT) * ratio
    return binomial_interval(x * scale, n * scale)


def holm(p_values: Any) -> Floats:
    """Return p-values adjusted by Holm's method, which is valid for dependent tests; nan (not tested) stays nan.

    >>> holm([0.01, 0.04, float("nan"), 0.03]).round(3).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    p = np.asarray(p_values, float)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


def combined_p_value(p_values: Any) -> float:
    """Return one p-value for the hypothesis that holds in no channel, by the Cauchy combination (Liu and Xie 2020).

    Its level is approximately right for dependent tests.

    >>> round(combined_p_value([0.5, 0.5, 0.5]), 3), round(combined_p_value([0.001, 0.5, 0.9]), 4)
    (0.5, 0.003)
    """
    p = np.asarray(p_values, float)
    p = np.clip(p[np.isfinite(p)], 1e-15, 1 - 1e-3)
    if not len(p):
        return float("nan")
    mean = float(np.mean(np.tan((0.5 - p) * np.pi)))
    return float(np.clip(0.5 - np.arctan(mean) / np.pi, 1e-15, 1)) if mean < 1e8 else float(1 / (mean * np.pi))
