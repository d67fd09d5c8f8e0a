"""MP-LBT: listen before talk with random back-off, as in Wi-Fi.

A channel is kept after a slot in which it was observed good. When it was busy, it is not tried for a random number of
slots, uniform on 1 to w, and its place goes to a channel drawn at random from those without back-off. The window w is
`window` after the first busy observation of a channel and doubles with each further one in a row, up to `max_window`
(binary exponential back-off). If too few channels are without back-off, those whose back-off ends first are played.

The back-off is that of the distributed coordination function of IEEE 802.11, with slots in place of slot times, and
with a window per channel because a play of a busy channel collides with its primary user. With `sensing = "all"` the
channels that are sensed good come first.
"""

from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.kernels.selection import top_m
from idleband.policies.last_observation import NEVER, LastObservation, age_of, is_news, new_last_observation, saw
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Feedback, Setup, Slot

KEEP = 1e15  # above the length of every back-off, and above the age of every observation


class Params(NamedTuple):
    window: Annotated[int, AtLeast(1, 10**9), "slots of the longest back-off after one busy observation"] = 4
    max_window: Annotated[int, AtLeast(1, 10**9), "slots of the longest back-off after several in a row"] = 64


class State(NamedTuple):
    last_observation: LastObservation
    window: Floats  # (K,) of the next back-off, before it is limited by max_window
    ready: Ints  # (K,) first slot after the back-off


def init(setup: Setup) -> State:
    K = setup.K
    return State(new_last_observation(K), np.full(K, float(setup.params.window)), np.zeros(K, np.int64))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    last = state.last_observation
    for k in range(setup.K):
        if slot.sensed[k] >= 0:
            slot.indices[k] = 1.0 if setup.good[k, slot.sensed[k]] else 0.0
        elif last.state[k] != NEVER and setup.good[k, last.state[k]]:
            slot.indices[k] = KEEP - age_of(last, k, slot.t)
        elif slot.t >= state.ready[k]:
            slot.indices[k] = uniform(slot.rng)
        else:
            slot.indices[k] = float(slot.t - state.ready[k])
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, t = feedback.channel, slot.t
    if not is_news(state.last_observation, k, t):
        return
    saw(state.last_observation, k, feedback.state, t)
    if setup.good[k, feedback.state]:
        state.window[k] = setup.params.window
        return
    window = min(state.window[k], float(setup.params.max_window))
    state.ready[k] = t + 1 + int(1.0 + window * uniform(slot.rng))
    state.window[k] = min(2.0 * window, float(setup.params.max_window))
