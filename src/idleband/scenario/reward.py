"""What a picked channel pays, and what it is expected to pay.

`threshold`, the paper's experiments: 1 if 1{s good} - n > 0, else 0.1. `additive`, its equations 1 and 2: h(s) - n.
"""

from idleband.kernels.compile import jit

REWARDS = ("threshold", "additive")
THRESHOLD, ADDITIVE = range(2)

HIGH, LOW = 1.0, 0.1  # what the threshold reward pays


@jit
def reward(kind: int, h: float, good: bool, n: float) -> float:
    """The reward of a channel in a state with reward h, good or not, under perturbation n."""
    if kind == ADDITIVE:
        return h - n
    level = 1.0 if good else 0.0
    return HIGH if level - n > 0.0 else LOW


@jit
def expected_reward(kind: int, mean_h: float, good_share: float, n: float) -> float:
    """E[r | x]: the reward expected from the context alone, the state at its stationary distribution."""
    if kind == ADDITIVE:
        return mean_h - n
    chance = 0.0
    if n < 1.0:
        chance = good_share
    if n < 0.0:
        chance = 1.0
    return LOW + (HIGH - LOW) * chance
