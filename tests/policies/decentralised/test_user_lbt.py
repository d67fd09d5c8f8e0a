"""LBT-RANDOM and LBT-STICKY: staying, and silence after collisions."""

import numpy as np
import pytest

from tests.policies.decentralised.band import User


def silence(user: User) -> int:
    """Return how many slots pass before the next play, which is left without feedback."""
    for slots in range(1000):
        if user.choose() is not None:
            return slots
    raise AssertionError


def test_a_user_stays_on_a_channel_that_is_good_and_its_own() -> None:
    user = User("lbt-sticky", 8)
    k = user.choose()
    for _ in range(10):
        assert k is not None
        user.learn(k, 1)
        assert user.choose() == k
    user.learn(k, 0)
    assert {user.choose() for _ in range(100)} == set(range(8))


def test_without_sticky_every_slot_has_a_random_channel() -> None:
    user = User("lbt-random", 4)
    found = []
    for _ in range(2000):
        k = user.choose()
        assert k is not None
        found.append(k)
        user.learn(k, 1)
    shares = np.bincount(found) / 2000
    assert abs(shares - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 2000)


def test_the_silence_is_uniform_and_its_window_doubles() -> None:
    longest = []
    for collisions, window in ((1, 4), (2, 8), (3, 16), (4, 16)):
        lengths = set()
        for seed in range(400):
            user = User("lbt-sticky", 8, max_window=16)
            user.rng[0] += np.uint64(seed)
            for _ in range(collisions):
                while (k := user.choose()) is None:
                    pass
                user.learn(k, 1, collides=True)
            lengths.add(silence(user))
        assert lengths == set(range(window))
        longest.append(max(lengths))
    assert longest == [3, 7, 15, 15]


def test_the_window_is_the_first_one_after_a_slot_without_a_collision() -> None:
    user = User("lbt-sticky", 8)
    for collides in (True, True, True, False):
        while (k := user.choose()) is None:
            pass
        user.learn(k, 1, collides=collides)
    assert user.state.window[0] == 4


@pytest.mark.parametrize("name", ["lbt-random", "lbt-sticky"])
def test_a_channel_that_is_not_available_is_left(name: str) -> None:
    user = User(name, 3)
    k = user.choose([True, False, False])
    assert k == 0
    user.learn(0, 1)
    assert user.choose([False, True, False]) == 1
    assert user.choose([False] * 3) is None
