"""The environment of PettingZoo: its checks, observations of single users, agents who arrive and leave, wrong input."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
from pettingzoo.utils.conversions import parallel_to_aec

import idleband as ib
from idleband.environments.observation import limits
from idleband.environments.parallel import parallel_env

COMES_AND_GOES = {"mean_stay": 8, "mean_absence": 6}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rewards only": {"users": {"observes": "rewards"}},
    "rewards only, all sensed": {"users": {"observes": "rewards"}, "sensing": "all"},
    "no states": {"users": {"observes": "collisions", "collision": "split"}},
    "minislots": {"users": {"control_bits": 2, "collision": "one"}},
    "given times": {"users": {"arrive": [1, 5, 9, 12, 30], "leave": [20, 0, 10, 0, 35]}},
    "random stays": {"users": {**COMES_AND_GOES, "control_bits": 1}, "sensing": "all"},
    "quality, availability": {
        "users": {"quality": [[0.1 * k for k in range(10)]] * 5},
        "availability": [[1, 0] * 5, [0] * 10, [0, 1] * 5],
        "sensing_errors": {"missed": 0.2, "false_alarm": 0.1},
    },
    "normal contexts": {
        "perturbation": {"clear": 0.8, "noise": 0.1},
        "context": {"kind": "ar1", "correlation": 0.8, "margin": "normal"},
    },
    "additive": {
        "reward": "additive",
        "perturbation": {"clear": 0.8},
        "users": {"spread": 5},
        "switching_cost": 0.2,
        "sensing_time": 0.1,
    },
    "reward feedback": {"feedback": "reward"},
}


def scenario_of(name: str) -> ib.Scenario:
    given = dict(SETTINGS[name])
    return ib.scenario("S4", **{**given, "users": {"coordination": "none", **given.get("users", {})}})


def environment_of(name: str, horizon: int = 40, **settings: Any) -> Any:
    return parallel_env(scenario_of(name), horizon=horizon, **settings)


@pytest.mark.parametrize("name", SETTINGS)
def test_checks_of_pettingzoo_find_nothing(name: str) -> None:
    """Their warnings are errors, as all warnings in these tests."""
    parallel_api_test(environment_of(name), num_cycles=100)
    parallel_seed_test(lambda: environment_of(name), num_cycles=100)


def test_users_in_turn_pass_the_checks() -> None:
    api_test(parallel_to_aec(environment_of("plain")), num_cycles=50)


# --- rewards and observations against UsersEnvironment ---------------------------------------------------------------


class Recount:
    """What one user has observed since its arrival, counted in plain Python."""

    def __init__(self, scenario: ib.Scenario) -> None:
        self.scenario = scenario
        low, self.high = scenario.reward_range()
        self.low = min(0.0, low)
        self.last: dict[int, tuple[int, int]] = {}  # state and slot
        self.rewards: dict[int, list[float]] = {}
        self.before: Any = None  # feedback of the slot before

    def add(self, seen: ib.UsersObservation, one: Any) -> None:
        if self.scenario.sensing == "all":
            self.last = {k: (int(s), seen.t) for k, s in enumerate(seen.sensed)}
        self.before = one
        if one is not None:
            known = self.last.get(one.channel, (-1, 0))[0]
            self.last[one.channel] = one.state if one.state >= 0 else known, seen.t
            share = (one.reward - self.low) * (1.0 / (self.high - self.low))
            self.rewards.setdefault(one.channel, []).append(min(1.0, max(0.0, share)))

    def row(self, seen: ib.UsersObservation, present: bool) -> np.ndarray:
        given = self.scenario.uncoordinated
        assert given is not None
        every, all_sensed = range(self.scenario.K), self.scenario.sensing == "all"
        parts: list[Any] = [np.clip(seen.contexts, -3, 4).ravel() * present, seen.available * present]
        if all_sensed:
            parts.append(seen.sensed * present)
        one = self.before
        channel = -1 if one is None else one.channel
        parts.append([k == channel for k in every])
        if self.scenario.feedback == "perturbation" and given.observes == "sensing":
            parts.append([np.clip(one.perturbation, -10, 10) if k == channel else 0 for k in every])
        if given.observes == "sensing" or all_sensed:
            parts.append([self.last[k][0] if k in self.last else -1 for k in every])
        parts.append([1 / (seen.t - self.last[k][1]) if k in self.last else 0 for k in every])
        parts.append([self.rewards[k][-1] if k in self.rewards else -1 for k in every])
        parts.append([sum(self.rewards[k]) / len(self.rewards[k]) if k in self.rewards else -1 for k in every])
        if given.observes != "rewards":
            parts.append([one is not None and one.collision == 1])
        parts.append(seen.heard * present)
        return np.concatenate([np.asarray(part, float) for part in parts]).astype(np.float32)


@pytest.mark.parametrize("name", SETTINGS)
def test_rewards_and_observations_equal_those_of_users_who_are_stepped_by_hand(name: str) -> None:
    scenario, horizon = scenario_of(name), 40
    environment = environment_of(name, horizon, invalid="error")
    by_hand = ib.UsersEnvironment(scenario, horizon=horizon, seed=4)
    observations, infos = environment.reset(seed=4)
    seen, K, bits = by_hand.reset(), scenario.K, by_hand.reset().heard.size
    for agent in environment.possible_agents:
        environment.action_space(agent).seed(int(agent[5:]))
    memory, living, totals = dict[str, Recount](), set[str](), np.zeros(scenario.users)
    while not by_hand.done:
        present = {f"user_{j}" for j in seen.users}
        living |= present
        assert present <= set(environment.agents) <= living
        for agent in environment.agents:
            if seen.users.get(int(agent[5:])) == 1:
                memory[agent] = Recount(scenario)
            row = memory[agent].row(seen, agent in present)
            assert np.array_equal(observations[agent], row)
            assert observations[agent] in environment.observation_space(agent)
        if not environment.agents:
            by_hand.step({})
            continue
        masks = {agent: infos[agent]["action_mask"] for agent in environment.agents}
        actions = {agent: environment.action_space(agent).sample(mask) for agent, mask in masks.items()}
        channels: dict[int, Any] = {}
        minislots: dict[int, Any] = {}
        for j in seen.users:
            k, *sent = np.ravel(actions[f"user_{j}"]).tolist()
            channels[j] = None if k == K else k
            minislots[j] = sorted(set(sent) - {bits})
        observations, rewards, _, truncations, infos = environment.step(actions)
        step = by_hand.step(channels, minislots if bits else None)
        assert {agent: reward for agent, reward in rewards.items() if reward} == {
            f"user_{j}": reward for j, reward in step.rewards.items() if reward
        }
        for agent, reward in rewards.items():
            totals[int(agent[5:])] += reward
        for agent in memory:
            if agent in present:
                memory[agent].add(seen, step.feedback.get(int(agent[5:])))
            else:
                memory[agent].before = None
        seen = step.observation
    assert not environment.agents
    assert totals == pytest.approx(by_hand.user_rewards)
    for agent in truncations:
        assert np.array_equal(observations[agent], memory[agent].row(seen, agent in present))
    assert len(memory) == scenario.users  # all came, so all were compared


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_cover_the_observation(name: str) -> None:
    scenario, environment = scenario_of(name), environment_of(name)
    low, high = limits(scenario)
    entries = np.concatenate([np.arange(low.size)[part] for part in environment.layout.values()])
    assert entries.tolist() == list(range(low.size))
    assert (low < high).all()
    given = scenario.uncoordinated
    assert given is not None
    layout = environment.layout
    assert ("collision" in layout) == (given.observes != "rewards")
    assert ("heard" in layout) == (given.control_bits > 0)
    assert ("last_state" in layout) == (given.observes == "sensing" or scenario.sensing == "all")
    assert ("perturbation" in layout) == (given.observes == "sensing" and scenario.feedback == "perturbation")
    for agent in environment.possible_agents:
        assert environment.observation_space(agent).shape == low.shape


def seen_by_first(observes: str, others: int, busy: bool) -> list[Any]:
    """Return what user 0 observes on channel 0 while another one plays `others`, where nothing is earned."""
    state = ([1e-12] * 3, [1.0] * 3) if busy else ([1.0] * 3, [1e-12] * 3)
    scenario = ib.scenario(
        p01=state[0], p10=state[1], rewards=[[0.0, 0.0]] * 3, reward="additive", perturbation="none",
        feedback="reward", users={"count": 2, "coordination": "none", "observes": observes},
    )  # fmt: skip
    environment = parallel_env(scenario, horizon=20)
    rows = [environment.reset(seed=1)[0]["user_0"]]
    while environment.agents:
        rows.append(environment.step({"user_0": 0, "user_1": others})[0]["user_0"])
    return [row.tolist() for row in rows]


def test_users_do_not_observe_what_is_hidden() -> None:
    """All rewards are 0: only states and collisions differ between the cases."""
    cases = {"alone, idle": (1, False), "alone, busy": (1, True), "collided, idle": (0, False)}
    for observes, differ in {"rewards": set(), "collisions": {"collided, idle"}, "sensing": set(cases) - {""}}.items():
        rows = {case: seen_by_first(observes, *given) for case, given in cases.items()}
        for case in cases:
            if case != "alone, idle":
                assert (rows[case] != rows["alone, idle"]) == (case in differ), (observes, case)


# --- agents ----------------------------------------------------------------------------------------------------------


def test_agents_arrive_and_leave_as_the_users_do() -> None:
    environment = environment_of("given times")
    environment.reset(seed=0)
    lives = {
        f"user_{j}": (first, end) for j, (first, end) in enumerate([(1, 20), (5, 99), (9, 10), (12, 99), (30, 35)])
    }
    for t in range(1, 41):
        assert environment.agents == [agent for agent, (first, end) in lives.items() if first <= t < end]
        before = list(environment.agents)
        _, rewards, terminations, truncations, infos = environment.step(dict.fromkeys(before, 10))
        assert terminations == {agent: lives[agent][1] == t + 1 for agent in rewards}
        assert truncations == dict.fromkeys(rewards, t == 40)
        arrived = [agent for agent, (first, _) in lives.items() if first == t + 1]
        assert set(rewards) == set(before) | set(arrived) == set(infos)
    assert environment.agents == []


def test_agents_who_are_away_only_observe_that_nothing_can_be_played() -> None:
    scenario = ib.scenario("S1", sensing="all", users={"count": 3, "coordination": "none", **COMES_AND_GOES})
    for invalid in ("silent", "error"):
        environment = parallel_env(scenario, horizon=200, invalid=invalid)
        by_hand = ib.UsersEnvironment(scenario, horizon=200, seed=2)
        observations, infos = environment.reset(seed=2)
        seen, away = by_hand.reset(), 0
        part = environment.layout
        while environment.agents:
            actions = {}
            for agent in environment.agents:
                here = int(agent[5:]) in seen.users
                away += not here
                assert infos[agent]["action_mask"].tolist() == [here] * 10 + [1]
                for name in ("contexts", "available", "sensed"):
                    assert observations[agent][part[name]].any() == here
                actions[agent] = 3 if here or invalid == "silent" else 10
            observations, rewards, _, _, infos = environment.step(actions)
            step = by_hand.step(dict.fromkeys(seen.users, 3))
            assert {agent: reward for agent, reward in rewards.items() if reward} == {
                f"user_{j}": reward for j, reward in step.rewards.items() if reward
            }
            seen = step.observation
        assert away > 20


def test_slots_without_agents_are_skipped() -> None:
    users = {"count": 2, "coordination": "none", "arrive": [4, 10], "leave": [6, 12]}
    environment = parallel_env(ib.scenario("S1", users=users), horizon=20)
    by_hand = ib.UsersEnvironment(ib.scenario("S1", users=users), horizon=20)
    shown = [by_hand.reset().contexts]
    shown += [by_hand.step(dict.fromkeys(users, None)).observation.contexts for users in by_hands_users(by_hand, 11)]
    observations, _ = environment.reset(seed=0)
    contexts = environment.layout["contexts"]
    slots = []
    while environment.agents:
        (agent,) = environment.agents
        slots += [t for t in range(1, 13) if np.allclose(observations[agent][contexts], shown[t - 1].ravel())]
        observations, _, terminations, truncations, _ = environment.step({agent: 10})
    assert slots == [4, 5, 10, 11]
    assert (terminations, truncations) == ({"user_1": True}, {"user_1": False})
    late = parallel_env(ib.scenario("S1", users=users), horizon=3)
    assert late.reset(seed=0) == ({}, {})
    assert late.agents == []


def by_hands_users(environment: ib.UsersEnvironment, slots: int) -> Any:
    """Yield the users who are present in each slot."""
    for _ in range(slots):
        yield tuple(environment._slots.users)


def test_episodes_are_the_replications_of_a_seed() -> None:
    environment = environment_of("plain", 5)
    infos = environment.reset(seed=3)[1]
    assert [(one["seed"], one["replication"]) for one in infos.values()] == [(3, 0)] * 5
    assert environment.reset()[1]["user_0"]["replication"] == 1
    first = environment.reset(options={"replication": 7})[0]["user_0"]
    assert environment.reset()[1]["user_0"]["replication"] == 8
    assert np.array_equal(environment.reset(seed=3, options={"replication": 7})[0]["user_0"], first)
    assert environment_of("plain", 5).reset()[1]["user_0"]["replication"] == 0


def test_spaces() -> None:
    plain, bits = environment_of("plain"), environment_of("minislots")
    assert plain.action_space("user_0") == spaces.Discrete(11)
    assert bits.action_space("user_0") == spaces.MultiDiscrete([11, 11, 11])
    assert plain.observation_space("user_1").dtype == np.float32
    assert plain.render() is None


def test_copies_are_independent_of_each_other() -> None:
    one = environment_of("plain", 5)
    two = pickle.loads(pickle.dumps(one))
    first, other = one.reset(seed=1)[0], two.reset(seed=1)[0]
    kept = first["user_0"].copy()
    action = dict.fromkeys(one.agents, 4)
    for _ in range(3):
        one.step(action)
    assert np.array_equal(first["user_0"], kept)
    assert np.array_equal(other["user_0"], kept)
    one.reset(seed=1)
    assert np.array_equal(one.step(action)[0]["user_0"], two.step(action)[0]["user_0"])


# --- wrong input -----------------------------------------------------------------------------------------------------

ALL = dict.fromkeys([f"user_{j}" for j in range(5)], 10)
EVERY_USER = ", ".join(ALL)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (3, "actions = 3: must be a dict with an action for each agent"),
        ({"user_0": 10}, f"actions: user_1 is missing; must be {EVERY_USER}"),
        ({**ALL, "user_5": 3}, f"actions: 'user_5' is not an agent in slot 1; must be {EVERY_USER}"),
        ({**ALL, "user_2": 11}, r"actions, user_2: 11 must be an element of Discrete\(11\)"),
        ({**ALL, "user_2": -1}, r"actions, user_2: -1 must be an element of Discrete\(11\)"),
        ({**ALL, "user_2": 1.0}, r"actions, user_2: 1.0 must be an element of Discrete\(11\)"),
        ({**ALL, "user_2": None}, r"actions, user_2: None must be an element of Discrete\(11\)"),
        ({**ALL, "user_2": [1, 2]}, r"actions, user_2: \[1, 2\] must be an element of Discrete\(11\)"),
        ({**ALL, "user_2": 1}, "actions, user_2: channel 1 is not available in slot 1; must be 10 to stay silent, .*"),
    ],
)
def test_wrong_actions_are_refused(actions: Any, message: str) -> None:
    environment = environment_of("quality, availability", invalid="error")
    environment.reset(seed=0)
    with pytest.raises(ib.InputError, match=f"^{message}$"):
        environment.step(actions)


def test_users_stay_silent_if_a_channel_is_not_available() -> None:
    environment = environment_of("quality, availability")
    environment.reset(seed=0)
    observations = environment.step({**ALL, "user_2": 1, "user_3": 2})[0]
    played = environment.layout["played"]
    assert not observations["user_2"][played].any()
    assert observations["user_3"][played].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_wrong_settings_and_a_wrong_order_are_refused() -> None:
    with pytest.raises(ib.InputError, match=r"^scenario S1: has a base station; "):
        parallel_env("S1")
    with pytest.raises(ib.InputError, match=r"^invalid = 'project': must be one of silent, error$"):
        environment_of("plain", invalid="project")
    with pytest.raises(ib.InputError, match=r"^experiment.horizon = 0: "):
        environment_of("plain", 0)
    environment = environment_of("plain", 1)
    with pytest.raises(ib.InputError, match=r"^step: the environment has not been started; call reset first$"):
        environment.step(ALL)
    for options in ({"replication": -1}, {"replication": 10**6}):
        with pytest.raises(ib.InputError, match=r"^replication = -?\d+: must be a whole number from 0 to 999999$"):
            environment.reset(options=options)
    environment.reset(seed=0)
    environment.step(ALL)
    with pytest.raises(ib.InputError, match=r"^step: the episode is over; call reset$"):
        environment.step(ALL)


@pytest.mark.parametrize("missing", ["pettingzoo", "gymnasium"])
def test_missing_extra_is_reported_in_one_line(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nimport idleband\n"
    code += "try:\n    import idleband.environments.parallel\nexcept idleband.InputError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"idleband.environments.parallel needs {missing}; pip install 'idleband[gym]'\n"
    assert done.stderr == ""
