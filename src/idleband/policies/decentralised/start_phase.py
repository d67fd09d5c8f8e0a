"""The start phase of users who arrive together: it gives every user a rank and the number of users.

Boursier and Perchet, "SIC-MMAB: synchronisation involves communication in multiplayer multi-armed bandits",
NeurIPS 2019; looked up in the code of the authors (eboursier/sic-mmab). Two parts:

1. Seating: a user plays a random channel until a slot without a collision, and then stays on this channel x.
2. Counting, 2K slots: a user stays on x in the first 2x slots and then moves to the next channel in every slot. Any two
   users meet once, in slot x + y: the one with the larger x still waits. The rank of a user, from 0, is the number of
   its collisions while it waits, and all of its collisions plus 1 are the number of users.

The result is exact if all users start in the same slot and everyone finds a channel while seating. Otherwise, as with
users who arrive later, rank and number of users are wrong, but within 0 <= rank < users <= K.

How long seating takes is agreed: `seating` slots, or, if this is 0, until everyone has a channel. A user fails to find
one in n slots with a probability of at most (1 - 1/K (1 - 1/K)^(K-1))^n, which is below 1/T in the
`seating_slots(K, T)` slots of the authors. With 0, which is ours, seating consists of rounds of K such slots and K
slots of checking: a user without a channel plays channel n in slot n of the check, and thus collides with everyone who
has one. A round without a collision in its check is the last one. The idea is that of DPE1 (see `dpe1`), where M < K.

Only slots in which all channels are available count (`counts`), because a user cannot meet another one on a channel
that no user may play. Availability is the same for all users, so that they pause together, silent. The authors' code
has no availability.

A policy calls, while not `start_is_over(setup, state.start, seating)`, with a `seating` that all users agree on::

    k = start_channel(setup, state.start, slot, seating)        # in select
    learn_start(setup, state.start, feedback, seating)          # in update
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import uniform
from idleband.policies.protocol import Feedback, Setup, Slot

MAX_ROUNDS = 100  # of seating, where users who do not start together keep colliding


class StartPhase(NamedTuple):
    slots: Ints  # (1,) slots that are over in this round, in seating, or in counting
    rounds: Ints  # (1,) rounds of seating
    counting: Ints  # (1,) whether seating is over
    missing: Ints  # (1,) whether somebody has no channel, as far as the check of this round has shown
    seat: Ints  # (1,) channel x of the user, -1 while it has none
    rank: Ints  # (1,) from 0; valid when the phase is over
    users: Ints  # (1,) number of users; valid when the phase is over


def new_start_phase() -> StartPhase:
    one = np.zeros(1, np.int64)
    return StartPhase(
        one, one.copy(), one.copy(), one.copy(), seat=np.full(1, -1, np.int64), rank=one.copy(), users=one + 1
    )


@jit
def reset_start(start: StartPhase) -> None:
    """Begin again."""
    start.slots[0], start.rounds[0], start.counting[0], start.missing[0] = 0, 0, 0, 0
    start.seat[0], start.rank[0], start.users[0] = -1, 0, 1


def seating_slots(K: int, T: int) -> int:
    """Return the slots of seating after which a user has a channel with probability 1 - 1/T: ceil(K e ln T).

    >>> seating_slots(9, 10_000)
    226
    """
    return math.ceil(K * math.e * math.log(max(T, 2)))


@jit
def counts(slot: Slot) -> bool:
    """Return whether a slot counts in an agreed sequence of slots: all channels are available."""
    return bool(slot.available.all())


@jit
def nth_available(slot: Slot, n: int) -> int:
    """Return the n-th available channel, from 0; -1 if there are fewer. Ranks differ: no other user plays it."""
    for k in range(slot.available.size):
        if slot.available[k]:
            if n == 0:
                return k
            n -= 1
    return -1


@jit
def start_is_over(setup: Setup, start: StartPhase, seating: int) -> bool:
    """Return whether the start phase is over; the answer is the same in `select` and `update` of a slot."""
    return start.counting[0] != 0 and start.slots[0] >= 2 * setup.K


@jit
def start_channel(setup: Setup, start: StartPhase, slot: Slot, seating: int) -> int:
    """Return the channel to play in a slot of the start phase, -1 to stay silent in a slot that does not count."""
    if not counts(slot):
        return -1
    x = start.seat[0]
    if start.counting[0] == 0:
        if x >= 0:
            return x
        checked = start.slots[0] - setup.K  # slots of the check of this round that are over
        return checked if seating == 0 and checked >= 0 else int(setup.K * uniform(slot.rng))
    if x < 0:  # too few slots of seating
        x = int(setup.K * uniform(slot.rng))
        start.seat[0] = x
    s = start.slots[0] + 1
    return x if s <= 2 * x else (s - x) % setup.K


@jit
def learn_start(setup: Setup, start: StartPhase, feedback: Feedback, seating: int) -> None:
    """Learn from the collision, or its absence, on the channel that `start_channel` has returned."""
    start.slots[0] += 1
    s = start.slots[0]
    collides = feedback.collision == 1
    if start.counting[0] != 0:
        if collides and start.users[0] < setup.K:
            start.users[0] += 1
            if s <= 2 * start.seat[0]:
                start.rank[0] += 1
        return
    if seating == 0 and s > setup.K:
        if collides or start.seat[0] < 0:
            start.missing[0] = 1
    elif start.seat[0] < 0 and not collides:
        start.seat[0] = feedback.channel
    if s == (seating if seating > 0 else 2 * setup.K):
        start.rounds[0] += 1
        if seating > 0 or start.missing[0] == 0 or start.rounds[0] == MAX_ROUNDS:
            start.counting[0] = 1
        start.slots[0], start.missing[0] = 0, 0
