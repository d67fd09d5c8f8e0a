"""The perturbation n_k = f_k(x_k): how much the noise on a channel takes from its reward, as the context tells it.

Laws: `none`, n = 0; `linear`, n = theta . x. How much a law matters is one number, `clear` = P(n < 1): only where
n >= 1 does the noise spoil a good channel under the threshold reward. A norm alone says little: at norm 0.7 different
directions give P(n < 1) from 0.57 to 0.99.
"""

import math
from functools import cache, lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, normal

Floats = npt.NDArray[np.float64]

LAWS = ("none", "linear")
NONE, LINEAR = range(2)

SAMPLES = 10**6  # contexts drawn where the closed form is out of reach
_DRAWS = 20_000  # directions tried for a theta of norm at most 1


@jit
def perturb(law: int, theta: Floats, x: Floats, n: Floats) -> None:
    """n[k] = f_k(x[k]) for every channel; theta is (K, d)."""
    for k in range(n.size):
        value = 0.0
        if law == LINEAR:
            for i in range(x.shape[1]):
                value += theta[k, i] * x[k, i]
        n[k] = value


def below(theta: Floats, level: float) -> tuple[float, float]:
    """P(theta . x < level) for x uniform on the unit cube, and its standard error (0 where the value is exact).

    The volume of a cube cut by a plane is a sum over its corners,
        sum over v in {0,1}^d of (-1)^|v| max(0, level - theta . v)^d / (d! prod theta),
    for theta > 0; zeros drop out and negative entries are reflected (x -> 1 - x). Where the sum cancels too much
    (entries of very unlike size) or has too many terms, a fixed sample of 10^6 contexts answers, with its error.

    >>> below(np.array([1.0, 1.0]), 1.0)
    (0.5, 0.0)
    """
    shift = float(-theta[theta < 0].sum())
    weights = np.abs(theta[theta != 0])
    total = float(weights.sum())
    level += shift
    if len(weights) == 0:
        return (1.0 if level > 0 else 0.0), 0.0
    if level <= 0 or level >= total:
        return (0.0 if level <= 0 else 1.0), 0.0
    d = len(weights)
    if d <= 16:
        signs, sums = _corners(d)
        norm = math.factorial(d) * float(np.prod(weights))
        terms = signs * np.maximum(0.0, level - sums @ weights) ** d
        if norm > 0 and float(np.abs(terms).sum()) * 1e-15 / norm < 1e-9:
            return min(1.0, max(0.0, math.fsum(terms) / norm)), 0.0
    share = int(np.searchsorted(_sample(weights.tobytes()), level)) / SAMPLES
    return share, math.sqrt(max(share * (1 - share), 1e-6) / SAMPLES)


@cache
def _corners(d: int) -> tuple[Floats, Floats]:
    """The signs of the corners of the unit cube, and the corners as rows."""
    corners = np.array(list(product((0.0, 1.0), repeat=d)))
    return 1.0 - 2.0 * (corners.sum(axis=1) % 2), corners


@lru_cache(maxsize=4)
def _sample(weights: bytes) -> Floats:
    """weights . x for the fixed sample of contexts, sorted; drawn in parts, so that memory stays small."""
    w = np.frombuffer(weights)
    rng = np.random.Generator(np.random.PCG64(len(w)))
    parts = 100
    return np.sort(np.concatenate([rng.random((SAMPLES // parts, len(w))) @ w for _ in range(parts)]))


@cache
def least_clear(dimension: int) -> float:
    """The smallest P(n < 1) that a theta >= 0 of norm at most 1 can have: all entries equal."""
    return below(np.full(dimension, 1.0 / math.sqrt(dimension)), 1.0)[0]


def draw_theta(rng: Rng, dimension: int, *, clear: float | None, norm: float | None) -> Floats:
    """Absolute values of independent normals, scaled to P(n < 1) = clear, or to a norm.

    Directions that would need a norm above 1 are drawn again: the paper bounds theta by 1.
    """
    for _ in range(_DRAWS):
        direction = np.array([abs(normal(rng)) for _ in range(dimension)])
        direction /= math.sqrt(float(direction @ direction))
        if norm is not None:
            return direction * norm
        assert clear is not None
        if below(direction, 1.0)[0] <= clear:  # at norm 1 it is at most as clear as asked, so some norm <= 1 fits
            return direction * _scale_to(direction, clear)
    raise InputError(
        f"scenario.perturbation.clear = {clear}: no theta of norm at most 1 reached it in {_DRAWS} draws;"
        f" in {dimension} dimensions choose a value well above {least_clear(dimension):.3g}"
    )


def _scale_to(direction: Floats, clear: float) -> float:
    """The norm in (0, 1] at which P(n < 1) = clear: the largest one, found by halving."""
    low, high = min(1.0, 1.0 / float(direction.sum())), 1.0  # at low P(n < 1) = 1
    for _ in range(60):
        middle = 0.5 * (low + high)
        if below(direction, 1.0 / middle)[0] >= clear:
            low = middle
        else:
            high = middle
    return low
