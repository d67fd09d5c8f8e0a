"""MP-TS-Episodes: Thompson sampling in episodes on transition probabilities.

Jung, Abeille and Tewari, "Thompson sampling in non-episodic restless bandits", 2019 (after Jung and Tewari, NeurIPS
2019): at the start of an episode each channel's p01 and p10 are drawn from their posterior, and the best policy for
them is followed to its end; each episode is one slot longer than the one before. The prior is uniform on a grid, and
observations any number of slots apart count (ages beyond 32 share bins: `two_state_chain.py`). As there, the best policy is
stood in for by Whittle's index. Departure: their grid has nine values from 0.1 to 0.9; S1 has chances of 0.01, so this
one has `grid` values from 0.004 to 0.996, evenly spaced in their logits.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.kernels.selection import top_m
from idleband.policies import binary_whittle
from idleband.policies.binary_whittle import Sides, explain_sides, index, new_sides, observe, side_of
from idleband.policies.last_observation import NEVER, age_of, is_news
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

WIDEST = 5.5  # logit of the largest chance on the grid


class Params(NamedTuple):
    grid: Annotated[int, AtLeast(2, 128), "number of grid values for p01 and for p10"] = 32


class State(NamedTuple):
    sides: Sides
    chances: Floats  # (G,) on the grid
    likelihood: Floats  # (BINS, 2, 2, G*G) log of P(side j so long after side i), by p01 and p10
    posterior: Floats  # (K, G*G) log, not normalised
    p: Floats  # (K, 2) p01 and p10 of this episode
    episode: Ints  # (2,) slots that are left of it, and its length


def init(setup: Setup) -> State:
    chances = 1.0 / (1.0 + np.exp(-np.linspace(-WIDEST, WIDEST, setup.params.grid)))
    p01, p10 = (axis.ravel() for axis in np.meshgrid(chances, chances, indexing="ij"))
    pi, rho = p01 / (p01 + p10), 1.0 - p01 - p10
    likelihood = np.zeros((two_state_chain.BINS, 2, 2, len(p01)))
    for b, age in enumerate(two_state_chain.AGES):
        passed = np.array([two_state_chain.power(r, age, b < two_state_chain.EXACT) for r in rho.tolist()])
        for i in (0, 1):
            good = np.clip(pi + passed * (i - pi), 1e-12, 1.0 - 1e-12)
            likelihood[b, i] = np.log([1.0 - good, good])
    return State(
        sides=new_sides(setup),
        chances=chances,
        likelihood=likelihood,
        posterior=np.zeros((setup.K, len(p01))),
        p=np.full((setup.K, 2), 0.5),
        episode=np.zeros(2, np.int64),
    )


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
        slot.indices[k] = index(setup, state.sides, k, slot.t, slot.sensed[k], p01, p10)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def draw(state: State, rng: Rng, k: int) -> None:
    """A cell of the grid for channel k, by its posterior."""
    posterior, G = state.posterior, state.chances.size
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
    state.p[k, 0], state.p[k, 1] = state.chances[cell // G], state.chances[cell % G]


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    side, last_observation = side_of(setup, k, s), state.sides.last_observation
    if last_observation.state[k] != NEVER and is_news(last_observation, k, slot.t):
        b, before = two_state_chain.bin_of(age_of(last_observation, k, slot.t)), last_observation.state[k]
        for g in range(state.posterior.shape[1]):
            state.posterior[k, g] += state.likelihood[b, before, side, g]
    observe(state.sides, k, side, r, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_sides(state.sides, k, terms)


terms = binary_whittle.terms
