"""MP-TS-Episodes: episodic Thompson sampling of transition probabilities.

Jung, Abeille and Tewari, "Thompson sampling in non-episodic restless bandits", 2019 (after Jung and Tewari, NeurIPS
2019). At the start of an episode p01 and p10 of each channel are drawn from their posterior, and the best policy for
them is followed until the episode ends. As in their paper, the Whittle index replaces the best policy. An episode ends
after a slot in which

    it is one slot longer than the previous episode was, or
    the number of plays of a channel at one last state and age is at least twice what it was when the episode began.

The prior is uniform on a grid, and observations any number of slots apart are used (ages above 32 share bins, here and
in the second rule: `two_state_chain.py`). Difference: the paper's grid has nine values from 0.1 to 0.9; S1 has
probabilities of 0.01, so this grid has `grid` values from 0.004 to 0.996, evenly spaced in their logits. A channel that
was never observed has no last state, so its first play does not count; the authors assume a state in which it begins.

The rule that ends an episode was looked up in the authors' code
(github.com/YoungHJung/ThompsonSamplinginRestlessBandits, ThompsonSamplingDE.py, with its `min_len` of 0): both "at
least twice", where the paper of the rule (Ouyang, Gagrani, Nayyar and Jain, NeurIPS 2017; from memory) has "more than
twice", and the length of the previous episode, which may have been cut short.
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
NEGLIGIBLE = -40.0  # log-probability, relative to the largest, of cells that are never drawn; e^-40 = 4e-18


class Params(NamedTuple):
    grid: Annotated[int, AtLeast(2, 128), "number of grid values for p01 and for p10"] = 32


class State(NamedTuple):
    channels: BinaryChannels
    probabilities: Floats  # (G,) values of the grid
    likelihood: Floats  # (BINS, 2, 2, G*G) log P(state j after an age | state i), by p01 and p10
    posterior: Floats  # (K, G*G) log posterior, not normalised
    p: Floats  # (K, 2) p01 and p10 of this episode
    episode: Ints  # (3,) slots left in the episode, slots since it began, and its number
    plays: Ints  # (K, 2, BINS) plays at a last state and age
    episode_of: Ints  # (K, 2, BINS) latest episode with such a play
    plays_before: Ints  # (K, 2, BINS) such plays before that episode


def init(setup: Setup) -> State:
    probabilities, likelihood = tables(setup.params.grid)
    return State(
        channels=new_binary_channels(setup),
        probabilities=probabilities,
        likelihood=likelihood,
        posterior=np.zeros((setup.K, likelihood.shape[3])),
        p=np.full((setup.K, 2), 0.5),
        episode=np.zeros(3, np.int64),
        plays=np.zeros((setup.K, 2, two_state_chain.BINS), np.int64),
        episode_of=np.zeros((setup.K, 2, two_state_chain.BINS), np.int64),
        plays_before=np.zeros((setup.K, 2, two_state_chain.BINS), np.int64),
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
        state.episode[0] = state.episode[1] + 1
        state.episode[1] = 0
        state.episode[2] += 1
        for k in range(setup.K):
            draw(state, slot.rng, k)
    state.episode[0] -= 1
    state.episode[1] += 1
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
        if posterior[k, g] > NEGLIGIBLE:
            total += math.exp(posterior[k, g])
    left = uniform(rng) * total
    cell = 0
    for g in range(G * G):
        if posterior[k, g] > NEGLIGIBLE:
            cell = g
            left -= math.exp(posterior[k, g])
            if left < 0.0:
                break
    state.p[k, 0], state.p[k, 1] = state.probabilities[cell // G], state.probabilities[cell % G]


@jit
def count_play(state: State, k: int, before: int, b: int) -> None:
    """Count a play of channel k at a last state and bin of ages; end the episode if the number has doubled in it."""
    if state.episode_of[k, before, b] != state.episode[2]:
        state.episode_of[k, before, b] = state.episode[2]
        state.plays_before[k, before, b] = state.plays[k, before, b]
    state.plays[k, before, b] += 1
    if state.plays[k, before, b] >= 2 * state.plays_before[k, before, b]:
        state.episode[0] = 0


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    good, last_observation = binary_state(setup, k, s), state.channels.last_observation
    if last_observation.state[k] != NEVER and is_news(last_observation, k, slot.t):
        b, before = two_state_chain.bin_of(age_of(last_observation, k, slot.t)), last_observation.state[k]
        for g in range(state.posterior.shape[1]):
            state.posterior[k, g] += state.likelihood[b, before, good, g]
        count_play(state, k, before, b)
    observe(state.channels, k, good, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean_reward(state.channels, k, terms)


terms = binary_whittle.terms
