"""Whittle's index of a two-state channel, in closed form, for the average reward.

Liu and Zhao, "Indexability of restless bandit problems and optimality of Whittle index for dynamic multichannel
access", IEEE Transactions on Information Theory 2010. A play pays 1 in the good state and 0 in the
bad one and shows the state; w is the chance that it is good. The index is what a play is worth: w, and what is gained
by knowing the state afterwards. `subsidy.py` computes the same without a formula, for any chain.
"""

import math

from idleband.kernels.compile import jit

SHORTEST = 1e-12  # distances below this are none: rounding would decide


@jit
def whittle(p01: float, p10: float, w: float) -> float:
    """The index at belief w; p01 is the chance to turn good, p10 to turn bad, not both 0.

    >>> whittle(0.5, 0.5, 0.5)  # independent slots: nothing is gained by looking
    0.5
    >>> whittle(0.1, 0.1, 0.5) > 0.5
    True
    """
    p11 = 1.0 - p10
    w0 = p01 / (p01 + p10)
    if p11 >= p01:
        if w <= p01 or w >= p11:
            return w
        if w >= w0 - SHORTEST:
            return w / (1.0 - p11 + w)
        # How many slots after it was seen bad a channel is believed better than w: p01 moved on `wait` times. Written
        # with rho = 1 - total in logarithms and without differences of like beliefs: of a channel that hardly moves,
        # with chances of 1e-9, rounding would leave an index below its belief.
        total = p01 + p10
        fade = math.log1p(-total)
        wait = math.floor(math.log((w0 - w) / (w0 * (1.0 - total))) / fade) + 1.0
        drift = (w0 - w) * total
        ahead = -w0 * math.expm1((wait + 1.0) * fade) - (wait + 1.0) * drift
        return ahead / (ahead + p10 + drift)
    if w <= p11 or w >= p01:
        return w
    after = w * p11 + (1.0 - w) * p01  # the belief one slot later, if it is not played
    after_good = p11 * p11 + p10 * p01  # two slots after it was seen good
    if w < w0:
        return (w + p01 - after) / (1.0 + p01 - after_good + after - w)
    if w < after_good:
        return p01 / (1.0 + p01 - after_good)
    return p01 / (1.0 + p01 - w)
