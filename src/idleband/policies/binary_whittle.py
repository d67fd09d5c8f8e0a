"""Two-state view of channels for the closed form of the Whittle index.

Every state of a channel counts as good (1) or not good (0). Used by policies that know or learn p01 and p10 only. The
mean reward in good slots and in other slots is learned, starting from one pseudo-observation without perturbation;
contexts are not used.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.two_state_chain import power
from idleband.kernels.whittle import whittle
from idleband.policies.last_observation import NEVER, LastObservation, age_of, new_last_observation, saw
from idleband.policies.protocol import ESTIMATE, Setup


class BinaryChannels(NamedTuple):
    last_observation: LastObservation  # states are 1 (good) or 0
    total: Floats  # (K, 2) rewards in each state, including one pseudo-observation
    slots: Floats  # (K, 2)


def new_binary_channels(setup: Setup) -> BinaryChannels:
    K, S = setup.h.shape
    has = np.arange(S) < setup.states[:, None]
    total = np.tile([setup.low, setup.high], (K, 1))
    if not setup.threshold:
        for good in (0, 1):
            states = has & (setup.good == bool(good))
            mean = np.where(states, setup.h, 0.0).sum(axis=1) / np.maximum(states.sum(axis=1), 1)
            total[:, good] = np.where(states.any(axis=1), mean, total[:, good])
    return BinaryChannels(new_last_observation(K), total, np.ones((K, 2)))


@jit
def binary_state(setup: Setup, k: int, s: int) -> int:
    return 1 if setup.good[k, s] else 0


@jit
def index(setup: Setup, channels: BinaryChannels, k: int, t: int, sensed: int, p01: float, p10: float) -> float:
    """Return the Whittle index of channel k in slot t."""
    bad, good = channels.total[k, 0] / channels.slots[k, 0], channels.total[k, 1] / channels.slots[k, 1]
    if sensed >= 0:
        return good if binary_state(setup, k, sensed) == 1 else bad
    rho = 1.0 - p01 - p10
    w = p01 / (p01 + p10)
    if channels.last_observation.state[k] != NEVER:
        w += power(rho, float(age_of(channels.last_observation, k, t)), True) * (channels.last_observation.state[k] - w)
    return bad + (good - bad) * whittle(p01, p10, w)


@jit
def observe(channels: BinaryChannels, k: int, good: int, r: float, t: int) -> None:
    """Record that channel k was good (1) or not (0) in slot t and returned reward r."""
    channels.total[k, good] += r
    channels.slots[k, good] += 1.0
    saw(channels.last_observation, k, good, t)


@jit
def explain_mean_reward(channels: BinaryChannels, k: int, terms: Floats) -> None:
    total = channels.total[k, 0] + channels.total[k, 1]
    terms[k, ESTIMATE] = total / (channels.slots[k, 0] + channels.slots[k, 1])


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
