"""What a user learns of each channel from its own plays, and the KL-UCB index computed from it.

The index is max{q : T_k kl(mean, q) <= ln t} of Garivier and Cappe (COLT 2011), with rewards rescaled to [0, 1]. Ties
are broken at random, because users who break them alike would collide.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats
from idleband.kernels.compile import jit
from idleband.kernels.kl import kl_upper, negative_entropy
from idleband.kernels.rng import Rng, uniform
from idleband.kernels.selection import gather, mth_largest
from idleband.policies.protocol import Feedback, Setup, Slot, to_unit
from idleband.scenario.reward import ADDITIVE, THRESHOLD, reward

TIE = 1e-9  # random part of an index
UNPLAYED = 2.0  # index of a channel without plays, above those of all others


class UserStatistics(NamedTuple):
    total: Floats  # (K,) observed rewards on [0, 1]
    plays: Floats  # (K,) how many
    entropy: Floats  # (K,) negative entropy of their mean
    last: Floats  # (K,) last index, where the next search starts


def new_statistics(K: int) -> UserStatistics:
    return UserStatistics(np.zeros(K), np.zeros(K), np.zeros(K), np.ones(K))


@jit
def fill_indices(statistics: UserStatistics, t: int, rng: Rng, indices: Floats) -> None:
    """Write the index of each channel."""
    log_t = math.log(max(float(t), 1.0))
    for k in range(indices.size):
        n = statistics.plays[k]
        if n == 0.0:
            indices[k] = UNPLAYED + uniform(rng)
            continue
        mean = statistics.total[k] / n
        statistics.last[k] = kl_upper(mean, log_t / n, statistics.last[k], statistics.entropy[k])
        indices[k] = statistics.last[k] + TIE * uniform(rng)


@jit
def learn(statistics: UserStatistics, setup: Setup, k: int, r: float) -> None:
    """Learn from a reward of channel k."""
    statistics.total[k] += to_unit(setup, r)
    statistics.plays[k] += 1.0
    statistics.entropy[k] = negative_entropy(statistics.total[k] / statistics.plays[k])


@jit
def learn_alone(statistics: UserStatistics, setup: Setup, feedback: Feedback) -> None:
    """Learn what the channel would have paid to a user alone on it: nothing, if that was not observed.

    After a collision it is the reward of the observed state under the measured perturbation, or without one if it is
    not measured. How well the channel suits the user does not show in it.
    """
    k = feedback.channel
    if feedback.collision <= 0:
        learn(statistics, setup, k, feedback.reward)
    elif feedback.state >= 0:
        n = feedback.perturbation if setup.measured else 0.0
        kind = THRESHOLD if setup.threshold else ADDITIVE
        learn(statistics, setup, k, reward(kind, setup.h[k, feedback.state], setup.good[k, feedback.state], n))


@jit
def rank_threshold(indices: Floats, available: Flags, rank: int, scratch: Floats) -> float:
    """Return the rank-th largest index of the available channels, from 1; the smallest one if there are fewer."""
    n = gather(indices, available, scratch)
    return mth_largest(scratch, n, min(rank, n))


@jit
def draw_channel(wanted: Floats, available: Flags, least: float, rng: Rng) -> int:
    """Return a random available channel whose value is at least `least`; -1 if there is none."""
    found, count = -1, 0
    for k in range(available.size):
        if available[k] and wanted[k] >= least:
            count += 1
            if uniform(rng) * count < 1.0:
                found = k
    return found


@jit
def draw_available(slot: Slot) -> int:
    """Return a random available channel; -1 if there is none."""
    return draw_channel(slot.indices, slot.available, -np.inf, slot.rng)
