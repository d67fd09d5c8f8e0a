"""What a station has seen of each channel: the state it was in last, and when."""

from typing import NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.policies.base import Ints

NEVER = -1


class Sight(NamedTuple):
    state: Ints  # (K,) seen last, or NEVER
    slot: Ints  # (K,) in which that was


def new_sight(K: int) -> Sight:
    return Sight(np.full(K, NEVER, np.int64), np.zeros(K, np.int64))


@jit
def age_of(sight: Sight, k: int, t: int) -> int:
    """How many slots ago channel k was seen, in slot t."""
    return t - sight.slot[k]


@jit
def is_news(sight: Sight, k: int, t: int) -> bool:
    """Whether slot t is later than what is known of channel k: feedback may come late, and in any order."""
    return sight.state[k] == NEVER or t > sight.slot[k]


@jit
def saw(sight: Sight, k: int, s: int, t: int) -> None:
    """Channel k was in state s in slot t; what is older than what is known already is not kept."""
    if is_news(sight, k, t):
        sight.state[k] = s
        sight.slot[k] = t
