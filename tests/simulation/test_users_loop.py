"""Users without a base station: collisions, observations, control minislots, arrivals, and what is counted."""

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

import idleband as ib
from idleband.arrays import Floats, Ints
from idleband.policies.protocol import Feedback, Setup, Slot
from idleband.simulation.users_loop import USER_CURVES
from idleband.simulation.users_run import UsersRun, start_run

FREE: dict[str, Any] = {"p01": [1.0] * 4, "p10": [1e-12] * 4, "perturbation": "none", "context": {"dimension": 1}}


class Params(NamedTuple):
    channel: Annotated[int, "channel that all users play; -1: one each, in the order of their random streams"] = 0
    bits: Annotated[int, "minislots in which each user sends"] = 0


class Seen(NamedTuple):
    slots: Ints  # (3,) slots in which the user selected, received feedback, and heard
    state: Ints  # (1,) of the last slot
    reward: Floats  # (1,)
    collision: Ints  # (1,)
    heard: Ints  # (1,) minislots in which any user has sent
    first: Ints  # (1,) slot number of the first slot


@ib.register(name="same-channel", decentralised=True)
class SameChannel:
    "All users on one channel."

    Params = Params

    def init(setup: Setup) -> Seen:
        count, one = np.zeros(3, np.int64), np.zeros(1, np.int64)
        return Seen(count, one, np.zeros(1), one.copy(), one.copy(), one.copy())

    def select(setup: Setup, state: Seen, slot: Slot, picks: Ints) -> int:
        if state.slots[0] == 0:
            state.first[0] = slot.t
        state.slots[0] += 1
        picks[0] = setup.params.channel
        return 1 if setup.params.channel >= 0 else 0

    def update(setup: Setup, state: Seen, slot: Slot, feedback: Feedback) -> None:
        state.slots[1] += 1
        state.state[0] = feedback.state
        state.reward[0] = feedback.reward
        state.collision[0] = feedback.collision

    def signal(setup: Setup, state: Seen, slot: Slot, minislots: Ints) -> None:
        for i in range(setup.params.bits):
            minislots[i] = 1

    def hear(setup: Setup, state: Seen, slot: Slot, minislots: Ints) -> None:
        state.slots[2] += 1
        for i in range(minislots.size):
            state.heard[0] += minislots[i]


def run(users: dict[str, Any], slots: int = 100, scenario: Any = FREE, count: int = 3, **parameters: Any) -> UsersRun:
    given = ib.scenario(scenario, users={"count": count, "coordination": "none", **users})
    found = start_run(given, ib.policy("same-channel", **parameters), slots, 0, 0)
    assert isinstance(found, UsersRun)
    assert found.kernel.compiled
    found.to(slots)
    return found


def value(found: UsersRun, name: str) -> float:
    return float(found.tally.curves[USER_CURVES.index(name), -1])


@pytest.mark.parametrize(("collision", "each", "winners"), [("lost", 0.0, 0), ("split", 1 / 3, 3), ("one", 1.0, 1)])
def test_three_users_on_one_channel(collision: str, each: float, winners: int) -> None:
    found = run({"collision": collision})
    assert value(found, "reward") == pytest.approx(100 * each * winners)
    assert value(found, "user_collisions") == 300
    assert value(found, "last_collision") == 100
    assert [state.collision[0] for state in found.state] == [1, 1, 1]
    rewards = sorted(float(state.reward[0]) for state in found.state)
    assert rewards == pytest.approx([0.0] * (3 - winners) + [each] * winners)
    assert found.tally.plays.tolist() == [300, 0, 0, 0]
    assert found.tally.curves[-4:, -1].tolist() == [300, 0, 0, 0]  # by channel


def test_each_user_wins_a_collision_with_the_same_probability() -> None:
    found = run({"collision": "one"}, slots=30_000)
    earned = found.tally.curves[9:12, -1]
    assert earned.sum() == 30_000
    assert abs(earned / 30_000 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 30_000)


def test_a_user_alone_earns_the_reward() -> None:
    found = run({}, count=1)
    assert value(found, "reward") == 100
    assert value(found, "user_collisions") == value(found, "last_collision") == value(found, "switches") == 0
    assert [int(state.collision[0]) for state in found.state] == [0]


@pytest.mark.parametrize(
    ("observes", "state", "collision"), [("sensing", 1, 1), ("collisions", -1, 1), ("rewards", -1, -1)]
)
def test_users_observe_what_the_scenario_says(observes: str, state: int, collision: int) -> None:
    for one in run({"observes": observes}).state:
        assert (one.state[0], one.collision[0]) == (state, collision)


def test_silent_users_earn_nothing_and_receive_no_feedback() -> None:
    found = run({}, channel=-1)
    assert value(found, "reward") == value(found, "user_collisions") == 0
    assert [one.slots.tolist() for one in found.state] == [[100, 0, 0]] * 3


def test_control_minislots_are_heard_by_all() -> None:
    found = run({"control_bits": 2}, bits=2)
    assert value(found, "messages") == 600
    assert [int(one.heard[0]) for one in found.state] == [200] * 3  # two minislots, of all users
    assert value(run({"control_bits": 2}), "messages") == 0
    with pytest.raises(ib.InputError, match=r"user 0: sent in 3 minislots in slot 1; must be at most 2"):
        run({"control_bits": 2}, bits=3)


def test_a_channel_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ib.InputError, match=r"same-channel, user 0: picks = \[4\] in slot 1; must be an available"):
        run({}, channel=4)


def test_users_arrive_and_leave_and_count_slots_from_their_arrival() -> None:
    found = run({"arrive": [1, 11, 21], "leave": [0, 0, 51]})
    assert [one.slots[0] for one in found.state] == [100, 90, 30]
    assert [int(one.first[0]) for one in found.state] == [1, 1, 1]
    assert value(found, "user_collisions") == 2 * 90 + 30
    assert value(found, "reward") == 10  # until the second one comes


def test_who_comes_back_remembers_nothing() -> None:
    users = {"mean_stay": 10, "mean_absence": 10}
    found = run(users, slots=2000)
    changes = [change for change in found.presence.changes if change.user == 0]
    last = [change.slot for change in changes if change.arrives][-1]
    end = next((change.slot for change in changes if change.slot > last), 2001)
    assert len(changes) > 50
    assert found.state[0].slots[0] == end - last


def test_segments_do_not_matter() -> None:
    users = {"mean_stay": 30, "mean_absence": 10, "collision": "one", "control_bits": 1}
    whole, parts = run(users, slots=500, bits=1), run(users, slots=1, bits=1)
    given = ib.scenario(FREE, users={"count": 3, "coordination": "none", **users})
    parts = start_run(given, ib.policy("same-channel", bits=1), 500, 0, 0)
    for slot in range(7, 507, 7):
        parts.to(min(slot, 500))
    parts.to(500)
    assert np.array_equal(parts.tally.curves, whole.tally.curves)


def test_quality_scales_the_reward_of_each_user() -> None:
    quality = [[0.5, 0, 0, 0]]
    found = run({"quality": quality}, count=1)
    assert value(found, "reward") == 50
    assert found.state[0].reward[0] == 0.5
    # The reference is the best assignment.
    assert value(found, "regret_table") == 0.0


def test_switching_costs_a_user_that_changes_its_channel() -> None:
    given = ib.scenario(FREE, users={"count": 2, "coordination": "none"}, switching_cost=0.25)
    result = ib.simulate(given, "user-random", horizon=2000, replications=1)
    free = ib.simulate(ib.scenario(given, switching_cost=0.0), "user-random", horizon=2000, replications=1)
    switches = int(result.users.switches[0])
    assert result.reward[0, -1] == pytest.approx(free.reward[0, -1] - 0.25 * switches)
    # A user changes its channel with probability 3/4.
    assert abs(switches / (2 * 1999) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / (2 * 1999))


def test_random_users_collide_as_often_as_computed() -> None:
    slots = 20_000
    result = ib.simulate(
        ib.scenario(FREE, users={"count": 3, "coordination": "none"}), "user-random", horizon=slots, replications=1
    )
    alone = (3 / 4) ** 2
    error = np.sqrt(3 * alone * (1 - alone) / slots) * 3  # not more than if all users collided together
    assert abs(result.reward[0, -1] / slots - 3 * alone) < 5 * error
    assert abs(result.curves["user_collisions"][0, -1] / slots - 3 * (1 - alone)) < 5 * error


def test_the_perturbation_model_of_a_user_is_used() -> None:
    @ib.register_perturbation(name="always-one")
    class AlwaysOne:
        "1 in every slot."

        bounds = (0.0, 1.0)

        def draw(rng: Any, dimension: int, clear: float) -> list[float]:
            return [1.0]

        def value(theta: Any, x: Any) -> float:
            return 1.0

    additive: dict[str, Any] = {**FREE, "reward": "additive", "rewards": [[0.0, 1.0]] * 4}
    assert value(run({}, scenario=additive, count=1), "reward") == 100
    assert value(run({}, scenario={**additive, "perturbation": "always-one"}, count=1), "reward") == 0


def test_sensing_errors_are_those_of_the_channel() -> None:
    errors = {"missed": 0.0, "false_alarm": 1.0 - 1e-12}
    found = run({}, scenario={**FREE, "sensing_errors": errors}, count=1)
    assert (found.state[0].state[0], found.state[0].reward[0]) == (0, 0.1)  # observed busy, though it is idle
    assert value(found, "reward") == 100


def test_the_base_station_is_the_reference() -> None:
    given = ib.scenario("S1", users={"coordination": "none"})
    with_station = ib.simulate("S1", "mp-ucb", horizon=500, replications=2)
    without = ib.simulate(given, "mp-ucb", horizon=500, replications=2)
    assert np.array_equal(with_station.reward, without.reward)
    assert np.array_equal(with_station.regret("bound"), without.regret("bound"))
    with pytest.raises(ib.InputError, match="selects channels for all users; there are no results by user"):
        _ = without.users


@pytest.mark.parametrize(
    "policy", ["mp-ucb", "mp-belief-lucb", "rca-m", "oracle-whittle", "genie", "mp-adaptive", "dsee"]
)
def test_a_base_station_serves_the_users_who_are_present(policy: str) -> None:
    users = {"coordination": "none", "mean_stay": 40, "mean_absence": 40}
    result = ib.simulate(ib.scenario("S1", users=users), policy, horizon=400, replications=2)
    scenario = result.scenario
    assert scenario.uncoordinated is not None
    for i in range(2):
        present = np.zeros(401)
        for slot, _, arrives in scenario.uncoordinated.changes(5, 0, i, 400):
            present[slot:] += 1 if arrives else -1
        assert result.plays[i].sum() == present.sum()
    assert np.isnan(result.regret("bound")).all()
    assert (result.regret("genie")[:, -1] >= -1e-9).all()


def test_policies_and_scenarios_must_fit() -> None:
    none = {"coordination": "none"}
    for scenario, policy, message in (
        (
            "S1",
            "mctopm",
            "policy mctopm: is for users without a base station, which scenario S1 has; set scenario.users",
        ),
        (
            ib.scenario("S1", users={**none, "quality": [[1.0] * 10] * 5}),
            "mp-ucb",
            "selects channels for all users alike",
        ),
        (ib.scenario("S1", users={**none, "observes": "rewards"}), "mctopm", "needs 'sensing' or 'collisions'"),
    ):
        with pytest.raises(ib.InputError, match=message):
            ib.simulate(scenario, policy, horizon=10)
        with pytest.raises(ib.InputError, match=message):
            ib.compare(scenario, [policy], horizon=10)


@ib.register(name="allocating-user", decentralised=True)
class AllocatingUser:
    "A random channel, with new arrays."

    def init(setup: Setup) -> Seen:
        return Seen(*(np.zeros(3) if name == "reward" else np.zeros(3, np.int64) for name in Seen._fields))

    def select(setup: Setup, state: Seen, slot: Slot, picks: Ints) -> int:
        values = np.zeros(setup.K)
        for k in range(setup.K):
            values[k] = ib.random.uniform(slot.rng)
        picks[0] = np.argmax(values)
        return 1

    def update(setup: Setup, state: Seen, slot: Slot, feedback: Feedback) -> None:
        state.reward[0] += np.array([feedback.reward, slot.t]).min()


def test_policies_of_users_may_allocate() -> None:
    given = ib.scenario(FREE, users={"count": 3, "coordination": "none"}, sensing="all")
    result = ib.simulate(given, "allocating-user", horizon=5000, replications=4)
    assert result.note == ""  # compiled
    assert result.state is not None
    for i, users in enumerate(result.state):
        assert [float(state.reward[0]) for state in users] == pytest.approx(result.users.reward[i].tolist())
