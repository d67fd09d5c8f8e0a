"""Whittle index and upper bound from the problem of one channel with a charge lambda per play.

A base station that observes played channels only knows, of a channel, the last observed state s and its age a in slots;
the belief is b = (row s of P^a). In every slot the perturbation is at level l with probability q_l, independent of all
else. A play pays sum_j b_j v_lj, costs the charge, and reveals the state j, whose age is then 1. Otherwise the age
grows by 1. The optimal average reward g and the values H solve

    g + H(s, a) = sum_l q_l max( sum_j b_j (v_lj + H(j, 1)) - lambda ,  H(s, a + 1) ).

The **Whittle index** of (s, a) at level l is the charge at which playing and waiting have the same value (Whittle,
"Restless bandits: activity allocation in a changing world", 1988; the charge for playing is his subsidy for not
playing). The **upper bound** is that of the relaxed problem, in which M channels are played on average instead of
exactly M in every slot: a linear program over the frequencies of (s, a, l), whose value by duality is the minimum over
lambda of lambda M + sum_k g_k(lambda) (Weber and Weiss, "On an index policy for restless bandits", 1990). No policy
that observes played channels only has a larger long-run average reward. The dual takes milliseconds where the linear
program takes seconds; the tests solve the program.

The problem is solved by policy iteration. Ages end at A, where b hardly changes any more: a channel stays at this age
until it is played.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Flags, Floats
from idleband.kernels import compile
from idleband.kernels.compile import jit

FORGOTTEN = 1e-5  # influence of an observation that is left at the last age
MIN_AGE, MAX_AGE = 2, 4000
MAX_ROUNDS = 100  # of policy iteration; it needs about six
SAME = 1e-12  # absolute or relative difference of values up to which decisions are not changed
# Assumed probability that a play reveals state 0 instead. Without it an intermediate policy may never reach some states
# (of a periodic channel, for example), and its gain would not be determined.
ASTRAY = 1e-12


class Channels(NamedTuple):
    """The problems of K channels; entries of states that a channel does not have are zero."""

    beliefs: Floats  # (K, S, A, S) belief at ages 1 to A, by the last observed state
    pay: Floats  # (K, L, S) expected reward in a state, at each level of the perturbation
    probability: Floats  # (K, L) probability of each level


class Work(NamedTuple):
    """Working memory for one channel."""

    plays: Flags  # (A, S, L) the policy
    later: Floats  # (A, S) H(s, a + 1), the value of waiting at age a
    first: Floats  # (S,) H(s, 1)
    constant: Floats  # (S,) H(s, a) = constant + weights . H(., 1) - time * gain
    weights: Floats  # (S, S)
    time: Floats  # (S,)
    system: Floats  # (S, S + 1)
    value: Floats  # (L,)


def channels(P: Floats, pay: Floats, probability: Floats, ages: int | None = None) -> Channels:
    """Return the problems for transition matrices P (K, S, S)."""
    A = ages_to_forget(P) if ages is None else ages
    return Channels(beliefs(P, A), np.array(pay, float, order="C"), np.array(probability, float, order="C"))


def beliefs(P: Floats, ages: int) -> Floats:
    """Return the belief at each age, by the last observed state, shape (K, S, ages, S)."""
    found = np.zeros((*P.shape[:2], ages, P.shape[2]))
    power = P
    for a in range(ages):
        found[:, :, a] = power
        power = power @ P
    return found


def ages_to_forget(P: Floats, most: int = MAX_AGE) -> int:
    """Return the number of ages after which an observation has no influence, at most `most`."""
    sizes = np.sort(np.abs(np.linalg.eigvals(P)), axis=1)[:, :-1]
    slowest = float(np.max(sizes, initial=0.0))
    if slowest <= FORGOTTEN:
        return MIN_AGE
    if slowest >= FORGOTTEN ** (1.0 / most):
        return most
    return max(MIN_AGE, math.ceil(math.log(FORGOTTEN) / math.log(slowest)))


def new_work(S: int, A: int, L: int) -> Work:
    return Work(
        plays=np.zeros((A, S, L), np.bool_),
        later=np.zeros((A, S)),
        first=np.zeros(S),
        constant=np.zeros(S),
        weights=np.zeros((S, S)),
        time=np.zeros(S),
        system=np.zeros((S, S + 1)),
        value=np.zeros(L),
    )


# --- one channel under one charge ------------------------------------------------------------------------------------


@jit
def net(world: Channels, k: int, s: int, a: int, level: int, charge: float) -> float:
    """Return the expected reward of a play minus its charge."""
    total = -charge
    for j in range(world.pay.shape[2]):
        total += world.beliefs[k, s, a, j] * world.pay[k, level, j]
    return total


@jit
def evaluate(world: Channels, k: int, charge: float, work: Work, returns: bool) -> float:
    """Write H(s, 1) of the policy in work.plays into work.first and return its gain.

    With `returns` the policy plays the channel again and again; otherwise it may stop forever, and the gain is 0.
    """
    S, A, L = work.first.size, work.plays.shape[0], work.value.size
    constant, weights, time, system = work.constant, work.weights, work.time, work.system
    for s in range(S):
        constant[s], time[s] = 0.0, 0.0
        for j in range(S):
            weights[s, j] = 0.0
    for s in range(S):
        for a in range(A - 1, -1, -1):
            paid, played = 0.0, 0.0
            for level in range(L):
                if work.plays[a, s, level]:
                    q = world.probability[k, level]
                    paid += q * net(world, k, s, a, level, charge)
                    played += q
            if a == A - 1:  # the channel stays here until it is played
                if played > 0.0:
                    constant[s], time[s] = paid / played, 1.0 / played
                    for j in range(S):
                        weights[s, j] = world.beliefs[k, s, a, j]
            else:
                constant[s] = paid + (1.0 - played) * constant[s]
                time[s] = 1.0 + (1.0 - played) * time[s]
                for j in range(S):
                    weights[s, j] = played * world.beliefs[k, s, a, j] + (1.0 - played) * weights[s, j]
    for s in range(S):
        for j in range(S):
            system[s, j] = (1.0 if s == j else 0.0) - (1.0 - ASTRAY) * weights[s, j]
        if returns:  # H(0, 1) = 0; the gain is the unknown in its place
            system[s, 0] = time[s]
        system[s, S] = constant[s]
    eliminate(system)
    for s in range(S):
        work.first[s] = system[s, S]
    if not returns:
        return 0.0
    work.first[0] = 0.0
    return system[0, S]


@jit
def eliminate(system: Floats) -> None:
    """Solve S equations (S, S + 1) in place; the solution is in the last column, nan if there is none."""
    S = system.shape[0]
    for i in range(S):
        pivot = i
        for r in range(i + 1, S):
            if abs(system[r, i]) > abs(system[pivot, i]):
                pivot = r
        for c in range(i, S + 1):
            system[i, c], system[pivot, c] = system[pivot, c], system[i, c]
        for r in range(S):
            if r != i and system[r, i] != 0.0:
                factor = system[r, i] / system[i, i]
                for c in range(i, S + 1):
                    system[r, c] -= factor * system[i, c]
    for i in range(S):
        system[i, S] /= system[i, i]


@jit
def improve(world: Channels, k: int, charge: float, work: Work, gain: float, returns: bool) -> bool:
    """Make the best decisions for H(., 1) and the gain, and return whether any has changed."""
    S, A, L = work.first.size, work.plays.shape[0], work.value.size
    value, later, changed = work.value, work.later, False
    for s in range(S):
        for a in range(A - 1, -1, -1):
            shown = 0.0
            for j in range(S):
                shown += world.beliefs[k, s, a, j] * work.first[j]
            best = -np.inf
            for level in range(L):
                value[level] = net(world, k, s, a, level, charge) + shown
                if world.probability[k, level] > 0.0:
                    best = max(best, value[level])
            last = a == A - 1
            if last:
                later[a, s] = stay(world, k, value, gain) if returns else max(best, 0.0)
            before = 0.0
            for level in range(L):
                play = value[level] > later[a, s]
                if abs(value[level] - later[a, s]) <= SAME * max(1.0, abs(later[a, s])):
                    play = work.plays[a, s, level]
                if last and value[level] == best:  # a policy that returns must play at some level
                    play = returns or best > 0.0
                changed |= play != work.plays[a, s, level]
                work.plays[a, s, level] = play
                before += world.probability[k, level] * max(value[level], later[a, s])
            if a > 0:
                later[a - 1, s] = later[a, s] if last else before - gain
    return changed


@jit
def stay(world: Channels, k: int, value: Floats, gain: float) -> float:
    """Return the value H of waiting at the last age, the solution of gain = sum_l q_l max(value_l - H, 0).

    If the levels above some value are played, H is the quotient below; the solution is the largest of them.
    """
    best = -np.inf
    for i in range(value.size):
        total, q = 0.0, 0.0
        for level in range(value.size):
            if value[level] >= value[i]:
                total += world.probability[k, level] * value[level]
                q += world.probability[k, level]
        if q > 0.0:
            best = max(best, (total - gain) / q)
    return best


@jit
def iterate(world: Channels, k: int, charge: float, work: Work, returns: bool) -> float:
    """Run policy iteration from the policy in work.plays and return the gain."""
    gain = 0.0
    for _ in range(MAX_ROUNDS):
        gain = evaluate(world, k, charge, work, returns)
        if not improve(world, k, charge, work, gain, returns):
            break
    return gain


@jit
def set_plays(work: Work, play: bool) -> None:
    for a in range(work.plays.shape[0]):
        for s in range(work.plays.shape[1]):
            for level in range(work.plays.shape[2]):
                work.plays[a, s, level] = play


# --- all channels ----------------------------------------------------------------------------------------------------


def sweep(world: Channels, charges: Floats, work: Work, gains: Floats, advantage: Floats, index: Floats) -> None:
    """Solve every channel for each of the increasing charges.

    Writes the optimal gains into gains (K, C) and, unless it is empty, the Whittle index into index (K, S, A, L): the
    charge at which the advantage of playing falls to zero, interpolated linearly between two charges, or the last
    charge if it lies beyond. `advantage` (S, A, L) is a working array.
    """
    for k in range(gains.shape[0]):
        set_plays(work, True)
        pays = True
        for c in range(charges.size):
            gains[k, c] = 0.0
            # If no policy that keeps playing earns its charges, stopping is optimal in the long run; rewards before
            # that count as a sum instead of an average. Each search starts from the policy of the previous charge.
            while pays or index.size > 0:
                gains[k, c] = max(0.0, iterate(world, k, charges[c], work, pays))
                if gains[k, c] > 0.0 or not pays:
                    break
                pays = False
                set_plays(work, False)
            if index.size > 0:
                compare(world, k, charges, c, work, advantage, index)


@jit
def compare(world: Channels, k: int, charges: Floats, c: int, work: Work, advantage: Floats, index: Floats) -> None:
    """Find where the advantage of playing channel k falls to zero between the previous charge and this one."""
    S, A, L = work.first.size, work.plays.shape[0], work.value.size
    for s in range(S):
        for a in range(A):
            shown = 0.0
            for j in range(S):
                shown += world.beliefs[k, s, a, j] * work.first[j]
            for level in range(L):
                before = advantage[s, a, level]
                now = net(world, k, s, a, level, charges[c]) + shown - work.later[a, s]
                advantage[s, a, level] = now
                if c == 0:
                    index[k, s, a, level] = charges[0] if now <= 0.0 else charges[charges.size - 1]
                elif now <= 0.0 and index[k, s, a, level] > charges[c]:
                    share = now / (now - before) if before > now else 0.0
                    index[k, s, a, level] = charges[c] - share * (charges[c] - charges[c - 1])


def _sweep(world: Channels, charges: Floats, gains: Floats, index: Floats) -> None:
    _, S, A, _ = world.beliefs.shape
    L = world.pay.shape[1]
    compile.call(_compiled(), world, charges, new_work(S, A, L), gains, np.zeros((S, A, L)), index)


@cache
def _compiled() -> Any:
    return compile.specialise(sweep, "subsidy", {})


def bound(world: Channels, plays: float, low: float, high: float) -> float:
    """Return the upper bound on the average reward per slot of policies that observe played channels only.

    `plays` is the average number of plays per slot; rewards lie in [low, high].

    >>> fair = channels(np.full((3, 2, 2), 0.5), np.full((3, 1, 2), [[0.0, 1.0]]), np.ones((3, 1)))
    >>> round(bound(fair, 2, 0.0, 1.0), 9)
    1.0
    """
    points = 17
    gains = np.zeros((len(world.pay), points))
    for _ in range(6):  # the dual is convex: narrow the interval around its minimum
        charges = np.linspace(low, high, points)
        _sweep(world, charges, gains, np.zeros((0, 0, 0, 0)))
        dual = plays * charges + gains.sum(axis=0)
        best = int(dual.argmin())
        low, high = charges[max(best - 1, 0)], charges[min(best + 1, points - 1)]
    return float(dual.min())


def whittle(world: Channels, low: float, high: float, points: int = 257) -> Floats:
    """Return the Whittle index (K, S, A, L) of every channel by last observed state, age and level.

    Indices outside [low, high] are clipped.
    """
    K, S, A, _ = world.beliefs.shape
    index = np.zeros((K, S, A, world.pay.shape[1]))
    _sweep(world, np.linspace(low, high, points), np.zeros((K, points)), index)
    return index
