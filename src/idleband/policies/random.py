"""MP-Random: M channels drawn uniformly without replacement, the baseline of every comparison."""

from typing import NamedTuple

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    pass


def init(setup: Setup) -> State:
    return State()


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    """Use selection sampling: take each channel in turn with probability (places left) / (channels left)."""
    left = 0
    for k in range(setup.K):
        left += slot.available[k]
    places = min(setup.M, left)
    count = 0
    for k in range(setup.K):
        if slot.available[k]:
            if uniform(slot.rng) * left < places - count:
                picks[count] = k
                count += 1
            left -= 1
    return count


@jit
def propensities(setup: Setup, state: State, slot: Slot, out: Floats) -> None:
    uniform_propensities(setup, slot, out)


@jit
def uniform_propensities(setup: Setup, slot: Slot, out: Floats) -> None:
    """Write the probability of each channel if the M channels are drawn uniformly."""
    left = 0
    for k in range(setup.K):
        left += slot.available[k]
    for k in range(setup.K):
        out[k] = min(setup.M, left) / left if slot.available[k] else 0.0


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    pass
