"""RANDTOPM and MCTOPM: when users keep their channel, and where they move."""

import numpy as np
import pytest

from tests.policies.decentralised.band import User


def knowing(name: str, means: tuple[float, ...], M: int = 2, **parameters: object) -> User:
    """Return a user in slot 1000 who has observed these means in 400 plays each."""
    user = User(name, len(means), M, **parameters)
    user.choose()
    user.t = 1000
    statistics = user.state.statistics
    for k, mean in enumerate(means):
        statistics.plays[k], statistics.total[k] = 400, 400 * mean
        statistics.entropy[k] = mean * np.log(mean) + (1 - mean) * np.log(1 - mean)
    return user


def settled(name: str) -> tuple[User, int]:
    """Return a user on one of two good channels of four, where it was alone, and the channel."""
    user = knowing(name, (0.9, 0.8, 0.2, 0.1))
    for _ in range(3):
        k = user.choose()
        assert k is not None
        user.learn(k, 1)
    assert k in (0, 1)
    return user, k


def test_a_seated_user_keeps_its_channel_on_collisions() -> None:
    user, k = settled("mctopm")
    for _ in range(20):
        assert user.choose() == k
        user.learn(k, 1, collides=True)


def test_without_chairs_a_collision_moves_the_user_within_the_best() -> None:
    found = set()
    for _ in range(3):
        user, k = settled("randtopm")
        user.learn(k, 1, collides=True)
        for _ in range(10):
            k = user.choose()
            assert k is not None
            found.add(k)
            user.learn(k, 1, collides=True)
    assert found == {0, 1}


def test_a_seated_user_leaves_a_channel_that_is_not_one_of_the_best_any_more() -> None:
    user, k = settled("mctopm")
    for _ in range(2000):
        if user.choose() != k:
            break
        user.learn(k, 0)
    assert user.state.seated[0] == 0
    assert user.state.statistics.plays[k] < 2000


@pytest.mark.parametrize("first", [False, True])
def test_a_collision_outside_the_best_moves_to_any_of_them_if_collisions_come_first(first: bool) -> None:
    """Otherwise only to a channel whose index was not larger before."""
    found = set()
    for seed in range(60):
        user = knowing("mctopm", (0.9, 0.6, 0.5, 0.1), collision_first=first)
        user.rng[0] += np.uint64(seed)
        user.state.channel[0], user.state.collided[0], user.state.seated[0] = 2, 1, 0
        user.state.before[:] = (0.95, 0.58, 0.6, 0.2)  # in the slot before, channel 2 was better than 1
        found.add(user.choose())
    assert found == ({0, 1} if first else {1})


def test_channels_that_are_not_available_are_not_played() -> None:
    user, k = settled("mctopm")
    for _ in range(5):
        other = user.choose([i != k for i in range(4)])
        assert other is not None
        assert other != k
        user.learn(other, 1)
    assert user.choose([False] * 4) is None
