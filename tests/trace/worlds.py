"""Simulated traces with known parameters."""

from typing import Any

import numpy as np

from idleband.trace.fit.models import MarkovModel, RegimeModel, simulate_hazards


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def markov(T: int, K: int, p01: float = 0.25, p10: float = 0.05, seed: int = 1) -> Any:
    """Two-state Markov channels."""
    return MarkovModel(np.full(K, p01), np.full(K, p10)).simulate(T, 1, generator(seed))[:, 0]


def mixture(ages: int = 1000) -> Any:
    """The hazard by age of idle periods that are short (mean 3, eight of ten) or long (mean 40)."""
    q = 1 - 1 / np.array([3.0, 40.0])
    survival = np.array([0.8, 0.2]) * q ** np.arange(ages)[:, None]
    return (survival * (1 - q)).sum(axis=1) / survival.sum(axis=1)


MIXTURE_MEAN = 0.8 * 3 + 0.2 * 40


def semi_markov(T: int, K: int, p01: float = 0.25, seed: int = 2) -> Any:
    """Channels with idle periods of large variance."""
    idle = mixture()
    hazards = np.stack([np.tile(idle, (K, 1)), np.full((K, len(idle)), p01)])
    return simulate_hazards(hazards, T + 300, 1, generator(seed))[300:, 0]


BURSTS = RegimeModel(
    np.array([[0.4] * 8, [0.1] * 8]), np.array([[0.03] * 8, [0.4] * 8]), np.array([[0.98, 0.02], [0.08, 0.92]])
)


def bursts(T: int, seed: int = 3) -> Any:
    """Eight channels with a common regime of bursts."""
    return BURSTS.simulate(T, 1, generator(seed))[:, 0]
