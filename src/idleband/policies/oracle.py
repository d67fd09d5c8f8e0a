"""Oracles: policies that know the true parameters, with different observations and horizons.

    oracle-static       the M largest mean rewards
    oracle-contextual   the M largest E[r | x], states at their stationary distribution
    oracle-belief       the M largest E[r | x, past observations of the channel] (myopic)
    oracle-whittle      Whittle index of the same, which includes the value of observing the state
    genie               the M largest rewards of the slot; no policy earns more

The first two are equation 2 of Li, Li, Lu, Liu and Jin 2026 without and with contexts, as policies. The myopic policy
is optimal for identical positively correlated channels: for one play per slot by Ahmad, Liu, Javidi, Zhao and
Krishnamachari, "Optimality of myopic sensing in multichannel opportunistic access", IEEE-IT 2009, and for several by
Ahmad and Liu, "Multi-channel opportunistic access: a case of restless bandits with multiple plays", Allerton 2009. The
Whittle index is close to optimal for others (Liu and Zhao, "Indexability of restless bandit problems and optimality of
Whittle index for dynamic multichannel access", IEEE-IT 2010). Both observe played channels only, so the upper bound of
the scenario holds for them.

`whittle` is oracle-whittle without contexts: the perturbation enters through its distribution.

Of channels with equal indices the lowest is selected. Rewards expected from different beliefs may be equal except for
rounding errors, as where every state has the same reward; oracle-belief rounds them (`rounded`).

With noise, oracles know f(x) and the probabilities that follow from it; the genie alone knows the perturbation.
"""

import math
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels import whittle_lagrangian
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import protocol
from idleband.policies.last_observation import LastObservation, age_of, new_last_observation, saw
from idleband.policies.parameters import OneOf
from idleband.policies.protocol import MAX_BYTES, Feedback, Setup, Slot, Truth
from idleband.scenario.noise import below
from idleband.scenario.reward import HIGH, LOW

STEP = 2.0**-40  # of the span of the rewards; expected rewards are rounded to multiples of it

MAX_KEPT = 2**26  # bytes of tables that are kept for other replications
VALUES = ("static", "contextual", "belief", "whittle", "realised")
STATIC, CONTEXTUAL, BELIEF, WHITTLE, REALISED = range(5)


# These parameters define the oracles and cannot be changed.
FIXED = frozenset(["value", "contexts"])


class Params(NamedTuple):
    value: Annotated[int, OneOf(*VALUES), "quantity by which channels are ranked"] = BELIEF
    contexts: Annotated[bool, "whether the perturbation of the slot is known"] = True


class State(NamedTuple):
    last_observation: LastObservation
    mean: Floats  # (K,) mean rewards
    beliefs: Floats  # (K, S + 1, A, S) belief by last observed state and age; last row: never observed
    indices: Floats  # (K, S + 1, A, L) Whittle index; empty for other oracles
    pay: Floats  # (K, L, S) reward in a state at each level of the perturbation
    level_end: Floats  # (K, L)
    noise: float  # standard deviation of the noise; 0 for the genie, which observes it


def init(setup: Setup, truth: Truth) -> State:
    value, pay, probability, ends = setup.params.value, truth.pay, truth.level_probability, truth.level_end
    if value == WHITTLE:  # rounded, because a drawn theta has its probability to about 1e-13: replications share tables
        probability = probability.round(10)
    if not setup.params.contexts:  # one level: the mean reward of a state
        pay = np.einsum("kl,kls->ks", probability, pay)[:, None, :]
        probability, ends = np.ones((setup.K, 1)), np.full((setup.K, 1), np.finfo(float).max)
    K, S, L = setup.K, setup.h.shape[1], pay.shape[1]
    chains = truth.P.tobytes(), truth.stationary.tobytes()
    A = _ages(chains[0], (K, S, S)) if value in (BELIEF, WHITTLE) else 1
    size = 8 * K * (S + 1) * A * (S + L)
    if size > MAX_BYTES:
        raise InputError(
            f"policy oracle-{VALUES[value]}: its tables would take {size / 2**30:,.0f} GiB for {K}"
            f" channels of up to {S} states; must be at most {MAX_BYTES // 2**30} GiB"
        )
    kept = size <= MAX_KEPT
    beliefs = (_beliefs if kept else _beliefs.__wrapped__)(*chains, (K, S, A))
    indices = np.zeros((K, 1, 1, 1))
    if value == WHITTLE:
        problem = *chains, pay.tobytes(), probability.tobytes(), (K, S, A, L)
        indices = (_indices if kept else _indices.__wrapped__)(*problem)
    return State(
        last_observation=new_last_observation(setup.K),
        mean=truth.mean,
        beliefs=beliefs,
        indices=indices,
        pay=np.ascontiguousarray(pay, float),
        level_end=np.ascontiguousarray(ends),
        noise=0.0 if setup.params.value == REALISED else truth.noise,
    )


@lru_cache(maxsize=16)
def _ages(P: bytes, shape: tuple[int, ...]) -> int:
    return whittle_lagrangian.ages_to_forget(np.frombuffer(P).reshape(shape))


@lru_cache(maxsize=4)
def _beliefs(P: bytes, stationary: bytes, shape: tuple[int, int, int]) -> Floats:
    """Return the beliefs by last observed state and age, and those of a channel that was never observed."""
    K, S, A = shape
    beliefs = whittle_lagrangian.beliefs(np.frombuffer(P).reshape(K, S, S), A)
    # A channel that was never observed has the stationary distribution at every age.
    unseen = np.broadcast_to(np.frombuffer(stationary).reshape(K, 1, 1, S), (K, 1, A, S))
    return np.ascontiguousarray(np.concatenate([beliefs, unseen], axis=1))


@lru_cache(maxsize=4)
def _indices(P: bytes, stationary: bytes, pay: bytes, probability: bytes, shape: tuple[int, int, int, int]) -> Floats:
    """Return the Whittle indices by last observed state and age, and those of a channel that was never observed."""
    K, S, A, L = shape
    rewards, shares = np.frombuffer(pay).reshape(K, L, S), np.frombuffer(probability).reshape(K, L)
    world = whittle_lagrangian.channels(np.frombuffer(P).reshape(K, S, S), rewards, shares, A)
    found = whittle_lagrangian.whittle(world, float(rewards.min()), float(rewards.max()))
    # The index of a channel that was never observed is the mean, over the stationary distribution, of those at the last
    # age.
    unseen = np.einsum("ks,ksl->kl", np.frombuffer(stationary).reshape(K, S), found[:, :, -1])
    return np.concatenate([found, np.tile(unseen[:, None, None, :], (1, 1, A, 1))], axis=1)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    S, A = setup.h.shape[1], state.beliefs.shape[2]
    for k in range(setup.K):
        n = slot.perturbations[k]
        level = 0
        while n >= state.level_end[k, level]:
            level += 1
        sensed = slot.sensed[k]
        s = state.last_observation.state[k]
        row = s if s >= 0 else S
        a = min(age_of(state.last_observation, k, slot.t), A) - 1 if s >= 0 else A - 1
        if setup.params.value == STATIC:
            index = state.mean[k]
        elif sensed >= 0 and setup.params.value != CONTEXTUAL:  # the state is known, so observing it has no value
            index = reward_of(setup, state, k, level, sensed, n)
        elif setup.params.value == WHITTLE:
            index = state.indices[k, row, a, level]
            if state.noise > 0.0 and setup.threshold and setup.params.contexts:  # f lies within its level
                for j in range(S):
                    off = reward_of(setup, state, k, level, j, n) - state.pay[k, level, j]
                    index += state.beliefs[k, row, a, j] * off
        else:
            index = 0.0
            for j in range(S):
                probability = state.beliefs[k, S if setup.params.value == CONTEXTUAL else row, a, j]
                index += probability * reward_of(setup, state, k, level, j, n)
            if setup.params.value == BELIEF:
                index = rounded(setup, index)
        slot.indices[k] = index
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def reward_of(setup: Setup, state: State, k: int, level: int, s: int, n: float) -> float:
    """Return the expected reward of channel k in a state, given n or f(x); without contexts the mean."""
    if not setup.params.contexts:
        return state.pay[k, level, s]
    if setup.threshold:
        return LOW + (HIGH - LOW) * below(1.0 if setup.good[k, s] else 0.0, n, state.noise)
    return setup.h[k, s] - n


@jit
def rounded(setup: Setup, value: float) -> float:
    """Round an expected reward so that rounding errors do not decide between equal ones."""
    step = STEP * setup.span
    return math.floor(value / step + 0.5) * step


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s = feedback.channel, feedback.state
    saw(state.last_observation, k, s, slot.t)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        S, A = setup.h.shape[1], state.beliefs.shape[2]
        s = state.last_observation.state[k]
        row = s if s >= 0 and A > 1 else S  # with one age the oracle does not use observations
        a = min(age_of(state.last_observation, k, slot.t), A) - 1 if s >= 0 else A - 1
        terms[k, protocol.ESTIMATE] = state.mean[k]
        terms[k, protocol.BELIEF] = 0.0
        for j in range(S):
            if setup.good[k, j]:
                terms[k, protocol.BELIEF] += state.beliefs[k, row, a, j]


def terms(setup: Setup) -> tuple[str, str]:
    return "known mean reward", "-"
