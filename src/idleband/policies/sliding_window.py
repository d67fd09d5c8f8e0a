"""MP-SWUCB: MP-UCB over a sliding window; the M largest indices, channels without plays in the window first.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011. With tau the window
and sums over the slots t - tau to t - 1:

    index = total_k / plays_k + span sqrt(L ln min(t, tau) / plays_k)

The theorem requires L > 1/2 (xi in the paper); the simulations use 0.6. The feedback of a slot is stored in a row until
the slot leaves the window. A slot without plays has an empty row. Late feedback is stored in the row of its slot, or
ignored if that slot has left the window.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import MAX_BYTES, Feedback, Setup, Slot, explain_mean


class Params(NamedTuple):
    window: Annotated[int, AtLeast(1, 10**6), "number of slots in the window; should be well above K / M"] = 1000
    L: Annotated[float, AtLeast(0.0), "scale L of the confidence width sqrt(L ln min(t, window) / plays_k)"] = 0.6


class State(NamedTuple):
    channels: Ints  # (window, M) channels played in the slot of a row
    rewards: Floats  # (window, M) their rewards
    filled: Ints  # (window,) number of reported channels
    slot_of: Ints  # (window,) the slot of a row: slot t is in row t % window
    now: Ints  # (1,) the newest slot that has a row
    total: Floats  # (K,) rewards in all rows
    plays: Floats  # (K,)


def check(setup: Setup) -> None:
    """Reject a window that needs too much memory."""
    size = 16 * setup.params.window * setup.M
    if size > MAX_BYTES:
        raise InputError(
            f"window = {setup.params.window} would take {size / 2**30:,.0f} GiB with {setup.M} users; must be at most"
            f" {MAX_BYTES // 2**30} GiB: choose a smaller one"
        )


def init(setup: Setup) -> State:
    check(setup)
    return State(
        channels=np.zeros((setup.params.window, setup.M), np.int64),
        rewards=np.zeros((setup.params.window, setup.M)),
        filled=np.zeros(setup.params.window, np.int64),
        slot_of=np.zeros(setup.params.window, np.int64),
        now=np.zeros(1, np.int64),
        total=np.zeros(setup.K),
        plays=np.zeros(setup.K),
    )


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    # Slots without a decision; usually there are none.
    for t in range(max(state.now[0] + 1, slot.t - setup.params.window), slot.t):
        start_row(state, t)
    log_t = setup.params.L * math.log(min(slot.t, setup.params.window))
    for k in range(setup.K):
        plays = max(state.plays[k], 1.0)
        bound = state.total[k] / plays + setup.span * math.sqrt(log_t / plays)
        slot.indices[k] = bound if state.plays[k] > 0.0 else np.inf
    start_row(state, slot.t)  # after ranking, because slot t - window still counts
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def start_row(state: State, t: int) -> None:
    """Give slot t the row of the slot that leaves the window."""
    row = t % state.filled.size
    for i in range(state.filled[row]):
        k = state.channels[row, i]
        state.plays[k] -= 1.0
        state.total[k] -= state.rewards[row, i]
    state.filled[row] = 0
    state.slot_of[row] = t
    state.now[0] = t
    if row == 0:  # once per window: removes rounding errors at the cost of M additions per slot
        sum_anew(state)


@jit
def sum_anew(state: State) -> None:
    """Recompute the totals from the rows, so that no total accumulates the rounding errors of more than two windows."""
    for k in range(state.total.size):
        state.total[k] = 0.0
    for row in range(state.filled.size):
        for i in range(state.filled[row]):
            state.total[state.channels[row, i]] += state.rewards[row, i]


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, r = feedback.channel, feedback.reward
    row = slot.t % setup.params.window
    place = state.filled[row]
    if state.slot_of[row] != slot.t or place == setup.M:  # too late, or more reports than plays
        return
    state.channels[row, place] = k
    state.rewards[row, place] = r
    state.filled[row] = place + 1
    state.total[k] += r
    state.plays[k] += 1.0


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        explain_mean(state.total, state.plays, slot, k, terms)


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward in the window", "width of its confidence interval"
