"""Sensing errors: rates of missed detections and false alarms, independence, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from tests.scenario.paths import check_mean, check_round_trip, refused, walk

CHANNELS: dict[str, Any] = {
    "p01": [0.3, 0.05, 0.8], "p10": [0.1, 0.1, 0.3], "users": 1, "perturbation": "none", "context": {"dimension": 1},
}  # fmt: skip
MISSED, FALSE_ALARM = np.array([0.1, 0.0, 0.4]), np.array([0.05, 0.3, 0.5])


def test_observed_states_have_the_error_probabilities() -> None:
    errors = {"missed": MISSED.tolist(), "false_alarm": FALSE_ALARM}
    found = walk(ib.scenario(CHANNELS, sensing_errors=errors))
    states, observed = found.states, found.observed
    assert np.array_equal(states, walk(ib.scenario(CHANNELS)).states)  # errors have a stream of their own
    busy = states == 0
    check_mean(busy * (observed - MISSED), 0.0, largest_error=0.002)
    check_mean(~busy * ((1 - observed) - FALSE_ALARM), 0.0, largest_error=0.002)
    assert not (busy & (observed == 1))[:, 1].any()
    # Independent between slots and channels.
    wrong = (observed != states) - np.where(busy, MISSED, FALSE_ALARM)
    check_mean(wrong[1:] * wrong[:-1], 0.0, largest_error=0.001)
    check_mean(wrong[:, 0] * wrong[:, 2], 0.0, largest_error=0.001)


def test_one_number_holds_for_all_channels() -> None:
    one = ib.scenario("S1", sensing_errors={"missed": 0.1})
    assert one == ib.scenario("S1", sensing_errors={"missed": [0.1] * 10, "false_alarm": 0.0})
    assert one.to_dict()["sensing_errors"] == {"missed": 0.1, "false_alarm": 0.0}


def test_no_errors_are_none() -> None:
    assert ib.scenario("S1", sensing_errors={"missed": 0.0}) == ib.scenario("S1")
    assert ib.scenario("S1", sensing_errors=None) == ib.scenario("S1")
    some = ib.scenario("S1", sensing_errors={"missed": 0.1})
    assert ib.scenario(some, users=3).sensing_errors == some.sensing_errors
    assert ib.scenario(some, sensing_errors=None) == ib.scenario("S1")


rate = st.floats(0, 0.499)


@given(st.one_of(rate, st.lists(rate, min_size=10, max_size=10)), rate)
def test_round_trip(missed: Any, false_alarm: float) -> None:
    check_round_trip(ib.scenario("S1", sensing_errors={"missed": missed, "false_alarm": false_alarm}))


THREE = {"transition": [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]] * 2, "good": [2], "users": 1}
REVERSED = {"transition": [[[0.5, 0.5], [0.4, 0.6]]] * 2, "good": [0], "users": 1}
TWO_STATES = "scenario.sensing_errors: only for channels with two states, of which state 1 is good"


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"sensing_errors": 0.1}, "scenario.sensing_errors = 0.1: must be a table of settings"),
        ({"sensing_errors": {}}, "scenario.sensing_errors: give missed, false_alarm, or both"),
        ({"sensing_errors": {"misses": 0.1}}, "unknown key 'misses' in scenario.sensing_errors: did you mean 'missed'"),
        ({"sensing_errors": {"missed": 1.1}}, "scenario.sensing_errors.missed = 1.1: must be a number of at least 0"),
        ({"sensing_errors": {"missed": None}}, "scenario.sensing_errors.missed = None: must be a number"),
        ({"sensing_errors": {"missed": [0.1, 0.2]}}, "scenario.sensing_errors.missed: has 2 entries for 3 channels"),
        (
            {"sensing_errors": {"false_alarm": [0.1, 0.2, -1]}},
            "scenario.sensing_errors.false_alarm, channel 2 = -1: must be a number of at least 0 and at most 1",
        ),
        (
            {"sensing_errors": {"missed": 0.5, "false_alarm": 0.5}},
            "scenario.sensing_errors, channel 0: missed + false_alarm = 1; must be below 1",
        ),
        ({**THREE, "sensing_errors": {"missed": 0.1}}, TWO_STATES),
        ({**REVERSED, "sensing_errors": {"missed": 0.1}}, TWO_STATES),
    ],
)
def test_invalid_errors_are_refused_in_one_line(table: dict[str, Any], line: str) -> None:
    assert line in refused(table if "transition" in table else {**CHANNELS, **table})


def test_sensing_errors_with_recorded_rewards_are_refused() -> None:
    trace = ib.Trace.from_arrays(reward=np.random.default_rng(0).random((50, 2)))
    table = {"trace": trace, "users": 1, "reward": "additive", "sensing_errors": {"missed": 0.1}}
    assert "scenario.sensing_errors: not used with recorded rewards" in refused(table)
    assert ib.scenario(table, reward="threshold").sensing_errors is not None
