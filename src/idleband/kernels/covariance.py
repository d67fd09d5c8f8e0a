"""A = lambda I + sum g g' / D over sparse vectors g, and the quadratic form g' A^-1 g.

There are three kinds with one layout, (models, blocks, S, S): `full`, one block of all entries; `block`, blocks along
the diagonal, with the rest of A omitted; `diagonal`, only the diagonal, (models, 1, 1, entries). The vector of channel
k is g[k, block, :], and `rows[k, block, :filled[k, block]]` are the positions of its nonzero entries; only those rows
of A are used.

A itself is exact. Its inverse is kept beside it by rank-one updates, with v = A^-1 g,
    A^-1 -= v v' / (D + g'v)            (Sherman and Morrison)
and recomputed from A at intervals, before rounding errors accumulate.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.memory import aligned

COVARIANCES = ("full", "block", "diagonal")
FULL, BLOCK, DIAGONAL = range(3)

# The inverse of an S x S block costs S^3 / 2 multiply-adds, an update 2 S^2: every 32 S updates it adds 1/128.
REFRESH = 32


class Covariance(NamedTuple):
    kind: int
    lambda_: float
    A: Floats  # (models, blocks, S, S), only the lower triangles are updated; (models, 1, 1, entries) if diagonal
    A_inv: Floats  # the same shape, both triangles
    learned: Ints  # (models, blocks) updates since the inverse was recomputed


class Vectors(NamedTuple):
    g: Floats  # (K, blocks, S)
    rows: Ints  # (K, blocks, S) positions of the nonzero entries of g, in order
    filled: Ints  # (K, blocks) number of nonzero entries
    v: Floats  # (K, blocks, S) A^-1 g, after width_squared
    q: Floats  # (K, blocks) g' A^-1 g of each block, after width_squared


def new_covariance(kind: int, models: int, units: int, per_unit: int, lambda_: float) -> Covariance:
    """Return the initial covariance of vectors with `per_unit` entries for each unit; a block belongs to a unit."""
    blocks, S = (units, per_unit) if kind == BLOCK else (1, units * per_unit)
    shape = (models, blocks, 1 if kind == DIAGONAL else S, S)
    A, A_inv = aligned(shape), aligned(shape)
    step = 1 if kind == DIAGONAL else S + 1  # from one entry of a diagonal to the next
    A.reshape(models, blocks, -1)[:, :, ::step] = lambda_
    A_inv.reshape(models, blocks, -1)[:, :, ::step] = 1.0 / lambda_
    return Covariance(kind, lambda_, A, A_inv, np.zeros(A.shape[:2], np.int64))


def new_vectors(kind: int, K: int, units: int, per_unit: int) -> Vectors:
    blocks, S = (units, per_unit) if kind == BLOCK else (1, units * per_unit)
    return Vectors(
        g=aligned((K, blocks, S)),
        rows=np.zeros((K, blocks, S), np.int64),
        filled=np.zeros((K, blocks), np.int64),
        v=aligned((K, blocks, S)),
        q=np.zeros((K, blocks)),
    )


@jit
def width_squared(covariance: Covariance, m: int, vectors: Vectors, k: int) -> float:
    """Return g' A^-1 g >= 0 for the vector of channel k under model m; writes A^-1 g into v[k]."""
    if covariance.kind == DIAGONAL:
        return diagonal_width_squared(covariance.A_inv, m, vectors.g, k)
    A_inv, g, rows, v = covariance.A_inv, vectors.g, vectors.rows, vectors.v
    S = g.shape[2]
    total = 0.0
    for block in range(g.shape[1]):
        count = vectors.filled[k, block]
        if count == 0:
            vectors.q[k, block] = 0.0
            continue
        for i in range(S):
            v[k, block, i] = 0.0
        # By rows of A^-1, four at a time, so that v is loaded and stored a quarter as often.
        fours = count - count % 4
        for n in range(0, fours, 4):
            r0, r1, r2, r3 = rows[k, block, n], rows[k, block, n + 1], rows[k, block, n + 2], rows[k, block, n + 3]
            g0, g1, g2, g3 = g[k, block, r0], g[k, block, r1], g[k, block, r2], g[k, block, r3]
            for i in range(S):
                v[k, block, i] += (A_inv[m, block, r0, i] * g0 + A_inv[m, block, r1, i] * g1) + (
                    A_inv[m, block, r2, i] * g2 + A_inv[m, block, r3, i] * g3
                )
        for n in range(fours, count):
            r0 = rows[k, block, n]
            g0 = g[k, block, r0]
            for i in range(S):
                v[k, block, i] += A_inv[m, block, r0, i] * g0
        q = 0.0
        for n in range(count):
            q += v[k, block, rows[k, block, n]] * g[k, block, rows[k, block, n]]
        vectors.q[k, block] = max(q, 0.0)
        total += vectors.q[k, block]
    return total


@jit
def diagonal_width_squared(A_inv: Floats, m: int, g: Floats, k: int) -> float:
    q0, q1, q2, q3 = 0.0, 0.0, 0.0, 0.0  # four independent sums run in parallel
    S = g.shape[2]
    fours = S - S % 4
    for i in range(0, fours, 4):
        q0 += g[k, 0, i] * g[k, 0, i] * A_inv[m, 0, 0, i]
        q1 += g[k, 0, i + 1] * g[k, 0, i + 1] * A_inv[m, 0, 0, i + 1]
        q2 += g[k, 0, i + 2] * g[k, 0, i + 2] * A_inv[m, 0, 0, i + 2]
        q3 += g[k, 0, i + 3] * g[k, 0, i + 3] * A_inv[m, 0, 0, i + 3]
    for i in range(fours, S):
        q0 += g[k, 0, i] * g[k, 0, i] * A_inv[m, 0, 0, i]
    return (q0 + q1) + (q2 + q3)


@jit
def learn(covariance: Covariance, m: int, vectors: Vectors, k: int, D: float) -> None:
    """Add g g' / D to A for the vector of channel k, after its width_squared under model m; overwrites v[k]."""
    A, A_inv, g, rows, v = covariance.A, covariance.A_inv, vectors.g, vectors.rows, vectors.v
    S = g.shape[2]
    if covariance.kind == DIAGONAL:
        for i in range(S):
            A[m, 0, 0, i] += g[k, 0, i] * g[k, 0, i] / D
            A_inv[m, 0, 0, i] = 1.0 / A[m, 0, 0, i]
        return
    for block in range(g.shape[1]):
        count = vectors.filled[k, block]
        if count == 0:
            continue
        for n in range(count):
            r = rows[k, block, n]
            share = g[k, block, r] / D
            for j in range(r + 1):
                A[m, block, r, j] += g[k, block, j] * share
        covariance.learned[m, block] += 1
        if covariance.learned[m, block] == REFRESH * S or vectors.q[k, block] == 0.0:  # 0: lost to rounding
            covariance.learned[m, block] = 0
            invert(A, A_inv, m, block, covariance.lambda_)
            continue
        scale = 1.0 / math.sqrt(D + vectors.q[k, block])
        for i in range(S):
            v[k, block, i] *= scale
        for i in range(S):  # v v' is exactly symmetric, and so A^-1 stays symmetric
            v_i = v[k, block, i]
            for j in range(S):
                A_inv[m, block, i, j] -= v_i * v[k, block, j]


@jit
def invert(A: Floats, A_inv: Floats, m: int, block: int, lambda_: float) -> None:
    """Compute A^-1 from the lower triangle of A, in place, by Cholesky: A = L L', Z = L^-1, A^-1 = Z'Z.

    Then g' A^-1 g is a sum of squares. With Gauss-Jordan elimination it is not: where A has grown in some directions
    only and g lies in them, the errors can exceed g' A^-1 g itself.
    """
    S = A.shape[3]
    for i in range(S):  # L' into the upper triangle, row by row
        for j in range(i + 1):
            A_inv[m, block, j, i] = A[m, block, i, j]
    for p in range(S):
        root = math.sqrt(max(A_inv[m, block, p, p], lambda_))  # exact pivots are at least lambda
        A_inv[m, block, p, p] = root
        for j in range(p + 1, S):
            A_inv[m, block, p, j] /= root
        for i in range(p + 1, S):
            times = A_inv[m, block, p, i]
            for j in range(i, S):
                A_inv[m, block, i, j] -= times * A_inv[m, block, p, j]
    for i in range(S):  # Z into the lower triangle
        root = A_inv[m, block, i, i]
        for k in range(i):
            A_inv[m, block, i, k] = 0.0
            times = A_inv[m, block, k, i] / root
            for j in range(k + 1):
                A_inv[m, block, i, j] -= times * A_inv[m, block, k, j]
        A_inv[m, block, i, i] = 1.0 / root
    for i in range(S):  # Z'Z in place: row i needs rows i and above
        times = A_inv[m, block, i, i]
        for j in range(i + 1):
            A_inv[m, block, i, j] *= times
        for k in range(i + 1, S):
            times = A_inv[m, block, k, i]
            for j in range(i + 1):
                A_inv[m, block, i, j] += times * A_inv[m, block, k, j]
    for i in range(S):
        for j in range(i):
            A_inv[m, block, j, i] = A_inv[m, block, i, j]
