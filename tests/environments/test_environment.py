"""Environments that are stepped by hand: sample paths of simulate, observations, what is hidden, and wrong input."""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from idleband.environments.copies import Copies
from idleband.policies.registry import policy
from idleband.scenario.reward import reward
from idleband.simulation.environment import state_reward
from idleband.simulation.run import PolicyRun
from tests.contracts.configurations import EVERY, THREE_STATES

SLOTS = 25


def check_against_the_loop(scenario: ib.Scenario, seed: int = 3, replication: int = 1) -> None:
    """Play the channels of mp-random and compare everything with the loop, bit for bit."""
    run = PolicyRun.start(scenario, policy("mp-random"), SLOTS, seed, replication)
    environment = ib.Environment(scenario, horizon=SLOTS, seed=seed, replication=replication)
    observation = environment.reset()
    path, rows = run.path, scenario.available
    for t in range(1, SLOTS + 1):
        run.to(t)
        shown = path.observed if path.errors else path.s
        assert observation.t == t
        assert np.array_equal(observation.contexts, path.x)
        assert np.array_equal(observation.available, rows[(t - 1) % len(rows)])
        assert np.array_equal(observation.sensed, shown if scenario.sensing == "all" else np.full(scenario.K, -1))
        picks = run.tally.picks[: run.tally.picked[0]].tolist()
        _, feedback, observation, done = environment.step(picks)
        assert [one.channel for one in feedback] == picks
        for one in feedback:
            k, s = one.channel, int(shown[one.channel])
            assert one.state == s
            assert one.reward == reward(path.reward, state_reward(path, k, s), path.good[k, s], path.n[k])
            assert one.perturbation == path.n[k] or (math.isnan(one.perturbation) and scenario.feedback == "reward")
        assert environment.total_reward == run.tally.now[0]
        assert done == environment.done == (t == SLOTS)


@pytest.mark.parametrize("where", EVERY)
def test_every_kind_of_scenario_equals_the_loop(where: str) -> None:
    check_against_the_loop(EVERY[where])


@st.composite
def scenarios(draw: st.DrawFn) -> ib.Scenario:
    """Scenarios with any combination of settings."""
    K = draw(st.integers(1, 5))
    probability = st.floats(0.05, 0.95)
    several = st.lists(probability, min_size=K, max_size=K)
    table: dict[str, Any] = {
        "p01": draw(several),
        "p10": draw(several),
        "users": draw(st.integers(1, K)),
        "sensing": draw(st.sampled_from(["played", "all"])),
        "feedback": draw(st.sampled_from(["perturbation", "reward"])),
        "reward": draw(st.sampled_from(["threshold", "additive"])),
        "context": {"dimension": draw(st.integers(1, 3))},
        "switching_cost": draw(st.sampled_from([0.0, 0.3])),
        "sensing_time": draw(st.sampled_from([0.0, 0.1])),
        "perturbation": dict(draw(st.sampled_from([{"theta_norm": 0.8}, {"kind": "quadratic", "clear": 0.8}]))),
    }
    if draw(st.booleans()):
        table["context"] |= {"kind": "ar1", "correlation": 0.7}
    if draw(st.booleans()):
        table["perturbation"]["noise"] = 0.2
    if draw(st.booleans()):
        table["perturbation"]["drift"] = 10
    if draw(st.booleans()):
        table["sensing_errors"] = {"missed": 0.2, "false_alarm": 0.1}
    if draw(st.booleans()):
        table["availability"] = draw(
            st.lists(st.lists(st.integers(0, 1), min_size=K, max_size=K), min_size=1, max_size=3)
        )
    if draw(st.booleans()):
        table["shocks"] = {"start": 0.1, "end": 0.4, "share": 0.7}
    if draw(st.booleans()):
        table["correlation"] = {"common": 0.3}
    return ib.scenario(table)


@given(scenarios(), st.integers(0, 2**40), st.integers(0, 1000))
@settings(max_examples=60)
def test_any_settings_equal_the_loop(scenario: ib.Scenario, seed: int, replication: int) -> None:
    check_against_the_loop(scenario, seed, replication)


def test_users_perturbation_model() -> None:
    @ib.register_perturbation(name="step")
    class StepModel:
        "1.5 where the first entry is large, else 0."

        def draw(rng: Any, dimension: int, clear: float) -> list[float]:
            return [clear]

        def value(theta: Any, x: Any) -> float:
            return 1.5 if x[0] >= theta[0] else 0.0

    check_against_the_loop(ib.scenario("S1", perturbation="step"))


def test_fault_of_a_users_model_is_reported_in_one_line() -> None:
    plain = ib.Environment("S1", horizon=5)
    plain.reset()
    plain.step([0, 1, 2, 3, 4])
    there = float(plain.step([0, 1, 2, 3, 4]).observation.contexts[6, 0])

    @ib.register_perturbation(name="faulty")
    class Faulty:
        "Not a number in one slot of one channel."

        def draw(rng: Any, dimension: int, clear: float) -> list[float]:
            return [0.0]

        def value(theta: Any, x: Any) -> float:
            return math.nan if x[0] == there else 0.5

    environment = ib.Environment(ib.scenario("S1", perturbation="faulty"), horizon=5)
    environment.reset()
    environment.step([0, 1, 2, 3, 4])
    with pytest.raises(ib.InputError) as caught:
        environment.step([0, 1, 2, 3, 4])
    expected = "perturbation model faulty: value = nan in slot 3, channel 6 (ch7); must be a finite number"
    assert str(caught.value) == expected
    copies = Copies(environment.scenario, 5, 2)
    copies.restart(0, 0)
    copies.step(np.zeros((2, 10)))
    with pytest.raises(ib.InputError, match=re.escape(expected)):
        copies.step(np.zeros((2, 10)))


def test_total_reward_is_that_of_simulate() -> None:
    result = ib.simulate("S4", "mp-ucb", horizon=50, replications=2, seed=5, record="slots")
    assert result.slots is not None
    for i in range(2):
        environment = ib.Environment("S4", horizon=50, seed=5, replication=i)
        environment.reset()
        for _, slot in result.slots[result.slots.replication == i].groupby("t"):
            environment.step(slot.channel[slot.picked].tolist())
        assert environment.total_reward == result.reward[i, -1]
        assert environment.done


def test_default_horizon_is_that_of_simulate() -> None:
    assert ib.Environment("S1").horizon == 100_000
    assert ib.Environment(EVERY["replay"]).horizon == 90


def test_scenarios_are_given_as_to_simulate() -> None:
    for source in ("S4", {"base": "S4"}, ib.scenario("S4")):
        environment = ib.Environment(source, horizon=10)
        assert environment.scenario.name == "S4"
        assert environment.reset().contexts.shape == (10, 8)


def test_reset_repeats_a_sample_path_or_starts_another() -> None:
    environment = ib.Environment("S1", horizon=5, seed=1, replication=2)
    first = played(environment, environment.reset())
    again = played(environment, environment.reset())
    assert again == first
    other = played(environment, environment.reset(replication=3))
    assert other != first
    assert (environment.seed, environment.replication) == (1, 3)
    assert played(environment, environment.reset(seed=1, replication=2)) == first
    fresh = ib.Environment("S1", horizon=5, seed=7, replication=3)
    assert played(fresh, fresh.reset()) == played(environment, environment.reset(seed=7, replication=3))


def played(environment: ib.Environment, observation: ib.Observation) -> list[Any]:
    """Play the first channels to the end and return everything that was observed."""
    seen, done = [observation.contexts.tolist()], False
    while not done:
        reward, feedback, observation, done = environment.step(range(environment.scenario.users))
        seen += [reward, feedback, observation.contexts.tolist(), observation.sensed.tolist()]
    return seen


def test_environments_do_not_change_each_other() -> None:
    """Neither memory of a scenario nor of its kept parameters is shared between environments and runs."""
    scenario = ib.scenario("S4", perturbation={"drift": 20, "per_channel": True})
    before = ib.simulate(scenario, "mp-random", horizon=30, replications=1).reward
    one, two = (ib.Environment(scenario, horizon=30) for _ in range(2))
    alone = played(two, two.reset())
    one.reset(seed=9)
    observation = two.reset()
    for _ in range(10):
        one.step([0, 1, 2, 3, 4])
    assert played(two, observation) == alone
    assert np.array_equal(ib.simulate(scenario, "mp-random", horizon=30, replications=1).reward, before)


def test_what_was_returned_does_not_change_later() -> None:
    environment = ib.Environment(ib.scenario("S1", sensing="all"), horizon=20)
    observation = environment.reset()
    kept = observation.contexts.copy(), observation.sensed.copy()
    for _ in range(5):
        environment.step([0, 1, 2, 3, 4])
    assert np.array_equal(observation.contexts, kept[0])
    assert np.array_equal(observation.sensed, kept[1])
    with pytest.raises(ValueError, match="read-only"):
        observation.available[0] = False


def test_channels_are_given_by_index_or_name() -> None:
    one, two = (ib.Environment("S1", horizon=5) for _ in range(2))
    one.reset()
    two.reset()
    for channels in (np.array([4, 3, 2, 1, 0]), (4, 3, 2, 1, 0), ["4", "ch4", 2, "ch2", np.int64(0)]):
        assert one.step([4, 3, 2, 1, 0])[:2] == two.step(channels)[:2]


COMES_AND_GOES = ib.scenario("S1", availability=[[0, 1] * 5, [0] * 9 + [1]])


@pytest.mark.parametrize(
    ("scenario", "channels", "message"),
    [
        ("S1", [0, 1, 2, 3], r"channels = \[0, 1, 2, 3\]: has 4; slot 1 needs 5 channels"),
        ("S1", [], r"channels = \[\]: has 0; slot 1 needs 5 channels"),
        ("S1", [0, 1, 2, 3, 3], r"channels = \[0, 1, 2, 3, 3\]: each channel may be given once"),
        ("S1", [0, 1, 2, 3, 10], r"channels = 10: must be a channel index from 0 to 9, or one of the names ch1, .*"),
        ("S1", [0, 1, 2, 3, -1], r"channels = -1: must be a channel index from 0 to 9, or one of the names ch1, .*"),
        ("S1", [0, 1, 2, 3, 4.0], r"channels = 4.0: must be a channel index from 0 to 9, or one of the names ch1, .*"),
        ("S1", np.arange(5.0), r"channels = np.float64\(0.0\): must be a channel index from 0 to 9, .*"),
        ("S1", "ch1", r"channels = 'ch1': must be a list of channels"),
        ("S1", 3, r"channels = 3: must be a list of channels"),
        ("S1", None, r"channels = None: must be a list of channels"),
        (
            COMES_AND_GOES,
            [1, 3, 5, 7, 8],
            r"channels = \[1, 3, 5, 7, 8\]: channel 8 \(ch9\) is not available in slot 1",
        ),
    ],
)
def test_wrong_channels_are_refused(scenario: Any, channels: Any, message: str) -> None:
    environment = ib.Environment(scenario, horizon=5)
    environment.reset()
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        environment.step(channels)
    assert environment.total_reward == 0.0  # nothing was played


def test_all_available_channels_are_played_where_they_are_fewer_than_users() -> None:
    environment = ib.Environment(COMES_AND_GOES, horizon=5)
    environment.reset()
    environment.step([1, 3, 5, 7, 9])
    with pytest.raises(ib.InputError, match=r"has 5; slot 2 needs 1 channel \(all that are available\)$"):
        environment.step([1, 3, 5, 7, 9])
    assert len(environment.step([9]).feedback) == 1


def test_steps_before_the_first_reset_and_after_the_end_are_refused() -> None:
    environment = ib.Environment("S1", horizon=2)
    with pytest.raises(ib.InputError, match=r"^step: the environment has not been started; call reset first$"):
        environment.step([0, 1, 2, 3, 4])
    environment.reset()
    assert [environment.step([0, 1, 2, 3, 4]).done for _ in range(2)] == [False, True]
    with pytest.raises(ib.InputError, match=r"^step: all 2 slots have been played; call reset$"):
        environment.step([0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, r"experiment.horizon = 0: must be a whole number from 1 to 10\^10"),
        ({"seed": -1}, r"experiment.seed = -1: must be a whole number from 0 to \d+"),
        ({"replication": 10**6}, r"replication = 1000000: must be a whole number from 0 to 999999"),
        ({"replication": "first"}, r"replication = first: must be a whole number from 0 to 999999"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        ib.Environment("S1", **arguments)
    environment = ib.Environment("S1", horizon=5)
    if "horizon" not in arguments:
        with pytest.raises(ib.InputError, match=message.removeprefix("experiment.")):
            environment.reset(**arguments)


def test_representation() -> None:
    assert repr(ib.Environment("S1", horizon=5, seed=2)) == "Environment(S1: slot 0 of 5, seed 2, replication 0)"


def test_states_of_three_are_shown_as_numbers() -> None:
    environment = ib.Environment(ib.scenario(THREE_STATES, sensing="all"), horizon=200)
    observations = [environment.reset(), *(environment.step([0, 1]).observation for _ in range(199))]
    assert {int(s) for one in observations for s in one.sensed[:3]} == {0, 1, 2}
