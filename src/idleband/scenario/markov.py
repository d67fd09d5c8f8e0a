"""Channels: finite-state Markov chains that move whether used or not.

A channel has a transition matrix P and a state reward h. Gilbert-Elliott is the two-state case: state 0 is bad, state 1
good, p01 = P(bad to good), p10 = P(good to bad). Chains must be irreducible; periodic ones are allowed, because states
start at their stationary distribution.
"""

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit


def gilbert_elliott(p01: float, p10: float) -> Floats:
    """The transition matrix of a two-state channel.

    >>> gilbert_elliott(0.1, 0.3)
    array([[0.9, 0.1],
           [0.3, 0.7]])
    """
    return np.array([[1.0 - p01, p01], [p10, 1.0 - p10]])


def irreducible(P: Floats) -> bool:
    """Whether every state can be reached from every other.

    >>> irreducible(np.eye(2))
    False
    """
    reach = (np.eye(len(P)) + P) > 0
    for _ in range(len(P).bit_length()):  # ways of 1, 2, 4, ... steps
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return bool(reach.all())


def stationary(P: Floats) -> Floats:
    """The stationary distribution of an irreducible chain, by state reduction (Grassmann, Taksar, Heyman): no subtractions, so
    every entry has full relative precision even for chains that hardly move.

    >>> stationary(gilbert_elliott(0.1, 0.3))
    array([0.75, 0.25])
    """
    A = np.array(P, float)
    S = len(A)
    for s in range(S - 1, 0, -1):
        A[:s, s] /= A[s, :s].sum()
        A[:s, :s] += np.outer(A[:s, s], A[s, :s])
    distribution = np.ones(S)
    for s in range(1, S):
        distribution[s] = distribution[:s] @ A[:s, s]
        distribution[: s + 1] /= distribution[
            : s + 1
        ].sum()  # at every state, or a chain of many rare moves would overflow
    return distribution


def autocorrelation(P: Floats, h: Floats, lag: int = 1) -> float:
    """The stationary correlation of h(s) with itself some slots later; for two states (1 - p01 - p10)^lag.

    >>> round(autocorrelation(gilbert_elliott(0.1, 0.3), np.array([0.1, 1.0])), 12)
    0.6
    """
    distribution = stationary(P)
    centred = h - distribution @ h
    variance = float(distribution @ centred**2)
    if variance == 0.0:
        return 0.0
    return float((distribution * centred) @ np.linalg.matrix_power(P, lag) @ centred) / variance


def cumulative(P: Floats, S: int) -> Floats:
    """Rows of P as inner limits of [0, 1): the next state is how many of them a uniform draw has reached. (S, S-1);
    states beyond the chain's own are never entered."""
    limits = np.ones((S, S - 1))
    for s, row in enumerate(P):
        last = int(np.flatnonzero(row)[-1])  # from here on 1, so that rounding never enters a state of chance 0
        limits[s, :last] = np.cumsum(row)[:last]
    return limits


@jit
def start(distribution: Floats, u: Floats, s: Ints) -> None:
    """Draw every channel's first state; distribution is (K, S-1), inner limits of the stationary distribution."""
    for k in range(s.size):
        state = 0
        for j in range(distribution.shape[1]):
            state += u[k] >= distribution[k, j]
        s[k] = state


@jit
def step(limits: Floats, u: Floats, s: Ints) -> None:
    """Move every channel by one slot; limits is (K, S, S-1)."""
    for k in range(s.size):
        state = 0
        for j in range(limits.shape[2]):
            state += u[k] >= limits[k, s[k], j]
        s[k] = state
