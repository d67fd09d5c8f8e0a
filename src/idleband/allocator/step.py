"""One slot of a policy, in two halves: choose, and, whenever feedback comes, learn. `loop.run` has both in one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.kernels.compile import jit
from idleband.policies.base import Flags, Floats, Ints, Known, Slot

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
thaw: Callable[[Any], Any] = NotImplemented


@jit
def explain_nothing(known: Known, params: Any, state: Any, slot: Slot, k: int, terms: Floats) -> None:
    pass


@jit
def with_users(known: Known, M: int) -> Known:
    """The same with so many channels to pick."""
    return Known(
        known.K, M, known.d, known.low, known.high, known.span, known.h_span, known.h, known.states, known.good,
        known.threshold, known.measured,
    )  # fmt: skip


def choose(
    block: Any, t: int, users: int, x: Floats, available: Flags, sensed: Ints, n: Floats, picks: Ints, terms: Floats
) -> int:
    """The picks of slot t (0: try nothing), how many they are, and in `terms` why; or what is wrong with them."""
    usual, params, state, rng, room = thaw(block)
    if t == 0:
        return 0
    known = with_users(usual, users)
    slot = Slot(t, x, available, sensed, n, room.indices, room.scratch)
    count = select(known, params, state, rng, slot, picks)
    usable = 0
    for k in range(known.K):
        if np.isnan(room.indices[k]):
            return NOT_FINITE
        usable += available[k]
        room.taken[k] = False
        terms[k, INDEX] = room.indices[k]
        explain(known, params, state, slot, k, terms)
    if count != min(users, usable):
        return BROKEN
    for i in range(count):
        k = picks[i]
        if k < 0 or k >= known.K or not available[k] or room.taken[k]:
            return BROKEN
        room.taken[k] = True
    return count


def learn(
    block: Any, t: int, users: int, x: Floats, available: Flags, sensed: Ints, n: Floats, channels: Ints, news: Flags,
    kept: Floats,
) -> None:  # fmt: skip
    """What channels handed out in slot t (0: try nothing) have returned, for those that are news."""
    usual, params, state, rng, room = thaw(block)
    if t == 0:
        return
    known = with_users(usual, users)
    slot = Slot(t, x, available, sensed, n, room.indices, room.scratch)
    for i in range(channels.size):
        if news[i]:
            r, s, perturbation = kept[0, i], int(kept[1, i]), kept[2, i]
            update(known, params, state, rng, slot, channels[i], s, r, perturbation)
