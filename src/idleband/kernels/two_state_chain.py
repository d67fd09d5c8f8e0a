"""What observations of a two-state chain say about p01 and p10, when it is not seen in every slot.

A channel seen in state i and a slots later in state j has told something whatever a is:

    P(good after a slots | i) = pi + rho^a (i - pi),     pi = p01 / (p01 + p10),     rho = 1 - p01 - p10.

All that matters is how often each (a, i, j) was seen, so the likelihood is exact (but for long ages: see below), and
its maximum takes microseconds to find. The posterior under uniform priors is taken as normal in the logits of p01 and
p10 (Laplace): mode by Fisher scoring, covariance from the expected information there. Counting only neighbouring slots,
the usual way, learns next to nothing of a channel that is looked at now and then, and takes that for doubt.

Ages up to EXACT have a count each, longer ones share bins that grow by an eighth; the last bin ends at 4000 slots.
"""

import math

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.logistic import probability as logistic

EXACT, BINS = 32, 73
GROWTH = 1.125

MAX_LOGIT = 12.0  # chances stay above 6e-6: no count says more in 10^5 slots
MAX_STEP = 1.5  # in logits; Fisher scoring overshoots where there is little data
CLOSE = 1e-4  # squared distance from the mode, in standard deviations, at which scoring ends
MAX_STEPS = 30
LEAST = 1e-12  # chances that are nearer to 0 or 1 are taken for this
LATE = 0.01  # an observation that depends on the one before by less tells nothing of how fast the channel moves

AGES = np.array([*range(1, EXACT + 1), *(EXACT * GROWTH ** (i + 0.5) for i in range(BINS - EXACT))])


@jit
def bin_of(age: int) -> int:
    """The bin that an age of at least 1 is counted in.

    >>> bin_of(1), bin_of(32), bin_of(33), bin_of(10**9)
    (0, 31, 32, 72)
    """
    if age <= EXACT:
        return age - 1
    return min(BINS - 1, EXACT + int(math.log(age / EXACT) / math.log(GROWTH)))


@jit
def power(rho: float, age: float, exact: bool) -> float:
    """rho^age; of an age that is only about right a negative rho has lost its sign: 0 on average."""
    if rho >= 0.0:
        return rho**age
    if not exact:
        return 0.0
    size = (-rho) ** age
    return -size if int(age) % 2 == 1 else size


@jit
def logit(p: float) -> float:
    """Where `logistic` is p, within the limits of the modes."""
    p = min(max(p, LEAST), 1.0 - LEAST)
    return min(max(math.log(p / (1.0 - p)), -MAX_LOGIT), MAX_LOGIT)


@jit
def fit(pairs: Floats, ages: Floats, k: int, mode: Floats, spread: Floats) -> None:
    """The posterior of channel k from the counts pairs[k, bin, i, j]: logits of p01 and p10 into mode[k], where the
    search starts, and a triangular root of their covariance into spread[k] (3 entries).

    There may be two hills. Where the mode says that most observations came too late to tell how fast the channel moves,
    there is no slope towards slow channels either, and a search from there is worth its time."""
    climb(pairs, ages, k, mode, spread)
    p, q = logistic(mode[k, 0]), logistic(mode[k, 1])
    seen, late, waited = 0.0, 0.0, 0.0
    for b in range(pairs.shape[1]):
        count = pairs[k, b, 0, 0] + pairs[k, b, 0, 1] + pairs[k, b, 1, 0] + pairs[k, b, 1, 1]
        if count > 0.0:
            seen += count
            waited += count * ages[b]
            if abs(power(1.0 - p - q, ages[b], b < EXACT)) < LATE:
                late += count
    if late <= 0.5 * seen:
        return
    u, v, u_spread, both, v_spread = mode[k, 0], mode[k, 1], spread[k, 0], spread[k, 1], spread[k, 2]
    height = density(pairs, ages, k, u, v)
    moves = 1.0 - math.exp(-seen / waited)  # it forgets in about the time that passes between two looks
    mode[k, 0] = logit(moves * p / (p + q))
    mode[k, 1] = logit(moves * q / (p + q))
    climb(pairs, ages, k, mode, spread)
    if density(pairs, ages, k, mode[k, 0], mode[k, 1]) < height:
        mode[k, 0], mode[k, 1] = u, v
        spread[k, 0], spread[k, 1], spread[k, 2] = u_spread, both, v_spread


@jit
def density(pairs: Floats, ages: Floats, k: int, u: float, v: float) -> float:
    """The logarithm of the posterior's density in logits, but for a constant."""
    p, q = logistic(u), logistic(v)
    pi, rho = p / (p + q), 1.0 - p - q
    total = math.log(p * (1.0 - p) * q * (1.0 - q))
    for b in range(pairs.shape[1]):
        for i in range(2):
            bad, good = pairs[k, b, i, 0], pairs[k, b, i, 1]
            if bad + good > 0.0:
                chance = pi + power(rho, ages[b], b < EXACT) * (i - pi)
                chance = min(max(chance, LEAST), 1.0 - LEAST)
                total += good * math.log(chance) + bad * math.log(1.0 - chance)
    return total


@jit
def climb(pairs: Floats, ages: Floats, k: int, mode: Floats, spread: Floats) -> None:
    """Fisher scoring from mode[k] to the top of its hill."""
    u, v = mode[k, 0], mode[k, 1]
    uu, uv, vv = 1.0, 0.0, 1.0
    for _ in range(MAX_STEPS):
        p, q = logistic(u), logistic(v)
        total = p + q
        pi, rho = p / total, 1.0 - total
        pi_p, pi_q = q / (total * total), -p / (total * total)
        # A uniform prior of a chance is, in its logit, one success and one failure.
        slope_u, slope_v = 1.0 - 2.0 * p, 1.0 - 2.0 * q
        uu, uv, vv = 2.0 * p * (1.0 - p), 0.0, 2.0 * q * (1.0 - q)
        for b in range(pairs.shape[1]):
            for i in range(2):
                bad, good = pairs[k, b, i, 0], pairs[k, b, i, 1]
                if bad + good > 0.0:
                    before = power(rho, ages[b] - 1.0, b < EXACT)  # rho^(a-1)
                    now = before * rho
                    chance = min(max(pi + now * (i - pi), LEAST), 1.0 - LEAST)
                    grow = ages[b] * before * (i - pi)
                    by_u = (pi_p * (1.0 - now) - grow) * p * (1.0 - p)
                    by_v = (pi_q * (1.0 - now) - grow) * q * (1.0 - q)
                    variance = chance * (1.0 - chance)
                    surprise = (good - (bad + good) * chance) / variance
                    information = (bad + good) / variance
                    slope_u += surprise * by_u
                    slope_v += surprise * by_v
                    uu += information * by_u * by_u
                    uv += information * by_u * by_v
                    vv += information * by_v * by_v
        determinant = uu * vv - uv * uv
        step_u = (vv * slope_u - uv * slope_v) / determinant
        step_v = (uu * slope_v - uv * slope_u) / determinant
        if step_u * slope_u + step_v * slope_v < CLOSE:
            break
        longest = max(abs(step_u), abs(step_v))
        shorten = MAX_STEP / longest if longest > MAX_STEP else 1.0
        u = min(max(u + shorten * step_u, -MAX_LOGIT), MAX_LOGIT)
        v = min(max(v + shorten * step_v, -MAX_LOGIT), MAX_LOGIT)
    mode[k, 0], mode[k, 1] = u, v
    determinant = uu * vv - uv * uv
    spread[k, 0] = math.sqrt(vv / determinant)
    spread[k, 1] = -uv / determinant / spread[k, 0]
    spread[k, 2] = math.sqrt(1.0 / vv)
