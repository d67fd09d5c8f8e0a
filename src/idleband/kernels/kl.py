"""The Bernoulli Kullback-Leibler divergence and the upper confidence bound it gives (Garivier and Cappe 2011)."""

import math

from idleband.kernels.compile import jit


@jit
def negative_entropy(p: float) -> float:
    """p ln p + (1-p) ln(1-p), 0 at both ends."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return p * math.log(p) + (1.0 - p) * math.log(1.0 - p)


@jit
def kl_upper(mean: float, budget: float, start: float, entropy: float) -> float:
    """The largest q in [mean, 1] with kl(mean, q) <= budget, where `entropy` is negative_entropy(mean).

    Newton from `start` (the last answer: it moves little from slot to slot), inside a bracket. kl is convex in q, so
    from the right of the root the steps come down to it without crossing; where a step leaves the bracket, halve it.
    """
    if mean >= 1.0 or budget <= 0.0:
        return min(mean, 1.0)
    if mean <= 0.0:
        return 1.0 - math.exp(-budget)
    low, high = mean, min(1.0, mean + math.sqrt(0.5 * budget))  # Pinsker: kl >= 2 (q - mean)^2
    q = start
    if q <= low or q >= high:
        q = high if high < 1.0 else 0.5 * (low + 1.0)
    if q >= 1.0:  # the mean is the last number below 1
        return 1.0
    for _ in range(100):
        excess = entropy - mean * math.log(q) - (1.0 - mean) * math.log(1.0 - q) - budget
        if excess > 0.0:
            high = q
        else:
            low = q
        step = excess * q * (1.0 - q) / (q - mean)
        # The error left is at most about step^2 / min(q - mean, 1 - q): below 1e-10 of it at this point.
        near = abs(step) <= 1e-5 * min(q - mean, 1.0 - q)
        q -= step
        if near:
            return q
        if q <= low or q >= high:
            q = 0.5 * (low + high)
            if high - low < 1e-15:
                return q
    return q
