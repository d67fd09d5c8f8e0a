"""One slot of a policy, in two halves: choose, and, whenever feedback comes, learn. `loop.run` has both in one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.policies.protocol import Feedback, Setup, Slot

# Columns of `terms`, after those that a policy fills: the index; the chance that no primary user is there, whatever the
# policy believes; and whether the channel could be handed out. And how many columns there are.
INDEX, BELIEVED, STATUS, TERMS = 3, 4, 5, 6
AVAILABLE, UNAVAILABLE, VACATED, WITHHELD = range(4)

BROKEN, NOT_FINITE = -1, -2  # what `choose` returns instead of a count


class Room(NamedTuple):
    """Memory that a policy works in."""

    indices: Floats  # (K,)
    scratch: Floats  # (2K,)
    taken: Flags  # (K,) to catch a channel picked twice


def new_room(K: int) -> Room:
    return Room(np.zeros(K), np.zeros(2 * K), np.zeros(K, np.bool_))


# Stand-ins: `Learner` binds the functions of a policy, and how to find its memory, to these names.
select: Callable[..., int] = NotImplemented
update: Callable[..., None] = NotImplemented
explain: Callable[..., None] = NotImplemented
unpack: Callable[[Any], Any] = NotImplemented


@jit
def explain_nothing(setup: Setup, state: Any, slot: Slot, terms: Floats) -> None:
    pass


@jit
def with_users(setup: Setup, M: int) -> Setup:
    """Return the setup with another number of channels to select."""
    return Setup(
        setup.K, M, setup.d, setup.low, setup.high, setup.span, setup.h_span, setup.h, setup.states, setup.good,
        setup.threshold, setup.measured, setup.params,
    )  # fmt: skip


def choose(
    block: Any, t: int, users: int, x: Floats, available: Flags, sensed: Ints, n: Floats, picks: Ints, terms: Floats
) -> int:
    """The picks of slot t (0: try nothing), how many they are, and in `terms` why; or what is wrong with them."""
    usual, state, rng, room = unpack(block)
    if t == 0:
        return 0
    setup = with_users(usual, users)
    slot = Slot(t, x, available, sensed, n, room.indices, room.scratch, rng)
    count = select(setup, state, slot, picks)
    usable = 0
    for k in range(setup.K):
        if np.isnan(room.indices[k]):
            return NOT_FINITE
        usable += available[k]
        room.taken[k] = False
        terms[k, INDEX] = room.indices[k]
    explain(setup, state, slot, terms)
    if count != min(users, usable):
        return BROKEN
    for i in range(count):
        k = picks[i]
        if k < 0 or k >= setup.K or not available[k] or room.taken[k]:
            return BROKEN
        room.taken[k] = True
    return count


def learn(
    block: Any, t: int, users: int, x: Floats, available: Flags, sensed: Ints, n: Floats, channels: Ints, news: Flags,
    kept: Floats,
) -> None:  # fmt: skip
    """What channels handed out in slot t (0: try nothing) have returned, for those that are news."""
    usual, state, rng, room = unpack(block)
    if t == 0:
        return
    setup = with_users(usual, users)
    slot = Slot(t, x, available, sensed, n, room.indices, room.scratch, rng)
    for i in range(channels.size):
        if news[i]:
            r, s, perturbation = kept[0, i], int(kept[1, i]), kept[2, i]
            update(setup, state, slot, Feedback(channels[i], s, r, perturbation))
