"""The parts that MP-LUCB and MP-NUCB share: everything except the model that predicts the perturbation.

Li, Li, Lu, Liu and Jin, "A context augmented multi-play multi-armed bandit algorithm for fast channel allocation in
opportunistic spectrum access", 2026, Algorithm 1. For the context of channel k a model provides a prediction n_hat and
a squared width q. Channels are ranked by

    index = base - n_hat + factor sqrt(q)          base: state term, from the state rewards of past plays

in every slot, or when a block of RCA ends. Then other channels replace candidates with a large predicted perturbation
(lines 12-19). What the paper leaves open, or prints in a form that cannot learn, is a parameter that is declared here
once. A policy lists its parameters in `Params`, and these functions read them there. In `select` a policy computes

    n_hat of every channel                                                    into Estimates
    places = places_to_fill(...)
    if places > 0: q of every channel that contends(...)                       into Estimates
    return choose(...)

and in `update` it calls `observe_play` and trains on `regression_target(...)`, unless that is nan.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import normal
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast, OneOf
from idleband.policies.protocol import ESTIMATE, WIDTH, Setup, Slot
from idleband.policies.regenerative import (
    IDLE,
    Blocks,
    begin,
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
WIDTHS, ESTIMATES, FRAMES = ("optimistic", "pessimistic", "sampled"), ("subtract", "add"), ("slot", "rca")
OPTIMISTIC, PESSIMISTIC, SAMPLED = range(3)
SUBTRACT, ADD = range(2)
SLOT, RCA = range(2)
REPLACEMENTS = ("indicator", "reward", "off")
BY_INDICATOR, BY_REWARD, NEVER = range(3)

Lambda = Annotated[float, AtLeast(1e-9), "ridge parameter lambda in A = lambda I + sum x x'"]
# Difference: line 22 of Algorithm 1 trains the model on its own prediction, so theta stays zero (`prediction`).
Target = Annotated[int, OneOf(*TARGETS), "regression target of the model"]
# Difference: eq. 4 has no state term although the argument before it needs one (`none` is as printed).
Base = Annotated[int, OneOf(*BASES), "state term of the index: mean state reward, mean plus width, or none"]
# Eq. 4 adds the width, the text argues from the largest perturbation; `sampled` is Thompson sampling, not in the paper.
Width = Annotated[int, OneOf(*WIDTHS), "confidence width: added, subtracted, or multiplied by a normal draw and added"]
# Difference: eq. 4 has + n_hat, which ranks the highest perturbation first (`add`).
Estimate = Annotated[int, OneOf(*ESTIMATES), "sign of the predicted perturbation in the index"]
# Algorithm 1 ranks in every slot, section V-A has "the framework of RCA".
Frame = Annotated[int, OneOf(*FRAMES), "rank channels in every slot, or when a block of RCA has ended"]
ExploreFirst = Annotated[bool, "rank channels without data first; otherwise their state term is 0"]
# Lines 12-19: j is undefined there and the margin is h(s) - n_hat (`reward`).
Replace = Annotated[int, OneOf(*REPLACEMENTS), "margin by which other channels replace candidates; off: no replacement"]
Shared = Annotated[bool, "one model for all channels instead of one per channel"]
BaseWidth = Annotated[float, AtLeast(0.0), "scale of the confidence width of the state term if base = index"]
Synchronous = Annotated[bool, "in the rca frame, refill all places together"]


class Estimates(NamedTuple):
    total_h: Floats  # (K,) summed state reward h(s) over plays
    plays: Floats  # (K,)
    n_hat: Floats  # (K,) predicted perturbation
    predicted: Ints  # (K,) slot of n_hat
    q: Floats  # (K,) squared width of the prediction, before the policy's factor
    ranked: Ints  # (K,) slot of q
    margin: Floats  # (K,) expected state term minus perturbation, for the replacement
    outside: Flags  # (K,) working array: available and not a candidate
    blocks: Blocks


def new_estimates(K: int) -> Estimates:
    return Estimates(
        total_h=np.zeros(K),
        plays=np.zeros(K),
        n_hat=np.zeros(K),
        predicted=np.zeros(K, np.int64),
        q=np.zeros(K),
        ranked=np.zeros(K, np.int64),
        margin=np.zeros(K),
        outside=np.zeros(K, np.bool_),
        blocks=new_blocks(K),
    )


@jit
def places_to_fill(setup: Setup, estimates: Estimates, slot: Slot) -> int:
    """Return the number of places to fill in this slot; in the slot frame all of them."""
    if setup.params.frame == SLOT:
        return setup.M
    return free_places(estimates.blocks, slot, setup.M, setup.params.synchronous)


@jit
def contends(setup: Setup, estimates: Estimates, k: int) -> bool:
    """Return whether channel k can be selected now and needs an index: not if it is in a block."""
    return setup.params.frame == SLOT or estimates.blocks.phase[k] == IDLE


@jit
def choose(
    setup: Setup,
    L: float,
    factor: float,
    estimates: Estimates,
    slot: Slot,
    places: int,
    picks: Ints,
) -> int:
    """Rank channels, fill the places, apply the replacement, and return the number of picks.

    n_hat, and q of all contending channels, must be those of this slot. L scales the width of the state term, factor
    that of the prediction.
    """
    blocks = estimates.blocks
    if places > 0:
        log_time = L * math.log(slot.t) if setup.params.frame == SLOT else log_slots(blocks, L)
        for k in range(setup.K):
            if contends(setup, estimates, k):
                delta = factor * math.sqrt(estimates.q[k])
                if setup.params.width == SAMPLED:
                    delta *= normal(slot.rng)
                index = base(setup, estimates, k, log_time)
                index += estimates.n_hat[k] if setup.params.estimate == ADD else -estimates.n_hat[k]
                index += -delta if setup.params.width == PESSIMISTIC else delta
                slot.indices[k] = index
    if setup.params.frame == SLOT:
        count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    else:
        if places > 0:
            start_blocks(blocks, slot, places, picks)
        count = playing(blocks, picks)
    if setup.params.replace != NEVER:
        replace(setup, estimates, slot, picks, count)
    return count


@jit
def base(setup: Setup, estimates: Estimates, k: int, log_time: float) -> float:
    """Return the state term of the index of channel k; log_time is L ln t, or L ln t2 in the frame of RCA."""
    blockwise = setup.params.frame == RCA and setup.params.base == INDEX
    data = estimates.blocks.slots[k] if blockwise else estimates.plays[k]
    if data == 0.0:
        return np.inf if setup.params.explore_first else 0.0
    if setup.params.base == NO_BASE:
        return 0.0
    if blockwise:
        return block_index(estimates.blocks, k, setup.h_span, log_time)
    mean = estimates.total_h[k] / estimates.plays[k]
    if setup.params.base == INDEX:
        mean += setup.h_span * math.sqrt(log_time / estimates.plays[k])
    return mean


@jit
def replace(setup: Setup, estimates: Estimates, slot: Slot, picks: Ints, count: int) -> None:
    """Apply lines 12-19 of Algorithm 1.

    Each other channel with margin >= 0, in increasing order, replaces the first candidate whose margin is <= 0 and
    smaller.
    """
    margin, outside = estimates.margin, estimates.outside
    for k in range(setup.K):
        s = slot.sensed[k]
        if s < 0:  # difference: line 6 observes every state, which needs sensing of all channels
            term = estimates.total_h[k] / estimates.plays[k] if estimates.plays[k] > 0.0 else 1.0
        elif setup.params.replace == BY_REWARD:
            term = setup.h[k, s]
        else:
            term = 1.0 if setup.good[k, s] else 0.0
        margin[k] = term - estimates.n_hat[k]
        outside[k] = slot.available[k]
    weak = 0
    for i in range(count):
        outside[picks[i]] = False
        weak += margin[picks[i]] <= 0.0
    for j in range(setup.K):
        if weak == 0:
            break
        if outside[j] and margin[j] >= 0.0:
            for i in range(count):
                out = picks[i]
                if margin[out] <= 0.0 and margin[out] < margin[j]:
                    picks[i] = j
                    weak -= margin[j] > 0.0
                    if setup.params.frame == RCA:
                        drop(estimates.blocks, out)
                        begin(estimates.blocks, j, slot.t)
                    break


@jit
def observe_play(setup: Setup, estimates: Estimates, k: int, s: int, t: int) -> None:
    """Record that channel k was played in slot t, in state s."""
    h = setup.h[k, s]
    estimates.total_h[k] += h
    estimates.plays[k] += 1.0
    if setup.params.frame == RCA:
        observe(estimates.blocks, k, s, t, h, setup.params.synchronous)


@jit
def regression_target(setup: Setup, k: int, s: int, r: float, n: float, predicted: float) -> float:
    """Return the value that the model is trained on, or nan if there is nothing to learn."""
    if setup.params.target == PREDICTION:
        return predicted
    if setup.params.target == REWARD:
        return r
    if setup.measured:
        return n
    if not setup.threshold:
        return setup.h[k, s] - r
    if setup.good[k, s]:
        return 1.0 if r <= setup.low else 0.0  # the probability of a failure instead of the perturbation
    return np.nan  # the reward of a bad channel does not depend on the perturbation


@jit
def explain_estimates(estimates: Estimates, factor: float, k: int, terms: Floats) -> None:
    terms[k, ESTIMATE] = estimates.n_hat[k]
    terms[k, WIDTH] = factor * math.sqrt(estimates.q[k])


def terms(setup: Setup) -> tuple[str, str]:
    """Return what the models estimate (see `regression_target`) and its width."""
    if setup.params.target == REWARD:
        what = "reward"
    elif setup.measured or not setup.threshold:
        what = "perturbation"
    else:
        what = "probability of failure"
    return f"predicted {what}", "width of that prediction"
