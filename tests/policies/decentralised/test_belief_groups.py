"""Groups of channels: how they are sent, rotated and played."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels import logistic
from idleband.policies.decentralised.belief_groups import GROWTH, LOST, NONE
from idleband.simulation.users_loop import USER_COLLISIONS
from tests.policies.decentralised.band import picks_of, ran, started

M = 5


def band(name: str = "S4", **users: Any) -> ib.Scenario:
    return ib.scenario(name, users={"coordination": "none", **users}, perturbation="none")


def is_started(one: Any) -> bool:
    return bool(one.clock[0] > 0)


def leader_of(run: Any) -> Any:
    return next(one for one in run.state if one.start.rank[0] == 0)


@pytest.mark.parametrize("name", ["S1", "S4"])
def test_all_users_know_the_groups_that_rank_0_has_made(name: str) -> None:
    run = ran(band(name), "belief-groups", 8000)
    label = leader_of(run).label
    assert sorted(set(label.tolist()) - {M}) == list(range(M))
    for one in run.state:
        assert one.label.tolist() == label.tolist()
        assert one.talk[0] == NONE


def test_without_guests_users_collide_to_tell_and_never_otherwise() -> None:
    """After the start phase, collisions are those of 2 users per 1 that is sent."""
    run = started(band(), "belief-groups", 12_000, guests=False)
    while not all(is_started(one) for one in run.state):
        run.to(run.at + 1)
    sent, collided = 0, 0
    for t in range(run.at + 1, 12_001):
        before, telling = run.tally.now[USER_COLLISIONS], int(leader_of(run).talk[0])
        run.to(t)
        colliding = run.tally.now[USER_COLLISIONS] - before
        # Telling begins in `select`, after the state before the slot was read.
        if telling == NONE and leader_of(run).talk[0] == NONE:
            assert colliding == 0, t
        else:
            assert colliding in (0, 2), t
            sent += 1
            collided += colliding == 2
    assert sent >= (M - 1) * (1 + 3 * 10)  # at least the first time
    assert 0 < collided < sent


def test_each_user_plays_its_group_only_and_has_every_group_in_an_epoch() -> None:
    run = started(band(), "belief-groups", 5000, guests=False, look=200)
    while run.state[0].label[0] == NONE or run.state[0].talk[0] != NONE:
        run.to(run.at + 1)
    first, last = (int(value) for value in run.state[0].epoch)
    assert (first, last) == (200, 200 * GROWTH)
    label = run.state[0].label.copy()
    groups = []
    while int(run.state[0].clock[0]) < last:
        run.to(run.at + 1)
        groups.append([int(label[k]) for k in run.tally.picks])
    seen = np.array(groups)
    assert (np.sort(seen, axis=1) == np.arange(M)).all()
    for j in range(M):
        counts = np.bincount(seen[:, j], minlength=M)
        assert counts.min() >= (last - first) // M - 1
    assert np.count_nonzero(np.diff(seen[:, 0])) == M - 1


def test_sweeping_users_never_collide() -> None:
    run = started(band(), "belief-groups", 1000, look=300)
    while not all(is_started(one) for one in run.state):
        run.to(run.at + 1)
    collisions = run.tally.now[USER_COLLISIONS]
    picks = picks_of(run, 299)
    assert run.tally.now[USER_COLLISIONS] == collisions
    for j in range(M):
        assert np.bincount(picks[:, j], minlength=10).min() >= 28  # 30 slots per channel, but for the ends


def test_learned_parameters_are_close_to_the_true_ones() -> None:
    """Of rank 0, within five standard deviations of the posterior, in logits."""
    scenario = band("S1")
    run = ran(scenario, "belief-groups", 20_000)
    leader = leader_of(run)
    chains = leader.own.chains
    for k, P in enumerate(scenario.transition):
        error = chains.mode[k] - [np.log(P[0, 1] / P[0, 0]), np.log(P[1, 0] / P[1, 1])]
        a, b, c = chains.spread[k]
        assert np.linalg.norm(np.linalg.solve(np.array([[a, 0.0], [b, c]]), error)) < 5.0, k
    # At the last partition, rank 0 had used what it knew then.
    assert np.abs(leader.grouping.p01 - logistic_of(chains.mode[:, 0])).max() < 0.2
    assert leader.grouping.low == pytest.approx(0.1, abs=0.1)
    assert leader.grouping.high == pytest.approx(1.0, abs=0.1)


def logistic_of(scores: np.ndarray) -> np.ndarray:
    return np.array([logistic.probability(float(score)) for score in scores])


def test_a_single_user_plays_all_channels() -> None:
    run = ran(band("S1", count=1), "belief-groups", 3000)
    assert (run.state[0].label == 0).all()
    assert run.tally.now[0] / 3000 > 0.9


def test_users_who_arrive_late_play_as_guests() -> None:
    scenario = band("S1", arrive=[1, 1, 1, 1, 3000])
    run = ran(scenario, "belief-groups", 12_000)
    newcomer = run.state[4]
    assert newcomer.collisions[0] == LOST
    assert run.tally.now[0] / 12_000 > 3.0
    assert run.tally.now[USER_COLLISIONS] / 12_000 < 0.5


def test_channels_with_three_states_are_grouped_by_good_and_not() -> None:
    channel = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
    scenario = ib.scenario(
        transition=[channel] * 4, rewards=[0.0, 0.3, 1.0], good=[[2]] * 4, reward="additive",
        perturbation="none", context={"dimension": 1}, users={"count": 2, "coordination": "none"},
    )  # fmt: skip
    run = ran(scenario, "belief-groups", 3000)
    grouping = leader_of(run).grouping
    assert grouping.p10 == pytest.approx([0.2] * 4, abs=0.1)
    assert (grouping.low < grouping.high).all()
