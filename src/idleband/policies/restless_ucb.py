"""Restless-UCB: explore every channel, then commit to the Whittle index of optimistic transition probabilities.

Wang, Huang and Lui, "Restless-UCB, an efficient and low-complexity algorithm for online restless bandits", NeurIPS
2020. Each channel is played in successive slots until each of its states was followed by an observation in the next
slot m times, m = floor(T^(2/3)) + 1 with T = `slots`. Then its transition probabilities are fixed at

    p01 = estimate + r          p10 = estimate - r          r = sqrt(ln T / (2 m))

the most favourable values within the confidence interval: from every state a better one is reached earlier. From then
on channels are ranked by the Whittle index of these probabilities. The regret against the best policy is of order
T^(2/3).

The authors' code was looked up (Game.cpp in their repository "Restless-UCB": `Game_ReUCB` and `Estimate_UCB`): m, r,
the order of exploration and the Whittle index are as there. There p01 has no r added, because of an index that is out
of range; here it is added, as the paper says (from memory: the chains are of the birth-and-death kind, with states in
the order of their rewards). Our own:

  - Several plays: the M channels of lowest number that are not explored yet are played at once; places that are left go
    to explored channels, by index.
  - A channel with more than two states is good or not good, as in mp-whittle, and the reward of both is learned. In the
    authors' code the rewards of states are known.
  - `scale` multiplies T^(2/3). The paper has 1.
  - A state that is rare, or never left, cannot keep a channel in exploration for ever: it ends after T M / (2 K)
    observations of the channel, half of its share of all plays, and r is that of the observations there are.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import binary_whittle
from idleband.policies.binary_whittle import (
    BinaryChannels,
    binary_state,
    explain_mean_reward,
    index,
    new_binary_channels,
    observe,
)
from idleband.policies.last_observation import NEVER, age_of
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

MIN_PROBABILITY = 1e-9  # of p01, so that p01 and p10 are not both 0


class Params(NamedTuple):
    slots: Annotated[int, AtLeast(1, 10**9), "number of slots T that sets the length of the exploration"] = 100_000
    scale: Annotated[float, AtLeast(0.0, 1e3), "observations of each state to explore a channel, over T^(2/3)"] = 1.0


class State(NamedTuple):
    channels: BinaryChannels
    moves: Floats  # (K, 2, 2) number of transitions between successive slots
    has: Flags  # (K, 2) whether a channel has states that are not good, and that are good
    needed: Floats  # (2,) observations of each state, and of both together, after which a channel is explored
    explored: Flags  # (K,)
    p: Floats  # (K, 2) optimistic p01 and p10 of explored channels


def init(setup: Setup) -> State:
    states = np.arange(setup.h.shape[1]) < setup.states[:, None]
    T = float(setup.params.slots)
    return State(
        channels=new_binary_channels(setup),
        moves=np.zeros((setup.K, 2, 2)),
        has=np.stack([(states & (setup.good == good)).any(axis=1) for good in (False, True)], axis=1),
        needed=np.array([math.floor(setup.params.scale * T ** (2.0 / 3.0)) + 1.0, T * setup.M / (2.0 * setup.K)]),
        explored=np.zeros(setup.K, np.bool_),
        p=np.full((setup.K, 2), 0.5),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    for k in range(setup.K):
        if not state.explored[k] and enough(state, k):
            commit(setup, state, k)
        if state.explored[k]:
            p01, p10 = state.p[k, 0], state.p[k, 1]
            slot.indices[k] = index(setup, state.channels, k, slot.t, slot.sensed[k], p01, p10)
        else:  # equal values, so that the first M of these channels are played
            slot.indices[k] = np.inf
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def enough(state: State, k: int) -> bool:
    """Return whether channel k was observed often enough."""
    bad, good = state.moves[k, 0, 0] + state.moves[k, 0, 1], state.moves[k, 1, 0] + state.moves[k, 1, 1]
    if bad + good >= state.needed[1]:
        return True
    m = state.needed[0]
    return (bad >= m or not state.has[k, 0]) and (good >= m or not state.has[k, 1])


@jit
def commit(setup: Setup, state: State, k: int) -> None:
    """Fix the optimistic transition probabilities of channel k."""
    state.explored[k] = True
    for i in range(2):
        count = state.moves[k, i, 0] + state.moves[k, i, 1]
        estimate = state.moves[k, i, 1 - i] / count if count > 0.0 else 0.5
        radius = math.sqrt(math.log(setup.params.slots) / (2.0 * max(min(count, state.needed[0]), 1.0)))
        state.p[k, i] = max(0.0, estimate - radius) if i == 1 else min(1.0, max(MIN_PROBABILITY, estimate + radius))


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    good, last_observation = binary_state(setup, k, s), state.channels.last_observation
    if not state.explored[k] and last_observation.state[k] != NEVER and age_of(last_observation, k, slot.t) == 1:
        state.moves[k, last_observation.state[k], good] += 1.0
    observe(state.channels, k, good, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean_reward(state.channels, k, terms)


terms = binary_whittle.terms
