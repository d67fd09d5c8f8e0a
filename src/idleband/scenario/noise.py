"""Noise of the perturbation: n = f(x) + sigma e, with e standard normal and independent per channel and slot.

Given the context, P(n < level | x) = Phi((level - f(x)) / sigma). Over uniform contexts the models of this package are
functions of z = a . (x - 1/2), which is symmetric about 0 and has the characteristic function

    phi(t) = prod_i sin(a_i t / 2) / (a_i t / 2),

so that P(n < level) = E u(z) with u(z) = Phi((level - f) / sigma). A function with the period T that equals u wherever
z can be has a Fourier series, and E u(z) is the sum of its coefficients times phi(2 pi k / T). The noise makes u
smooth: the coefficients fall off like a normal density, and some 10 / sigma of them give the probability to 1e-13, in
any dimension.

    linear      u is a step smoothed by the noise; the periodic function is a square wave, also smoothed
    quadratic   u is 0, or 1, beyond some |z|; coefficients by the trapezoidal rule
    cosine      u has the period pi / 3; coefficients by the trapezoidal rule

The first is the inversion formula of Davies, "Numerical inversion of a characteristic function", Biometrika 1973
(cited from memory; derived in `_linear`). For a user's model, and where a given theta would need more than MAX_TERMS
terms, the probability is a mean over a fixed sample of 10^6 contexts.

`clear` = P(n < 1) is met with the noise included, by the same parameter as without: the norm of the linear model, c of
the quadratic one and m of the cosine one.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.scenario.halfspace_volume import SAMPLES, sample
from idleband.scenario.perturbation import _DRAWS, COSINE, LINEAR, QUADRATIC, PerturbationModel, _direction

MIN_NOISE, MAX_NOISE = 1e-3, 1e6  # of a sigma that is not 0; the number of terms is proportional to 1 / sigma
RANGE = 4.0  # standard deviations of the noise that the range of the additive reward includes
MAX_TERMS = 2**19

_FAR = 9.0  # standard deviations that normal noise does not exceed: P = 2e-19
_DECAY = 8.0  # standard deviations after which a normal density is neglected, relative to its maximum: 1e-14
_STANDARD = NormalDist()


# --- given the context -----------------------------------------------------------------------------------------------


@jit
def add_noise(f: Floats, sigma: float, rng: Rng, n: Floats) -> None:
    """Write n = f + sigma e for every channel.

    Normal variables are drawn in pairs by the polar method of Marsaglia and Bray (1964), which is three times as fast
    as `rng.normal`; the second one of a pair without a channel is not used.
    """
    for k in range(0, n.size, 2):
        u, v, square = 1.0, 1.0, 2.0
        while square >= 1.0 or square == 0.0:  # a point in the unit circle, but not its centre
            u, v = 2.0 * uniform(rng) - 1.0, 2.0 * uniform(rng) - 1.0
            square = u * u + v * v
        radius = sigma * math.sqrt(-2.0 * math.log(square) / square)
        n[k] = f[k] + radius * u
        if k + 1 < n.size:
            n[k + 1] = f[k + 1] + radius * v


@jit
def below(level: float, f: float, sigma: float) -> float:
    """Return P(n < level) given f; without noise 1 or 0."""
    if sigma == 0.0:
        return 1.0 if f < level else 0.0
    z = (level - f) / sigma
    if z > 9.0:
        return 1.0
    if z < -9.0:
        return 0.0
    return 0.5 * math.erfc(-0.7071067811865476 * z)


def all_below(level: float, f: Floats, sigma: float) -> Floats:
    """Return P(n < level) for each entry of f; without noise 1 or 0."""
    if sigma == 0.0:
        return (f < level).astype(float)
    from scipy.special import ndtr  # slow to import, and not always needed

    return np.asarray(ndtr((level - f) / sigma))


# --- over uniform contexts -------------------------------------------------------------------------------------------


def probability_below(
    model: PerturbationModel, theta: Floats, d: int, level: float, sigma: float
) -> tuple[float, float]:
    """Return P(n < level) over uniform contexts, and its standard error (0 if exact)."""
    if sigma == 0.0:
        return model.probability_below(theta, d, level)
    found = None
    if model.number == LINEAR:
        found = _linear(theta, level, sigma)
    elif model.number == QUADRATIC:
        found = _quadratic(float(theta[0]), theta[1:], level - 0.5, sigma)
    elif model.number == COSINE:
        found = _cosine(float(theta[0]), theta[1:], level, sigma)
    if found is not None:
        return min(1.0, max(0.0, found)), 0.0
    values = all_below(level, _sampled(model, theta.tobytes(), d), sigma)
    return float(values.mean()), float(values.std()) / math.sqrt(SAMPLES)


def _linear(theta: Floats, level: float, sigma: float) -> float | None:
    """Return P(theta . x + sigma e < level).

    Let D be the difference of n and its mean, and y that of the level and the mean. The square wave

        q(w) = sum over k >= 0 of sin((k + 1/2) h w) / (pi (k + 1/2))

    is 1/2 on (0, 2 pi / h) and -1/2 on (-2 pi / h, 0), so that 1/2 + E q(y - D) = P(D < y), up to the probability of
    |y - D| > 2 pi / h. With h = pi / R and |y| < R that is at most P(|D| > R). D is symmetric, so E q(y - D) has the
    terms of q(y), each times the characteristic function of D, which exp(-(sigma t)^2 / 2) makes small.
    """
    y = level - float(theta.sum()) / 2
    R = float(np.abs(theta).sum()) / 2 + _FAR * sigma
    if abs(y) >= R:
        return float(y > 0)
    h = math.pi / R
    terms = math.ceil(_DECAY / (sigma * h))
    if terms > MAX_TERMS:
        return None
    k = np.arange(0.5, terms)
    t = k * h
    return 0.5 + float((np.sin(t * y) * np.exp(-0.5 * (sigma * t) ** 2) / (math.pi * k)) @ _phi(theta, t))


def _quadratic(c: float, a: Floats, gap: float, sigma: float) -> float | None:
    """Return P(c z^2 + sigma e < gap)."""
    if c < 0.0:  # P(-c z^2 + sigma e > -gap), because e is symmetric
        complement = _quadratic(-c, a, -gap, sigma)
        return None if complement is None else 1.0 - complement
    if c == 0.0 or not a.any():
        return _STANDARD.cdf(gap / sigma)
    if gap + _FAR * sigma <= 0.0:
        return 0.0
    # z is at most half of the first; from the second on u is 0.
    half = max(float(np.abs(a).sum()) / 2, math.sqrt((gap + _FAR * sigma) / c))
    steepness = 2.0 * math.sqrt(c * max(gap, sigma)) / sigma  # of (gap - c z^2) / sigma where u falls, about
    return _mean_of_even(lambda z: all_below(gap, c * z * z, sigma), a, half, steepness)


def _cosine(m: float, a: Floats, level: float, sigma: float) -> float | None:
    """Return P(m + 0.5 cos(6 z) + sigma e < level)."""
    return _mean_of_even(lambda z: all_below(level, m + 0.5 * np.cos(6.0 * z), sigma), a, math.pi / 6, 3.0 / sigma)


def _mean_of_even(u: Callable[[Floats], Floats], a: Floats, half: float, steepness: float) -> float | None:
    """Return E u(z) for an even function with the period 2 half.

    The coefficients of exp(i pi k z / half) come from the trapezoidal rule, with k up to half the number of points. The
    coefficients of a normal distribution function of (z s) fall off as exp(-(pi k / (half s))^2 / 2), which gives the
    number of points; s is the steepness.
    """
    points = 1 << max(6, math.ceil(math.log2(1.5 * _DECAY * 2.0 * half * steepness / math.pi)))
    if points > MAX_TERMS:
        return None
    k: Floats = np.arange(points // 2 + 1.0)
    values = u(k * (2.0 * half / points))
    coefficients: Floats = np.fft.rfft(np.concatenate([values, values[-2:0:-1]])).real / points
    coefficients[1:-1] *= 2.0  # of k and of -k
    return float(coefficients @ _phi(a, k * (math.pi / half)))


def _phi(a: Floats, t: Floats) -> Floats:
    """Return the characteristic function of a . (x - 1/2) at the points t."""
    found = np.ones(len(t))
    for entry in a:
        found *= np.sinc(entry * t / (2.0 * math.pi))
    return found


@lru_cache(maxsize=4)
def _sampled(model: PerturbationModel, row: bytes, d: int) -> Floats:
    """Return f for the fixed sample of contexts."""
    theta = np.frombuffer(row)
    return np.concatenate([model.values(theta, x) for x in sample(d)])


# --- strengths -------------------------------------------------------------------------------------------------------


def check_clear(model: PerturbationModel, d: int, clear: float, sigma: float) -> None:
    """Refuse a P(n < 1) that the model cannot have with this noise."""
    where = f"scenario.perturbation.clear = {clear:g}"
    minimum, reason = model.least_clear(d)
    noisy = ""
    if sigma > 0.0 and model.number == LINEAR:
        least = _linear(np.full(d, 1.0 / math.sqrt(d)), 1.0, sigma)
        assert least is not None
        minimum, noisy = least, f" with noise = {sigma:g}"
    if clear < minimum:
        raise InputError(f"{where}: must be at least {minimum:.4g}, {reason}{noisy}")
    most = {LINEAR: 1.0, QUADRATIC: 0.5}.get(model.number, math.inf)  # the level minus the smallest f
    largest = 1.0 if sigma == 0.0 else _STANDARD.cdf(most / sigma)
    if sigma > 0.0 and model.source is None and clear >= largest:
        raise InputError(
            f"{where}: must be below {largest:.4g}, the largest P(n < 1) of the {model.name} model with"
            f" noise = {sigma:g}"
        )


def draw(model: PerturbationModel, rng: Rng, d: int, clear: float | None, norm: float | None, sigma: float) -> Floats:
    """Draw a theta with P(n < 1) = clear, or with a given norm; a user's model is asked for `clear` without noise."""
    if sigma == 0.0 or clear is None or model.source is not None:
        return model.draw(rng, d, clear, norm)
    a = _direction(rng, d)

    def excess(strength: float) -> float:
        row = strength * a if model.number == LINEAR else np.array([strength, *a])
        return probability_below(model, row, d, 1.0, sigma)[0] - clear

    if model.number == COSINE:
        shift = sigma * _STANDARD.inv_cdf(clear)  # n < 1 is as probable for f = 1 - shift everywhere
        return np.array([_root(excess, 0.5 - shift, 1.5 - shift), *a])
    if model.number == QUADRATIC:
        low, high = 2.0 / float(a.sum()) ** 2, _largest_c(clear, sigma)
        while excess(low) < 0.0:
            low /= 4.0
        return np.array([math.exp(_root(lambda log: excess(math.exp(log)), math.log(low), math.log(high))), *a])
    for _ in range(_DRAWS):
        if excess(1.0) <= 0.0:
            return a * _root(excess, 0.0, 1.0)
        a = _direction(rng, d)  # this direction would need a norm above 1, the bound of the paper
    raise InputError(
        f"scenario.perturbation.clear = {clear:g}: no theta of norm at most 1 reached it in {_DRAWS} draws with"
        f" noise = {sigma:g}; choose a larger value"
    )


def drawn_bounds(
    model: PerturbationModel, d: int, clear: float | None, norm: float | None, sigma: float
) -> tuple[float, float]:
    """Return the smallest and the largest f for any theta that may be drawn."""
    if sigma > 0.0 and model.number == COSINE:
        assert clear is not None
        shift = sigma * _STANDARD.inv_cdf(clear)
        return -shift, 2.0 - shift
    if sigma > 0.0 and model.number == QUADRATIC:
        assert clear is not None
        return 0.5, 0.5 + _largest_c(clear, sigma) * d / 4
    return model.drawn_bounds(d, clear, norm)


def _largest_c(clear: float, sigma: float) -> float:
    """Return a bound of the c of drawn quadratic models.

    No slice through the middle of the unit cube is larger than sqrt(2) (Ball 1986). So clear, which is
    P(c z^2 < 1/2 - sigma e), is at most 2 sqrt(2) E sqrt(g / c) with g = max(0, 1/2 - sigma e), and E sqrt(g) is at
    most sqrt(E g).
    """
    mean = 0.5 * _STANDARD.cdf(0.5 / sigma) + sigma * _STANDARD.pdf(0.5 / sigma)
    return 8.0 * mean / clear**2


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a decreasing function, by the Illinois variant of regula falsi."""
    at_low, at_high = function(low), function(high)
    if at_low <= 0.0 or at_high >= 0.0:
        return low if at_low <= 0.0 else high
    side = 0
    for _ in range(200):
        middle = high - at_high * (high - low) / (at_high - at_low)
        if not low < middle < high:
            break
        value = function(middle)
        if abs(value) < 1e-15:
            return middle
        if value > 0.0:
            low, at_low = middle, value
            at_high *= 0.5 if side > 0 else 1.0  # the same end stayed twice
            side = 1
        else:
            high, at_high = middle, value
            at_low *= 0.5 if side < 0 else 1.0
            side = -1
    return low
