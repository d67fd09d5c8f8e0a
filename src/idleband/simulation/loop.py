"""The simulation loop, and the loop that computes the references along the same sample path.

Both run slots first+1 to last. All state is kept in arrays, so that a caller can run them in segments, show progress
and be interrupted. Neither allocates memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng
from idleband.kernels.selection import gather, mth_largest, top_sum
from idleband.policies.protocol import Feedback, Setup, Slot
from idleband.scenario.reward import reward
from idleband.simulation.environment import SamplePath, advance, enter, play, state_reward

TIE = 1e-12  # values closer than this are equal: a play is sub-optimal only if M channels are better by more


class Tally(NamedTuple):
    """Counters of a run."""

    t: Ints  # (C,) checkpoints
    curves: Floats  # (5, C) cumulative values at the checkpoints, rows as in CURVES
    now: Floats  # (5,) the same at the current slot
    carry: Floats  # (2,) rounding errors of the first two, which are not whole numbers
    cursor: Ints  # (1,) next checkpoint
    plays: Ints  # (K,) plays per channel
    last_pick: Ints  # (K,) slot in which a channel was selected last, to detect double selections
    picks: Ints  # (K,) channels of the current slot
    picked: Ints  # (1,) how many of them
    static_worse: Flags  # (P, K) channels outside the static optimum, for each row of availability
    table_mean: Floats  # (K,) means without perturbation
    table_best: Floats  # (P,) sum of the M largest of them
    sensing: bool  # whether the policy observes all states before it selects
    sees_states: bool  # whether it observes them without sensing errors, and the noise: the genie
    hidden_states: Ints  # (K,) of -1, what it observes otherwise
    sees_perturbations: bool  # whether the policy observes the mean perturbations before it selects: an oracle
    hidden_perturbations: Floats  # (K,) of nan, what it observes otherwise
    indices: Floats  # (K,) working arrays lent to the policy
    scratch: Floats  # (2K,)


CURVES = ("reward", "regret_table", "suboptimal_static", "suboptimal_contextual", "collisions")


class References(NamedTuple):
    """Rewards of the references along a sample path."""

    t: Ints  # (C,) checkpoints
    curves: Floats  # (3, C) cumulative static, contextual and genie reward
    now: Floats  # (3,)
    carry: Floats  # (3,) rounding errors of them
    cursor: Ints  # (1,)
    M: int  # number of channels to select in a slot
    static_slot: Floats  # (P,) sum of the M largest means, for each row of availability


REFERENCES = ("static", "contextual", "genie")

# Stand-ins: `compile.specialise` binds the functions of a policy to these names.
select: Callable[..., int] = NotImplemented
update: Callable[..., Any] = NotImplemented


@jit
def add(total: float, carry: float, value: float) -> tuple[float, float]:
    """Return total + value and the rounding error, to be passed in again (Kahan summation).

    Over 10^10 slots a plain sum of rewards of 0.1 would be wrong by thousands.
    """
    value += carry
    new = total + value
    return new, value - (new - total)


def run(setup: Setup, path: SamplePath, state: Any, rng: Rng, tally: Tally, first: int, last: int) -> int:
    """Run slots first+1 to last of one policy; return 0, or the slot in which the policy selected invalid channels."""
    if first == 0:
        enter(path)
    row = first % path.available.shape[0]
    earned, table, static = tally.now[0], tally.now[1], tally.now[2]
    contextual, collisions = tally.now[3], tally.now[4]
    earned_carry, table_carry = tally.carry[0], tally.carry[1]
    cursor = tally.cursor[0]
    errors = path.errors and not tally.sees_states
    # Not a function: where a user's code allocates, compiled code must not return arrays to the loop.
    sensed = path.s if tally.sensing else tally.hidden_states
    if tally.sensing and errors:
        sensed = path.observed
    n = path.n if tally.sees_perturbations else tally.hidden_perturbations
    if tally.sees_perturbations and not tally.sees_states and path.noise > 0.0:
        n = path.f
    for t in range(first + 1, last + 1):
        advance(path)
        available = path.available[row]
        usable = gather(path.expected, available, path.scratch)
        places = min(setup.M, usable)
        best_mth = mth_largest(path.scratch, usable, places) - TIE if places > 0 else 0.0

        slot = Slot(t, path.x, available, sensed, n, tally.indices, tally.scratch, rng)
        count = select(setup, state, slot, tally.picks)
        tally.picked[0] = count
        if count != places:
            return t
        slot_reward, slot_table = 0.0, tally.table_best[row]
        for i in range(count):
            k = tally.picks[i]
            if k < 0 or k >= setup.K or not available[k] or tally.last_pick[k] == t:
                return t
            slot_reward, good, s, r, measured = play(path, k, t, tally.last_pick, setup.measured, slot_reward)
            slot_table -= tally.table_mean[k]
            static += tally.static_worse[row, k]
            contextual += path.expected[k] < best_mth
            collisions += not good
            tally.plays[k] += 1
            update(setup, state, slot, Feedback(k, s, r, measured, 0))
        earned, earned_carry = add(earned, earned_carry, slot_reward)
        table, table_carry = add(table, table_carry, slot_table)

        if t == tally.t[cursor]:
            tally.curves[0, cursor] = earned
            tally.curves[1, cursor] = table
            tally.curves[2, cursor] = static
            tally.curves[3, cursor] = contextual
            tally.curves[4, cursor] = collisions
            cursor += 1
        row = row + 1 if row + 1 < path.available.shape[0] else 0
    tally.now[0], tally.now[1], tally.now[2] = earned, table, static
    tally.now[3], tally.now[4] = contextual, collisions
    tally.carry[0], tally.carry[1] = earned_carry, table_carry
    tally.cursor[0] = cursor
    return 0


def run_references(path: SamplePath, references: References, first: int, last: int) -> int:
    """Compute the rewards of the references along slots first+1 to last; return 0, as `run` does at its end."""
    if first == 0:
        enter(path)
    row = first % path.available.shape[0]
    now, carry = references.now, references.carry
    cursor = references.cursor[0]
    for t in range(first + 1, last + 1):
        advance(path)
        available = path.available[row]
        for k in range(path.s.size):
            s = path.s[k]
            path.rewards[k] = reward(path.reward, state_reward(path, k, s), path.good[k, s], path.n[k])
        now[0], carry[0] = add(now[0], carry[0], references.static_slot[row])
        contextual = top_sum(path.expected, available, references.M, path.scratch)
        now[1], carry[1] = add(now[1], carry[1], path.factor * contextual)
        genie = top_sum(path.rewards, available, references.M, path.scratch)
        now[2], carry[2] = add(now[2], carry[2], path.factor * genie)
        if t == references.t[cursor]:
            for i in range(now.size):
                references.curves[i, cursor] = now[i]
            cursor += 1
        row = row + 1 if row + 1 < path.available.shape[0] else 0
    references.cursor[0] = cursor
    return 0
