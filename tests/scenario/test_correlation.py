"""Correlated channels: each alone keeps its distribution; pairs have the correlation of a Gaussian copula."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from tests.scenario.paths import check_channels, check_mean, check_round_trip, refused, walk

QUIET: dict[str, Any] = {"users": 1, "perturbation": "none", "context": {"dimension": 1}}
MEMORYLESS: dict[str, Any] = {"p01": [0.5] * 4, "p10": [0.5] * 4, **QUIET}
MARKOV: dict[str, Any] = {"p01": [0.3, 0.05, 0.8], "p10": [0.1, 0.1, 0.3], **QUIET}


@pytest.mark.parametrize(
    ("common", "neighbours"), [(0.5, 0.0), (0.0, 0.8), (0.3, 0.6), (1.0, 0.0), (0.0, 1.0), (0.0, 0.01)]
)
def test_draws_have_the_correlation(common: float, neighbours: float) -> None:
    """Channels without memory are good where the draw is above 1/2: both with probability 1/4 + asin(r) / (2 pi)."""
    scenario = ib.scenario(MEMORYLESS, correlation={"common": common, "neighbours": neighbours})
    states = walk(scenario).states
    check_channels(scenario, states, largest_error=0.002)
    for i in range(4):
        for j in range(i):
            r = common + (1 - common) * neighbours ** (i - j)
            check_mean(states[:, i] * states[:, j], 0.25 + math.asin(r) / (2 * math.pi), largest_error=0.002)
    assert (states == states[:, :1]).all() == (1.0 in (common, neighbours))


@pytest.mark.parametrize(
    "channels",
    [
        {},
        {"dwell": {"good": {"kind": "weibull", "shape": 0.6}, "bad": {"kind": "negative-binomial", "shape": 3}}},
        {"regimes": {"p01": [[0.1] * 3, [0.6] * 3], "p10": [[0.3] * 3] * 2, "transition": [[0.9, 0.1], [0.1, 0.9]]}},
    ],
    ids=["markov", "dwell", "regimes"],
)
def test_each_channel_keeps_its_long_run_shares(channels: dict[str, Any]) -> None:
    independent = ib.scenario(ib.scenario(MARKOV), **channels)
    scenario = ib.scenario(independent, correlation={"common": 0.6, "neighbours": 0.3})
    np.testing.assert_array_equal(scenario.good_shares, independent.good_shares)
    states = walk(scenario).states
    check_channels(scenario, states, largest_error=0.006)
    correlation = np.corrcoef(states.T)
    assert (correlation > 0.1).all()  # good states coincide
    check_round_trip(scenario)


def test_channels_with_more_states_keep_their_distribution() -> None:
    P = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
    scenario = ib.scenario(transition=[P] * 2, good=[2], correlation={"common": 0.8}, **QUIET)
    states = walk(scenario).states
    for s in range(3):
        check_mean(states == s, np.array([row[s] for row in scenario.stationary_distributions]), largest_error=0.004)
        check_mean((states[:-1] == s)[:, :, None] * (np.eye(3)[states[1:]] - np.array(P[s])), 0.0, largest_error=0.003)


def test_zero_correlation_is_none() -> None:
    assert ib.scenario("S1", correlation={"common": 0.0}) == ib.scenario("S1")
    correlated = ib.scenario("S1", correlation={"neighbours": 0.5})
    assert ib.scenario(correlated, correlation=None) == ib.scenario("S1") != correlated
    assert not correlated.markov


@given(st.floats(0, 1), st.floats(0, 1))
def test_round_trip(common: float, neighbours: float) -> None:
    check_round_trip(ib.scenario("S1", correlation={"common": common, "neighbours": neighbours}))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        (0.5, "scenario.correlation = 0.5: must be a table of settings"),
        ({}, "scenario.correlation: give common, neighbours, or both"),
        ({"common": 1.1}, "scenario.correlation.common = 1.1: must be a number of at least 0 and at most 1"),
        ({"neighbours": -0.1}, "scenario.correlation.neighbours = -0.1: must be a number of at least 0"),
        ({"neighbors": 0.1}, "unknown key 'neighbors' in scenario.correlation: did you mean 'neighbours'?"),
    ],
)
def test_invalid_correlation_is_refused_in_one_line(table: Any, line: str) -> None:
    assert line in refused({"base": "S1", "correlation": table})
