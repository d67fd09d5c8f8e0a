"""Every channel taken as one of two states, good or not, whatever it has: what Whittle's closed form is about.

Shared by the peers that know or learn p01 and p10 and nothing else. What a channel pays on average in a good slot and
in another is learned from rewards, beginning with one imagined slot without perturbation; contexts are not used.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.two_state_chain import power
from idleband.kernels.whittle import whittle
from idleband.policies.last_observation import NEVER, LastObservation, age_of, new_last_observation, saw
from idleband.policies.protocol import ESTIMATE, Setup


class Sides(NamedTuple):
    last_observation: LastObservation  # states are 1 (good) or 0
    total: Floats  # (K, 2) rewards earned in each, one imagined included
    slots: Floats  # (K, 2)


def new_sides(setup: Setup) -> Sides:
    K, S = setup.h.shape
    has = np.arange(S) < setup.states[:, None]
    total = np.tile([setup.low, setup.high], (K, 1))
    if not setup.threshold:
        for side in (0, 1):
            states = has & (setup.good == bool(side))
            mean = np.where(states, setup.h, 0.0).sum(axis=1) / np.maximum(states.sum(axis=1), 1)
            total[:, side] = np.where(states.any(axis=1), mean, total[:, side])
    return Sides(new_last_observation(K), total, np.ones((K, 2)))


@jit
def side_of(setup: Setup, k: int, s: int) -> int:
    return 1 if setup.good[k, s] else 0


@jit
def index(setup: Setup, sides: Sides, k: int, t: int, sensed: int, p01: float, p10: float) -> float:
    """Whittle's index of channel k in slot t."""
    bad, good = sides.total[k, 0] / sides.slots[k, 0], sides.total[k, 1] / sides.slots[k, 1]
    if sensed >= 0:
        return good if side_of(setup, k, sensed) == 1 else bad
    rho = 1.0 - p01 - p10
    w = p01 / (p01 + p10)
    if sides.last_observation.state[k] != NEVER:
        w += power(rho, float(age_of(sides.last_observation, k, t)), True) * (sides.last_observation.state[k] - w)
    return bad + (good - bad) * whittle(p01, p10, w)


@jit
def observe(sides: Sides, k: int, side: int, r: float, t: int) -> None:
    """Channel k was found good (1) or not in slot t and paid r."""
    sides.total[k, side] += r
    sides.slots[k, side] += 1.0
    saw(sides.last_observation, k, side, t)


@jit
def explain_sides(sides: Sides, k: int, terms: Floats) -> None:
    total = sides.total[k, 0] + sides.total[k, 1]
    terms[k, ESTIMATE] = total / (sides.slots[k, 0] + sides.slots[k, 1])


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
