"""Reward of each state of each channel, learned without contexts, for the adaptive policies.

A posterior draw (Thompson sampling) from Beta(a, b), where a and b are the sums of the rewards earned in that state, on
[0, 1], and of 1 minus them. The prior is centred on the mean over all channels.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, beta
from idleband.policies.protocol import Feedback, Setup, to_unit

PRIOR = 2.0  # weight of the mean over all channels in the reward of a state, in plays


class StateRewards(NamedTuple):
    earned: Floats  # (K, S, 2) sum of the rewards earned in a state, on [0, 1], and of 1 minus them
    pooled: Floats  # (2, 2) the same over the busy and the good states of all channels, prior included
    pays: Floats  # (K, S) draw from the posterior of the reward in a state


def new_state_rewards(setup: Setup) -> StateRewards:
    shape = setup.h.shape
    return StateRewards(np.zeros((*shape, 2)), np.ones((2, 2)), np.zeros(shape))


@jit
def draw_rewards(setup: Setup, rewards: StateRewards, rng: Rng, k: int) -> None:
    """Draw the reward of each state of channel k from its posterior."""
    for s in range(setup.states[k]):
        f = 1 if setup.good[k, s] else 0
        mean = rewards.pooled[f, 0] / (rewards.pooled[f, 0] + rewards.pooled[f, 1])
        earned = rewards.earned[k, s]
        share = beta(rng, earned[0] + PRIOR * mean, earned[1] + PRIOR * (1.0 - mean))
        rewards.pays[k, s] = setup.low + (setup.high - setup.low) * share


@jit
def learn_reward(setup: Setup, rewards: StateRewards, feedback: Feedback) -> None:
    """Record the reward of a played channel."""
    k, s = feedback.channel, feedback.state
    f = 1 if setup.good[k, s] else 0
    share = to_unit(setup, feedback.reward)
    rewards.earned[k, s, 0] += share
    rewards.earned[k, s, 1] += 1.0 - share
    rewards.pooled[f, 0] += share
    rewards.pooled[f, 1] += 1.0 - share
