"""THE interaction loop, and the walk along the same path that computes what policies are measured against.

Both run slots first+1 .. last and return, with everything that must survive in arrays, so that a caller can run them in
segments, show progress and be interrupted. Neither allocates anything.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, fill_uniform
from idleband.kernels.selection import gather, mth_largest, top_sum
from idleband.policies.base import Known, Slot
from idleband.scenario.markov import start, step
from idleband.scenario.perturbation import perturb
from idleband.scenario.reward import expected_reward, reward

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

TIE = 1e-12  # values closer than this are equal: a pick counts as sub-optimal only if M channels are better by more


class World(NamedTuple):
    """One sample path of a scenario, at some slot. It does not react to the policy."""

    state_rng: Rng  # (2,)
    context_rng: Rng  # (2,)
    start: Floats  # (K, S-1) inner limits of the stationary law
    limits: Floats  # (K, S, S-1) inner limits of the transition rows
    h: Floats  # (K, S)
    good: Flags  # (K, S)
    mean_h: Floats  # (K,) stationary mean of h
    good_share: Floats  # (K,) stationary share of good states
    available: Flags  # (P, K) rows used in turn, slot by slot
    reward: int  # kind of reward
    law: int  # kind of perturbation
    theta: Floats  # (K, size) the law's parameters in this replication
    u: Floats  # (K,) working array
    s: Ints  # (K,) states
    contexts: Floats  # (K*d,) the same memory as x, flat
    x: Floats  # (K, d)
    n: Floats  # (K,) perturbations
    fault: Floats  # (4,) of a user's own law
    expected: Floats  # (K,) E[r | x]
    rewards: Floats  # (K,) what each channel would pay (references only)
    scratch: Floats  # (2K,)


class Tally(NamedTuple):
    """What is counted beside a run."""

    t: Ints  # (C,) checkpoints
    curves: Floats  # (5, C) cumulative values at the checkpoints, rows as in CURVES
    now: Floats  # (5,) the same at the current slot
    carry: Floats  # (2,) what rounding has left out of the first two, which are not whole numbers
    cursor: Ints  # (1,) next checkpoint
    plays: Ints  # (K,) plays per channel
    last_pick: Ints  # (K,) the slot in which a channel was picked last, to catch a double pick
    picks: Ints  # (K,) channels of the current slot
    picked: Ints  # (1,) how many of them
    static_worse: Flags  # (P, K) channels outside the static optimum, for each row of availability
    table_mean: Floats  # (K,) means without perturbation
    table_best: Floats  # (P,) sum of the M largest of them
    sensing: bool  # whether a policy sees all states before it picks
    hidden: Ints  # (K,) what it sees otherwise: -1
    told: bool  # whether it sees the perturbations before it picks: an oracle
    untold: Floats  # (K,) what it sees otherwise: nan
    indices: Floats  # (K,) working arrays lent to the policy
    scratch: Floats  # (2K,)


CURVES = ("reward", "regret_table", "suboptimal_static", "suboptimal_contextual", "collisions")


class References(NamedTuple):
    """What every policy on a path is measured against."""

    t: Ints  # (C,) checkpoints
    curves: Floats  # (3, C) cumulative static, contextual and genie reward
    now: Floats  # (3,)
    carry: Floats  # (3,) what rounding has left out of them
    cursor: Ints  # (1,)
    static_slot: Floats  # (P,) sum of the M largest means, for each row of availability


REFERENCES = ("static", "contextual", "genie")

# Stand-ins: `compile.specialise` binds the functions of a policy to these names.
select: Callable[..., int] = NotImplemented
update: Callable[..., Any] = NotImplemented


@jit
def add(total: float, carry: float, value: float) -> tuple[float, float]:
    """total + value, and what rounding left out of it, to be passed in again (Kahan). Over 10^10 slots a plain sum of
    rewards of 0.1 would lose thousands."""
    value += carry
    new = total + value
    return new, value - (new - total)


@jit
def enter(world: World) -> None:
    """Before slot 1: draw the states from their stationary law."""
    fill_uniform(world.state_rng, world.u)
    start(world.start, world.u, world.s)


@jit
def advance(world: World) -> None:
    """One slot passes: states move, contexts arrive."""
    fill_uniform(world.state_rng, world.u)
    step(world.limits, world.u, world.s)
    fill_uniform(world.context_rng, world.contexts)
    perturb(world.law, world.theta, world.x, world.n, world.fault)
    for k in range(world.s.size):
        world.expected[k] = expected_reward(world.reward, world.mean_h[k], world.good_share[k], world.n[k])


def run(known: Known, world: World, params: Any, state: Any, rng: Rng, tally: Tally, first: int, last: int) -> int:
    """Slots first+1 .. last of one policy on one path. 0, or the slot in which the policy broke the rules."""
    if first == 0:
        enter(world)
    row = first % world.available.shape[0]
    earned, table, static = tally.now[0], tally.now[1], tally.now[2]
    contextual, collisions = tally.now[3], tally.now[4]
    earned_carry, table_carry = tally.carry[0], tally.carry[1]
    cursor = tally.cursor[0]
    sensed = world.s if tally.sensing else tally.hidden
    n = world.n if tally.told else tally.untold
    for t in range(first + 1, last + 1):
        advance(world)
        available = world.available[row]
        usable = gather(world.expected, available, world.scratch)
        places = min(known.M, usable)
        bar = mth_largest(world.scratch, usable, places) - TIE if places > 0 else 0.0

        slot = Slot(t, world.x, available, sensed, n, tally.indices, tally.scratch)
        count = select(known, params, state, rng, slot, tally.picks)
        tally.picked[0] = count
        if count != places:
            return t
        slot_reward, slot_table = 0.0, tally.table_best[row]
        for i in range(count):
            k = tally.picks[i]
            if k < 0 or k >= known.K or not available[k] or tally.last_pick[k] == t:
                return t
            tally.last_pick[k] = t
            s = world.s[k]
            good = world.good[k, s]
            r = reward(world.reward, world.h[k, s], good, world.n[k])
            slot_reward += r
            slot_table -= tally.table_mean[k]
            static += tally.static_worse[row, k]
            contextual += world.expected[k] < bar
            collisions += not good
            tally.plays[k] += 1
            update(known, params, state, rng, slot, k, s, r, world.n[k] if known.measured else np.nan)
        earned, earned_carry = add(earned, earned_carry, slot_reward)
        table, table_carry = add(table, table_carry, slot_table)

        if t == tally.t[cursor]:
            tally.curves[0, cursor] = earned
            tally.curves[1, cursor] = table
            tally.curves[2, cursor] = static
            tally.curves[3, cursor] = contextual
            tally.curves[4, cursor] = collisions
            cursor += 1
        row = row + 1 if row + 1 < world.available.shape[0] else 0
    tally.now[0], tally.now[1], tally.now[2] = earned, table, static
    tally.now[3], tally.now[4] = contextual, collisions
    tally.carry[0], tally.carry[1] = earned_carry, table_carry
    tally.cursor[0] = cursor
    return 0


def walk(known: Known, world: World, references: References, first: int, last: int) -> None:
    """The reference rewards along slots first+1 .. last: once per path, for all policies on it."""
    if first == 0:
        enter(world)
    row = first % world.available.shape[0]
    now, carry = references.now, references.carry
    cursor = references.cursor[0]
    for t in range(first + 1, last + 1):
        advance(world)
        available = world.available[row]
        for k in range(known.K):
            s = world.s[k]
            world.rewards[k] = reward(world.reward, world.h[k, s], world.good[k, s], world.n[k])
        now[0], carry[0] = add(now[0], carry[0], references.static_slot[row])
        contextual = top_sum(world.expected, available, known.M, world.scratch)
        now[1], carry[1] = add(now[1], carry[1], contextual)
        genie = top_sum(world.rewards, available, known.M, world.scratch)
        now[2], carry[2] = add(now[2], carry[2], genie)
        if t == references.t[cursor]:
            for i in range(now.size):
                references.curves[i, cursor] = now[i]
            cursor += 1
        row = row + 1 if row + 1 < world.available.shape[0] else 0
    references.cursor[0] = cursor
