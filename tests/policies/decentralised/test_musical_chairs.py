"""MUSICAL-CHAIRS: the number of users from collisions, and chairs."""

import numpy as np
import pytest

from tests.policies.decentralised.band import MEANS, User, independent, picks_of, ran, started


def test_users_learn_how_many_they_are_and_share_the_best_channels() -> None:
    for M in (1, 2, 5, 8):
        run = started(independent(MEANS, M), "musical-chairs", 4000, learning=3000)
        run.to(3100)
        assert [int(one.users[0]) for one in run.state] == [M] * M
        last = picks_of(run, 20)
        assert (last == last[0]).all()
        assert sorted(last[0].tolist()) == list(range(9 - M, 9))


def test_collisions_are_counted_and_not_learned_from() -> None:
    user = User("musical-chairs", 3, learning=4)
    for t in range(4):
        k = user.choose()
        assert k is not None
        user.learn(k, 1, collides=t < 1)
    assert user.state.plays.sum() == user.state.total.sum() == 3
    user.choose()
    assert int(user.state.users[0]) == round(1 + np.log(3 / 4) / np.log(2 / 3))


def test_a_user_that_was_never_alone_takes_all_channels_for_taken() -> None:
    user = User("musical-chairs", 3, learning=4)
    for _ in range(4):
        k = user.choose()
        assert k is not None
        user.learn(k, 1, collides=True)
    user.choose()
    assert int(user.state.users[0]) == 3


def test_a_chair_is_kept_on_collisions() -> None:
    user = User("musical-chairs", 3, learning=1)
    k = user.choose()
    assert k is not None
    user.learn(k, 1)
    k = user.choose()
    assert k is not None
    user.learn(k, 1, collides=True)
    assert user.state.chair[0] == -1
    k = user.choose()
    assert k is not None
    user.learn(k, 0)
    for _ in range(10):
        assert user.choose() == k
        user.learn(k, 0, collides=True)


def test_the_number_of_users_is_computed_where_no_channel_is_available_after_learning() -> None:
    user = User("musical-chairs", 3, learning=1)
    k = user.choose()
    assert k is not None
    user.learn(k, 1)
    assert user.choose([False] * 3) is None
    assert user.choose() is not None
    assert int(user.state.users[0]) == 1


@pytest.mark.parametrize("learning", [100, 400])
def test_epochs_begin_again(learning: int) -> None:
    run = started(independent([0.9, 0.1, 0.8, 0.2], 2), "dynamic-musical-chairs", 2000, learning=learning, epoch=1000)
    run.to(1000)
    assert all(one.plays.sum() > 0 for one in run.state)
    run.to(1001)
    assert all(one.plays.sum() + one.collisions[0] == 1 for one in run.state)


def test_regret_with_1000_slots_of_learning() -> None:
    """Besson's thesis, chapter 5: 1410 with standard deviation 641 over 100 runs; K = 9, M = 3, T = 10,000."""
    found = [
        ran(independent(MEANS, 3), "musical-chairs", 10_000, replication=i, learning=1000).tally.now[1]
        for i in range(20)
    ]
    assert abs(np.mean(found) - 1410) < 4 * 641 * np.sqrt(1 / 20 + 1 / 100)
