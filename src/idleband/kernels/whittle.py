"""Whittle index of a two-state channel for the average reward, in closed form.

Liu and Zhao, "Indexability of restless bandit problems and optimality of Whittle index for dynamic multichannel
access", IEEE Transactions on Information Theory 2010. A play has reward 1 in the good state and 0 in the bad state, and
reveals the state; w is the probability of the good state. The index is w plus the value of observing the state.
`whittle_lagrangian.py` computes the index of any chain numerically.
"""

import math

from idleband.kernels.compile import jit

MIN_DISTANCE = 1e-12  # smaller distances count as zero, because they are rounding errors


@jit
def whittle(p01: float, p10: float, w: float) -> float:
    """Return the index at belief w; p01 and p10 must not both be 0.

    >>> whittle(0.5, 0.5, 0.5)  # independent slots: observing the state has no value
    0.5
    >>> whittle(0.1, 0.1, 0.5) > 0.5
    True
    """
    p11 = 1.0 - p10
    w0 = p01 / (p01 + p10)
    if p11 >= p01:
        if w <= p01 or w >= p11:
            return w
        if w >= w0 - MIN_DISTANCE:
            return w / (1.0 - p11 + w)
        # `wait`: slots after an observed bad state until the belief exceeds w. Written with the logarithm of
        # rho = 1 - total and without differences of close beliefs: with probabilities of 1e-9 rounding would give an
        # index below the belief.
        total = p01 + p10
        fade = math.log1p(-total)
        wait = math.floor(math.log((w0 - w) / (w0 * (1.0 - total))) / fade) + 1.0
        drift = (w0 - w) * total
        ahead = -w0 * math.expm1((wait + 1.0) * fade) - (wait + 1.0) * drift
        return ahead / (ahead + p10 + drift)
    if w <= p11 or w >= p01:
        return w
    after = w * p11 + (1.0 - w) * p01  # belief one slot later without a play
    after_good = p11 * p11 + p10 * p01  # belief two slots after an observed good state
    if w < w0:
        return (w + p01 - after) / (1.0 + p01 - after_good + after - w)
    if w < after_good:
        return p01 / (1.0 + p01 - after_good)
    return p01 / (1.0 + p01 - w)
