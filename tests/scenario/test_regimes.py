"""Regimes: occupancy and transitions of simulated paths, changes at given slots, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.scenario.markov import stationary
from tests.scenario.paths import SLOTS, Walk, check_channels, check_mean, check_round_trip, refused, walk

P01 = [[0.3, 0.05, 0.8], [0.02, 0.4, 0.7], [0.5, 0.5, 1.0]]  # a row per regime
P10 = [[0.1, 0.10, 0.3], [0.60, 0.1, 0.9], [0.2, 0.9, 1.0]]
MOVES = [[0.95, 0.04, 0.01], [0.05, 0.95, 0.0], [0.2, 0.1, 0.7]]
QUIET = {"users": 1, "perturbation": "none", "context": {"dimension": 1}}


@pytest.fixture(scope="module")
def scenario() -> ib.Scenario:
    return ib.scenario(regimes={"p01": P01, "p10": P10, "transition": MOVES}, **QUIET)


@pytest.fixture(scope="module")
def path(scenario: ib.Scenario) -> Walk:
    return walk(scenario)


def test_occupancy_and_changes_of_regimes(path: Walk) -> None:
    regime = np.eye(3)[path.regime]
    check_mean(regime, stationary(np.array(MOVES)), largest_error=0.005)
    for r in range(3):
        check_mean(regime[:-1, r, None] * (regime[1:] - np.array(MOVES)[r]), 0.0, largest_error=0.001)
    assert not ((path.regime[:-1] == 1) & (path.regime[1:] == 2)).any()  # has probability 0


def test_transitions_in_each_regime(path: Walk) -> None:
    """The probabilities of a slot are those of its regime."""
    before, after = path.states[:-1] == 1, path.states[1:] == 1
    for r in range(3):
        now = path.regime[1:, None] == r
        check_mean((now & ~before) * (after - np.array(P01[r])), 0.0, largest_error=0.002)
        check_mean((now & before) * (~after - np.array(P10[r])), 0.0, largest_error=0.002)


def test_long_run_shares_and_transitions(scenario: ib.Scenario, path: Walk) -> None:
    check_channels(scenario, path.states, largest_error=0.005)
    assert scenario.regimes is not None
    joint = scenario.regimes.joint()
    np.testing.assert_allclose(joint.sum(axis=2), np.repeat(stationary(np.array(MOVES))[:, None], 3, axis=1))
    for r in range(3):
        check_mean((path.regime[:, None] == r) & (path.states == 1), joint[r, :, 1], largest_error=0.005)


def test_one_regime_equals_no_regimes() -> None:
    """The regime has its own stream, so that the path is the same."""
    one = ib.scenario(regimes={"p01": P01[:1], "p10": P10[:1], "transition": [[1.0]]}, **QUIET)
    plain = ib.scenario(p01=P01[0], p10=P10[0], **QUIET)
    assert np.array_equal(walk(one, slots=2000).states, walk(plain, slots=2000).states)
    np.testing.assert_allclose(one.good_shares, plain.good_shares)
    for a, b in zip(one.transition, plain.transition, strict=True):
        np.testing.assert_allclose(a, b)


def test_channels_depend_on_each_other_through_the_regime() -> None:
    p01, p10 = [[0.9, 0.9], [0.1, 0.1]], [[0.1, 0.1], [0.9, 0.9]]
    scenario = ib.scenario(regimes={"p01": p01, "p10": p10, "transition": [[0.99, 0.01], [0.01, 0.99]]}, **QUIET)
    found = walk(scenario)
    check_channels(scenario, found.states, largest_error=0.01)
    # Given the regime a state is good with probability 0.9 or 0.1, independently of the past and of the other channel.
    both = found.states[:, 0] * found.states[:, 1]
    check_mean(both - np.where(found.regime == 0, 0.81, 0.01), 0.0, largest_error=0.002)
    check_mean(both, 0.41, largest_error=0.01)  # 0.25 if the channels were independent


# --- changes at given slots ------------------------------------------------------------------------------------------


def test_regimes_change_in_the_given_slots() -> None:
    """In regime 0 channels alternate, in regime 1 they are good, in regime 2 bad."""
    certain, never = 1.0, 1e-12
    p01, p10 = [[certain], [certain], [never]], [[certain], [never], [certain]]
    scenario = ib.scenario(regimes={"p01": p01, "p10": p10, "at": [11, 16, 31, 33]}, **QUIET)
    found = walk(scenario, slots=60)
    slots = np.arange(1, 61)
    expected = np.select([slots < 11, slots < 16, slots < 31, slots < 33], [0, 1, 2, 0], 1)
    assert np.array_equal(found.regime, expected)
    states = found.states[:, 0]
    assert (np.abs(np.diff(states[:10])) == 1).all()
    assert (states[10:15] == 1).all()
    assert (states[15:30] == 0).all()
    assert states[30:32].tolist() == [1, 0]
    assert (states[32:] == 1).all()


def test_before_the_change_the_path_is_that_of_the_first_regime() -> None:
    given = {"p01": P01[:2], "p10": P10[:2], "at": [1001]}
    found = walk(ib.scenario(regimes=given, **QUIET), slots=2000)
    plain = walk(ib.scenario(p01=P01[0], p10=P10[0], **QUIET), slots=2000)
    assert np.array_equal(found.states[:1000], plain.states[:1000])
    assert not np.array_equal(found.states[1000:], plain.states[1000:])


def test_given_regimes_count_equally_in_the_long_run() -> None:
    half = SLOTS // 2 + 1
    scenario = ib.scenario(regimes={"p01": P01[:2], "p10": P10[:2], "at": [half]}, **QUIET)
    shares = np.array(P01[:2]) / (np.array(P01[:2]) + np.array(P10[:2]))
    np.testing.assert_allclose(scenario.good_shares, shares.mean(axis=0))
    states = walk(scenario).states
    for r, part in enumerate((states[: half - 1], states[half - 1 :])):
        check_mean(part, shares[r], largest_error=0.005)
    P = np.array(scenario.marginal_transition)
    assert abs((np.diff(states, axis=0) == 1).mean(axis=0) - P[:, 0, 1] * (1 - scenario.good_shares)).max() < 0.01


# --- tables ----------------------------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    R, K = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    probability = st.floats(1e-12, 0.999)
    rows = st.lists(st.lists(probability, min_size=K, max_size=K), min_size=R, max_size=R)
    table: dict[str, Any] = {"p01": draw(rows), "p10": draw(rows)}
    if draw(st.booleans()):
        at = draw(st.lists(st.integers(2, 10**10), unique=True, min_size=max(1, R - 1), max_size=R + 2))
        return table | {"at": sorted(at)}
    weights = np.array(draw(st.lists(st.floats(0.01, 1), min_size=R * R, max_size=R * R))).reshape(R, R)
    return table | {"transition": (weights / weights.sum(axis=1, keepdims=True)).tolist()}


@given(tables())
def test_round_trip(table: dict[str, Any]) -> None:
    scenario = ib.scenario(regimes=table, users=1)
    check_round_trip(scenario)
    assert np.isfinite(scenario.good_shares).all()
    for P in scenario.transition:
        assert ((P >= 0) & (P <= 1)).all()


def test_regimes_replace_channels_and_keep_names() -> None:
    S1 = ib.scenario("S1")
    rows = [[0.1] * 10, [0.2] * 10]
    for source in ("S1", S1, S1.to_dict()):
        scenario = ib.scenario(source, regimes={"p01": rows, "p10": rows, "at": [100]})
        assert scenario.channel_names == S1.channel_names
        check_round_trip(scenario)
    assert ib.scenario(scenario, p01=[0.1] * 10, p10=[0.1] * 10).regimes is None
    assert not scenario.markov


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"p10": None}, "scenario.regimes.p10 = None: must be a list, one list of probabilities per regime"),
        ({"p01": [0.1, 0.2]}, "scenario.regimes.p01, regime 0 = 0.1: must be a list, one probability per channel"),
        ({"p01": []}, "scenario.regimes.p01: has 0 regimes; must be from 1 to 64"),
        ({"p01": [[], []]}, "scenario.regimes.p01, regime 0: has 0 channels; must be from 1 to"),
        ({"p01": [[0.1, 0.2], [0.1]]}, "scenario.regimes.p01, regime 1: has 1 entry for 2 channels"),
        ({"p10": [[0.1, 0.2]]}, "scenario.regimes.p10: has 1 regime, p01 has 2"),
        ({"p10": [[0.1, 0.0]] * 2}, "scenario.regimes.p10, regime 0 = 0.0: must be a number of at least 1e-12"),
        ({"at": [5]}, "scenario.regimes: give either transition, for random changes, or at"),
        ({"transition": [[1.0, 0.0], [0.0, 1.0]]}, "scenario.regimes.transition: some regime can never be reached"),
        ({"transition": [[0.5, 0.6], [0.5, 0.5]]}, "scenario.regimes.transition: must be 2 rows of 2 probabilities"),
        ({"transition": [[1.0, 1e-20], [0.5, 0.5]]}, "contains a probability below 1e-12; must be 0, or at least that"),
        ({"transitions": 1}, "unknown key 'transitions' in scenario.regimes: did you mean 'transition'?"),
    ],
)
def test_invalid_regimes_are_refused_in_one_line(change: dict[str, Any], line: str) -> None:
    table = {"p01": [[0.1, 0.2]] * 2, "p10": [[0.1, 0.2]] * 2, "transition": [[0.5, 0.5], [0.5, 0.5]]}
    assert line in refused({"regimes": table | change, "users": 1})


@pytest.mark.parametrize(
    ("at", "line"),
    [
        ([], "scenario.regimes.at: has 0 slots; must be from 2, so that all 3 regimes are used"),
        ([10], "scenario.regimes.at: has 1 slot; must be from 2, so that all 3 regimes are used"),
        ([10, 10], "scenario.regimes.at: slots must increase"),
        ([1, 10], "scenario.regimes.at = 1: must be a whole number from 2 to 10^10"),
        ("10", "scenario.regimes.at = '10': must be a list, of slots"),
    ],
)
def test_invalid_slots_are_refused_in_one_line(at: Any, line: str) -> None:
    assert line in refused({"regimes": {"p01": P01, "p10": P10, "at": at}, "users": 1})


def test_states_that_cannot_be_reached_through_the_regimes_are_refused() -> None:
    """Regimes alternate, and a channel always changes its state: one of two cycles is never entered."""
    moves = [[0.0, 1.0], [1.0, 0.0]]
    always = {"p01": [[0.5, 1.0]] * 2, "p10": [[0.5, 1.0]] * 2, "transition": moves}
    assert "scenario.regimes: regimes and states of channel 1 together" in refused({"regimes": always, "users": 1})
    ib.scenario(regimes=always | {"transition": [[0.1, 0.9], [1.0, 0.0]]}, users=1)


def test_settings_that_exclude_regimes_are_refused() -> None:
    table = {"p01": P01, "p10": P10, "transition": MOVES}
    for key, value in (("p01", [0.1]), ("transition", [[[1.0]]]), ("good", [1])):
        assert f"scenario.{key}: not used with regimes" in refused({"regimes": table, key: value, "users": 1})
    assert "scenario.channel_names: has 1 name for 3" in refused({"regimes": table, "channel_names": ["a"], "users": 1})
