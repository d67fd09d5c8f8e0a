"""The reward of a played channel and its expectation given the context.

`threshold`, used in the paper's experiments: 1 if 1{s is good} - n > 0, else 0.1. `additive`, equations 1 and 2 of the
paper: h(s) - n.
"""

from idleband.kernels.compile import jit
from idleband.scenario.noise import below

REWARDS = ("threshold", "additive")
THRESHOLD, ADDITIVE = range(2)

HIGH, LOW = 1.0, 0.1  # the two values of the threshold reward


@jit
def reward(kind: int, h: float, good: bool, n: float) -> float:
    """Return the reward of a channel with state reward h under perturbation n."""
    if kind == ADDITIVE:
        return h - n
    level = 1.0 if good else 0.0
    return HIGH if level - n > 0.0 else LOW


@jit
def expected_reward(kind: int, mean_h: float, good_share: float, n: float) -> float:
    """Return E[r | x] without noise, where the context determines n; the state has its stationary distribution."""
    if kind == ADDITIVE:
        return mean_h - n
    probability = 0.0
    if n < 1.0:
        probability = good_share
    if n < 0.0:
        probability = 1.0
    return LOW + (HIGH - LOW) * probability


@jit
def expected_noisy_reward(kind: int, mean_h: float, good_share: float, f: float, sigma: float) -> float:
    """Return E[r | x] with noise: f is the mean of n given the context, sigma its standard deviation."""
    if kind == ADDITIVE:
        return mean_h - f
    probability = good_share * below(1.0, f, sigma) + (1.0 - good_share) * below(0.0, f, sigma)
    return LOW + (HIGH - LOW) * probability
