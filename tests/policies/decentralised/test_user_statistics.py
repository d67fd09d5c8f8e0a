"""The KL-UCB index of a single user, and what is learned after collisions."""

import math

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.kl import kl_upper, negative_entropy
from idleband.policies.decentralised.user_statistics import learn_alone, new_statistics
from idleband.policies.knowledge import setup_of_user
from idleband.policies.protocol import Feedback
from tests.policies.decentralised.band import User


@pytest.mark.parametrize("name", ["selfish-klucb", "rho-rand", "randtopm", "mctopm"])
def test_a_single_user_plays_the_largest_index(name: str) -> None:
    """With M = 1 all of them are KL-UCB."""
    user = User(name, 3)
    plays, total = np.zeros(3), np.zeros(3)
    for t in range(1, 400):
        k = user.choose()
        assert k is not None
        if t > 1:  # the first channel is any
            assert k == np.argmax(user.slot.indices)
        if plays.all():
            for i in range(3):
                mean = total[i] / plays[i]
                index = kl_upper(mean, math.log(t) / plays[i], 1.0, negative_entropy(mean))
                assert user.slot.indices[i] == pytest.approx(index, abs=1e-6)
        else:
            assert plays[k] == 0
        state = int((t * (k + 1)) % 4 > 1)
        user.learn(k, state)
        plays[k] += 1
        total[k] += state


@pytest.mark.parametrize(
    ("settings", "n", "expected"),
    [
        ({}, 0.4, 1.0),  # the threshold reward of an idle channel
        ({}, 1.2, 0.1),  # under a strong perturbation
        ({"rewards": [0.3, 0.6], "reward": "additive"}, 0.4, 0.2),
        ({"rewards": [0.3, 0.6], "reward": "additive", "feedback": "reward"}, 0.4, 0.6),  # it is not measured
    ],
)
def test_a_collision_shows_what_the_user_would_have_earned(
    settings: dict[str, object], n: float, expected: float
) -> None:
    scenario = ib.scenario(
        p01=[0.5], p10=[0.5], perturbation={"theta": [0.4, 0.9]}, context={"dimension": 2},
        users={"count": 1, "coordination": "none"}, **settings,
    )  # fmt: skip
    setup = setup_of_user(scenario, (), frozenset(), 0)
    statistics = new_statistics(1)
    learn_alone(statistics, setup, Feedback(0, 1, 0.0, n if setup.measured else math.nan, 1))
    assert statistics.plays[0] == 1
    assert setup.low + statistics.total[0] * (setup.high - setup.low) == pytest.approx(expected)


def test_nothing_is_learned_from_a_collision_without_the_state() -> None:
    scenario = ib.scenario("S1", users={"coordination": "none", "observes": "collisions"})
    setup = setup_of_user(scenario, (), frozenset(), 0)
    statistics = new_statistics(10)
    learn_alone(statistics, setup, Feedback(3, -1, 0.0, math.nan, 1))
    assert statistics.plays.sum() == 0
    learn_alone(statistics, setup, Feedback(3, -1, 1.0, math.nan, 0))
    assert statistics.plays[3] == 1
