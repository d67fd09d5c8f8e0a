"""Volumes of the unit cube cut by half-spaces: probabilities of linear functions of uniform contexts."""

import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import product

import numpy as np

from idleband.arrays import Floats

SAMPLES = 10**6  # contexts in the sample that is used where the closed form is not accurate
PART = 10**4  # of them that are computed together
_SLICES = 32  # with more slices the sample is used


def below(theta: Floats, level: float) -> tuple[float, float]:
    """Return P(theta . x < level) for x uniform on the unit cube, and its standard error (0 if exact).

    The volume of a cube cut by a plane is a sum over its corners,
        sum over v in {0,1}^d of (-1)^|v| max(0, level - theta . v)^d / (d! prod theta),
    for theta > 0; zeros drop out and negative entries are reflected (x -> 1 - x). Where the sum cancels too much
    (entries of very different size) or has too many terms, a fixed sample of 10^6 contexts is used.

    >>> below(np.array([1.0, 1.0]), 1.0)
    (0.5, 0.0)
    """
    if level <= 0.0 and theta.min() >= 0.0:
        return 0.0, 0.0
    weights, shift = _reflected(theta)
    exact = _volume(weights, level + shift)
    if exact is not None:
        return exact, 0.0
    return estimate(int(np.searchsorted(_projected(weights.tobytes()), level + shift)))


def within(theta: Floats, low: Floats, high: Floats) -> tuple[float, float]:
    """Return P(low[j] <= theta . x < high[j] for some j) for disjoint intervals, and its standard error.

    >>> within(np.array([1.0]), np.array([0.0, 0.5]), np.array([0.25, 2.0]))
    (0.75, 0.0)
    """
    weights, shift = _reflected(theta)
    exact = [0.0]
    for a, b in zip(low, high, strict=True):
        first, last = _volume(weights, a + shift), _volume(weights, b + shift)
        if first is None or last is None or len(exact) > _SLICES:
            break
        exact.append(last - first)
    else:
        return min(1.0, max(0.0, math.fsum(exact))), 0.0
    values = _projected(weights.tobytes())
    return estimate(int((np.searchsorted(values, high + shift) - np.searchsorted(values, low + shift)).sum()))


def estimate(count: int) -> tuple[float, float]:
    """Return the share of a sample and its standard error, which is never 0: a share of 0 or 1 is not exact."""
    share = count / SAMPLES
    return share, math.sqrt(max(share * (1 - share), 1e-6) / SAMPLES)


def _reflected(theta: Floats) -> tuple[Floats, float]:
    """Return weights > 0 and a shift such that weights . x and theta . x + shift have the same distribution."""
    return np.abs(theta[theta != 0]), float(-theta[theta < 0].sum())


def _volume(weights: Floats, level: float) -> float | None:
    """Return P(weights . x < level) for weights > 0; None where the sum over corners is not accurate."""
    d = len(weights)
    if d == 0:
        return 1.0 if level > 0 else 0.0
    if level <= 0 or level >= float(weights.sum()):
        return 0.0 if level <= 0 else 1.0
    if d > 16:
        return None
    signs, corners = corners_of(d)
    norm = math.factorial(d) * float(np.prod(weights))
    terms = signs * np.maximum(0.0, level - corners @ weights) ** d
    if not (norm > 0 and float(np.abs(terms).sum()) * 1e-15 / norm < 1e-9):
        return None
    return min(1.0, max(0.0, math.fsum(terms) / norm))


@cache
def corners_of(d: int) -> tuple[Floats, Floats]:
    """Return the signs of the corners of the unit cube, and the corners as rows."""
    corners = np.array(list(product((0.0, 1.0), repeat=d)))
    return 1.0 - 2.0 * (corners.sum(axis=1) % 2), corners


@lru_cache(maxsize=4)
def _projected(weights: bytes) -> Floats:
    """Return weights . x for the fixed sample of contexts, sorted; computed in parts to save memory."""
    w = np.frombuffer(weights)
    return np.sort(np.concatenate([x @ w for x in sample(len(w))]))


def sample(d: int) -> Iterator[Floats]:
    """Return the fixed sample of contexts as rows, in parts."""
    take = contexts_from(d, 0)
    return (take(0, PART) for _ in range(SAMPLES // PART))


def contexts_from(d: int, first: int) -> Callable[[int, int], Floats]:
    """Return a function (skipped, count) that returns the next contexts of the sample, from a number on."""
    bits = np.random.PCG64(d)
    rng = np.random.Generator(bits)

    def take(skipped: int, count: int) -> Floats:
        if skipped:
            bits.advance(skipped * d)
        return rng.random((count, d))

    if first:
        bits.advance(first * d)
    return take
