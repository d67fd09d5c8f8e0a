"""Whittle-Q: its updates recomputed, the published indices of an example, and exploration."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.policies import whittle_q
from idleband.policies.knowledge import setup_of
from tests.policies.station import Station

TWO: dict[str, Any] = {"p01": [0.1, 0.4, 0.7], "p10": [0.2, 0.5, 0.1]}


def test_tables_equal_recomputed_tables() -> None:
    """The published updates in NumPy, for three channels of which one is played, with states up to 3 slots old."""
    A, C = 3, 0.8
    station = Station("whittle-q", scenario=TWO, ages=A, C=C, epsilon=0.2)
    X = 2 * A
    Q, lam, count = np.zeros((3, X, X, 2)), np.zeros((3, X)), np.zeros((3, X, 2))
    last, rng = dict[int, tuple[int, int]](), np.random.default_rng(4)
    diagonal = np.arange(X)
    for t in range(1, 700):
        x = {k: s * A + min(t - when, A) - 1 for k, (s, when) in last.items()}
        for k in x:
            step = C / (1 + math.ceil(t * math.log(t) / 500))
            lam[k] = np.clip(lam[k] + step * (Q[k, diagonal, diagonal, 1] - Q[k, diagonal, diagonal, 0]), 0, 1)
        (played,) = station.choose()
        np.testing.assert_allclose(station.state.indices, lam, rtol=0, atol=1e-9)
        s = int(rng.integers(0, 2))
        reports = rng.uniform() < 0.9
        for k, state in x.items():
            if k == played and not reports:
                continue
            u = int(k == played)
            r = s * u  # 0.1 and 1 on [0, 1]
            after = s * A if u else min(state % A + 1, A - 1) + state // A * A
            count[k, state, u] += 1
            a = C / math.ceil(count[k, state, u] / 500)
            target = r - lam[k] * u + Q[k, :, after].max(axis=1) - Q[k].mean(axis=(1, 2))
            Q[k, :, state, u] += a * (target - Q[k, :, state, u])
        if reports:
            station.learn(played, s)
            last[played] = s, t
        np.testing.assert_allclose(station.state.Q, Q, rtol=0, atol=1e-9)
    assert count.min(axis=(1, 2)).max() > 0


def test_learns_the_published_indices_of_the_circular_example() -> None:
    """Four states in a circle: a play moves on with probability 1/2, no play moves back; rewards -1, 0, 0, 1.

    Avrachenkov and Borkar give the indices -1/2, 1/2, 1 and -1. (The example and its indices were looked up in
    `CycleBandit` of Gibson, Jacko and Nazarathy.) A charge for playing and rewards on [-1, 1] become indices on [0, 1]
    with r / 2 + u / 2 in place of r. Actions are random, as in their exploration.
    """
    configured = ib.policy("whittle-q", ages=2)
    setup = setup_of(ib.scenario(p01=[0.5], p10=[0.5], users=1, perturbation="none"), configured.params)
    state = configured.policy.init(setup)
    rng = np.random.default_rng(2)
    actions, moves = rng.integers(0, 2, 60_000).tolist(), (rng.uniform(size=60_000) < 0.5).tolist()
    x = 0
    for t, (u, moved) in enumerate(zip(actions, moves, strict=True), 1):
        after = (x + (1 if u else -1) * moved) % 4
        whittle_q.learn_value(0.1, state, 0, x, u, (-0.5, 0.0, 0.0, 0.5)[x] + 0.5 * u, after)
        whittle_q.learn_index(state.Q, state.indices, 0, whittle_q.index_step(0.1, t))
        x = after
    np.testing.assert_allclose(2 * state.indices[0] - 1, [-0.5, 0.5, 1.0, -1.0], rtol=0, atol=0.1)


def test_step_sizes_of_the_paper() -> None:
    assert whittle_q.index_step(0.1, 1) == 0.1
    assert whittle_q.index_step(0.1, 2) == 0.05
    assert whittle_q.index_step(0.1, 1000) == pytest.approx(0.1 / 15)  # ceil(1000 ln 1000 / 500) = 14


def test_unobserved_channels_come_first_and_a_share_of_slots_is_random() -> None:
    station = Station("whittle-q", K=4, M=2, epsilon=0.0)
    assert station.play([1] * 4) == [0, 1]
    assert station.play([1] * 4) == [2, 3]
    station = Station("whittle-q", K=4, M=2, epsilon=1.0)
    counts = dict[tuple[int, ...], int]()
    for _ in range(3000):
        picks = tuple(station.choose())
        counts[picks] = counts.get(picks, 0) + 1
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6


def test_late_feedback_sets_the_state_only() -> None:
    station = Station("whittle-q", scenario=TWO, epsilon=0.0)
    station.play([1, 1, 1])
    station.play([1, 1, 1])
    station.play([1, 1, 1])
    (k,) = station.choose()
    late, count = station.slot, station.state.updates.copy()
    station.choose(available=[False] * 3)
    changed = station.state.updates - count
    assert changed[:, :, 1].sum() == 0
    assert changed[:, :, 0].sum() == 3
    before = station.state.Q.copy()
    station.slot = late
    station.learn(k, 0)
    assert np.array_equal(station.state.Q, before)
    assert station.state.channels.last_observation.state[k] == 0


def test_index_of_a_sensed_state_is_its_mean_reward() -> None:
    station = Station("whittle-q", scenario=TWO, epsilon=0.0)
    station.choose(sensed=[0, 1, 0])
    assert station.slot.indices.tolist() == [0.0, 1.0, 0.0]


def test_tables_that_need_too_much_memory_are_refused() -> None:
    scenario = ib.scenario(p01=[0.5] * 2, p10=[0.5] * 2, users=1, perturbation="none")
    setup = setup_of(scenario, ib.policy("whittle-q", ages=64).params)
    with pytest.raises(ib.InputError, match="ages = 64 would take 10 GiB with 40000 channels"):
        whittle_q.init(setup._replace(K=40_000))
