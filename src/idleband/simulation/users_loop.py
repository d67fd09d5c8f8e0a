"""The simulation loop of users who choose channels themselves, without a base station."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.kernels.selection import gather, mth_largest
from idleband.policies.protocol import Feedback, Setup, Slot
from idleband.scenario.reward import reward
from idleband.scenario.uncoordinated import LOST, ONE, REWARDS, SENSING, SPLIT
from idleband.simulation.environment import SamplePath, advance, enter, state_reward
from idleband.simulation.loop import TIE, add

# The first rows of the curves; the reward of each user and the colliding users on each channel follow. The first five
# are those of `loop.CURVES`.
USER_CURVES = (
    "reward", "regret_table", "suboptimal_static", "suboptimal_contextual", "collisions", "user_collisions", "switches",
    "messages", "last_collision",
)  # fmt: skip
(
    REWARD, TABLE, STATIC, CONTEXTUAL, PRIMARY, USER_COLLISIONS, SWITCHES, MESSAGES, LAST_COLLISION,
) = range(len(USER_CURVES))  # fmt: skip

TOO_MANY_BITS = -1  # instead of how many channels a user selected


class UsersTally(NamedTuple):
    """Users on a sample path, and their counters. N is the number of users."""

    t: Ints  # (C,) checkpoints
    curves: Floats  # (9 + N + K, C) cumulative values at the checkpoints
    now: Floats  # (9 + N + K,) the same at the current slot
    carry: Floats  # (9 + N + K,) rounding errors of those that are not whole numbers
    cursor: Ints  # (1,) next checkpoint
    plays: Ints  # (K,) plays per channel
    present: Flags  # (N,)
    before: Ints  # (N,) slots before the user arrived
    picks: Ints  # (N,) channel of each user in this slot, -1: none
    last: Ints  # (N,) channel that each user played last, -1: none yet
    on_channel: Ints  # (K,) users on each channel
    winner: Ints  # (K,) user who earns the reward of a collision
    choice: Ints  # (K,) where a user writes its choice
    minislots: Ints  # (minislots,) whether any user sends
    own_minislots: Ints  # (minislots,) whether one user does
    quality: Floats  # (N, K) factor of the reward of each user on each channel
    static_worse: Flags  # (P, K) channels outside the best fixed set for the present users, by row of availability
    table_mean: Floats  # (K,) means without perturbation
    table_best: Floats  # (P,) largest sum of them that the present users can earn
    collision: int  # LOST, ONE or SPLIT
    observes: int  # SENSING, COLLISIONS or REWARDS
    control_bits: int
    sensing: bool  # whether users observe all states before they select
    rng: Rng  # (2,) draws who wins a collision
    hidden_states: Ints  # (K,) of -1
    hidden_perturbations: Floats  # (K,) of nan
    indices: Floats  # (K,) working arrays lent to the policies
    scratch: Floats  # (2K,)
    fault: Ints  # (3,) user who did what is not allowed; how many channels it selected, and the first of them


# Stand-ins: `compile.specialise` binds the functions of a policy to these names, and the one that finds its memory.
select: Callable[..., int] = NotImplemented
update: Callable[..., Any] = NotImplemented
signal: Callable[..., Any] = NotImplemented
hear: Callable[..., Any] = NotImplemented
unpack: Callable[[Any], tuple[Setup, Any, Rng]] = NotImplemented


@jit
def no_signal(setup: Setup, state: Any, slot: Slot, minislots: Ints) -> None:
    """Send nothing, or do nothing with what was sent."""


@jit
def begin_slot(path: SamplePath, tally: UsersTally, available: Flags) -> float:
    """Begin a slot to which the path has advanced, without plays; return E[r | x] of the last channel to play.

    The kernels call `advance` themselves, because it is bound into them where the perturbation model is a user's.
    """
    usable = gather(path.expected, available, path.scratch)
    places = 0
    for j in range(tally.present.size):
        places += tally.present[j]
    places = min(places, usable)
    tally.on_channel[:] = 0
    tally.picks[:] = -1
    return mth_largest(path.scratch, usable, places) - TIE if places > 0 else 0.0


@jit
def take(tally: UsersTally, j: int, k: int) -> None:
    """Let user j play channel k."""
    tally.picks[j] = k
    tally.on_channel[k] += 1
    if tally.collision == ONE and uniform(tally.rng) * tally.on_channel[k] < 1.0:
        tally.winner[k] = j  # each of n users wins with probability 1/n


@jit
def count_plays(path: SamplePath, tally: UsersTally, row: int, t: int, best_mth: float) -> None:
    """Count the plays of a slot in which all users have chosen."""
    now = tally.now
    for k in range(path.s.size):
        count = tally.on_channel[k]
        if count > 0:
            tally.plays[k] += count
            now[STATIC] += count * tally.static_worse[row, k]
            now[CONTEXTUAL] += count * (path.expected[k] < best_mth)
            now[PRIMARY] += count * (not path.good[k, path.s[k]])
        if count > 1:
            now[USER_COLLISIONS] += count
            now[LAST_COLLISION] = t
            now[len(USER_CURVES) + tally.present.size + k] += count


@jit
def share_of(tally: UsersTally, j: int) -> float:
    """Return which share of the reward of its channel user j earns."""
    k = tally.picks[j]
    share = tally.quality[j, k]
    if tally.on_channel[k] > 1:
        if tally.collision == SPLIT:
            return share / tally.on_channel[k]
        if tally.collision == LOST or tally.winner[k] != j:
            return 0.0
    return share


@jit
def earn(path: SamplePath, tally: UsersTally, j: int, share: float) -> float:
    """Count and return what user j earns, less the cost of switching."""
    now, carry, k = tally.now, tally.carry, tally.picks[j]
    s = path.s[k]
    earned = path.factor * share * reward(path.reward, state_reward(path, k, s), path.good[k, s], path.n[k])
    if tally.last[j] != k:
        if tally.last[j] >= 0:
            now[SWITCHES] += 1.0
            earned -= path.switching_cost
        tally.last[j] = k
    place = len(USER_CURVES) + j
    now[place], carry[place] = add(now[place], carry[place], earned)
    return earned


@jit
def feedback_of(path: SamplePath, tally: UsersTally, j: int, share: float, measured: bool) -> Feedback:
    """Return what user j observes after the slot."""
    k = tally.picks[j]
    s = path.observed[k] if path.errors else path.s[k]  # with sensing errors the reward of the observed state, too
    r = share * reward(path.reward, state_reward(path, k, s), path.good[k, s], path.n[k])
    collides = -1 if tally.observes == REWARDS else int(tally.on_channel[k] > 1)
    state = s if tally.observes == SENSING else -1
    return Feedback(k, state, r, path.n[k] if measured else np.nan, collides)


@jit
def end_slot(tally: UsersTally, slot_reward: float, slot_table: float) -> None:
    """Add the reward of all users, and the regret to the best fixed channels."""
    now, carry = tally.now, tally.carry
    now[REWARD], carry[REWARD] = add(now[REWARD], carry[REWARD], slot_reward)
    now[TABLE], carry[TABLE] = add(now[TABLE], carry[TABLE], slot_table)


@jit
def mark(tally: UsersTally, t: int) -> None:
    """Record the counters if slot t is a checkpoint."""
    if t == tally.t[tally.cursor[0]]:
        for i in range(tally.now.size):
            tally.curves[i, tally.cursor[0]] = tally.now[i]
        tally.cursor[0] += 1


@jit
def merge_minislots(tally: UsersTally) -> int:
    """Send what a user has written into `own_minislots`; return in how many minislots."""
    sent = 0
    for i in range(tally.minislots.size):
        if tally.own_minislots[i] != 0:
            sent += 1
            tally.minislots[i] = 1
    tally.now[MESSAGES] += sent
    return sent


def run_users(blocks: Any, path: SamplePath, tally: UsersTally, first: int, last: int) -> int:
    """Run slots first+1 to last; return 0, or the slot in which a user did what is not allowed.

    `blocks` contains setup, state and random stream of the policy of each user.
    """
    if first == 0 and last > 0:
        enter(path)
    row = first % path.available.shape[0]
    users, K = tally.present.size, path.s.size
    # Slots are not made by a function: where a user's code allocates, compiled code must not return arrays to the loop.
    sensed = path.s if tally.sensing else tally.hidden_states
    if tally.sensing and path.errors:
        sensed = path.observed
    for t in range(first + 1, last + 1):
        available = path.available[row]
        advance(path)
        best_mth = begin_slot(path, tally, available)
        for j in range(users):
            if not tally.present[j]:
                continue
            setup, state, rng = unpack(blocks[j])
            slot = Slot(
                t - tally.before[j], path.x, available, sensed, tally.hidden_perturbations, tally.indices,
                tally.scratch, rng,
            )  # fmt: skip
            count = select(setup, state, slot, tally.choice)
            k = tally.choice[0]
            if count != 0 and (count != 1 or k < 0 or k >= K or not available[k]):
                tally.fault[0], tally.fault[1], tally.fault[2] = j, count, k
                return t
            if count == 1:
                take(tally, j, k)
        count_plays(path, tally, row, t, best_mth)

        slot_reward, slot_table = 0.0, tally.table_best[row]
        for j in range(users):
            if tally.picks[j] >= 0:
                share = share_of(tally, j)
                slot_reward += earn(path, tally, j, share)
                slot_table -= share * tally.table_mean[tally.picks[j]]
                setup, state, rng = unpack(blocks[j])
                slot = Slot(
                    t - tally.before[j], path.x, available, sensed, tally.hidden_perturbations, tally.indices,
                    tally.scratch, rng,
                )  # fmt: skip
                feedback = feedback_of(path, tally, j, share, setup.measured)
                update(setup, state, slot, feedback)
        end_slot(tally, slot_reward, slot_table)

        if tally.control_bits > 0:
            tally.minislots[:] = 0
            for j in range(users):
                if not tally.present[j]:
                    continue
                setup, state, rng = unpack(blocks[j])
                slot = Slot(
                    t - tally.before[j], path.x, available, sensed, tally.hidden_perturbations, tally.indices,
                    tally.scratch, rng,
                )  # fmt: skip
                tally.own_minislots[:] = 0
                signal(setup, state, slot, tally.own_minislots)
                sent = merge_minislots(tally)
                if sent > tally.control_bits:
                    tally.fault[0], tally.fault[1], tally.fault[2] = j, TOO_MANY_BITS, sent
                    return t
            for j in range(users):
                if tally.present[j]:
                    setup, state, rng = unpack(blocks[j])
                    slot = Slot(
                        t - tally.before[j], path.x, available, sensed, tally.hidden_perturbations, tally.indices,
                        tally.scratch, rng,
                    )  # fmt: skip
                    hear(setup, state, slot, tally.minislots)
        mark(tally, t)
        row = row + 1 if row + 1 < path.available.shape[0] else 0
    return 0
