"""Estimates are unbiased, and their intervals contain the true value as often as they should."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from idleband.arrays import Floats
from idleband.evaluation.estimates import Plays, effective_plays, estimate, predict_rewards
from idleband.evaluation.evaluate import policy_value, selections, usable_plays
from tests.evaluation.simulated import simulated


def test_estimates_are_unbiased_over_all_selections() -> None:
    """Two of four channels are drawn from six sets with known probabilities; the mean is computed exactly."""
    rng = np.random.default_rng(0)
    sets = list(combinations(range(4), 2))
    probability = rng.dirichlet(np.ones(6))
    p = np.array([sum(q for q, one in zip(probability, sets, strict=True) if k in one) for k in range(4)])
    r, m, c = rng.random(4), rng.random(4), np.array([1.0, 0.3, 0.0, 0.7])
    ips = dr = 0.0
    for q, one in zip(probability, sets, strict=True):
        played = np.isin(np.arange(4), one)[None]
        found = estimate(c[None], Plays(played, p[None], np.where(played, r, 0.0), m[None]))
        ips, dr = ips + q * found.ips.value, dr + q * found.dr.value
    assert ips == pytest.approx(c @ r, rel=1e-12)
    assert dr == pytest.approx(c @ r, rel=1e-12)


def drawn(rng: np.random.Generator, slots: int, common: float, epsilon: float) -> tuple[Plays, Floats, Floats]:
    """Plays of an epsilon policy on six channels, whose pairs are far from independent, with all rewards.

    `common` is the share of the variance of rewards that channels have in common.
    """
    K, M = 6, 3
    mean = np.linspace(0.2, 0.8, K)
    noise = np.sqrt(common) * rng.normal(size=(slots, 1)) + np.sqrt(1 - common) * rng.normal(size=(slots, K))
    rewards = mean + 0.3 * noise
    greedy = np.arange(K) >= K - M
    p = np.tile((1 - epsilon) * greedy + epsilon * M / K, (slots, 1))
    at_random = np.argsort(rng.random((slots, K)), axis=1) < M
    played = np.where(rng.random((slots, 1)) < epsilon, at_random, greedy)
    target = np.tile([1.0, 1.0, 0.0, 0.0, 0.0, 1.0], (slots, 1))
    return Plays(played, p, np.where(played, rewards, 0.0), np.tile(mean, (slots, 1))), rewards, target


@pytest.mark.parametrize("common", [0.0, 0.5])
def test_intervals_cover_with_dependent_selections_and_correlated_channels(common: float) -> None:
    """With independent channels the coverage is 95%; with correlated ones, where pairs are bounded, at least that."""
    rng, covered, logs = np.random.default_rng(3), np.zeros(2), 1000
    for _ in range(logs):
        plays, rewards, c = drawn(rng, 400, common, 0.3)
        found, truth = estimate(c, plays), float((c * rewards).sum(axis=1).mean())
        covered += [one.low <= truth <= one.high for one in found]
    low, high = binom.ppf([0.0005, 0.9995], logs, 0.95)
    assert (covered >= low).all()
    assert common > 0.0 or (covered <= high).all()


@pytest.mark.parametrize("logger", ["mp-random", "exp3-m", "whittle-q"])
def test_intervals_cover_on_logs_of_a_simulated_allocator(logger: str) -> None:
    """A small version of studies/evaluate_coverage.py: at least as many intervals as 99.9% of the time at 95%."""
    logs, covered = 16, {}
    for seed in range(logs):
        log, rewards = simulated("S1", logger, 250, seed)
        _, plays, _ = usable_plays(log)
        for label, c in selections(log, ["mp-ucb"], [[0, 1, 2, 3, 4]]).items():
            value = policy_value(label, c, plays, log)
            for name in ("ips", "dr", "difference"):
                one = getattr(value, name)
                share = c - log.propensity if name == "difference" else c
                truth = float((share * rewards).sum(axis=1).mean())
                covered[label, name] = covered.get((label, name), 0) + (one.low <= truth <= one.high)
    least = binom.ppf(0.0005, logs, 0.95)
    assert len(covered) == 6
    assert all(count >= least for count in covered.values()), covered


def test_interval_vanishes_where_everything_was_played_and_is_infinite_where_few_slots_determine_it() -> None:
    ones = np.ones((50, 2))
    reward = np.random.default_rng(0).random((50, 2))
    found = estimate(ones, Plays(ones > 0, ones, reward, 0 * ones))
    assert found.ips == found.dr
    assert found.ips.low == found.ips.value == found.ips.high
    played = np.zeros((50, 1), np.bool_)
    played[:3] = True
    few = estimate(np.ones((50, 1)), Plays(played, np.full((50, 1), 0.05), 1.0 * played, np.zeros((50, 1))))
    assert np.isinf(few.dr.high)


def test_clipped_weights_and_effective_plays() -> None:
    played, p = np.array([[True], [True], [False]]), np.array([[0.5], [0.01], [0.5]])
    plays = Plays(played, p, 1.0 * played, np.zeros((3, 1)))
    assert plays.weights(None).ravel().tolist() == [2.0, 100.0, 0.0]
    assert plays.weights(10.0).ravel().tolist() == [2.0, 10.0, 0.0]
    assert effective_plays(np.ones((3, 1)), plays) == pytest.approx(102**2 / (4 + 10_000))
    assert effective_plays(np.zeros((3, 1)), plays) == 0.0


def test_predictions_use_earlier_slots_only() -> None:
    log = simulated("S1", "mp-random", 120, 0).log
    changed = simulated("S1", "mp-random", 120, 0).log
    changed.reward[60:][changed.selected[60:]] = -7.0
    ours, theirs = predict_rewards(log), predict_rewards(changed)
    assert np.array_equal(ours[:61], theirs[:61])
    assert not np.array_equal(ours[61:], theirs[61:])
