"""Channels as finite-state Markov chains, whose states change whether a channel is played or not.

A channel has a transition matrix P and a state reward h. A Gilbert-Elliott channel has two states: 0 is
bad, 1 is good, p01 = P(bad to good), p10 = P(good to bad). Chains must be irreducible; periodic chains are allowed,
because states start at their stationary distribution.
"""

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit


def gilbert_elliott(p01: float, p10: float) -> Floats:
    """Return the transition matrix of a two-state channel.

    >>> gilbert_elliott(0.1, 0.3)
    array([[0.9, 0.1],
           [0.3, 0.7]])
    """
    return np.array([[1.0 - p01, p01], [p10, 1.0 - p10]])


def irreducible(P: Floats) -> bool:
    """Return whether every state can be reached from every other.

    >>> irreducible(np.eye(2))
    False
    """
    reach = (np.eye(len(P)) + P) > 0
    for _ in range(len(P).bit_length()):  # paths of 1, 2, 4, ... steps
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return bool(reach.all())


def stationary(P: Floats) -> Floats:
    """Return the stationary distribution of an irreducible chain.

    State reduction (Grassmann, Taksar and Heyman 1985) has no subtractions, so that every entry has full relative
    precision even for chains that rarely change their state.

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
        # Normalised at every state, because a chain with many rare transitions would overflow.
        distribution[: s + 1] /= distribution[: s + 1].sum()
    return distribution


def autocorrelation(P: Floats, h: Floats, lag: int = 1) -> float:
    """Return the stationary autocorrelation of h(s) at a lag; for two states it is (1 - p01 - p10)^lag.

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
    """Return the cumulative rows of P without the last column, shape (S, S-1).

    The next state is the number of limits that a uniform draw has reached. States that the chain does not have are
    never entered.
    """
    limits = np.ones((S, S - 1))
    for s, row in enumerate(P):
        last = int(np.flatnonzero(row)[-1])  # 1 from here on, so that rounding never enters a state of probability 0
        limits[s, :last] = np.cumsum(row)[:last]
    return limits


@jit
def start(distribution: Floats, u: Floats, s: Ints) -> None:
    """Draw the first state of every channel; distribution holds cumulative stationary probabilities, (K, S-1)."""
    for k in range(s.size):
        state = 0
        for j in range(distribution.shape[1]):
            state += u[k] >= distribution[k, j]
        s[k] = state


@jit
def step(limits: Floats, u: Floats, s: Ints) -> None:
    """Advance every channel by one slot; limits holds cumulative transition probabilities, (K, S, S-1)."""
    for k in range(s.size):
        state = 0
        for j in range(limits.shape[2]):
            state += u[k] >= limits[k, s[k], j]
        s[k] = state
