"""USER-RANDOM: a channel drawn uniformly at random in every slot."""

from typing import NamedTuple

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.policies.decentralised.user_statistics import draw_available
from idleband.policies.protocol import Feedback, Setup, Slot


class Params(NamedTuple):
    pass


def init(setup: Setup) -> tuple[()]:
    return ()


@jit
def select(setup: Setup, state: tuple[()], slot: Slot, picks: Ints) -> int:
    slot.indices[:] = 0.0
    picks[0] = draw_available(slot)
    return int(picks[0] >= 0)


@jit
def update(setup: Setup, state: tuple[()], slot: Slot, feedback: Feedback) -> None:
    pass
