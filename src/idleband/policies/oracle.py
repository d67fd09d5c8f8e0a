"""Oracles: they know the parameters, and differ in what they see and in how far they look ahead.

    oracle-static       the M largest mean rewards, always the same
    oracle-contextual   the M largest E[r | x], states at their stationary law
    oracle-belief       the M largest E[r | x, what was seen of the channel], no look-ahead
    oracle-whittle      Whittle's index of the same, which also counts what a look at the channel is worth later
    genie               the M largest rewards, seen before they are paid; nothing can beat it

The first two are equation 2 of Li, Li, Lu, Liu and Jin 2026 without and with contexts, as policies. No look-ahead is
best for identical positively correlated channels (Ahmad, Liu, Javidi, Zhao and Krishnamachari, "Optimality of myopic
sensing in multichannel opportunistic access", IEEE-IT 2009), and Whittle's index close to the best for others (Liu and
Zhao, "Indexability of restless bandit problems and optimality of Whittle index for dynamic multichannel access",
IEEE-IT 2010). Both see only what they play, so `bound` lies above them.

`whittle` is oracle-whittle without contexts: the perturbation enters by how often it spoils a channel.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from idleband.errors import InputError
from idleband.kernels import subsidy
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import base
from idleband.policies.base import MOST_BYTES, Floats, Ints, Known, OneOf, Rng, Slot, Truth
from idleband.policies.sight import Sight, age_of, new_sight, saw

VALUES = ("static", "contextual", "belief", "whittle", "realised")
STATIC, CONTEXTUAL, BELIEF, WHITTLE, REALISED = range(5)


# What an oracle may know goes with its name, and so do these.
FIXED = frozenset(["value", "contexts"])


class Params(NamedTuple):
    value: Annotated[int, OneOf(*VALUES), "what a channel is ranked by"] = BELIEF
    contexts: Annotated[bool, "whether the perturbation of the slot is known"] = True


class State(NamedTuple):
    sight: Sight
    mean: Floats  # (K,) mean rewards
    beliefs: Floats  # (K, S + 1, A, S) law of the state by the state seen last and age; the last row: never seen
    indices: Floats  # (K, S + 1, A, L) Whittle's index, else empty
    pay: Floats  # (K, L, S) reward in a state at each level of the perturbation
    level_end: Floats  # (K, L)


def init(params: Params, known: Known, truth: Truth) -> State:
    pay, chance, ends = truth.pay, truth.level_chance, truth.level_end
    if not params.contexts:  # one level: what a state pays on average
        pay = np.einsum("kl,kls->ks", chance, pay)[:, None, :]
        chance, ends = np.ones((known.K, 1)), np.full((known.K, 1), np.finfo(float).max)
    looks_back = params.value in (BELIEF, WHITTLE)
    K, S, L = known.K, known.h.shape[1], pay.shape[1]
    A = subsidy.ages_to_forget(truth.P) if looks_back else 1
    size = 8 * K * (S + 1) * A * (S + L)
    if size > MOST_BYTES:
        raise InputError(
            f"policy oracle-{VALUES[params.value]}: its tables would take {size / 2**30:,.0f} GiB for {K} channels"
            f" of up to {S} states; must be at most {MOST_BYTES // 2**30} GiB"
        )
    world = subsidy.channels(truth.P, pay, chance, A)
    # A channel that was never seen: its state has the stationary law, at every age.
    unseen = np.broadcast_to(truth.stationary[:, None, None, :], (K, 1, A, S))
    indices = np.zeros((K, 1, 1, 1))
    if params.value == WHITTLE:
        found = subsidy.whittle(world, float(pay.min()), float(pay.max()))
        # Of such a channel the index is that of the state in which it is most alike: at the last age.
        stationary = np.einsum("ks,ksl->kl", truth.stationary, found[:, :, -1])
        indices = np.concatenate([found, np.tile(stationary[:, None, None, :], (1, 1, A, 1))], axis=1)
    return State(
        sight=new_sight(known.K),
        mean=truth.mean,
        beliefs=np.ascontiguousarray(np.concatenate([world.beliefs, unseen], axis=1)),
        indices=indices,
        pay=world.pay,
        level_end=np.ascontiguousarray(ends),
    )


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    S, A = known.h.shape[1], state.beliefs.shape[2]
    for k in range(known.K):
        n = slot.n[k]
        level = 0
        while n >= state.level_end[k, level]:
            level += 1
        sensed = slot.sensed[k]
        s = state.sight.state[k]
        row = s if s >= 0 else S
        a = min(age_of(state.sight, k, slot.t), A) - 1 if s >= 0 else A - 1
        if params.value == STATIC:
            index = state.mean[k]
        elif sensed >= 0 and params.value != CONTEXTUAL:  # nothing is hidden, and nothing learned by looking
            index = reward_of(known, params, state, k, level, sensed, n)
        elif params.value == WHITTLE:
            index = state.indices[k, row, a, level]
        else:
            index = 0.0
            for j in range(S):
                chance = state.beliefs[k, S if params.value == CONTEXTUAL else row, a, j]
                index += chance * reward_of(known, params, state, k, level, j, n)
        slot.indices[k] = index
    return top_m(slot.indices, slot.available, known.M, slot.scratch, picks)


@jit
def reward_of(known: Known, params: Params, state: State, k: int, level: int, s: int, n: float) -> float:
    """What channel k pays in a state; exactly, where the perturbation is known and a level is only about it."""
    if known.threshold or not params.contexts:
        return state.pay[k, level, s]
    return known.h[k, s] - n


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    saw(state.sight, k, s, slot.t)


@jit
def explain(known: Known, params: Params, state: State, slot: Slot, k: int, terms: Floats) -> None:
    S, A = known.h.shape[1], state.beliefs.shape[2]
    s = state.sight.state[k]
    row = s if s >= 0 and A > 1 else S  # one age alone: it does not look back
    a = min(age_of(state.sight, k, slot.t), A) - 1 if s >= 0 else A - 1
    terms[k, base.ESTIMATE] = state.mean[k]
    terms[k, base.BELIEF] = 0.0
    for j in range(S):
        if known.good[k, j]:
            terms[k, base.BELIEF] += state.beliefs[k, row, a, j]


def terms(values: dict[str, Any], known: Known) -> tuple[str, str]:
    return "known mean reward", "-"
