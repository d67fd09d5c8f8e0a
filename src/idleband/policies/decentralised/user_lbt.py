"""LBT-RANDOM and LBT-STICKY: listen before talk for a single user.

A user plays a random channel in every slot. With `sticky` it stays on its channel while the channel pays and no other
user plays it, and draws another one otherwise. After a collision it is silent for a random number of slots, uniform on
0 to w - 1. The window w is `window` first, doubles with each further collision up to `max_window`, and is `window`
again after a slot without one, as in the distributed coordination function of IEEE 802.11.
"""

from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.decentralised.user_statistics import draw_available
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    sticky: Annotated[bool, "whether a user stays on a channel that is good and its own"] = True
    window: Annotated[int, AtLeast(1, 10**9), "slots of the longest silence after one collision, and one more"] = 4
    max_window: Annotated[int, AtLeast(1, 10**9), "the same after several collisions in a row"] = 64


class State(NamedTuple):
    channel: Ints  # (1,) channel to stay on, -1: none
    window: Ints  # (1,)
    ready: Ints  # (1,) first slot after the silence


FIXED = frozenset(["sticky"])


def init(setup: Setup) -> State:
    return State(np.full(1, -1, np.int64), np.full(1, setup.params.window, np.int64), np.zeros(1, np.int64))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    if slot.t < state.ready[0]:
        return 0
    k = state.channel[0]
    if k < 0 or not slot.available[k]:
        slot.indices[:] = 0.0
        k = draw_available(slot)
    picks[0] = k
    return int(k >= 0)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    state.channel[0] = -1
    if feedback.collision == 1:
        state.ready[0] = slot.t + 1 + int(uniform(slot.rng) * state.window[0])
        state.window[0] = min(2 * state.window[0], setup.params.max_window)
        return
    state.window[0] = setup.params.window
    if setup.params.sticky and is_good(setup, feedback):
        state.channel[0] = feedback.channel


@jit
def is_good(setup: Setup, feedback: Feedback) -> bool:
    """Return whether the channel was good; where its state is not observed, whether it paid more than the least."""
    if feedback.state >= 0:
        return setup.good[feedback.channel, feedback.state]
    return 2.0 * (feedback.reward - setup.low) > setup.high - setup.low
