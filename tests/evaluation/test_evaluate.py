"""`idleband.evaluate`: what it reports, and logs from which nothing can be estimated."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.evaluation.decision_log import DecisionLog
from tests.evaluation.simulated import simulated


@pytest.fixture(scope="module")
def log() -> DecisionLog:
    return simulated("S1", "mp-random", 200, 0).log


def test_the_logging_policy_has_what_it_earned(log: DecisionLog) -> None:
    found = ib.evaluate(log, ["mp-random", "mp-ucb"])
    own, other = found.policies
    assert own.ips is not None
    assert own.difference is not None
    assert own.ips.value == pytest.approx(found.reward)
    assert found.reward == pytest.approx(np.nansum(log.reward) / 200)
    assert own.difference == pytest.approx((0.0, 0.0, 0.0))
    assert other.effective_plays == other.played * 1000
    assert (other.unsupported, other.bounds, other.largest_weight) == (0.0, None, 2.0)
    assert (found.slots, found.excluded, found.plays, found.unreported) == (200, 0, 1000, 0)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["policies"][1]["policy"] == "mp-ucb"


def test_text_fits_80_columns_and_says_what_it_means(log: DecisionLog) -> None:
    text = str(ib.evaluate(log, ["mp-ucb:L=0.123"], channels=[range(5)], clip=5))
    assert max(map(len, text.splitlines())) <= 80
    for part in ("mp-ucb L=0.123", "channels", "clipped", "A policy that learns did so from the logged feedback"):
        assert part in text


def test_missing_feedback_is_refused_unless_it_is_assumed_to_be_missing_at_random() -> None:
    log, rewards = simulated("S1", "mp-random", 400, 0, reported=0.6)
    with pytest.raises(ib.InputError, match=r"of 2,000 plays have no feedback; missing = 'random' assumes"):
        ib.evaluate(log, ["mp-ucb"])
    found = ib.evaluate(log, channels=[[0, 1, 2, 3, 4]], missing="random")
    value = found.policies[0].dr
    assert value is not None
    assert value.low < rewards[:, :5].sum(axis=1).mean() < value.high
    assert found.unreported == int(log.selected.sum() - np.isfinite(log.reward).sum()) > 0
    assert "missing at random" in str(found)


@pytest.mark.parametrize(("logger", "message"), [("mp-ucb", "no propensities"), ("whittle-q:epsilon=0", "are 0 or 1")])
def test_logs_without_random_choices_are_refused(logger: str, message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        ib.evaluate(simulated("S1", logger, 20, 0).log, ["mp-ucb"])


def test_slots_without_propensities_are_left_out(log: DecisionLog) -> None:
    p = log.propensity.copy()
    p[:50] = np.nan
    found = ib.evaluate(dataclasses.replace(log, propensity=p), ["mp-random"])
    assert (found.slots, found.excluded) == (150, 50)
    assert found.reward == pytest.approx(np.nansum(log.reward[50:]) / 150)
    assert "50 slots without propensities" in str(found)


def test_selections_with_propensity_0_have_bounds_instead_of_an_estimate(log: DecisionLog) -> None:
    """Channel 0 was never selected: a set with it earns between 0.1 and 1 more than the other four of it."""
    p, selected = log.propensity.copy(), log.selected.copy()
    reported, reward = log.reported_after.copy(), log.reward.copy()
    for i in np.flatnonzero(selected[:, 0]):
        other = np.flatnonzero(~selected[i])[0]
        selected[i, [0, other]] = False, True
        reported[i, other], reported[i, 0], reward[i, other] = reported[i, 0], 0, reward[i, 0]
    reward[:, 0] = np.nan
    p[:] = 5 / 9
    p[:, 0] = 0.0
    changed = dataclasses.replace(log, propensity=p, selected=selected, reported_after=reported, reward=reward).check()
    found = ib.evaluate(changed, channels=[[0, 1, 2, 3, 4]])
    one = found.policies[0]
    assert (one.ips, one.dr, one.difference) == (None, None, None)
    assert one.unsupported == pytest.approx(0.2)
    assert one.bounds is not None
    assert one.bounds[1] - one.bounds[0] > 0.9
    assert "20.0% of its selections have propensity 0" in str(found).replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "policies: must contain at least one policy"),
        ({"policies": "mp-ucb"}, "policies = 'mp-ucb': must be a list"),
        ({"policies": ["mp-ubc"]}, "did you mean 'mp-ucb'"),
        ({"policies": ["rho-rand"]}, "is for single users"),
        ({"policies": ["mp-ucb"], "missing": "ignore"}, "missing = 'ignore'"),
        ({"policies": ["mp-ucb"], "clip": 0.5}, "clip = 0.5: must be a number of at least 1"),
        ({"policies": ["mp-ucb"], "seed": -1}, "seed = -1"),
        ({"channels": [[0, 0, 1, 2, 3]]}, "each channel may be given once"),
        ({"channels": [["ch1"]]}, "channels: 1 channel; must be 5"),
    ],
)
def test_invalid_arguments_are_refused(log: DecisionLog, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        ib.evaluate(log, **arguments)
