"""Estimation of p01 and p10 of a two-state chain that is not observed in every slot.

An observation of state i, and of state j after a slots, has the likelihood

    P(good after a slots | i) = pi + rho^a (i - pi),     pi = p01 / (p01 + p10),     rho = 1 - p01 - p10.

The counts of each (a, i, j) are sufficient, so the likelihood is exact (except for long ages, see below), and its
maximum takes microseconds to find. The posterior under uniform priors is approximated by a normal distribution of the
logits of p01 and p10 (Laplace): the mode by Fisher scoring, the covariance from the expected information there. Using
transitions between consecutive slots only, the usual approach, learns almost nothing of a channel that is rarely
played.

With sensing errors the state at the first observation is known up to its probability w, given all observations until
then. With g = P(observed 1 | 1) and b = P(observed 1 | 0),

    P(observed 1 after a slots | w) = b + (g - b) (pi + rho^a (w - pi)).

Then the counts are by level of w instead of i. A pair with a w between two levels counts in both, so that its mean is
w, in which the probability is linear. Which pairs there are depends on what was observed before; therefore the first
observation alone, instead of w, would give biased estimates: the channels of S4 seemed three times slower.

Ages up to EXACT have a count each; longer ages share bins that grow by an eighth. The last bin ends at 4000 slots.
"""

import math

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.logistic import probability as logistic

EXACT, BINS = 32, 73
GROWTH = 1.125
TOGETHER = 8  # bins that are skipped together if they are empty, which most are

MAX_LOGIT = 12.0  # probabilities stay above 6e-6, which 10^5 slots cannot distinguish from smaller ones
MAX_STEP = 1.5  # in logits; Fisher scoring overshoots where there is little data
CLOSE = 1e-4  # squared distance from the mode, in standard deviations, at which scoring stops
MAX_STEPS = 30
MIN_PROBABILITY = 1e-12  # distance of probabilities from 0 and 1
LATE = 0.01  # correlation with the previous observation below which an observation is uninformative about the rate

Prior = tuple[float, float, float]  # logits of p01 and p10 around which they are expected, and the precision of that
UNIFORM = (0.0, 0.0, 0.0)
Sensing = tuple[float, float]  # P(observed 1 | state 0) and P(observed 1 | state 1)
EXACT_SENSING = (0.0, 1.0)
LEVELS = np.array([0.0, *(1.0 / (1.0 + math.exp(-i)) for i in range(-6, 7)), 1.0])

AGES = np.array([*range(1, EXACT + 1), *(EXACT * GROWTH ** (i + 0.5) for i in range(BINS - EXACT))])


@jit
def bin_of(age: int) -> int:
    """Return the bin of an age of at least 1.

    >>> bin_of(1), bin_of(32), bin_of(33), bin_of(10**9)
    (0, 31, 32, 72)
    """
    if age <= EXACT:
        return age - 1
    return min(BINS - 1, EXACT + int(math.log(age / EXACT) / math.log(GROWTH)))


@jit
def power(rho: float, age: float, exact: bool) -> float:
    """Return rho^age; for an approximate age and negative rho the sign is unknown, and the mean is 0."""
    if rho >= 0.0:
        return rho**age
    if not exact:
        return 0.0
    size = (-rho) ** age
    return -size if int(age) % 2 == 1 else size


@jit
def later(p01: float, p10: float, belief: float, steps: int) -> float:
    """Return the belief (P(state 1)) some slots after a belief.

    >>> round(later(0.1, 0.2, 1.0, 1), 3), round(later(0.1, 0.2, 1.0, 1000), 3)
    (0.8, 0.333)
    """
    rho = 1.0 - p01 - p10
    if steps == 1:
        return p01 + rho * belief
    if steps <= 0:
        return belief
    settled = p01 / (p01 + p10)
    return settled + power(rho, float(steps), True) * (belief - settled)


@jit
def logit(p: float) -> float:
    """Return the inverse of `logistic`, clipped to the limits of the modes."""
    p = min(max(p, MIN_PROBABILITY), 1.0 - MIN_PROBABILITY)
    return min(max(math.log(p / (1.0 - p)), -MAX_LOGIT), MAX_LOGIT)


@jit
def with_errors(sensing: Sensing) -> bool:
    """Return whether observations may differ from states."""
    return sensing[0] != 0.0 or sensing[1] != 1.0


@jit
def given(belief: float, sensing: Sensing, i: int) -> float:
    """Return P(state 1) after an observation i, from the belief before (Bayes' rule).

    >>> given(0.3, EXACT_SENSING, 1), round(given(0.5, (0.1, 0.9), 1), 3)
    (1.0, 0.9)
    """
    if not with_errors(sensing):
        return float(i)
    good = sensing[1] if i == 1 else 1.0 - sensing[1]
    bad = sensing[0] if i == 1 else 1.0 - sensing[0]
    total = belief * good + (1.0 - belief) * bad
    return belief * good / total if total > 0.0 else belief


@jit
def add_pair(pairs: Floats, k: int, age: int, w: float, s: int, weight: float) -> None:
    """Count an observation s that follows one after which state 1 had probability w; pairs by LEVELS of w."""
    i = 0
    while i < LEVELS.size - 2 and LEVELS[i + 1] < w:
        i += 1
    upper = (w - LEVELS[i]) / (LEVELS[i + 1] - LEVELS[i])
    pairs[k, bin_of(age), i, s] += weight * (1.0 - upper)
    pairs[k, bin_of(age), i + 1, s] += weight * upper


@jit
def level_of(i: int, levels: int) -> float:
    """Return the probability of state 1 at the first observation of the pairs with index i."""
    return float(i) if levels == 2 else LEVELS[i]


@jit
def empty(pairs: Floats, k: int, first: int) -> bool:
    """Return whether the TOGETHER bins from `first` on have no counts."""
    total = 0.0
    for b in range(first, first + TOGETHER):
        if b < pairs.shape[1]:
            for i in range(pairs.shape[2]):
                total += pairs[k, b, i, 0] + pairs[k, b, i, 1]
    return total == 0.0


@jit
def fit(pairs: Floats, ages: Floats, k: int, mode: Floats, spread: Floats) -> None:
    """Fit the posterior of channel k under uniform priors, without sensing errors; see `fit_posterior`."""
    fit_posterior(pairs, ages, k, mode, spread, UNIFORM, EXACT_SENSING)


@jit
def fit_posterior(
    pairs: Floats, ages: Floats, k: int, mode: Floats, spread: Floats, prior: Prior, sensing: Sensing
) -> None:
    """Fit the posterior of channel k to the counts pairs[k, bin, i, j]; with sensing errors, i is a level of w.

    Writes the logits of p01 and p10 into mode[k], where the search starts, and a triangular root of their covariance
    into spread[k] (3 entries). The posterior may have two maxima. If at the first one most observations are too far
    apart to be informative about the rate, a second search starts from a slow channel.
    """
    climb(pairs, ages, k, mode, spread, prior, sensing)
    p, q = logistic(mode[k, 0]), logistic(mode[k, 1])
    seen, late, waited, skipped = 0.0, 0.0, 0.0, False
    for b in range(pairs.shape[1]):
        if b % TOGETHER == 0:
            skipped = empty(pairs, k, b)
        if skipped:
            continue
        count = 0.0
        for i in range(pairs.shape[2]):
            count += pairs[k, b, i, 0] + pairs[k, b, i, 1]
        if count > 0.0:
            seen += count
            waited += count * ages[b]
            if abs(power(1.0 - p - q, ages[b], b < EXACT)) < LATE:
                late += count
    if late <= 0.5 * seen:
        return
    u, v, u_spread, both, v_spread = mode[k, 0], mode[k, 1], spread[k, 0], spread[k, 1], spread[k, 2]
    height = density(pairs, ages, k, u, v, prior, sensing)
    moves = 1.0 - math.exp(-seen / waited)  # correlation time about equal to the mean age
    mode[k, 0] = logit(moves * p / (p + q))
    mode[k, 1] = logit(moves * q / (p + q))
    climb(pairs, ages, k, mode, spread, prior, sensing)
    if density(pairs, ages, k, mode[k, 0], mode[k, 1], prior, sensing) < height:
        mode[k, 0], mode[k, 1] = u, v
        spread[k, 0], spread[k, 1], spread[k, 2] = u_spread, both, v_spread


@jit
def density(pairs: Floats, ages: Floats, k: int, u: float, v: float, prior: Prior, sensing: Sensing) -> float:
    """Return the logarithm of the posterior density of the logits, up to a constant."""
    p, q = logistic(u), logistic(v)
    pi, rho, errors, skipped = p / (p + q), 1.0 - p - q, with_errors(sensing), False
    total = math.log(p * (1.0 - p) * q * (1.0 - q))
    if prior[2] > 0.0:
        total -= 0.5 * prior[2] * ((u - prior[0]) ** 2 + (v - prior[1]) ** 2)
    for b in range(pairs.shape[1]):
        if b % TOGETHER == 0:
            skipped = empty(pairs, k, b)
        if skipped:
            continue
        for i in range(pairs.shape[2]):
            bad, good = pairs[k, b, i, 0], pairs[k, b, i, 1]
            if bad + good > 0.0:
                probability = pi + power(rho, ages[b], b < EXACT) * (level_of(i, pairs.shape[2]) - pi)
                if errors:
                    probability = sensing[0] + (sensing[1] - sensing[0]) * probability
                probability = min(max(probability, MIN_PROBABILITY), 1.0 - MIN_PROBABILITY)
                total += good * math.log(probability) + bad * math.log(1.0 - probability)
    return total


@jit
def climb(pairs: Floats, ages: Floats, k: int, mode: Floats, spread: Floats, prior: Prior, sensing: Sensing) -> None:
    """Maximise the posterior by Fisher scoring from mode[k]."""
    u, v = mode[k, 0], mode[k, 1]
    uu, uv, vv = 1.0, 0.0, 1.0
    errors, contrast, skipped = with_errors(sensing), sensing[1] - sensing[0], False
    for _ in range(MAX_STEPS):
        p, q = logistic(u), logistic(v)
        total = p + q
        pi, rho = p / total, 1.0 - total
        pi_p, pi_q = q / (total * total), -p / (total * total)
        # A uniform prior of a probability acts on its logit like one success and one failure.
        slope_u, slope_v = 1.0 - 2.0 * p, 1.0 - 2.0 * q
        uu, uv, vv = 2.0 * p * (1.0 - p), 0.0, 2.0 * q * (1.0 - q)
        if prior[2] > 0.0:
            slope_u += prior[2] * (prior[0] - u)
            slope_v += prior[2] * (prior[1] - v)
            uu += prior[2]
            vv += prior[2]
        for b in range(pairs.shape[1]):
            if b % TOGETHER == 0:
                skipped = empty(pairs, k, b)
            if skipped:
                continue
            for i in range(pairs.shape[2]):
                bad, good = pairs[k, b, i, 0], pairs[k, b, i, 1]
                if bad + good > 0.0:
                    before = power(rho, ages[b] - 1.0, b < EXACT)  # rho^(a-1)
                    now = before * rho
                    first = level_of(i, pairs.shape[2])
                    probability = pi + now * (first - pi)
                    grow = ages[b] * before * (first - pi)
                    share = 1.0 - now
                    if errors:
                        probability = sensing[0] + contrast * probability
                        grow *= contrast
                        share *= contrast
                    probability = min(max(probability, MIN_PROBABILITY), 1.0 - MIN_PROBABILITY)
                    by_u = (pi_p * share - grow) * p * (1.0 - p)
                    by_v = (pi_q * share - grow) * q * (1.0 - q)
                    variance = probability * (1.0 - probability)
                    surprise = (good - (bad + good) * probability) / variance
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
