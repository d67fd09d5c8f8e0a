"""Predictors of mp-adaptive: features and frequencies by hand."""

import math

import numpy as np
import pytest
from scipy.special import expit, logit

from idleband.policies.idle_predictors import (
    COUNT,
    EDGE,
    HISTORY,
    MEAN,
    NEARBY,
    NEIGHBOURS,
    ONE,
    PARENT,
    SHARE,
    SURPRISE,
    TIME,
    UNSEEN,
    VARIANCE,
    average,
    doubling_bin,
    fading,
    log_odds,
    uncertainty,
)
from tests.policies.station import Station


def test_widths_of_bins_double() -> None:
    assert [doubling_bin(n, 14) for n in (1, 2, 3, 4, 7, 8, 4095, 4096, 10**9)] == [0, 1, 1, 2, 2, 3, 11, 12, 13]


def test_log_odds_are_limited() -> None:
    assert log_odds(0.2) == pytest.approx(logit(0.2))
    assert [log_odds(p) for p in (0.0, 1.0)] == pytest.approx([logit(EDGE), -logit(EDGE)])


def test_average_weights_recent_values_more() -> None:
    cell = np.array([0.5, 1.0])
    for y in (1.0, 0.0, 1.0):
        average(cell, y, 3.0)
    assert cell[COUNT] == 3.0
    assert cell[MEAN] == pytest.approx(0.75 * 2 / 3 * 2 / 3 + 1 / 3)


def test_weight_of_an_observation_decreases_with_its_age() -> None:
    assert fading(0) == fading(1) == 1.0
    assert fading(1 + int(TIME)) == pytest.approx(0.5)


def test_runs_and_frequencies_by_run() -> None:
    """One channel: idle for 5 slots, then busy for 2. The prior mean by age counts as one observation."""
    station = Station("mp-adaptive", K=1, M=1)
    runs = []
    for s in (1, 1, 1, 1, 1, 0, 0):
        station.play([s])
        runs.append(int(station.state.adaptive.predictors.run[0]))
    predictors = station.state.adaptive.predictors
    assert runs == [1, 2, 3, 4, 5, 1, 2]
    after_idle, after_busy = predictors.by_run[1, 0], predictors.by_run[0, 0]
    assert after_idle[:4].tolist() == [[1.0, 1.0], [1.0, 2.0], [0.5, 2.0], [0.0, 0.0]]  # runs of 1; 2 and 3; 4 and 5
    assert after_busy[0].tolist() == [0.0, 1.0]
    assert predictors.by_age[1, 0] == pytest.approx([(0.7 + 4.0) / 6.0, 6.0])
    assert predictors.by_age[0, 0] == pytest.approx([0.15, 2.0])
    station.choose()
    by_run = (0.0 * 0.0 + PARENT * 0.15) / (0.0 + PARENT)  # a run of 2 has no observations
    assert predictors.x[0, HISTORY] == pytest.approx(log_odds(by_run) + predictors.offset[0, 1])
    visits = predictors.visits[MEAN]
    assert expit(predictors.x[0, SHARE]) == pytest.approx((5.0 + 2.0 * visits) / 9.0)
    assert predictors.x[0, ONE] == 1.0


def test_run_ends_with_a_gap() -> None:
    station = Station("mp-adaptive", K=1, M=1)
    for s in (1, 1, 1):
        station.play([s])
    station.t += 5
    station.play([1])
    assert station.state.adaptive.predictors.run[0] == 1


def test_residuals_of_neighbours() -> None:
    """Channels 1 and 2 of five are played; the others learn what was more or less than predicted there."""
    station = Station("mp-adaptive", K=5, M=2)
    only = np.array([0, 1, 1, 0, 0], bool)
    predictors = station.state.adaptive.predictors
    for states in ([0, 1, 1, 0, 0], [0, 1, 0, 0, 0]):
        station.play(states, available=only)
    one, two = predictors.residual[1], predictors.residual[2]
    assert one > 0.0 > two
    faded = 0.5 * predictors.surprise[0] + (one + two) / 2.0
    station.choose()
    assert predictors.x[:, SURPRISE] == pytest.approx(np.full(5, faded))
    assert predictors.x[:, NEARBY] == pytest.approx([one + 0.5 * two, two, one, two + 0.5 * one, 0.5 * two])
    assert predictors.group[[0, 3, 4]].tolist() == [UNSEEN] * 3
    means = predictors.neighbours[UNSEEN, :, :, MEAN]
    expected = [means[1, 0], means[0, 1], means[0, 0]]
    assert expit(predictors.x[[0, 3, 4], NEIGHBOURS]) == pytest.approx(expected)


def test_uncertainty_returns_to_that_of_an_unknown_channel() -> None:
    station = Station("mp-adaptive", K=1, M=1)
    for s in (1, 0, 1, 1):
        station.play([s])
        station.t += 20  # so that the channel is not observed in the slot before
    predictors, chains, t = station.state.adaptive.predictors, station.state.chains, station.t
    known = predictors.variance[0, UNSEEN]
    assert 0.0 < known < VARIANCE
    found = [uncertainty(station.setup, predictors, chains, 0, chains.last_observation.slot[0] + a) for a in (1, 10**9)]
    assert found == pytest.approx([math.sqrt(known), math.sqrt(VARIANCE)], rel=1e-5)
    assert t > 80
