"""GAME-OF-THRONES: epochs, moods, and assignments of unequal users."""

import numpy as np

from idleband.policies.decentralised.game_of_thrones import EXPLOITATION, EXPLORATION, GAME
from tests.policies.decentralised.band import User, independent, ran, started


def test_stages_have_the_lengths_that_are_given() -> None:
    run = started(independent([0.5] * 3, 2), "game-of-thrones", 1000, c1=5, c2=7, c3=3, d=2.0)
    stages = []
    for t in range(1, 200):
        run.to(t)
        stages.append(int(run.state[0].stage[0]))
    expected = []
    for n in (1, 2, 3):
        expected += [EXPLORATION] * (5 * n * n) + [GAME] * (7 * n * n) + [EXPLOITATION] * (3 * 2**n)
    assert stages == expected[:199]


def in_game(epsilon: float = 0.01, c: float = 1000.0) -> User:
    """Return a user in the game whose means are 0.2, 0.4 and 0.8, content with a channel."""
    user = User("game-of-thrones", 3, c1=1, c2=10_000, epsilon=epsilon, c=c)
    user.choose()
    user.state.total[:], user.state.plays[:] = (20, 40, 80), 100
    user.choose()
    assert (user.state.stage[0], user.state.content[0]) == (GAME, 1)
    return user


def test_a_content_user_stays_until_it_collides() -> None:
    user = in_game()
    k = int(user.state.channel[0])
    user.learn(k, 1)
    for _ in range(50):
        assert user.choose() == k
        user.learn(k, 0)  # what the channel pays now does not matter in the game
    assert user.choose() == k
    user.learn(k, 1, collides=True)
    assert user.state.content[0] == 0


def test_discontent_users_draw_any_channel_and_become_content_as_often_as_computed() -> None:
    user = in_game(epsilon=0.25)
    tries, content = np.zeros(3), np.zeros(3)
    for _ in range(6000):
        user.state.content[0] = 0
        k = user.choose()
        assert k is not None
        user.learn(k, 1)
        tries[k] += 1
        content[k] += user.state.content[0]
    assert abs(tries / 6000 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 6000)
    means = np.array([0.2, 0.4, 0.8])
    expected = means / 0.8 * 0.25 ** (0.8 - means)
    assert (abs(content / tries - expected) <= 5 * np.sqrt(expected * (1 - expected) / tries)).all()


def test_a_content_user_tries_others_with_probability_epsilon_to_the_c() -> None:
    user = in_game(epsilon=0.5, c=2.0)
    tried = 0
    for _ in range(4000):
        user.state.content[0], user.state.channel[0] = 1, 2
        k = user.choose()
        assert k is not None
        tried += k != 2
    assert abs(tried / 4000 - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)


def test_exploitation_uses_the_channel_that_was_content_most_often_in_the_second_half() -> None:
    user = User("game-of-thrones", 3, c1=1, c2=8, c3=2, c=1000.0)
    user.choose()
    user.state.total[:], user.state.plays[:] = (40, 40, 40), 100
    for t, channel in enumerate((0, 0, 0, 0, 1, 1, 1, 2)):
        user.choose()
        user.state.content[0], user.state.channel[0] = 1, channel
        user.learn(channel, 1)
        assert user.state.visits.tolist() == [0, min(max(t - 3, 0), 3), int(t == 7)]
    assert [user.choose() for _ in range(4)] == [1] * 4


def test_unequal_users_find_their_channels() -> None:
    """Three users, each good on one channel only."""
    quality = [[0.05, 0.9, 0.05], [0.9, 0.05, 0.05], [0.05, 0.05, 0.9]]
    run = ran(independent([0.9] * 3, 3, quality=quality), "game-of-thrones", 18_200)  # the end of an exploitation
    assert [int(one.channel[0]) for one in run.state] == [1, 0, 2]
