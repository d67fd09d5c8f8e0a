"""DSEE: deterministic sequencing of exploration and exploitation for restless channels and several plays.

Liu, Liu and Zhao, "Learning in a changing world: restless multiarmed bandit with unknown dynamics", IEEE Transactions
on Information Theory 59(3), 2013; arXiv:1011.4969. Slots form epochs whose lengths grow geometrically, so that most
observations are of channels that have been played for a while:

    exploration n     every channel is played in 4^(n-1) successive slots, M channels at a time
    exploitation n    the M channels with the largest index at its beginning are played in 2 4^(n-1) slots

After each epoch the next one is an exploration if the channels were played in (4^n - 1) / 3 <= D ln t slots of
exploration each, with n explorations so far, and an exploitation otherwise. The index is the mean reward of all plays
plus span sqrt(L ln t / plays_k). The regret against the best fixed set grows as ln t if D is above a bound that depends
on unknown properties of the channels; slow channels need a large D.

The abstract was looked up (interleaved epochs, M plays, bounds on unknown parameters, logarithmic regret); lengths of
epochs, the condition, and the index with L > 0, which an early version has, are from memory. Our own readings: the
defaults of D and L; places that an exploration leaves free, at its end or where channels are not available, go to the
channels with the largest index; a channel that is not available before its plays of an exploration are done misses the
rest if all others are finished.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import ESTIMATE, Feedback, Setup, Slot

MAX_EPOCH = 30  # of a kind; the last has 4^30 slots or more
UNPLAYED = 1e15  # index of a channel without plays, above all others and finite

EXPLORATIONS, EXPLOITATIONS, LEFT = range(3)  # entries of `epochs`


class Params(NamedTuple):
    D: Annotated[float, AtLeast(0.0), "explore while each channel was explored in at most D ln t slots"] = 10.0
    L: Annotated[float, AtLeast(0.0), "scale L of the width sqrt(L ln t / plays_k) in the index; 0: the mean"] = 0.0


class State(NamedTuple):
    total: Floats  # (K,) rewards earned
    plays: Floats  # (K,)
    owed: Ints  # (K,) slots in which a channel is still to be played in this exploration
    indices: Floats  # (K,) indices at the beginning of the epoch
    epochs: Ints  # (3,) explorations and exploitations so far, this one included; slots left in this exploitation


def init(setup: Setup) -> State:
    return State(
        total=np.zeros(setup.K),
        plays=np.zeros(setup.K),
        owed=np.zeros(setup.K, np.int64),
        indices=np.zeros(setup.K),
        epochs=np.zeros(3, np.int64),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    usable, owing = 0, 0
    for k in range(setup.K):
        usable += slot.available[k]
        owing += slot.available[k] and state.owed[k] > 0
    if state.epochs[LEFT] == 0 and owing == 0 and usable > 0:
        begin_epoch(setup, state, slot.t)
    exploring = state.epochs[LEFT] == 0
    if not exploring:
        state.epochs[LEFT] -= 1
    for k in range(setup.K):
        # Equal values, so that the channels that are to be explored are played in their order.
        slot.indices[k] = np.inf if exploring and state.owed[k] > 0 else state.indices[k]
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    if exploring:
        for i in range(count):
            state.owed[picks[i]] = max(state.owed[picks[i]] - 1, 0)
    return count


@jit
def begin_epoch(setup: Setup, state: State, t: int) -> None:
    """Begin an exploration or an exploitation in slot t."""
    log_t = math.log(t)
    for k in range(setup.K):
        state.owed[k] = 0
        plays = state.plays[k]
        if plays > 0.0:
            width = setup.span * math.sqrt(setup.params.L * log_t / plays)
            state.indices[k] = state.total[k] / plays + width
        else:
            state.indices[k] = UNPLAYED
    length = 1 << (2 * state.epochs[EXPLORATIONS])  # of the next exploration
    if (length - 1) / 3 <= setup.params.D * log_t and state.epochs[EXPLORATIONS] < MAX_EPOCH:
        state.epochs[EXPLORATIONS] += 1
        for k in range(setup.K):
            state.owed[k] = length
    else:
        state.epochs[LEFT] = 2 << (2 * min(state.epochs[EXPLOITATIONS], MAX_EPOCH))
        state.epochs[EXPLOITATIONS] += 1


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    state.total[feedback.channel] += feedback.reward
    state.plays[feedback.channel] += 1.0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        if state.plays[k] > 0.0:
            terms[k, ESTIMATE] = state.total[k] / state.plays[k]


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
