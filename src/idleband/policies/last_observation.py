"""What a station has seen of each channel: the state it was in last, and when."""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Ints
from idleband.kernels.compile import jit

NEVER = -1


class LastObservation(NamedTuple):
    state: Ints  # (K,) seen last, or NEVER
    slot: Ints  # (K,) in which that was


def new_last_observation(K: int) -> LastObservation:
    return LastObservation(np.full(K, NEVER, np.int64), np.zeros(K, np.int64))


@jit
def age_of(last_observation: LastObservation, k: int, t: int) -> int:
    """How many slots ago channel k was seen, in slot t."""
    return t - last_observation.slot[k]


@jit
def is_news(last_observation: LastObservation, k: int, t: int) -> bool:
    """Whether slot t is later than what is known of channel k: feedback may come late, and in any order."""
    return last_observation.state[k] == NEVER or t > last_observation.slot[k]


@jit
def saw(last_observation: LastObservation, k: int, s: int, t: int) -> None:
    """Channel k was in state s in slot t; what is older than what is known already is not kept."""
    if is_news(last_observation, k, t):
        last_observation.state[k] = s
        last_observation.slot[k] = t
