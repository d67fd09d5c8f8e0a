"""What sensing time, switching cost and sensing errors change: rewards, references, and what policies observe."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.upper_bound import bound
from idleband.simulation.run import PolicyRun, ReferenceRun
from tests.scenario.paths import refused
from tests.simulation.test_loop import SLOTS, Observed, Witness

T = 400


def simulated(scenario: ib.Scenario, policy: str = "mp-random") -> ib.Result:
    return ib.simulate(scenario, policy, horizon=T, replications=2, seed=3, record="slots")


def column(result: ib.Result, name: str) -> np.ndarray:
    assert result.slots is not None
    return np.asarray(result.slots[name].to_numpy().reshape(2, T, -1))


# --- sensing time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 0.9),
        ({"sensing": "all"}, 0.8),  # 10 channels sensed by 5 users
        ({"sensing": "all", "users": 3}, 0.6),  # 4 channels by the busiest of them
        ({"reward": "additive"}, 0.9),
    ],
)
def test_sensing_time_scales_rewards_and_references(settings: dict[str, Any], factor: float) -> None:
    plain = ib.scenario("S4", **settings)
    scenario = ib.scenario(plain, sensing_time=0.1)
    assert scenario.reward_factor == pytest.approx(factor)
    before, after = simulated(plain), simulated(scenario)
    np.testing.assert_allclose(after.reward, factor * before.reward)
    for reference in ("static", "contextual", "genie"):
        np.testing.assert_allclose(after.regret(reference), factor * before.regret(reference), atol=1e-9)
    np.testing.assert_allclose(after.curves["regret_table"], factor * before.curves["regret_table"], atol=1e-9)
    for counter in ("collisions", "suboptimal_static", "suboptimal_contextual"):
        assert np.array_equal(after.curves[counter], before.curves[counter])
    np.testing.assert_allclose(scenario.table_means, factor * plain.table_means)
    theta = plain.theta(0, 0)
    np.testing.assert_allclose(scenario.mean_rewards(theta)[0], factor * plain.mean_rewards(theta)[0])
    limit = bound(plain, theta)
    assert bound(scenario, theta) == (None if limit is None else pytest.approx(factor * limit))
    recorded = column(after, "reward")[column(after, "picked")]
    assert recorded.sum() == pytest.approx(after.reward[:, -1].sum())


# --- switching cost --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"availability": [[1] * 10, [1, 0] * 5, [0] * 10]}, {"sensing_time": 0.2}])
def test_switching_cost_is_paid_for_each_channel_that_was_not_selected_before(settings: dict[str, Any]) -> None:
    plain = ib.scenario("S4", perturbation="none", **settings)
    scenario = ib.scenario(plain, switching_cost=0.25)
    before, after = simulated(plain), simulated(scenario)
    picked = column(after, "picked")
    assert np.array_equal(picked, column(before, "picked"))  # mp-random does not learn
    switches = picked[:, 1:] & ~picked[:, :-1]  # nothing is paid in slot 1
    assert switches.sum() > 100
    np.testing.assert_allclose(before.reward[:, -1] - after.reward[:, -1], 0.25 * switches.sum(axis=(1, 2)), rtol=1e-12)
    paid = column(before, "reward") - column(after, "reward")
    np.testing.assert_allclose(np.nan_to_num(paid)[:, 1:], 0.25 * switches, atol=1e-12)
    genie = [result.regret("genie")[:, -1] + result.reward[:, -1] for result in (before, after)]
    np.testing.assert_allclose(*genie)  # references do not switch, or do not pay


def test_policies_know_the_cost_and_see_rewards_without_it() -> None:
    scenario = ib.scenario("S1", switching_cost=0.25, sensing_time=0.1, perturbation="none")
    observed = witnessed(scenario)
    rewards = observed.feedback[:, :, 1]
    assert set(rewards[np.isfinite(rewards)]) == {0.1, 1.0}


def test_a_policy_that_stays_pays_nothing() -> None:
    scenario = ib.scenario("S1", users=10, switching_cost=1.0)
    assert np.array_equal(simulated(scenario).reward, simulated(ib.scenario(scenario, switching_cost=0)).reward)


# --- sensing errors --------------------------------------------------------------------------------------------------


def witnessed(scenario: ib.Scenario) -> Observed:
    ib.register(name="witness")(Witness)
    result = ib.simulate(scenario, "witness", horizon=SLOTS, replications=1)
    assert result.state is not None
    return Observed(*result.state[0])


@pytest.mark.parametrize("sensing", ["played", "all"])
@pytest.mark.parametrize("reward", ["threshold", "additive"])
def test_policies_observe_states_with_errors_and_the_rewards_that_belong_to_them(sensing: str, reward: str) -> None:
    errors = {"missed": 0.3, "false_alarm": 0.2}
    scenario = ib.scenario("S4", sensing=sensing, reward=reward, sensing_errors=errors)
    found = witnessed(scenario)
    result = ib.simulate(scenario, "witness", horizon=SLOTS, replications=1, record="slots")
    assert result.slots is not None
    slots = {name: result.slots[name].to_numpy().reshape(SLOTS, 10) for name in result.slots}
    state, shown, picked = slots["state"], slots["observed"], slots["picked"]
    assert (state != shown).mean() == pytest.approx(0.25, abs=0.06)
    assert np.array_equal(found.sensed, shown if sensing == "all" else np.full_like(shown, -1))
    assert np.array_equal(found.feedback[picked][:, 0], shown[picked])

    def earned(states: np.ndarray) -> np.ndarray:
        n = slots["perturbation"]
        return np.where(states == 1, 1.0, 0.1) - n if reward == "additive" else np.where(states - n > 0, 1.0, 0.1)

    np.testing.assert_array_equal(found.feedback[picked][:, 1], earned(shown)[picked])
    np.testing.assert_array_equal(slots["reward"][picked], earned(state)[picked])
    assert result.reward[0, -1] == pytest.approx(earned(state)[picked].sum())
    assert result.curves["collisions"][0, -1] == (state[picked] == 0).sum()


def test_references_and_the_genie_know_true_states() -> None:
    errors = {"missed": 0.3, "false_alarm": 0.2}
    plain = ib.scenario("S4", perturbation="none")
    scenario = ib.scenario(plain, sensing_errors=errors)
    for one in (plain, scenario):
        result = ib.simulate(one, "genie", horizon=T, replications=1)
        assert np.abs(result.regret("genie")).max() < 1e-9
    runs = [ReferenceRun.start(one, T, 0, 0) for one in (plain, scenario)]
    for run in runs:
        run.to(T)
    assert np.array_equal(runs[0].references.curves, runs[1].references.curves)
    assert bound(scenario) == bound(plain)


def test_a_policy_knows_the_error_rates() -> None:
    scenario = ib.scenario("S1", sensing_errors={"missed": 0.1, "false_alarm": [0.2] * 10}, switching_cost=0.5)
    setup = PolicyRun.start(scenario, ib.policy("mp-random"), T, 0, 0).setup
    assert (setup.missed.tolist(), setup.false_alarm.tolist(), setup.switching_cost) == ([0.1] * 10, [0.2] * 10, 0.5)


# --- bounds and refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"dwell": {"good": {"kind": "weibull", "shape": 0.5}, "bad": {"kind": "geometric"}}},
        {"regimes": {"p01": [[0.1] * 10] * 2, "p10": [[0.1] * 10] * 2, "at": [100]}},
        {"shocks": {"start": 0.1, "end": 0.1}},
        {"correlation": {"common": 0.1}},
        {"context": {"kind": "ar1", "correlation": 0.5}},
        {"perturbation": {"drift": 100}},
    ],
    ids=lambda table: next(iter(table)),
)
def test_there_is_no_bound_where_it_would_not_hold(settings: dict[str, Any]) -> None:
    scenario = ib.scenario("S1", **settings)
    assert bound(scenario, scenario.theta(0, 0)) is None
    result = ib.simulate(scenario, "mp-random", horizon=50, replications=1)
    assert np.isnan(result.curves["regret_bound"]).all()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sensing_time": 1}, "scenario.sensing_time: sensing takes 1 of a slot; must be less than the whole slot"),
        ({"sensing_time": 0.5, "sensing": "all"}, "scenario.sensing_time: sensing takes 0.5 x 2 of a slot"),
        ({"sensing_time": -0.1}, "scenario.sensing_time = -0.1: must be a number of at least 0 and at most 1"),
        ({"sensing_time": "0.1"}, "scenario.sensing_time = '0.1': must be a number"),
        ({"switching_cost": -1}, "scenario.switching_cost = -1: must be a number of at least 0"),
        ({"switching_cost": None}, "scenario.switching_cost = None: must be a number"),
    ],
)
def test_invalid_costs_are_refused_in_one_line(change: dict[str, Any], line: str) -> None:
    assert line in refused({"base": "S1", **change})


def test_costs_are_part_of_a_scenario() -> None:
    S1 = ib.scenario("S1")
    for change in ({"sensing_time": 0.1}, {"switching_cost": 0.1}):
        scenario = ib.scenario("S1", **change)
        assert ib.scenario(scenario.to_dict()) == scenario != S1
        assert ib.scenario(scenario, **dict.fromkeys(change, 0)) == S1
