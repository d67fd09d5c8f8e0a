"""MP-Stay: keep a channel while it is idle; when it was busy, move to the channel not observed for the longest time.

A rule without a model of the channels. A channel is kept after a slot in which it was observed good. The other
places go to channels never observed, in random order, and then to the channels whose last observation is oldest; a
channel that was just found busy comes last. With `sensing = "all"` the channels that are sensed good come first.

The policy keeps the last observation of every channel and learns nothing else. It does well where idle periods are long
and channels change together, because after a change it looks at all channels in turn.
"""

from typing import NamedTuple

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.kernels.selection import top_m
from idleband.policies.last_observation import NEVER, LastObservation, age_of, new_last_observation, saw
from idleband.policies.protocol import Feedback, Setup, Slot

KEEP = 1e15  # above the age of every observation


class Params(NamedTuple):
    pass


class State(NamedTuple):
    last_observation: LastObservation


def init(setup: Setup) -> State:
    return State(new_last_observation(setup.K))


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    last = state.last_observation
    for k in range(setup.K):
        if slot.sensed[k] >= 0:
            slot.indices[k] = 1.0 if setup.good[k, slot.sensed[k]] else 0.0
        elif last.state[k] == NEVER:
            slot.indices[k] = 0.5 * KEEP * (1.0 + uniform(slot.rng))
        elif setup.good[k, last.state[k]]:
            # Of channels that were idle, those observed later come first: a played one before one that was vacated.
            slot.indices[k] = 2.0 * KEEP - age_of(last, k, slot.t)
        else:
            slot.indices[k] = age_of(last, k, slot.t)
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    saw(state.last_observation, feedback.channel, feedback.state, slot.t)
