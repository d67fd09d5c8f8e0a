"""A policy of one's own: mostly the best means so far, sometimes anything.

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
    """The best means so far; one slot in 1/epsilon, channels at random."""

    Params = Params

    def init(params, known):
        return State(np.zeros(known.K), np.zeros(known.K))

    def select(known, params, state, rng, slot, picks):
        explore = ib.uniform(rng) < params.epsilon
        for k in range(known.K):
            guess = state.total[k] / max(state.plays[k], 1.0)
            slot.indices[k] = ib.uniform(rng) if explore else guess
        return ib.top_m(slot.indices, slot.available, known.M, slot.scratch, picks)

    def update(known, params, state, rng, slot, k, s, r, n):
        state.total[k] += r
        state.plays[k] += 1.0
