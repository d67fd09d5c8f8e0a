"""Ranks and the number of users from collisions."""

import numpy as np
import pytest

import idleband as ib
from idleband.policies.decentralised.start_phase import seating_slots
from tests.policies.decentralised.band import independent, picks_of, ran, started

HORIZON = 1000


def ends_of(name: str, K: int, M: int, seed: int = 0, slots: int = 0, **users: object) -> tuple[list[int], list[int]]:
    """Return rank and estimated number of users of each user after the start phase."""
    run = started(independent([0.5] * K, M, **users), name, HORIZON, seed=seed)
    run.to(slots or seating_slots(K, HORIZON) + 2 * K)
    return [int(one.start.rank[0]) for one in run.state], [int(one.start.users[0]) for one in run.state]


@pytest.mark.parametrize("name", ["sic-mmab", "dpe1"])
def test_ranks_are_a_permutation_and_all_know_the_number_of_users(name: str) -> None:
    """With a given number of slots for seating, and with seating until everyone has a channel."""
    for K in range(1, 16):
        for M in range(1, K + 1):
            slots = 0 if name == "sic-mmab" else 30 * K
            ranks, users = ends_of(name, K, M, seed=K, slots=slots)
            assert sorted(ranks) == list(range(M)), (K, M)
            assert users == [M] * M, (K, M)


def test_the_phase_takes_the_slots_that_were_agreed() -> None:
    run = started(independent([0.5] * 6, 4), "sic-mmab", HORIZON)
    agreed = seating_slots(6, HORIZON) + 12
    run.to(agreed - 1)
    assert [int(one.stage[0]) for one in run.state] == [0] * 4
    run.to(agreed)
    assert [int(one.stage[0]) for one in run.state] == [1] * 4


def test_any_two_users_meet_once_while_they_count() -> None:
    K, M = 7, 5
    run = started(independent([0.5] * K, M), "sic-mmab", HORIZON)
    run.to(seating_slots(K, HORIZON))
    before = run.tally.now[5]
    picks = picks_of(run, 2 * K)
    assert run.tally.now[5] - before == M * (M - 1)  # two users of each pair
    for i in range(M):
        for j in range(i):
            assert np.count_nonzero(picks[:, i] == picks[:, j]) == 1


def test_a_user_who_is_late_by_a_slot_breaks_it() -> None:
    """Unless the next channel is free: otherwise the user then hops together with the one from there."""
    wrong = 0
    for seed in range(20):
        ranks, users = ends_of("sic-mmab", 7, 6, seed=seed, arrive=[2] + [1] * 5)
        wrong += sorted(ranks) != list(range(6)) or users != [6] * 6
        assert all(0 <= rank < count <= 7 for rank, count in zip(ranks, users, strict=True))
    assert wrong > 10


@pytest.mark.parametrize("name", ["sic-mmab", "dpe1"])
def test_slots_in_which_a_channel_is_not_available_do_not_count(name: str) -> None:
    K, M = 5, 3
    scenario = independent([0.5] * K, M, availability=[[1] * K, [0] + [1] * (K - 1), [1] * K, [0] * K])
    run = ran(scenario, name, 2 * HORIZON)
    assert sorted(int(one.start.rank[0]) for one in run.state) == [0, 1, 2]
    assert [int(one.start.users[0]) for one in run.state] == [3, 3, 3]
    # While some channel is missing, users who have ranks play different channels.
    picks = picks_of(started(scenario, name, 2 * HORIZON), 2 * HORIZON)[1000:]
    assert (np.sort(picks[1::4], axis=1) == [1, 2, 3]).all()
    assert (picks[3::4] == -1).all()


def test_without_a_slot_in_which_all_channels_are_available_it_is_refused() -> None:
    scenario = independent([0.5] * 2, 1, availability=[[1, 0], [0, 1]])
    with pytest.raises(ib.InputError, match=r"scenario.availability: policy dpe1 needs at least one row"):
        ib.simulate(scenario, "dpe1", horizon=10)
