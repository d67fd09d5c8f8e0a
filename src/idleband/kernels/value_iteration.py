"""Relative value iteration over what a base station knows of every channel, with bounds on the optimal average reward.

A base station that observes played channels only knows, of a channel, the last observed state and its age, and from
them the belief b, the distribution of the present state. The beliefs of a channel are listed. First come those one slot
after each state, of a channel that was played in the last slot; then those of a channel that was not: two and more
slots after each state, up to the age at which b is close to the stationary distribution. The last entry is the
stationary distribution, which stands for all greater ages. Half the sum of its absolute differences from the beliefs
that it stands for is at most its `doubt`; that of all other entries is 0.

Exactly M channels are played in a slot. So the state of the problem is the set that was played, the states that it
showed, and one belief of every other channel, numbered in this order. With c a set of M channels, o the states that it
shows, x' the state that follows, and l the levels of the perturbation of all channels, which are independent from slot
to slot, an iteration computes

    (T h)(x) = sum_l P(l) max over c of [ sum over k in c of b_k . pay_k(l_k)  +  sum_o P(o | x) h(x') ].

For any h, the optimal average reward is between the smallest and the largest difference (T h)(x) - h(x) (Odoni 1969;
Puterman, "Markov decision processes", 1994, section 8.5; from memory). A belief with doubt e changes an expected value
of v by at most e (max v - min v). With `sign` = 1 this is added wherever it applies, with -1 it is subtracted: the
largest difference of the first and the smallest of the second then bound the problem with unlimited ages (the idea of
bounded-parameter Markov decision processes, Givan, Leach and Dean 2000; from memory).
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import compile
from idleband.kernels.compile import jit

STEP = 0.9  # part of the way that values move in a sweep; with 1 they may alternate for ever
DEPTH = 5  # steps that the acceleration combines
CHUNK = 2 * 10**6  # terms between two looks for Ctrl-C, a few milliseconds


class Problem(NamedTuple):
    """The problem of K channels, M of which are played in a slot; C sets, Q combinations of levels."""

    sizes: Ints  # (K,) number of states S_k
    counts: Ints  # (K,) number of beliefs of a channel that was not played in the last slot
    beliefs: Floats  # (K, B, S) all beliefs: first those after each state, then the others
    doubt: Floats  # (K, B)
    later: Ints  # (K, B) belief of a channel that is not played, counted from 0 after the first S_k
    rewards: Floats  # (K, B, Q) expected reward at each combination of levels, doubt included
    sets: Ints  # (C, M) channels of each set
    others: Ints  # (C, K - M) channels outside it
    first: (
        Ints  # (C + 1,) number of the first state in which the set was played; the last entry is the number of states
    )
    blocks: Ints  # (C,) number of combinations of beliefs of the channels outside the set
    weights: Floats  # (Q,) probability of each combination of levels of all channels
    sign: float  # of the doubt


class Work(NamedTuple):
    """Working memory."""

    at: Ints  # (K,) belief of every channel
    shown: Floats  # (S^M,) value after each outcome of a play
    value: Floats  # (C,) value of each set, without the reward of the slot
    total: Floats  # (Q,) value of a set at each combination of levels
    best: Floats  # (Q,) that of the best set
    ends: Floats  # (2,) smallest and largest difference so far


class Relative(NamedTuple):
    """Relative values, and the smallest and the largest difference in the last of some sweeps."""

    h: Floats
    low: float = -math.inf
    high: float = math.inf
    sweeps: int = 0


def new_work(problem: Problem) -> Work:
    C, Q = len(problem.sets), len(problem.weights)
    outcomes = int((np.diff(problem.first) // problem.blocks).max())
    at = np.zeros(len(problem.sizes), np.int64)
    return Work(at, np.zeros(outcomes), np.zeros(C), np.zeros(Q), np.zeros(Q), np.zeros(2))


# --- one sweep -------------------------------------------------------------------------------------------------------


@jit
def sweep(problem: Problem, work: Work, h: Floats, out: Floats, begin: int, end: int) -> None:
    """Write T h into `out` for the states from `begin` to `end`, and update the smallest and largest difference."""
    for x in range(begin, end):
        locate(problem, work, x)
        look_ahead(problem, work, h)
        out[x] = choose(problem, work)
        difference = out[x] - h[x]
        work.ends[0] = min(work.ends[0], difference)
        work.ends[1] = max(work.ends[1], difference)


@jit
def locate(problem: Problem, work: Work, x: int) -> None:
    """Write the beliefs of all channels in state x into work.at."""
    c = 0
    while x >= problem.first[c + 1]:
        c += 1
    x -= problem.first[c]
    for i in range(problem.others.shape[1] - 1, -1, -1):
        k = problem.others[c, i]
        work.at[k] = problem.sizes[k] + x % problem.counts[k]
        x //= problem.counts[k]
    for i in range(problem.sets.shape[1] - 1, -1, -1):
        k = problem.sets[c, i]
        work.at[k] = x % problem.sizes[k]
        x //= problem.sizes[k]


@jit
def look_ahead(problem: Problem, work: Work, h: Floats) -> None:
    """Write the expected value of h after a play of each set into work.value, for the beliefs in work.at."""
    for c in range(problem.sets.shape[0]):
        waiting = 0
        for i in range(problem.others.shape[1]):
            k = problem.others[c, i]
            waiting = waiting * problem.counts[k] + problem.later[k, work.at[k]]
        outcomes = (problem.first[c + 1] - problem.first[c]) // problem.blocks[c]
        for o in range(outcomes):
            work.shown[o] = h[problem.first[c] + o * problem.blocks[c] + waiting]
        for i in range(problem.sets.shape[1] - 1, -1, -1):  # the expectation over the last channel comes first
            k = problem.sets[c, i]
            outcomes //= problem.sizes[k]
            for o in range(outcomes):
                work.shown[o] = expected(problem, k, work.at[k], work.shown, o * problem.sizes[k])
        work.value[c] = work.shown[0]


@jit
def expected(problem: Problem, k: int, b: int, values: Floats, first: int) -> float:
    """Return the expectation, under belief b of channel k, of the value of each state, doubt included."""
    mean, low, high = 0.0, values[first], values[first]
    for j in range(problem.sizes[k]):
        value = values[first + j]
        mean += problem.beliefs[k, b, j] * value
        low, high = min(low, value), max(high, value)
    return mean + problem.sign * problem.doubt[k, b] * (high - low)


@jit
def choose(problem: Problem, work: Work) -> float:
    """Return the expectation over the levels of the value of the best set."""
    total, best, Q = work.total, work.best, work.best.size
    for c in range(problem.sets.shape[0]):
        for q in range(Q):  # loops over q are simple, so that they are vectorised
            total[q] = work.value[c]
        for i in range(problem.sets.shape[1]):
            k = problem.sets[c, i]
            b = work.at[k]
            for q in range(Q):
                total[q] += problem.rewards[k, b, q]
        for q in range(Q):
            if c == 0 or total[q] > best[q]:
                best[q] = total[q]
    mean = 0.0
    for q in range(Q):
        mean += problem.weights[q] * best[q]
    return mean


@jit
def best_set(problem: Problem, work: Work, h: Floats, pay: Floats) -> int:
    """Return the best set, of equal ones the first, for the beliefs in work.at and expected rewards of the channels."""
    look_ahead(problem, work, h)
    found, best = 0, -np.inf
    for c in range(problem.sets.shape[0]):
        value = work.value[c]
        for i in range(problem.sets.shape[1]):
            value += pay[problem.sets[c, i]]
        if value > best:
            found, best = c, value
    return found


# --- many sweeps -----------------------------------------------------------------------------------------------------


def iterate(problem: Problem, h: Floats, within: float, terms: int, max_sweeps: int) -> Relative:
    """Iterate until all differences are within an interval of this width; `terms` is what a sweep adds up."""
    states, out, work = len(h), np.zeros(len(h)), new_work(problem)
    chunk = max(1, CHUNK * states // terms)
    acceleration, last, sweeps = Acceleration(states), math.inf, 0
    while True:
        work.ends[:] = np.inf, -np.inf
        for begin in range(0, states, chunk):
            compile.call(compiled_sweep(), problem, work, h, out, begin, min(begin + chunk, states))
        sweeps += 1
        low, high = work.ends.tolist()
        if high - low <= within or sweeps >= max_sweeps:
            return Relative(h, low, high, sweeps)
        if high - low > 2.0 * last:
            acceleration.restart()
        last = high - low
        h = acceleration.following(h, out - h)
        h = h - h[0]


class Acceleration:
    """Anderson's acceleration of a fixed-point iteration (Anderson 1965; from memory).

    The next values are the linear combination of the last ones whose step is smallest if steps are linear. In examples
    it took a third to a fifteenth of the sweeps.
    """

    def __init__(self, size: int) -> None:
        self._reached: Floats | None = None  # the last values after the step of the iteration
        self._step = np.zeros(size)
        self._moved = np.zeros((DEPTH, size))  # differences of successive values after that step
        self._changed = np.zeros((DEPTH, size))  # differences of successive steps
        self._gram = np.zeros((DEPTH, DEPTH))  # products of these differences
        self._count = 0

    def restart(self) -> None:
        """Forget all steps, because they misled."""
        self._reached, self._count = None, 0

    def following(self, h: Floats, step: Floats) -> Floats:
        """Return the next values; the iteration alone would go from h to h + step."""
        step = step - step.mean()
        reached = h + STEP * step
        found = reached
        if self._reached is not None:
            row = self._count % DEPTH
            self._count += 1
            np.subtract(reached, self._reached, out=self._moved[row])
            np.subtract(step, self._step, out=self._changed[row])
            n = min(self._count, DEPTH)
            # Without BLAS, whose last bits may depend on the number of threads.
            self._gram[row, :n] = self._gram[:n, row] = np.einsum("ij,j->i", self._changed[:n], self._changed[row])
            gram = self._gram[:n, :n]
            target = np.einsum("ij,j->i", self._changed[:n], step)
            shares = np.linalg.solve(gram + (1e-12 * np.trace(gram) + 1e-300) * np.eye(n), target)
            found = reached.copy()
            for share, moved in zip(shares, self._moved, strict=False):
                found -= share * moved
        self._reached, self._step = reached, step
        return found


@cache
def compiled_sweep() -> Any:
    return compile.specialise(sweep, "optimum", {})


def decide(problem: Problem, h: Floats, beliefs: Ints, pay: Floats) -> int:
    """Return the best set for a belief and an expected reward of every channel."""
    work = new_work(problem)
    work.at[:] = beliefs
    return int(compile.call(_decision(), problem, work, h, pay))


@cache
def _decision() -> Any:
    return compile.specialise(best_set, "optimal_set", {})
