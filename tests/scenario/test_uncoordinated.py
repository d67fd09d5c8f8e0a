"""Users without a base station: settings, arrivals and departures, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idleband as ib
from idleband.scenario.uncoordinated import UncoordinatedUsers, best_assignment
from tests.scenario.paths import check_round_trip, refused

FIVE = {"coordination": "none"}


def test_a_table_of_users_changes_only_what_it_names() -> None:
    found = ib.scenario("S1", users=FIVE)
    assert found.users == 5
    assert found.uncoordinated == UncoordinatedUsers()
    more = ib.scenario(found, users={"collision": "split", "count": 3})
    assert (more.users, more.uncoordinated) == (3, UncoordinatedUsers(collision="split"))
    assert ib.scenario(more, users=2).uncoordinated == UncoordinatedUsers(collision="split")
    assert ib.scenario(more, users={"coordination": "station"}) == ib.scenario("S1", users=3)
    assert ib.scenario("S1", users={"count": 5}) == ib.scenario("S1")


@pytest.mark.parametrize(
    "users",
    [
        {},
        {"collision": "one", "observes": "rewards", "control_bits": 2},
        {"quality": np.linspace(0, 1, 50).reshape(5, 10).tolist()},
        {"arrive": [1, 5, 9, 1, 1], "leave": [0, 7, 0, 3, 0]},
        {"spread": 100},
        {"mean_stay": 20.0, "mean_absence": 5.5},
    ],
)
def test_settings_are_written_and_read_back(users: dict[str, Any]) -> None:
    check_round_trip(ib.scenario("S1", users={**FIVE, **users}))


REFUSED = {
    "scenario.users.count is missing": {"count": None, **FIVE},
    "scenario.users.count": {"count": 11, **FIVE},
    "scenario.users.coordination": {"coordination": "some"},
    "scenario.users.collision: not used with a base station": {"coordination": "station", "collision": "lost"},
    "scenario.users.collision": {**FIVE, "collision": "half"},
    "scenario.users.observes": {**FIVE, "observes": "nothing"},
    "scenario.users.control_bits": {**FIVE, "control_bits": 65},
    "scenario.users.quality: has 4 rows for 5 users": {**FIVE, "quality": [[1.0] * 10] * 4},
    "scenario.users.quality, user 0: has 9 entries for 10 channels": {**FIVE, "quality": [[1.0] * 9] * 5},
    "scenario.users.quality, user 0, channel 9": {**FIVE, "quality": [[1.0] * 9 + [1.5]] * 5},
    "scenario.users.arrive: has 1 entry for 5 users": {**FIVE, "arrive": [1]},
    "scenario.users.arrive, user 0": {**FIVE, "arrive": [0, 1, 1, 1, 1]},
    "scenario.users.leave, user 1: 3 is not after slot 4": {
        **FIVE,
        "arrive": [1, 4, 1, 1, 1],
        "leave": [0, 3, 0, 0, 0],
    },
    "scenario.users: give both mean_stay and mean_absence": {**FIVE, "mean_stay": 5},
    "scenario.users.spread: give times": {**FIVE, "spread": 5, "arrive": [1] * 5},
    "scenario.users.mean_stay": {**FIVE, "mean_stay": 0.5, "mean_absence": 2},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    users = dict(REFUSED[message])
    table = {**ib.scenario("S1").to_dict(), "users": {"count": 5, **users}}
    assert refused(table).startswith(message)


@settings(max_examples=50)
@given(st.integers(1, 8), st.integers(0, 2**40), st.integers(0, 100), st.sampled_from(["none", "spread", "stays"]))
def test_users_arrive_and_leave_in_turn(count: int, seed: int, replication: int, kind: str) -> None:
    settings_of = {"none": {}, "spread": {"spread": 50}, "stays": {"mean_stay": 9.0, "mean_absence": 4.0}}
    users = UncoordinatedUsers(**settings_of[kind])
    changes = users.changes(count, seed, replication, 1000)
    assert changes == sorted(changes)
    more = users.changes(count + 1, seed, replication, 1000)
    assert [change for change in more if change.user < count] == changes  # users do not depend on each other
    for j in range(count):
        own = [change for change in changes if change.user == j]
        assert [change.arrives for change in own] == [i % 2 == 0 for i in range(len(own))]
        assert len({change.slot for change in own}) == len(own)
        if kind != "stays":
            assert [1 <= change.slot <= max(1, users.spread) for change in own] == [True]


def test_stays_are_geometric_with_the_given_means() -> None:
    users = UncoordinatedUsers(mean_stay=30.0, mean_absence=10.0)
    stays, absences, present = [], [], []
    for replication in range(400):
        changes = users.changes(1, 5, replication, 10_000)
        slots = [change.slot for change in changes]
        lengths = np.diff(slots)
        first = 0 if changes[0].arrives else 1
        stays += lengths[first::2].tolist()
        absences += lengths[1 - first :: 2].tolist()
        present.append(float(changes[0].slot == 1))
    # Those cut off by the horizon are left out, which makes the rest shorter, by less than 1 in 100.
    for found, mean in ((stays, 30.0), (absences, 10.0)):
        error = np.std(found) / np.sqrt(len(found))
        assert abs(np.mean(found) - mean) < 5 * error + mean / 100
    assert abs(np.mean(present) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / len(present))


def test_best_assignment_is_that_of_the_largest_sum() -> None:
    values = np.array([[0.9, 0.8, 0.0], [0.9, 0.1, 0.2]])
    assert best_assignment(values).tolist() == [[0, 1, 0], [1, 0, 0]]
