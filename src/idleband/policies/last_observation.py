"""The last observed state of each channel and the slot of the observation."""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Ints
from idleband.kernels.compile import jit

NEVER = -1


class LastObservation(NamedTuple):
    state: Ints  # (K,) last observed state, or NEVER
    slot: Ints  # (K,) slot of that observation


def new_last_observation(K: int) -> LastObservation:
    return LastObservation(np.full(K, NEVER, np.int64), np.zeros(K, np.int64))


@jit
def age_of(last_observation: LastObservation, k: int, t: int) -> int:
    """Return the number of slots from the last observation of channel k to slot t."""
    return t - last_observation.slot[k]


@jit
def is_news(last_observation: LastObservation, k: int, t: int) -> bool:
    """Return whether slot t is later than the last observation of channel k; feedback may arrive in any order."""
    return last_observation.state[k] == NEVER or t > last_observation.slot[k]


@jit
def saw(last_observation: LastObservation, k: int, s: int, t: int) -> None:
    """Record that channel k was in state s in slot t, unless a later observation is known."""
    if is_news(last_observation, k, t):
        last_observation.state[k] = s
        last_observation.slot[k] = t
