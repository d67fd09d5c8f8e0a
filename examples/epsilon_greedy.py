"""A user's policy: epsilon-greedy, the channels with the largest means or, with probability epsilon, random ones.

idleband run S1 --policy examples/epsilon_greedy.py:epsilon-greedy --policy mp-ucb --out results/mine
"""

from typing import NamedTuple

import numpy as np

import idleband as ib


class Params(NamedTuple):
    epsilon: float = 0.05


class State(NamedTuple):
    total: np.ndarray  # (K,) rewards earned
    plays: np.ndarray  # (K,)


@ib.register(name="epsilon-greedy")
class EpsilonGreedy:
    """Play the channels with the largest mean rewards, or random channels with probability epsilon."""

    Params = Params

    def init(setup):
        return State(np.zeros(setup.K), np.zeros(setup.K))

    def select(setup, state, slot, picks):
        explore = ib.random.uniform(slot.rng) < setup.params.epsilon
        for k in range(setup.K):
            guess = state.total[k] / max(state.plays[k], 1.0)
            slot.indices[k] = ib.random.uniform(slot.rng) if explore else guess
        return ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)

    def update(setup, state, slot, feedback):
        state.total[feedback.channel] += feedback.reward
        state.plays[feedback.channel] += 1.0
