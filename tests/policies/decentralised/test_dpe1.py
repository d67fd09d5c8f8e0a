"""The leader of DPE1, and what it tells the others."""

import numpy as np
import pytest

from tests.policies.decentralised.band import MEANS, independent, picks_of, ran, started

K, M = 6, 3


def after_start(means: list[float], M: int, slots: int, **settings: object) -> object:
    run = started(independent(means, M), "dpe1", slots, **settings)
    while any(one.start.counting[0] == 0 or one.start.slots[0] < 2 * len(means) for one in run.state):
        run.to(run.at + 1)
    return run


def test_a_swap_takes_2m_minus_1_plus_k_slots_and_all_users_make_it() -> None:
    """Channels 0 to M-1 are played first; channel 5 is much better."""
    run = after_start([0.5, 0.5, 0.5, 0.01, 0.01, 0.99], M, 2000)
    talks, talked = [], 0
    while run.at < 2000:
        collisions = run.tally.now[5]
        run.to(run.at + 1)
        leader = next(one for one in run.state if one.start.rank[0] == 0)
        if leader.talking[0] == 1:
            talked += 1
        elif talked:
            # The state shows the beginning after the slot before it, so that each talk is seen as often as it lasts.
            talks.append(talked)
            talked = 0
            assert len({tuple(one.best[:M]) for one in run.state}) == 1
            assert len({int(one.swaps[0]) for one in run.state}) == 1
        else:
            assert run.tally.now[5] == collisions  # users collide to talk, and never otherwise
    assert talks
    assert all(length % (2 * M - 1 + K) == 0 for length in talks)  # talks may follow each other at once
    assert sum(talks) == (2 * M - 1 + K) * int(run.state[0].swaps[0])
    assert all(5 in one.best[:M] for one in run.state)


def test_each_follower_meets_the_leader_once_in_each_part_of_a_talk() -> None:
    run = after_start([0.5, 0.5, 0.5, 0.01, 0.01, 0.99], M, 2000)
    while not any(one.talking[0] == 1 for one in run.state):
        run.to(run.at + 1)
    ranks = [int(one.start.rank[0]) for one in run.state]
    leader = ranks.index(0)
    remove, add = int(run.state[leader].remove[0]), int(run.state[leader].add[0])
    picks = picks_of(run, 2 * M - 1 + K)
    met = picks == picks[:, [leader]]
    for j in range(M):
        if j != leader:
            for first, last in ((0, M - 1), (M - 1, 2 * M - 1), (2 * M - 1, 2 * M - 1 + K)):
                assert np.count_nonzero(met[first:last, j]) == 1
    assert (picks[M - 1 : 2 * M - 1, leader] == remove).all()
    assert (picks[2 * M - 1 :, leader] == add).all()


def test_users_take_turns_on_the_best_channels_and_only_the_leader_explores() -> None:
    run = after_start(list(MEANS[::-1]), M, 3000, seed=2)
    ranks = [int(one.start.rank[0]) for one in run.state]
    leader = ranks.index(0)
    for _ in range(2000):
        before, state = run.at, run.state
        talking = any(one.talking[0] == 1 for one in state)
        best = [one.best[:M].tolist() for one in state]
        t = int(state[0].slots[0])
        worst = int(state[leader].worst[0])
        allowed = set(np.flatnonzero(state[leader].explored).tolist())
        run.to(before + 1)
        if talking:
            continue
        for j, k in enumerate(run.tally.picks.tolist()):
            turn = best[j][(t + ranks[j]) % M]
            if j == leader and turn == worst:
                assert k in allowed | {worst}
            else:
                assert k == turn


def test_half_of_the_turns_on_the_worst_channel_explore() -> None:
    """Counted over all turns in which there is a channel to explore."""
    run = after_start([0.5, 0.5, 0.5], 2, 4000)
    leader = [int(one.start.rank[0]) for one in run.state].index(0)
    tried = turns = 0
    while run.at < 4000:
        one = run.state[leader]
        if one.talking[0] == 0 and one.explored.any() and one.best[one.slots[0] % 2] == one.worst[0]:
            turns += 1
            worst = int(one.worst[0])
            run.to(run.at + 1)
            tried += run.tally.picks[leader] != worst
        else:
            run.to(run.at + 1)
    assert turns > 300
    assert abs(tried / turns - 0.5) < 4 * 0.5 / np.sqrt(turns)


@pytest.mark.parametrize("M", [1, 6])
def test_a_single_user_and_as_many_users_as_channels(M: int) -> None:
    run = ran(independent([0.1, 0.9, 0.2, 0.3, 0.5, 0.4], M), "dpe1", 4000)
    if M == 1:
        assert run.state[0].best[0] == 1
        assert run.tally.now[5] == 0
    else:
        assert all(int(one.swaps[0]) == 0 for one in run.state)
        assert run.tally.now[8] < 200  # the last collision is in the start phase
