"""RHO-RAND: ranks, and learning on collisions."""

import numpy as np

from tests.policies.decentralised.band import User


def known(M: int) -> User:
    """Return a user who knows the means 0.2, 0.4, 0.6, 0.8 well."""
    user = User("rho-rand", 4, M)
    user.choose()
    user.t = 1000
    for k in range(4):
        mean = 0.2 * (k + 1)
        statistics = user.state.statistics
        statistics.plays[k], statistics.total[k] = 10_000, 10_000 * mean
        statistics.entropy[k] = mean * np.log(mean) + (1 - mean) * np.log(1 - mean)
    return user


def test_the_channel_of_the_rank_is_played() -> None:
    user = known(4)
    for rank in (1, 2, 3, 4):
        user.state.rank[0] = rank
        assert user.choose() == 4 - rank
    user.state.rank[0] = 2
    assert user.choose([True, True, True, False]) == 1  # the second of those that are available
    user.state.rank[0] = 4
    assert user.choose([False, False, True, True]) == 2  # there are only two: the last one


def test_ranks_are_drawn_after_collisions_only_and_are_uniform() -> None:
    user = known(3)
    user.state.rank[0] = 2
    for _ in range(20):
        k = user.choose()
        assert k is not None
        user.learn(k, 1)
        assert user.state.rank[0] == 2
    counts = np.zeros(4)
    for _ in range(3000):
        k = user.choose()
        assert k is not None
        user.learn(k, 1, collides=True)
        counts[user.state.rank[0]] += 1
    assert counts[0] == 0
    assert abs(counts[1:] / 3000 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 3000)


def test_the_state_is_learned_on_a_collision_too() -> None:
    user = User("rho-rand", 2, 2)
    k = user.choose()
    assert k is not None
    user.learn(k, 1, collides=True)
    assert (user.state.statistics.plays[k], user.state.statistics.total[k]) == (1, 1)
