"""Correlation between channels and the effective number of channels."""

from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from idleband.arrays import Floats
from idleband.trace.fit.intervals import SIGNIFICANT, holm
from idleband.trace.fit.transitions import finite

MAX_CHANNELS = 1000


@dataclass(frozen=True)
class Correlation:
    """Correlation of busy between channels in the same slot."""

    matrix: Floats | None = field(repr=False)  # (K, K), nan for channels that never change; None for many channels
    mean: float  # over pairs of channels
    adjacent: float  # over neighbours in the order of the trace
    significant: float  # share of pairs whose correlation differs from 0, at a family-wise error rate of 1%
    simultaneous: float  # mean correlation of the transitions: of what a channel's own last state does not predict
    effective_channels: float  # K / (1 + (K - 1) mean squared correlation)
    channels: int  # that change

    def to_dict(self) -> dict[str, object]:
        """Return the correlation for JSON, without the matrix."""
        return {
            "mean": finite(self.mean),
            "adjacent": finite(self.adjacent),
            "significant_pairs": finite(self.significant),
            "simultaneous_transitions": finite(self.simultaneous),
            "effective_channels": finite(self.effective_channels),
            "channels": self.channels,
        }


def correlate(busy: Floats, p01: Floats, p10: Floats) -> Correlation:
    """Compute the correlation of all pairs.

    The significance of a correlation uses the number of independent slots of a pair of two-state Markov channels,
    T (1 - rho_i rho_j) / (1 + rho_i rho_j) with rho = 1 - p01 - p10 (Bartlett 1935). The effective number of channels
    is K^2 / sum of r_ij^2, the participation ratio of the eigenvalues of the correlation matrix, where the part of
    r_ij^2 that is expected of independent channels is subtracted. It is K for independent channels and 1 for identical
    ones.
    """
    T, K = busy.shape
    nan = float("nan")
    if K > MAX_CHANNELS:
        return Correlation(None, nan, nan, nan, nan, nan, K)
    matrix = _correlation(busy)
    known = np.flatnonzero(np.isfinite(np.diag(matrix)))
    if len(known) < 2:
        return Correlation(matrix, nan, nan, nan, nan, float(len(known)), len(known))
    residual = _correlation(_residuals(busy, p01, p10))
    upper = np.triu_indices(K, 1)
    pairs = matrix[upper]
    rho = 1 - np.nan_to_num(p01, nan=0.5) - np.nan_to_num(p10, nan=0.5)
    product = np.outer(rho, rho)[upper]
    independent = T * (1 - product) / (1 + product)
    with np.errstate(invalid="ignore"):
        z = np.abs(np.arctanh(np.clip(pairs, -0.999999, 0.999999))) * np.sqrt(np.maximum(1.0, independent - 3))
    adjusted = holm(2 * stats.norm.sf(z))
    finite_pairs = np.isfinite(pairs)
    noise = 1 / np.maximum(1.0, independent[finite_pairs])
    squared = float(np.maximum(0.0, np.sum(pairs[finite_pairs] ** 2 - noise) * 2))
    n = len(known)
    return Correlation(
        matrix,
        float(np.mean(pairs[finite_pairs])),
        _mean(np.diag(matrix, 1)),
        float(np.mean(adjusted[finite_pairs] < SIGNIFICANT)),
        _mean(residual[upper]),
        n**2 / (n + squared),
        n,
    )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _residuals(busy: Floats, p01: Floats, p10: Floats) -> Floats:
    """Return the next state minus its probability given the present state of the channel."""
    stay, come = 1 - np.nan_to_num(p01, nan=0.5), np.nan_to_num(p10, nan=0.5)
    return (busy[1:] - np.where(busy[:-1], stay, come)).astype(np.float32)


def _correlation(values: Floats) -> Floats:
    centred = values.astype(np.float32)
    centred -= centred.mean(axis=0, dtype=float).astype(np.float32)
    product = (centred.T @ centred).astype(float)
    deviation = np.sqrt(np.diag(product))
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = product / np.outer(deviation, deviation)
    matrix[~np.isfinite(matrix)] = np.nan
    return np.clip(matrix, -1, 1)
