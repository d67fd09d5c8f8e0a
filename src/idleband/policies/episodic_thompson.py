"""MP-TS-Episodes: episodic Thompson sampling of transition probabilities.

Jung, Abeille and Tewari, "Thompson sampling in non-episodic restless bandits", 2019 (after Jung and Tewari, NeurIPS
2019). At the start of an episode p01 and p10 of each channel are drawn from their posterior, and the best policy for
them is followed until the episode ends; each episode is one slot longer than the previous one. The prior is uniform on
a grid, and observations any number of slots apart are used (ages above 32 share bins: `two_state_chain.py`). As in the
paper, the Whittle index replaces the best policy. Difference: the paper's grid has nine values from 0.1 to 0.9; S1 has
probabilities of 0.01, so this grid has `grid` values from 0.004 to 0.996, evenly spaced in their logits.
"""

import math
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
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
from idleband.policies.last_observation import NEVER, age_of, is_news
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

MAX_LOGIT = 5.5  # logit of the largest probability on the grid


class Params(NamedTuple):
    grid: Annotated[int, AtLeast(2, 128), "number of grid values for p01 and for p10"] = 32


class State(NamedTuple):
    channels: BinaryChannels
    probabilities: Floats  # (G,) values of the grid
    likelihood: Floats  # (BINS, 2, 2, G*G) log P(state j after an age | state i), by p01 and p10
    posterior: Floats  # (K, G*G) log posterior, not normalised
    p: Floats  # (K, 2) p01 and p10 of this episode
    episode: Ints  # (2,) slots left in the episode, and its length


def init(setup: Setup) -> State:
    probabilities, likelihood = tables(setup.params.grid)
    return State(
        channels=new_binary_channels(setup),
        probabilities=probabilities,
        likelihood=likelihood,
        posterior=np.zeros((setup.K, likelihood.shape[3])),
        p=np.full((setup.K, 2), 0.5),
        episode=np.zeros(2, np.int64),
    )


@lru_cache(maxsize=4)
def tables(grid: int) -> tuple[Floats, Floats]:
    """Return the values of the grid and the likelihood of every pair of them, which all states share."""
    probabilities = 1.0 / (1.0 + np.exp(-np.linspace(-MAX_LOGIT, MAX_LOGIT, grid)))
    p01, p10 = (axis.ravel() for axis in np.meshgrid(probabilities, probabilities, indexing="ij"))
    pi, rho = p01 / (p01 + p10), 1.0 - p01 - p10
    likelihood = np.zeros((two_state_chain.BINS, 2, 2, len(p01)))
    for b, age in enumerate(two_state_chain.AGES):
        passed = np.array([two_state_chain.power(r, age, b < two_state_chain.EXACT) for r in rho.tolist()])
        for i in (0, 1):
            good = np.clip(pi + passed * (i - pi), 1e-12, 1.0 - 1e-12)
            likelihood[b, i] = np.log([1.0 - good, good])
    return probabilities, likelihood


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if state.episode[0] == 0:
        state.episode[1] += 1
        state.episode[0] = state.episode[1]
        for k in range(setup.K):
            draw(state, slot.rng, k)
    state.episode[0] -= 1
    for k in range(setup.K):
        p01, p10 = state.p[k, 0], state.p[k, 1]
        slot.indices[k] = index(setup, state.channels, k, slot.t, slot.sensed[k], p01, p10)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def draw(state: State, rng: Rng, k: int) -> None:
    """Draw p01 and p10 of channel k from their posterior."""
    posterior, G = state.posterior, state.probabilities.size
    highest = -np.inf
    for g in range(G * G):
        highest = max(highest, posterior[k, g])
    total = 0.0
    for g in range(G * G):
        posterior[k, g] -= highest
        total += math.exp(posterior[k, g])
    left = uniform(rng) * total
    cell = 0
    for g in range(G * G):
        left -= math.exp(posterior[k, g])
        if left >= 0.0:
            cell = min(g + 1, G * G - 1)
    state.p[k, 0], state.p[k, 1] = state.probabilities[cell // G], state.probabilities[cell % G]


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    good, last_observation = binary_state(setup, k, s), state.channels.last_observation
    if last_observation.state[k] != NEVER and is_news(last_observation, k, slot.t):
        b, before = two_state_chain.bin_of(age_of(last_observation, k, slot.t)), last_observation.state[k]
        for g in range(state.posterior.shape[1]):
            state.posterior[k, g] += state.likelihood[b, before, good, g]
    observe(state.channels, k, good, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean_reward(state.channels, k, terms)


terms = binary_whittle.terms
