"""MP-Random: M channels uniformly without replacement. The floor of every comparison."""

from typing import NamedTuple

from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.base import Ints, Known, Rng, Slot


class Params(NamedTuple):
    pass


class State(NamedTuple):
    pass


def init(params: Params, known: Known) -> State:
    return State()


@jit
def select(known: Known, params: Params, state: State, rng: Rng, slot: Slot, picks: Ints) -> int:
    """Selection sampling: each channel in turn, with the chance that the places left give it."""
    left = 0
    for k in range(known.K):
        left += slot.available[k]
    places = min(known.M, left)
    count = 0
    for k in range(known.K):
        if slot.available[k]:
            if uniform(rng) * left < places - count:
                picks[count] = k
                count += 1
            left -= 1
    return count


@jit
def update(
    known: Known, params: Params, state: State, rng: Rng, slot: Slot, k: int, s: int, r: float, n: float
) -> None:
    pass
