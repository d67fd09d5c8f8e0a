"""SELFISH-KLUCB: KL-UCB on the rewards that a user earns."""

import math

import pytest

from idleband.kernels.kl import kl_upper, negative_entropy
from tests.policies.decentralised.band import User


def test_a_collision_is_learned_as_a_reward_of_0() -> None:
    user = User("selfish-klucb", 2)
    k = user.choose()
    assert k is not None
    user.learn(k, 1, collides=True)
    assert (user.state.statistics.plays[k], user.state.statistics.total[k]) == (1, 0)


def test_the_largest_index_is_played_after_each_channel_once() -> None:
    user = User("selfish-klucb", 3)
    good = (0, 1, 1)
    plays, total = [0] * 3, [0.0] * 3
    for t in range(1, 300):
        k = user.choose()
        assert k is not None
        if 0 in plays:
            assert plays[k] == 0
        else:
            mean = [a / n for a, n in zip(total, plays, strict=True)]
            index = [kl_upper(m, math.log(t) / n, 1.0, negative_entropy(m)) for m, n in zip(mean, plays, strict=True)]
            assert index[k] == pytest.approx(max(index), abs=1e-6)
            assert user.slot.indices.tolist() == pytest.approx(index, abs=1e-6)
        state = int(good[k] and t % 3 > 0) if k < 2 else int(t % 2)
        user.learn(k, state)
        plays[k] += 1
        total[k] += state
