"""Bernoulli Kullback-Leibler divergence and its upper confidence bound (Garivier and Cappe 2011)."""

import math

from idleband.kernels.compile import jit


@jit
def negative_entropy(p: float) -> float:
    """Return p ln p + (1-p) ln(1-p), 0 at both ends."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return p * math.log(p) + (1.0 - p) * math.log(1.0 - p)


@jit
def kl_upper(mean: float, budget: float, start: float, entropy: float) -> float:
    """Return the largest q in [mean, 1] with kl(mean, q) <= budget, where `entropy` is negative_entropy(mean).

    Newton's method from `start` (the previous result, which is close) inside a bracket. kl is convex in q, so steps
    from the right of the root approach it without crossing. If a step leaves the bracket, the bracket is halved.
    """
    if mean >= 1.0 or budget <= 0.0:
        return min(mean, 1.0)
    if mean <= 0.0:
        return 1.0 - math.exp(-budget)
    low, high = mean, min(1.0, mean + math.sqrt(0.5 * budget))  # Pinsker: kl >= 2 (q - mean)^2
    q = start
    if q <= low or q >= high:
        q = high if high < 1.0 else 0.5 * (low + 1.0)
    if q >= 1.0:  # the mean is the largest number below 1
        return 1.0
    for _ in range(100):
        excess = entropy - mean * math.log(q) - (1.0 - mean) * math.log(1.0 - q) - budget
        if excess > 0.0:
            high = q
        else:
            low = q
        step = excess * q * (1.0 - q) / (q - mean)
        # The remaining error is about step^2 / min(q - mean, 1 - q) at most: less than 1e-10 of it here.
        near = abs(step) <= 1e-5 * min(q - mean, 1.0 - q)
        q -= step
        if near:
            return q
        if q <= low or q >= high:
            q = 0.5 * (low + high)
            if high - low < 1e-15:
                return q
    return q
