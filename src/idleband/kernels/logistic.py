"""Logistic regression, one sample at a time: P(y = 1 | x) = 1 / (1 + exp(-theta . x)), with its uncertainty.

The posterior of theta is taken as normal and updated by one Newton step a sample (Laplace, as in a Kalman filter):
with v = A^-1 x, p the predicted chance and h = p (1 - p) what a sample at p tells,
    A^-1 -= v v' h / (1 + h x'v)            theta += v (y - p) / (1 + h x'v).
Memory and order of calls are those of `ridge.py`, and so is the width x' A^-1 x.
"""

import math

import numpy as np
import numpy.typing as npt

from idleband.kernels.compile import jit

Floats = npt.NDArray[np.float64]


@jit
def chance(score: float) -> float:
    """The chance of y = 1 where theta . x = score; at scores beyond +-700 the exponential would overflow."""
    return 1.0 / (1.0 + math.exp(min(700.0, -score)))


@jit
def learn(A_inv: Floats, theta: Floats, m: int, v: Floats, k: int, q: float, score: float, y: float) -> None:
    """Take in one sample of model m, with v[k] and q from ridge.width_squared and score = theta . x; spends v[k]."""
    d = v.shape[1]
    p = chance(score)
    told = p * (1.0 - p)
    gain = (y - p) / (1.0 + told * q)
    scale = math.sqrt(told / (1.0 + told * q))
    for i in range(d):
        theta[m, i] += gain * v[k, i]
        v[k, i] *= scale
    for i in range(d):
        u_i = v[k, i]
        for j in range(d):
            A_inv[m, i, j] -= u_i * v[k, j]
