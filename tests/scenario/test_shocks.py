"""Common shocks: which channels they hit and when, long-run shares and transitions, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from tests.scenario.paths import Walk, check_channels, check_mean, check_round_trip, refused, walk

CHANNELS: dict[str, Any] = {
    "p01": [0.3, 0.05, 0.8, 0.4], "p10": [0.1, 0.1, 0.3, 0.4], "users": 1,
    "perturbation": "none", "context": {"dimension": 1},
}  # fmt: skip
START, END, SHARE = 0.03, 0.2, 0.7


@pytest.fixture(scope="module")
def scenario() -> ib.Scenario:
    return ib.scenario(CHANNELS, shocks={"start": START, "end": END, "share": SHARE, "channels": [0, 2, 3]})


@pytest.fixture(scope="module")
def path(scenario: ib.Scenario) -> Walk:
    return walk(scenario)


def test_channels_continue_below_a_shock(path: Walk) -> None:
    """Shocks have their own stream: without them the channels' own states are the same."""
    own = walk(ib.scenario(CHANNELS)).states
    assert np.array_equal(path.states, np.where(path.hit, 0, own))
    assert not path.hit[:, 1].any()


def test_shocks_start_and_end_with_their_probabilities() -> None:
    """With share 1 all affected channels are hit together, so that the presence of a shock is visible."""
    hit = walk(ib.scenario(CHANNELS, shocks={"start": START, "end": END, "channels": [0, 3]})).hit
    present = hit[:, 0]
    assert np.array_equal(present, hit[:, 3])
    check_mean(present, START / (START + END), largest_error=0.003)
    check_mean(~present[:-1] * (present[1:] - START), 0.0, largest_error=0.001)
    check_mean(present[:-1] * (~present[1:] - END), 0.0, largest_error=0.001)


def test_channels_are_hit_independently_with_the_share(path: Walk) -> None:
    """A channel stays hit for the whole shock."""
    shock = START / (START + END)
    affected = path.hit[:, [0, 2, 3]]
    check_mean(affected, SHARE * shock, largest_error=0.003)
    check_mean(affected[:, 0] & affected[:, 1], SHARE**2 * shock, largest_error=0.003)
    assert not (affected[1:, 0] & ~affected[:-1, 0] & affected[:-1, 1]).any()  # no other channel is hit during a shock


def test_long_run_shares_and_transitions(scenario: ib.Scenario, path: Walk) -> None:
    check_channels(scenario, path.states, largest_error=0.005)
    free = 1 - SHARE * START / (START + END)
    own = ib.scenario(CHANNELS).good_shares
    np.testing.assert_allclose(scenario.good_shares, own * [free, 1, free, free])
    assert np.array_equal(scenario.marginal_transition[1], scenario.transition[1])


@pytest.mark.parametrize(
    "channels",
    [
        {"dwell": {"good": {"kind": "weibull", "shape": 0.6}, "bad": {"kind": "uniform", "low": 2, "high": 9}}},
        {"regimes": {"p01": [[0.1] * 4, [0.6] * 4], "p10": [[0.3] * 4] * 2, "transition": [[0.9, 0.1], [0.1, 0.9]]}},
        {"correlation": {"common": 0.5}},
    ],
    ids=lambda table: next(iter(table)),
)
def test_shocks_on_channels_of_other_kinds(channels: dict[str, Any]) -> None:
    scenario = ib.scenario(ib.scenario(CHANNELS).to_dict(), **channels, shocks={"start": START, "end": END})
    found = walk(scenario)
    check_channels(scenario, found.states, largest_error=0.006)
    own = walk(ib.scenario(scenario, shocks=None)).states
    assert np.array_equal(found.states, np.where(found.hit, 0, own))
    check_round_trip(scenario)


def test_paths_start_in_the_long_run() -> None:
    """Over replications, slot 1 has the long-run probability of a shock."""
    scenario = ib.scenario(CHANNELS, shocks={"start": 0.3, "end": 0.5})
    hits = np.array([walk(scenario, slots=1, replication=i).hit[0, 0] for i in range(3000)])
    assert abs(hits.mean() - 0.375) < 5.5 * np.sqrt(0.375 * 0.625 / 3000)


@given(
    st.floats(1e-12, 1), st.floats(1e-12, 1), st.floats(1e-12, 1), st.floats(1e-100, 1), st.floats(1e-100, 1)
)  # fmt: skip
def test_round_trip_and_limits(start: float, end: float, share: float, p01: float, p10: float) -> None:
    table = {"start": start, "end": end, "share": share, "channels": [0]}
    scenario = ib.scenario(p01=[p01] * 2, p10=[p10] * 2, users=1, shocks=table)
    check_round_trip(scenario)
    P = scenario.marginal_transition[0]
    assert ((P >= 0) & (P <= 1)).all()
    free = 1 - share * start / (start + end)
    assert scenario.good_shares[0] == pytest.approx(scenario.good_shares[1] * free, rel=1e-9, abs=1e-12)


def test_all_channels_listed_equal_none_listed() -> None:
    listed = ib.scenario("S1", shocks={"start": 0.1, "end": 0.1, "channels": [f"ch{k}" for k in range(1, 11)]})
    assert listed == ib.scenario("S1", shocks={"start": 0.1, "end": 0.1})
    assert ib.scenario(listed, shocks=None) == ib.scenario("S1")
    named = ib.scenario("S1", shocks={"start": 0.1, "end": 0.1, "channels": ["ch2", 0]})
    assert named.shocks is not None
    assert named.shocks.channels == (0, 1)


THREE = {"transition": [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]] * 2, "good": [2], "users": 1}
REVERSED = {"transition": [[[0.5, 0.5], [0.4, 0.6]]] * 2, "good": [0], "users": 1}
TWO_STATES = "scenario.shocks: only for channels with two states, of which state 1 is good"


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"shocks": 5}, "scenario.shocks = 5: must be a table of settings"),
        ({"shocks": {}}, "scenario.shocks.start is missing: the probability per slot that a shock begins"),
        ({"shocks": {"start": 0.1}}, "scenario.shocks.end is missing"),
        ({"shocks": {"start": 0, "end": 1}}, "scenario.shocks.start = 0: must be a number of at least 1e-12"),
        ({"shocks": {"start": 0.1, "end": 1.5}}, "scenario.shocks.end = 1.5: must be a number"),
        ({"shocks": {"start": 0.1, "end": 1, "share": 0}}, "scenario.shocks.share = 0: must be"),
        ({"shocks": {"start": 0.1, "end": 1, "channels": []}}, "scenario.shocks.channels: must name at least one"),
        ({"shocks": {"start": 0.1, "end": 1, "channels": [9]}}, "scenario.shocks.channels = 9: must be a channel"),
        ({"shocks": {"start": 0.1, "end": 1, "channel": 1}}, "unknown key 'channel' in scenario.shocks"),
        ({**THREE, "shocks": {"start": 0.1, "end": 1}}, TWO_STATES),
        ({**REVERSED, "shocks": {"start": 0.1, "end": 1}}, TWO_STATES),
    ],
)
def test_invalid_shocks_are_refused_in_one_line(table: dict[str, Any], line: str) -> None:
    assert line in refused(table if "transition" in table else {**CHANNELS, **table})
