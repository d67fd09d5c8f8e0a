"""Every channel taken as one of two states, good or not, whatever it has: what Whittle's closed form is about.

Shared by the peers that know or learn p01 and p10 and nothing else. What a channel pays on average in a good slot and
in another is learned from rewards, beginning with one imagined slot without perturbation; contexts are not used.
"""

from typing import Any, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.two_state import power
from idleband.kernels.whittle import whittle
from idleband.policies.base import ESTIMATE, Floats, Known
from idleband.policies.sight import NEVER, Sight, age_of, new_sight, saw


class Sides(NamedTuple):
    sight: Sight  # states are 1 (good) or 0
    total: Floats  # (K, 2) rewards earned in each, one imagined included
    slots: Floats  # (K, 2)


def new_sides(known: Known) -> Sides:
    K, S = known.h.shape
    has = np.arange(S) < known.states[:, None]
    total = np.tile([known.low, known.high], (K, 1))
    if not known.threshold:
        for side in (0, 1):
            states = has & (known.good == bool(side))
            mean = np.where(states, known.h, 0.0).sum(axis=1) / np.maximum(states.sum(axis=1), 1)
            total[:, side] = np.where(states.any(axis=1), mean, total[:, side])
    return Sides(new_sight(K), total, np.ones((K, 2)))


@jit
def side_of(known: Known, k: int, s: int) -> int:
    return 1 if known.good[k, s] else 0


@jit
def index(known: Known, sides: Sides, k: int, t: int, sensed: int, p01: float, p10: float) -> float:
    """Whittle's index of channel k in slot t."""
    bad, good = sides.total[k, 0] / sides.slots[k, 0], sides.total[k, 1] / sides.slots[k, 1]
    if sensed >= 0:
        return good if side_of(known, k, sensed) == 1 else bad
    rho = 1.0 - p01 - p10
    w = p01 / (p01 + p10)
    if sides.sight.state[k] != NEVER:
        w += power(rho, float(age_of(sides.sight, k, t)), True) * (sides.sight.state[k] - w)
    return bad + (good - bad) * whittle(p01, p10, w)


@jit
def observe(sides: Sides, k: int, side: int, r: float, t: int) -> None:
    """Channel k was found good (1) or not in slot t and paid r."""
    sides.total[k, side] += r
    sides.slots[k, side] += 1.0
    saw(sides.sight, k, side, t)


@jit
def explain_sides(sides: Sides, k: int, terms: Floats) -> None:
    total = sides.total[k, 0] + sides.total[k, 1]
    terms[k, ESTIMATE] = total / (sides.slots[k, 0] + sides.slots[k, 1])


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    return "mean reward", "-"
