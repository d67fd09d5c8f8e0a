"""Users who are stepped by hand: rewards and feedback of the loop, settings, control minislots, and wrong input."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from idleband.arrays import Floats, Ints
from idleband.policies.protocol import Feedback, Setup, Slot
from idleband.policies.registry import policy
from idleband.simulation.users_loop import MESSAGES, PRIMARY, SWITCHES
from idleband.simulation.users_run import UsersRun, start_run
from tests.conftest import ROOT
from tests.environments.stepping import Stepped, step_policy

NONE: dict[str, Any] = {"coordination": "none"}
S1 = ib.scenario("S1", users=NONE)


def without_station(scenario: Any = "S1", **users: Any) -> ib.Scenario:
    return ib.scenario(scenario, users={**NONE, **users})


# --- a policy that is stepped by hand; tests/contracts/test_users.py steps those of the package ----------------------


def check_against_the_loop(stepped: Stepped, run: UsersRun) -> None:
    """Compare rewards, counters and what the policies have learned, bit for bit."""
    environment, tally = stepped.environment, run.tally
    assert environment.done
    assert environment.total_reward == tally.now[0]
    assert environment.user_rewards.tolist() == tally.now[9 : 9 + tally.present.size].tolist()
    mine = environment._slots.episode.tally
    for row in (PRIMARY, SWITCHES, MESSAGES):
        assert mine.now[row] == tally.now[row]
    assert environment.collisions == tally.now[5]
    assert np.array_equal(mine.plays, tally.plays)
    for j, state in stepped.states.items():
        for own, other in zip(state, run.state[j], strict=True):
            assert np.array_equal(own, other, equal_nan=True)


class Seen(NamedTuple):
    value: Floats  # (K,) of each channel
    last: Ints  # (3,) channel, state and collision of the last play
    heard: Ints  # (1,)


@ib.register(name="talker", decentralised=True)
class Talker:
    "Uses everything that a user observes, and sends what it saw in the slot."

    def init(setup: Setup) -> Seen:
        return Seen(np.zeros(setup.K), np.full(3, -1, np.int64), np.zeros(1, np.int64))

    def select(setup: Setup, state: Seen, slot: Slot, picks: Ints) -> int:
        best = -1
        for k in range(setup.K):
            score = state.value[k] + slot.contexts[k, 0] + slot.sensed[k] + ib.random.uniform(slot.rng)
            slot.indices[k] = score if slot.available[k] else -np.inf
            if slot.available[k] and (best < 0 or slot.indices[k] > slot.indices[best]):
                best = k
        picks[0] = best
        return 1 if best >= 0 and (slot.t + state.heard[0]) % 7 > 0 else 0

    def update(setup: Setup, state: Seen, slot: Slot, feedback: Feedback) -> None:
        k = feedback.channel
        more = feedback.perturbation if setup.measured else 0.0
        state.value[k] += 0.1 * (feedback.reward + more - state.value[k]) - 0.01 * feedback.collision
        state.last[0], state.last[1], state.last[2] = k, feedback.state, feedback.collision

    def signal(setup: Setup, state: Seen, slot: Slot, minislots: Ints) -> None:
        for i in range(setup.control_bits):
            if (state.last[1] + state.last[2] + slot.t + i) % 3 == 0:
                minislots[(slot.t + 5 * i) % minislots.size] = 1

    def hear(setup: Setup, state: Seen, slot: Slot, minislots: Ints) -> None:
        for i in range(minislots.size):
            state.heard[0] += minislots[i] * (i + 1)


TALKER = policy("talker")  # the registry is restored after each test


@st.composite
def scenarios(draw: st.DrawFn) -> ib.Scenario:
    """Scenarios without a base station, with any combination of settings."""
    K = draw(st.integers(1, 5))
    N = draw(st.integers(1, K))
    share = st.floats(0.05, 0.95)
    channels = st.lists(share, min_size=K, max_size=K)
    users: dict[str, Any] = {
        "count": N,
        "coordination": "none",
        "collision": draw(st.sampled_from(["lost", "one", "split"])),
        "observes": draw(st.sampled_from(["sensing", "collisions", "rewards"])),
        "control_bits": draw(st.integers(0, 2)),
    }
    if draw(st.booleans()):
        users["quality"] = draw(st.lists(channels, min_size=N, max_size=N))
    presence = draw(st.sampled_from(["always", "times", "spread", "random"]))
    if presence == "times":
        users["arrive"] = draw(st.lists(st.integers(1, 20), min_size=N, max_size=N))
        users["leave"] = [draw(st.sampled_from([0, first + 1, first + 9])) for first in users["arrive"]]
    elif presence == "spread":
        users["spread"] = 12
    elif presence == "random":
        users |= {"mean_stay": 4, "mean_absence": 3}
    table: dict[str, Any] = {
        "p01": draw(channels),
        "p10": draw(channels),
        "users": users,
        "sensing": draw(st.sampled_from(["played", "all"])),
        "feedback": draw(st.sampled_from(["perturbation", "reward"])),
        "reward": draw(st.sampled_from(["threshold", "additive"])),
        "context": {"dimension": 2},
        "switching_cost": draw(st.sampled_from([0.0, 0.3])),
        "sensing_time": draw(st.sampled_from([0.0, 0.1])),
        "perturbation": {"theta_norm": 0.8},
    }
    if draw(st.booleans()):
        table["sensing_errors"] = {"missed": 0.2, "false_alarm": 0.1}
    if draw(st.booleans()):
        row = st.lists(st.integers(0, 1), min_size=K, max_size=K)
        table["availability"] = draw(st.lists(row, min_size=1, max_size=3))
    if draw(st.booleans()):
        table["perturbation"]["noise"] = 0.2
    return ib.scenario(table)


@given(scenarios(), st.integers(0, 2**40), st.integers(0, 1000))
@settings(max_examples=60)
def test_any_settings_equal_the_loop(scenario: ib.Scenario, seed: int, replication: int) -> None:
    run = start_run(scenario, TALKER, 30, seed, replication)
    assert isinstance(run, UsersRun)
    run.to(30)
    check_against_the_loop(step_policy(scenario, TALKER, 30, seed, replication), run)


def test_one_call_per_slot_equals_two() -> None:
    for users in ({}, {"mean_stay": 5, "mean_absence": 5, "collision": "one"}):
        scenario = without_station(**users)
        whole, halves = (step_policy(scenario, TALKER, 60, 1, 2, halves) for halves in (False, True))
        assert whole.environment.user_rewards.tolist() == halves.environment.user_rewards.tolist()
        assert whole.environment.total_reward > 0


def test_perturbation_model_of_a_user() -> None:
    @ib.register_perturbation(name="step")
    class StepModel:
        "1.5 where the first entry is large, else 0."

        def draw(rng: Any, dimension: int, clear: float) -> list[float]:
            return [clear]

        def value(theta: Any, x: Any) -> float:
            return 1.5 if x[0] >= theta[0] else 0.0

    scenario = ib.scenario("S1", users=NONE, perturbation="step")
    run = start_run(scenario, TALKER, 30, 0, 0)
    assert isinstance(run, UsersRun)
    run.to(30)
    check_against_the_loop(step_policy(scenario, TALKER, 30, 0, 0), run)


# --- what is returned ------------------------------------------------------------------------------------------------

FREE: dict[str, Any] = {"p01": [1.0] * 4, "p10": [1e-12] * 4, "perturbation": "none", "context": {"dimension": 1}}


def started(users: dict[str, Any], horizon: int = 20, **changes: Any) -> ib.UsersEnvironment:
    environment = ib.UsersEnvironment(ib.scenario(FREE, users={**NONE, **users}, **changes), horizon=horizon)
    environment.reset()
    return environment


@pytest.mark.parametrize(("collision", "rewards"), [("lost", [0, 0]), ("split", [0.5, 0.5])])
def test_collisions(collision: str, rewards: list[float]) -> None:
    environment = started({"count": 3, "collision": collision})
    step = environment.step({0: 2, 1: 2, 2: 3})
    assert step.rewards == {0: rewards[0], 1: rewards[1], 2: 1.0}
    assert {j: one[:3] for j, one in step.feedback.items()} == {
        0: (2, 1, rewards[0]), 1: (2, 1, rewards[1]), 2: (3, 1, 1.0)
    }  # fmt: skip
    assert [one.collision for one in step.feedback.values()] == [1, 1, 0]
    assert environment.collisions == 2
    environment.step({0: None, 1: 2, 2: 3})
    assert environment.user_rewards.tolist() == [rewards[0], rewards[1] + 1, 2]
    assert environment.total_reward == sum(rewards) + 3


def test_silent_users_earn_nothing_and_observe_nothing() -> None:
    step = started({"count": 2}).step({1: None, 0: None})
    assert step.rewards == {0: 0.0, 1: 0.0}
    assert step.feedback == {}


@pytest.mark.parametrize(
    ("observes", "state", "collision"), [("sensing", 1, 0), ("collisions", -1, 0), ("rewards", -1, -1)]
)
def test_users_observe_what_the_scenario_says(observes: str, state: int, collision: int) -> None:
    feedback = started({"count": 1, "observes": observes}).step({0: 0}).feedback[0]
    assert (feedback.state, feedback.reward, feedback.collision) == (state, 1.0, collision)
    assert np.isnan(feedback.perturbation) == (observes != "sensing")


def test_users_arrive_and_leave() -> None:
    environment = started({"count": 3, "arrive": [1, 3, 3], "leave": [4, 0, 5]})
    assert environment.reset().users == {0: 1}
    assert environment.step({0: 1}).observation.users == {0: 2}
    step = environment.step({0: None})
    assert step.observation.users == {0: 3, 1: 1, 2: 1}
    step = environment.step({0: 1, 1: 1, 2: 2})
    assert step.rewards == {0: 0.0, 1: 0.0, 2: 1.0}
    assert step.observation.users == {1: 2, 2: 2}
    assert environment.step({1: 1, 2: 2}).observation.users == {1: 3}
    with pytest.raises(ib.InputError, match=r"^channels: user 0 is not present in slot 5; present: 1$"):
        environment.step({0: 1, 1: 2})


def test_slots_without_users_are_played() -> None:
    environment = started({"count": 1, "arrive": [3]}, horizon=4)
    assert [environment.step({}).rewards for _ in range(2)] == [{}, {}]
    assert environment.step({0: 1}).rewards == {0: 1.0}
    with pytest.raises(ib.InputError, match=r"^channels: user 1 is not present in slot 4; present: 0$"):
        environment.step({1: 2})


def test_control_minislots_are_heard_in_the_next_slot_only() -> None:
    environment = started({"count": 2, "control_bits": 2})
    assert environment.reset().heard.tolist() == [0, 0, 0, 0]
    assert environment.step({0: 1, 1: 2}, {0: [3], 1: [0, 3]}).observation.heard.tolist() == [1, 0, 0, 1]
    assert environment.step({0: 1, 1: 2}).observation.heard.tolist() == [0, 0, 0, 0]
    environment.play({0: 1, 1: 2})
    assert environment.send({1: np.array([1])}).observation.heard.tolist() == [0, 1, 0, 0]
    assert started({"count": 2}).reset().heard.size == 0


def test_what_was_returned_does_not_change_later() -> None:
    environment = ib.UsersEnvironment(ib.scenario(S1, sensing="all", users={"control_bits": 1}), horizon=20)
    observation = environment.reset()
    kept = [np.copy(part) for part in observation[2:]], dict(observation.users)
    first = environment.step(dict.fromkeys(range(5), 1), {0: [0]})
    values = first.rewards.copy(), environment.user_rewards
    for _ in range(5):
        environment.step(dict.fromkeys(range(5), 2))
    assert all(np.array_equal(now, before) for now, before in zip(observation[2:], kept[0], strict=True))
    assert observation.users == kept[1]
    assert first.observation.heard.tolist() == [1, 0, 0, 0, 0]
    assert first.rewards == values[0]
    with pytest.raises(ValueError, match="read-only"):
        observation.available[0] = False


def played(environment: ib.UsersEnvironment, observation: ib.UsersObservation) -> list[Any]:
    seen: list[Any] = [observation.contexts.tolist()]
    while not environment.done:
        step = environment.step({j: j % 3 for j in observation.users})
        observation = step.observation
        seen += [step.rewards, list(step.feedback.values()), observation.contexts.tolist()]
    return seen


def test_reset_repeats_a_sample_path_or_starts_another() -> None:
    scenario = without_station(mean_stay=4, mean_absence=4, collision="one")
    environment = ib.UsersEnvironment(scenario, horizon=12, seed=1, replication=2)
    first = played(environment, environment.reset())
    assert played(environment, environment.reset()) == first
    environment.reset()
    environment.play(dict.fromkeys(environment.reset().users, 0))  # is forgotten by the next reset
    other = played(environment, environment.reset(replication=3))
    assert other != first
    assert (environment.seed, environment.replication) == (1, 3)
    assert played(environment, environment.reset(seed=1, replication=2)) == first
    fresh = ib.UsersEnvironment(scenario, horizon=12, seed=7, replication=3)
    assert played(fresh, fresh.reset()) == played(environment, environment.reset(seed=7, replication=3))
    assert repr(fresh) == "UsersEnvironment(S1: slot 13 of 12, seed 7, replication 3)"


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ([0, 1], r"channels = \[0, 1\]: must be a dict with an entry for each user"),
        (None, r"channels = None: must be a dict with an entry for each user"),
        ({0: 1}, r"channels: user 1 is missing; give a channel, or None to stay silent"),
        ({0: 1, 1: 2, 2: 3}, r"channels: user 2 is not present in slot 1; present: 0, 1"),
        ({0: 1, "user_1": 2}, r"channels: user 'user_1' is not present in slot 1; present: 0, 1"),
        ({0: 1, True: 2}, r"channels: user True is not present in slot 1; present: 0, 1"),
        ({0: 1, 1: 4}, r"channels, user 1 = 4: must be a channel index from 0 to 3"),
        ({0: -1, 1: 2}, r"channels, user 0 = -1: must be a channel index from 0 to 3"),
        ({0: 1.0, 1: 2}, r"channels, user 0 = 1.0: must be a channel index from 0 to 3"),
        ({0: [1], 1: 2}, r"channels, user 0 = \[1\]: must be a channel index from 0 to 3"),
        ({0: 1, 1: 0}, r"channels, user 1: channel 0 is not available in slot 1"),
    ],
)
def test_wrong_channels_are_refused(channels: Any, message: str) -> None:
    environment = started({"count": 2}, availability=[[0, 1, 1, 1]])
    for call in (environment.step, environment.play):
        with pytest.raises(ib.InputError, match=f"^{message}$"):
            call(channels)
    assert environment.step({0: 1, 1: 2}).observation.t == 2  # nothing was played before
    assert environment.total_reward == 2


@pytest.mark.parametrize(
    ("minislots", "message"),
    [
        ([0], r"minislots = \[0\]: must be a dict with an entry for each user"),
        ({2: [0]}, r"minislots: user 2 is not present in slot 1; present: 0, 1"),
        ({0: 1}, r"minislots, user 0 = 1: must be a list, of minislots"),
        ({0: [2]}, r"minislots, user 0 = 2: must be a whole number from 0 to 1"),
        ({1: [0, 1]}, r"minislots, user 1 = \[0, 1\]: has 2; must be at most 1 \(scenario.users.control_bits\)"),
        ({1: [0, 0]}, r"minislots, user 1 = \[0, 0\]: each minislot may be given once"),
    ],
)
def test_wrong_minislots_are_refused(minislots: Any, message: str) -> None:
    environment = started({"count": 2, "control_bits": 1})
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        environment.step({0: 1, 1: 2}, minislots)
    environment.play({0: 1, 1: 2})
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        environment.send(minislots)
    assert environment.send().observation.heard.tolist() == [0, 0]
    with pytest.raises(ib.InputError, match=r"^minislots: there are none; scenario.users.control_bits = 0$"):
        started({"count": 2}).step({0: 1, 1: 2}, minislots)


def test_calls_in_a_wrong_order_are_refused() -> None:
    environment = ib.UsersEnvironment(ib.scenario(FREE, users={**NONE, "count": 1}), horizon=2)
    calls: list[Callable[..., Any]] = [environment.step, environment.play]
    for call in calls:
        with pytest.raises(ib.InputError, match=r"^\w+: the environment has not been started; call reset first$"):
            call({0: 0})
    environment.reset()
    with pytest.raises(ib.InputError, match=r"^send: no channels have been played in slot 1; call play first$"):
        environment.send()
    environment.play({0: 0})
    for call in calls:
        with pytest.raises(ib.InputError, match=r"^\w+: channels have been played in slot 1; call send first$"):
            call({0: 0})
    assert not environment.send().done
    assert environment.step({0: 0}).done
    for call in calls:
        with pytest.raises(ib.InputError, match=r"^\w+: all 2 slots have been played; call reset$"):
            call({0: 0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, r"experiment.horizon = 0: must be a whole number from 1 to 10\^10"),
        ({"seed": -1}, r"experiment.seed = -1: must be a whole number from 0 to \d+"),
        ({"replication": 10**6}, r"replication = 1000000: must be a whole number from 0 to 999999"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        ib.UsersEnvironment(S1, **arguments)


def test_base_station_and_users_have_environments_of_their_own() -> None:
    import gymnasium

    with pytest.raises(ib.InputError, match=r'^scenario S1: has a base station; .*coordination = "none"}$'):
        ib.UsersEnvironment("S1")
    for make in (ib.Environment, lambda scenario: gymnasium.make("idleband/Channels-v1", scenario=scenario)):
        with pytest.raises(ib.InputError, match=r"^scenario S1: has no base station, .* use ib.UsersEnvironment, or"):
            make(S1)
    assert ib.UsersEnvironment(S1).horizon == 100_000


CODE = """
import idleband as ib, gymnasium
from idleband.environments.parallel import parallel_env
users = {"coordination": "none", "mean_stay": 5, "mean_absence": 3, "collision": "one", "control_bits": 1}
scenario = ib.scenario("S4", users=users, perturbation={"noise": 0.1}, switching_cost=0.1)
environment, seen = parallel_env(scenario, horizon=15), []
for name in environment.possible_agents:
    environment.action_space(name).seed(0)
observations, _ = environment.reset(seed=5)
while environment.agents:
    observations, rewards, *_ = environment.step({a: environment.action_space(a).sample() for a in environment.agents})
    seen += [rewards, {name: row.tobytes().hex() for name, row in observations.items()}]
environment = ib.UsersEnvironment(scenario, horizon=15, seed=5)
observation = environment.reset()
while not environment.done:
    feedback = environment.play({j: (j + observation.t) % 3 for j in observation.users})
    step = environment.send({j: [j] for j in feedback if feedback[j].state == 1})
    observation = step.observation
    seen += [step.rewards, step.feedback, observation.heard.tolist()]
print(seen)
"""


def test_interpreted_equals_compiled() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, timeout=300,
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
        )
        for disabled in ("0", "1")
    ]  # fmt: skip
    assert [done.stderr for done in found] == ["", ""]
    assert found[0].stdout == found[1].stdout != ""
