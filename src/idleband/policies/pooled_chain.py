"""One two-state chain fitted to the observations of all channels: what to expect of a channel that is hardly known.

The modes of its p01 and p10 are the centre of a normal prior of the logits of each channel's p01 and p10. With many
channels and little time, learning every channel alone from a uniform prior is too slow.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels import two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.two_state_chain import Prior
from idleband.policies.protocol import Setup

PRECISION = 0.5  # of the logits of a channel around those of the pool: they differ by a factor of 4 in the odds
FRESH = 1.1  # factor by which observations grow before the chain is fitted again


class PooledChain(NamedTuple):
    """Counts of pairs of observations of all two-state channels, and the fitted chain. State 1 is good."""

    pairs: Floats  # (1, BINS, 2, 2), as in `belief_state.Chains`
    seen: Floats  # (2,) number of pairs, and number at which the chain is fitted again
    mode: Floats  # (1, 2) logits of p01 and p10
    spread: Floats  # (1, 3) root of their covariance


def new_pooled_chain() -> PooledChain:
    return PooledChain(np.zeros((1, two_state_chain.BINS, 2, 2)), np.zeros(2), np.zeros((1, 2)), np.ones((1, 3)))


@jit
def prior_of(setup: Setup, pool: PooledChain, k: int) -> Prior:
    """Return the prior of channel k. In a channel whose state 0 is the good one, p01 and p10 are exchanged."""
    if setup.good[k, 0]:
        return pool.mode[0, 1], pool.mode[0, 0], PRECISION
    return pool.mode[0, 0], pool.mode[0, 1], PRECISION


@jit
def add_pair(pool: PooledChain, ages: Floats, age: int, before: bool, now: bool) -> None:
    """Record that a channel was good or not, and `age` slots later good or not."""
    pool.pairs[0, two_state_chain.bin_of(age), 1 if before else 0, 1 if now else 0] += 1.0
    pool.seen[0] += 1.0
    if pool.seen[0] >= pool.seen[1]:
        two_state_chain.fit(pool.pairs, ages, 0, pool.mode, pool.spread)
        pool.seen[1] = FRESH * pool.seen[0] + 1.0
