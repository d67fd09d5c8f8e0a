"""MP-TS-Episodes: its grid, its posterior, its draws, and the length of episodes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from idleband.policies.last_observation import age_of
from tests.policies.station import Station
from tests.policies.test_learned_whittle import expected_index

TWO: dict[str, Any] = {"p01": [0.1, 0.4], "p10": [0.2, 0.5]}


def test_the_grid_is_even_in_logits() -> None:
    probabilities = Station("mp-ts-episodes", world=TWO, grid=9).state.probabilities
    np.testing.assert_allclose(
        np.log(probabilities / (1 - probabilities)), np.linspace(-5.5, 5.5, 9), rtol=0, atol=1e-9
    )
    assert (probabilities[0], probabilities[-1]) == (pytest.approx(0.004, abs=1e-4), pytest.approx(0.996, abs=1e-4))


def test_the_posterior_is_bayes_rule() -> None:
    """Powers of the matrix of every cell, multiplied over all pairs of observations, ages up to 32 exactly."""
    station = Station("mp-ts-episodes", world=TWO, grid=6)
    cells = [
        np.array([[1 - p, p], [q, 1 - q]]) for p in station.state.probabilities for q in station.state.probabilities
    ]
    log, rng, seen, ages = np.zeros(36), np.random.default_rng(3), None, set()
    for t in range(1, 400):
        station.choose(available=[1, 0])
        if rng.uniform() < 0.15 or (seen and t - seen[1] == 32):
            s = int(rng.integers(0, 2))
            station.learn(0, s)
            if seen:
                ages.add(t - seen[1])
                log += [np.log(np.linalg.matrix_power(P, t - seen[1])[seen[0], s]) for P in cells]
            seen = s, t
    posterior = np.exp(station.state.posterior[0] - station.state.posterior[0].max())
    expected = np.exp(log - log.max())
    np.testing.assert_allclose(posterior / posterior.sum(), expected / expected.sum(), rtol=1e-7, atol=1e-12)
    assert max(ages) > 16
    assert not station.state.posterior[1].any()


def test_episodes_are_one_slot_longer_each() -> None:
    """Drawn in slots 1, 2, 4, 7, 11, ... and held between."""
    station = Station("mp-ts-episodes", M=2, world=TWO)
    before, drawn = station.state.p.copy(), []
    for t in range(1, 200):
        station.play([1, 0])
        if not np.array_equal(station.state.p, before):
            drawn.append(t)
        before = station.state.p.copy()
    starts = [1 + i * (i + 1) // 2 for i in range(20)]
    assert set(drawn) <= {t for t in starts if t < 200}
    assert len(drawn) > 12  # of 20: a cell may be drawn twice
    assert station.state.episode.tolist() == [11, 20]  # the 20th began in slot 191; 9 of its slots have passed


def test_index_by_hand() -> None:
    """Whittle's index under the probabilities of the episode, from when and how the channel was seen last."""
    station = Station("mp-ts-episodes", world=TWO)
    rng = np.random.default_rng(4)
    for _ in range(120):
        picks = station.choose()
        channels = station.state.channels
        for k in range(2):
            pay = channels.total[k] / channels.slots[k]
            good = None if channels.last_observation.state[k] < 0 else int(channels.last_observation.state[k])
            index = expected_index(
                *station.state.p[k], good, int(age_of(channels.last_observation, k, station.t)), *pay
            )
            assert station.slot.indices[k] == pytest.approx(index, abs=1e-9)
        for k in picks:
            station.learn(k, int(rng.integers(0, 2)), float(rng.uniform(0, 1.5)))


def test_probabilities_are_drawn_from_their_posterior() -> None:
    """Chi-square over the cells that are expected five times or more in 4000 draws, the others taken together."""
    station = Station("mp-ts-episodes", world=TWO, grid=4)
    for s in (0, 0, 1, 1, 1, 0, 0, 1):
        station.choose(available=[1, 0])
        station.learn(0, s)
    posterior = np.exp(station.state.posterior[0])
    expected = 4000 * posterior / posterior.sum()
    found: Counter[int] = Counter()
    for _ in range(4000):
        station.state.episode[:] = 0
        station.choose()
        cell = [int(np.abs(station.state.probabilities - p).argmin()) for p in station.state.p[0]]
        found[4 * cell[0] + cell[1]] += 1
    likely = expected >= 5
    counts = np.array([found[g] for g in range(16)])
    observed = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum())
    assert likely.sum() > 4
    assert stats.chisquare(observed, wanted).pvalue > 1e-6


def test_posterior_with_very_small_probabilities_is_drawn_from() -> None:
    """After 20,000 slots its logs are in the thousands below zero; the draw is the cell next to the truth."""
    station = Station("mp-ts-episodes", world={"p01": [0.2], "p10": [0.3]})
    rng, s = np.random.default_rng(1), 0
    for _ in range(20_000):
        s = int(rng.uniform() < (0.2 if s == 0 else 0.7))
        station.play([s])
    np.testing.assert_allclose(station.state.p[0], [0.2, 0.3], rtol=0.25)
    assert np.isfinite(station.state.posterior).all()
