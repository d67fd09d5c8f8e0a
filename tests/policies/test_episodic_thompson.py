"""MP-TS-Episodes: grid, posterior, draws, and lengths of episodes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from idleband.kernels import two_state_chain
from idleband.policies.last_observation import age_of
from tests.policies.station import Station
from tests.policies.test_learned_whittle import expected_index

TWO: dict[str, Any] = {"p01": [0.1, 0.4], "p10": [0.2, 0.5]}


def test_grid_is_uniform_in_logits() -> None:
    probabilities = Station("mp-ts-episodes", scenario=TWO, grid=9).state.probabilities
    np.testing.assert_allclose(
        np.log(probabilities / (1 - probabilities)), np.linspace(-5.5, 5.5, 9), rtol=0, atol=1e-9
    )
    assert (probabilities[0], probabilities[-1]) == (pytest.approx(0.004, abs=1e-4), pytest.approx(0.996, abs=1e-4))


def test_posterior_follows_bayes_rule() -> None:
    """The likelihood of a cell is a product of entries of matrix powers, over observations up to 32 slots apart."""
    station = Station("mp-ts-episodes", scenario=TWO, grid=6)
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


def test_each_episode_is_one_slot_longer_without_plays_to_count() -> None:
    """Without feedback probabilities are drawn in slots 1, 2, 4, 7, 11, ... and kept in between."""
    station = Station("mp-ts-episodes", M=2, scenario=TWO)
    before, drawn = station.state.p.copy(), []
    for t in range(1, 200):
        station.choose()
        if not np.array_equal(station.state.p, before):
            drawn.append(t)
        before = station.state.p.copy()
    starts = [1 + i * (i + 1) // 2 for i in range(20)]
    assert drawn == [t for t in starts if t < 200]
    assert station.state.episode.tolist() == [11, 9, 20]  # the 20th began in slot 191 and has 11 of 20 slots left


def test_episodes_by_hand() -> None:
    """One channel, so that every slot has a play: at its last state, with age 1, from slot 2 on.

    The plays after a good slot number 1 in slot 2, 2 in slot 3, 3 in slot 4, ... An episode that began with n of them
    ends in the slot of the 2n-th, or when it is longer than the one before by one slot:

        episode      1    2    3    4      5        6           7
        slots        1    2    3    4, 5   6-8      9-12        13-17
        ended by     length (1)  doubling (0, 1 plays before)  length, from here on
    """
    station = Station("mp-ts-episodes", scenario={"p01": [0.2], "p10": [0.3]})
    episodes = []
    for _ in range(17):
        station.play([1])
        episodes.append(int(station.state.episode[2]))
    assert episodes == [1, 2, 3, 4, 4, *[5] * 3, *[6] * 4, *[7] * 5]
    station.play([0])  # a bad slot: its play is one more after a good slot
    assert station.state.episode[2] == 8
    station.play([0])  # the first play after a bad slot ends the episode
    station.play([0])
    assert station.state.episode[2] == 9


def test_episodes_end_as_in_the_authors_code() -> None:
    """Compare with ThompsonSamplingDE.py: thresholds are set for all counts when an episode begins."""
    station = Station("mp-ts-episodes", M=2, scenario={"p01": [0.1, 0.4, 0.3], "p10": [0.2, 0.5, 0.1]})
    rng, last = np.random.default_rng(6), dict[int, tuple[int, int]]()
    count: Counter[tuple[int, int, int]] = Counter()
    threshold: Counter[tuple[int, int, int]] = Counter()
    number, length, previous = 1, 0, 0
    for t in range(1, 600):
        picks = station.choose(available=rng.uniform(size=3) < 0.6)
        assert station.state.episode[2] == number, t
        length += 1
        ends = length > previous
        for k in picks:
            s = int(rng.integers(0, 2))
            station.learn(k, s)
            if k in last:
                key = (k, last[k][0], two_state_chain.bin_of(t - last[k][1]))
                count[key] += 1
                ends |= count[key] >= threshold[key]
            last[k] = s, t
        if ends:
            number, previous, length = number + 1, length, 0
            threshold = Counter({key: 2 * n for key, n in count.items()})
    assert 60 < number < 300


def test_index_equals_recomputed_index() -> None:
    """The index is the Whittle index with the probabilities of the episode and the last observation."""
    station = Station("mp-ts-episodes", scenario=TWO)
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
    """Chi-square test of 4000 draws; cells with fewer than five expected draws are combined."""
    station = Station("mp-ts-episodes", scenario=TWO, grid=4)
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
    expected_counts = np.append(expected[likely], expected[~likely].sum())
    assert likely.sum() > 4
    assert stats.chisquare(observed, expected_counts).pvalue > 1e-6


def test_posterior_with_very_small_probabilities_gives_valid_draws() -> None:
    """After 20,000 slots log-probabilities are below -1000; the drawn cell is next to the true values."""
    station = Station("mp-ts-episodes", scenario={"p01": [0.2], "p10": [0.3]})
    rng, s = np.random.default_rng(1), 0
    for _ in range(20_000):
        s = int(rng.uniform() < (0.2 if s == 0 else 0.7))
        station.play([s])
    np.testing.assert_allclose(station.state.p[0], [0.2, 0.3], rtol=0.25)
    assert np.isfinite(station.state.posterior).all()
