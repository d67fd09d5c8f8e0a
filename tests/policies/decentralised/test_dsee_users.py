"""DSEE-USERS: epochs in the same slots for all users, without collisions while they agree."""

import math

import numpy as np

from tests.policies.decentralised.band import independent, picks_of, ran, started


def after_start(means: list[float], M: int, slots: int, **parameters: float) -> object:
    run = started(independent(means, M), "dsee-users", slots, **parameters)
    while any(one.start.counting[0] == 0 or one.start.slots[0] < 2 * len(means) for one in run.state):
        run.to(run.at + 1)
    return run


def test_epochs_are_as_long_as_they_should_be() -> None:
    K, M, D = 4, 2, 3.0
    run = after_start([0.5] * K, M, 5000, D=D)
    exploring = []
    for _ in range(2000):
        run.to(run.at + 1)
        exploring.append(int(run.state[0].exploring[0]))
    expected, explorations, exploitations = [], 0, 0
    while len(expected) < 2000:
        t = len(expected) + 1
        if (4**explorations - 1) / 3 <= D * math.log(t):
            expected += [1] * (K * 4**explorations)
            explorations += 1
        else:
            expected += [0] * (M * 2 * 4**exploitations)
            exploitations += 1
    assert exploring == expected[:2000]


def test_users_explore_different_channels_and_each_channel_in_successive_slots() -> None:
    run = after_start([0.5] * 4, 3, 5000)
    picks = picks_of(run, 4)  # the first exploration: one slot each
    assert all(sorted(picks[:, j].tolist()) == [0, 1, 2, 3] for j in range(3))
    picks = picks_of(run, 16)  # the second one, as D ln t is large: four slots each
    assert [int(one.part[0]) for one in run.state] == [4] * 3
    assert (picks.reshape(4, 4, 3) == picks[::4][:, None, :]).all()
    assert all(len(set(row.tolist())) == 3 for row in picks)


def test_users_take_turns_on_the_best_channels() -> None:
    means = [0.05, 0.95, 0.3, 0.6]
    run = ran(independent(means, 2), "dsee-users", 3000)
    shares = run.tally.plays / run.tally.plays.sum()
    assert shares[1] + shares[3] > 0.6
    while any(one.exploring[0] == 1 for one in run.state) or run.state[0].at[0] == 0:
        run.to(run.at + 1)
    for one in run.state:
        assert one.order.tolist() == np.argsort(-one.value, kind="stable").tolist()
        assert sorted(one.order[:2].tolist()) == [1, 3]
