"""MP-LUCB: a linear model of the perturbation, and a bound on it, inside the index.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, Algorithm 1. With x the context of channel k, theta_k = A_k^-1 b_k:

    n_hat = theta_k . x          delta = beta sqrt(x' A_k^-1 x)          index = base - n_hat + delta

Printed as it is, the algorithm cannot learn and leaves several points open; every such point is a parameter here, and
three names are three settings of them: `mp-lucb` (Algorithm 1 as meant), `mp-lucb-rca` (in RCA's frame, with the text's
pessimistic width) and `mp-lucb-printed` (to the letter).
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.kernels.ridge import learn, predict, width_squared
from idleband.kernels.selection import top_m
from idleband.policies.base import AtLeast, Flags, Floats, Ints, Known, OneOf, Rng, Slot
from idleband.policies.regenerative import (
    IDLE,
    SB1,
    Blocks,
    block_index,
    drop,
    free_places,
    log_slots,
    new_blocks,
    observe,
    playing,
    start_blocks,
)

TARGETS, BASES = ("perturbation", "prediction", "reward"), ("mean", "index", "none")
PERTURBATION, PREDICTION, REWARD = range(3)
MEAN, INDEX, NO_BASE = range(3)
WIDTHS, ESTIMATES, FRAMES = ("optimistic", "pessimistic"), ("subtract", "add"), ("slot", "rca")
OPTIMISTIC, PESSIMISTIC = range(2)
SUBTRACT, ADD = range(2)
SLOT, RCA = range(2)
REPLACEMENTS = ("indicator", "reward", "off")
BY_INDICATOR, BY_REWARD, NEVER = range(3)


class Params(NamedTuple):
    beta: Annotated[float, AtLeast(0.0), "width of the confidence interval of the perturbation"] = 1.0
    ridge: Annotated[float, AtLeast(1e-9), "lambda in A = lambda I + sum x x'"] = 1.0
    # Departure: line 22 of Algorithm 1 feeds the model its own prediction, so theta stays zero (`prediction`).
    target: Annotated[int, OneOf(*TARGETS), "what is regressed on the context"] = PERTURBATION
    # Departure: eq. 4 has no state term although the argument before it needs one (`none` is as printed).
    base: Annotated[int, OneOf(*BASES), "state term: mean h(s), that plus the frame's width, or none"] = MEAN
    # Eq. 4 adds the width, the text argues from the largest perturbation.
    width: Annotated[int, OneOf(*WIDTHS), "sign of the width: + or -"] = OPTIMISTIC
    # Departure: eq. 4 has + n_hat, so that the highest perturbation comes first (`add`).
    estimate: Annotated[int, OneOf(*ESTIMATES), "sign of the estimated perturbation"] = SUBTRACT
    # Algorithm 1 ranks in every slot, section V-A has "the framework of RCA".
    frame: Annotated[int, OneOf(*FRAMES), "rank every slot, or where a block has ended"] = SLOT
    explore_first: Annotated[bool, "channels without data come first; else their base is 0"] = False
    # Lines 12-19: j is undefined there and the margin is h(s) - n_hat (`reward`).
    replace: Annotated[int, OneOf(*REPLACEMENTS), "margin by which outsiders replace candidates"] = BY_INDICATOR
    shared: Annotated[bool, "one model for all channels instead of one each"] = False
    L: Annotated[float, AtLeast(0.0), "width of the state term where base = index"] = 1.5
    synchronous: Annotated[bool, "frame rca: refill all places together"] = False


class State(NamedTuple):
    A_inv: Floats  # (K or 1, d, d) inverse of A, one model a channel or one for all
    theta: Floats  # (K or 1, d)
    total_h: Floats  # (K,) summed state reward h(s) over plays
    plays: Floats  # (K,)
    v: Floats  # (K, d) A^-1 x of this slot, kept from ranking for learning
    q: Floats  # (K,) x' A^-1 x, likewise
    ranked: Ints  # (K,) the slot that v and q are of
    n_hat: Floats  # (K,) theta . x of this slot
    predicted: Ints  # (K,) the slot that n_hat is of
    margin: Floats  # (K,) what a channel is expected to leave after its perturbation, for the replacement
    outside: Flags  # (K,) working array: available and not a candidate
    blocks: Blocks


def init(params: Params, known: Known) -> State:
    models = 1 if params.shared else known.K
    return State(
        A_inv=np.tile(np.eye(known.d) / params.ridge, (models, 1, 1)),
        theta=np.zeros((models, known.d)),
        total_h=np.zeros(known.K),
        plays=np.zeros(known.K),
        v=np.zeros((known.K, known.d)),
        q=np.zeros(known.K),
        ranked=np.zeros(known.K, np.int64),
        n_hat=np.zeros(known.K),
        predicted=np.zeros(known.K, np.int64),
        margin=np.zeros(known.K),
        outside=np.zeros(known.K, np.bool_),
        blocks=new_blocks(known.K),
    )


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    for k in range(known.K):
        state.predicted[k] = slot.t
        state.n_hat[k] = predict(state.theta, 0 if params.shared else k, slot.x, k)
    if params.frame == SLOT:
        rank(known, params, state, slot, params.L * math.log(slot.t))
        count = top_m(slot.indices, slot.available, known.M, slot.scratch, picks)
    else:
        places = free_places(state.blocks, slot.available, known.M, params.synchronous)
        if places > 0:
            rank(known, params, state, slot, log_slots(state.blocks, params.L))
            start_blocks(state.blocks, slot, places, picks)
        count = playing(state.blocks, picks)
    if params.replace != NEVER:
        replace(known, params, state, slot, picks, count)
    return count


@jit
def rank(known: Known, params: Params, state: State, slot: Slot, log_time: float) -> None:
    """slot.indices of every channel that can get a place now; log_time is L ln t, or L ln t2 in RCA's frame."""
    for k in range(known.K):
        if params.frame == RCA and state.blocks.phase[k] != IDLE:
            continue
        state.q[k] = width_squared(state.A_inv, 0 if params.shared else k, slot.x, state.v, k)
        state.ranked[k] = slot.t
        delta = params.beta * math.sqrt(state.q[k])
        index = base(known, params, state, k, log_time)
        index += state.n_hat[k] if params.estimate == ADD else -state.n_hat[k]
        index += delta if params.width == OPTIMISTIC else -delta
        slot.indices[k] = index


@jit
def base(known: Known, params: Params, state: State, k: int, log_time: float) -> float:
    """The state term of channel k's index."""
    blockwise = params.frame == RCA and params.base == INDEX
    data = state.blocks.slots[k] if blockwise else state.plays[k]
    if data == 0.0:
        return np.inf if params.explore_first else 0.0
    if params.base == NO_BASE:
        return 0.0
    if blockwise:
        return block_index(state.blocks, k, known.h_span, log_time)
    mean = state.total_h[k] / state.plays[k]
    if params.base == INDEX:
        mean += known.h_span * math.sqrt(log_time / state.plays[k])
    return mean


@jit
def replace(known: Known, params: Params, state: State, slot: Slot, picks: Ints, count: int) -> None:
    """Lines 12-19: outsiders in channel order, each with margin >= 0, take the place of the first candidate whose
    margin is <= 0 and smaller."""
    for k in range(known.K):
        s = slot.sensed[k]
        if s < 0:  # departure: line 6 observes every state, a base station that senses only what it plays cannot
            term = state.total_h[k] / state.plays[k] if state.plays[k] > 0.0 else 1.0
        elif params.replace == BY_REWARD:
            term = known.h[k, s]
        else:
            term = 1.0 if known.good[k, s] else 0.0
        state.margin[k] = term - state.n_hat[k]
        state.outside[k] = slot.available[k]
    weak = 0
    for i in range(count):
        state.outside[picks[i]] = False
        weak += state.margin[picks[i]] <= 0.0
    for j in range(known.K):
        if weak == 0:
            break
        if state.outside[j] and state.margin[j] >= 0.0:
            for i in range(count):
                out = picks[i]
                if state.margin[out] <= 0.0 and state.margin[out] < state.margin[j]:
                    picks[i] = j
                    weak -= state.margin[j] > 0.0
                    if params.frame == RCA:
                        drop(state.blocks, out)
                        state.blocks.phase[j] = SB1
                    break


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    h = known.h[k, s]
    state.total_h[k] += h
    state.plays[k] += 1.0
    if params.frame == RCA:
        observe(state.blocks, k, s, h, params.synchronous)

    m = 0 if params.shared else k
    # What ranking computed serves again, unless the model has changed since: a shared one does so within the slot.
    fresh = not params.shared and state.predicted[k] == slot.t
    predicted = state.n_hat[k] if fresh else predict(state.theta, m, slot.x, k)
    if params.target == PREDICTION:
        y = predicted
    elif params.target == REWARD:
        y = r
    elif known.measured:
        y = n
    elif not known.threshold:
        y = h - r
    elif known.good[k, s]:
        y = 1.0 if r <= known.low else 0.0  # a chance of being spoilt instead of a size
    else:
        return  # a bad channel pays 0.1 whatever the perturbation: nothing to learn about it
    if not fresh or state.ranked[k] != slot.t:
        state.q[k] = width_squared(state.A_inv, m, slot.x, state.v, k)
    state.predicted[k] = 0
    state.ranked[k] = 0
    learn(state.A_inv, state.theta, m, state.v, k, state.q[k], y - predicted)
