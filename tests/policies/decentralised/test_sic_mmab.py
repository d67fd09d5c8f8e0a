"""Exploration, talk by collisions, and decisions of SIC-MMAB."""

import math

import numpy as np
import pytest

from idleband.policies.decentralised.sic_mmab import EXPLOITATION, EXPLORATION, TALK
from idleband.policies.decentralised.start_phase import seating_slots
from tests.policies.decentralised.band import MEANS, independent, picks_of, ran, started

K, M, HORIZON = 5, 3, 20_000


def test_talk_takes_the_slots_that_it_should_and_gives_all_users_the_same_sums() -> None:
    """All users are active in the first phases: M (M - 1) K (p + 2) slots each."""
    run = started(independent([0.5] * K, M), "sic-mmab", HORIZON)
    run.to(seating_slots(K, HORIZON) + 2 * K)
    earned = np.zeros(K, int)
    for p in (2, 3, 4):
        state = run.state
        assert [int(one.stage[0]) for one in state] == [EXPLORATION] * M
        assert [int(one.phase[0]) for one in state] == [p] * M
        collisions = run.tally.now[5]
        run.to(run.at + K * 2 ** (p + 1))
        assert run.tally.now[5] == collisions  # users explore without collisions
        state = run.state
        assert [int(one.stage[0]) for one in state] == [TALK] * M
        assert all(one.sent.max() <= 2 ** (p + 1) for one in state)
        earned += sum(one.sent for one in state)
        ones = sum(int(value).bit_count() for one in state for value in one.sent)
        run.to(run.at + M * (M - 1) * K * (p + 2))
        state = run.state
        assert run.tally.now[5] - collisions == 2 * (M - 1) * ones  # a 1 collides with each of the others in turn
        for one in state:
            assert one.total.tolist() == earned.tolist()
            assert int(one.talked[0]) == M * (M - 1) * K * sum(q + 2 for q in range(2, p + 1))
            assert int(one.users[0]) == M  # equal channels: nothing is accepted or rejected
            assert one.plays.tolist() == [M * sum(2 ** (q + 1) for q in range(2, p + 1))] * K


def test_sums_are_those_of_the_rewards() -> None:
    """Channels that always pay, or never; two users play each channel four times."""
    run = started(independent([1.0, 0.0, 1.0, 0.0], 2), "sic-mmab", HORIZON)
    run.to(seating_slots(4, HORIZON) + 8 + 4 * 4 + 2 * 4 * 3)
    assert all(one.total.tolist() == [8, 0, 8, 0] for one in run.state)


def test_the_best_channels_are_found_and_shared() -> None:
    run = ran(independent([0.1, 0.9, 0.2, 0.8, 0.3], 2), "sic-mmab", 6000)
    assert [int(one.stage[0]) for one in run.state] == [EXPLOITATION] * 2
    assert sorted(int(one.channel[0]) for one in run.state) == [1, 3]
    last = picks_of(started(independent([0.1, 0.9, 0.2, 0.8, 0.3], 2), "sic-mmab", 6000), 6000)[-100:]
    assert (np.sort(last, axis=1) == [1, 3]).all()


def test_channels_are_accepted_and_rejected_where_intervals_are_apart() -> None:
    """The decisions of every phase, computed again from the pooled sums."""
    run = started(independent(MEANS, 4), "sic-mmab", HORIZON, seed=3)
    phases = 0
    before = None
    while run.at < HORIZON and phases < 4:
        one = run.state[0]
        now = (int(one.phase[0]), int(one.users[0]), one.channels[: one.active[0]].tolist())
        if before is not None and one.phase[0] > before[0]:
            phases += 1
            _, users, channels = before
            mean = one.total[channels] / one.plays[channels]
            width = np.sqrt(2 * math.log(HORIZON) / one.plays[channels])
            better = [(mean - width > mean[i] + width[i]).sum() for i in range(len(channels))]
            worse = [(mean + width < mean[i] - width[i]).sum() for i in range(len(channels))]
            accepted = [k for k, n in zip(channels, worse, strict=True) if n >= len(channels) - users]
            rejected = [k for k, n in zip(channels, better, strict=True) if n >= users]
            assert now[2] == [k for k in channels if k not in accepted + rejected]
            assert now[1] == users - len(accepted)
        if one.stage[0] == EXPLOITATION:
            break
        before = now if one.stage[0] != 0 else None
        run.to(run.at + 1)
    assert phases >= 3


@pytest.mark.parametrize("M", [1, 5])
def test_a_single_user_and_as_many_users_as_channels(M: int) -> None:
    run = ran(independent([0.1, 0.9, 0.2, 0.3, 0.5], M), "sic-mmab", 4000)
    channels = sorted(int(one.channel[0]) for one in run.state)
    assert channels == ([1] if M == 1 else [0, 1, 2, 3, 4])


def test_rewards_between_the_extremes_are_rounded_without_bias() -> None:
    """Four plays that pay 0.3 each are sent as 1 or 2, 1.2 on average."""
    scenario = independent([1.0] * 4, 2, quality=[[0.3] * 4] * 2)
    sums = []
    for replication in range(40):
        run = started(scenario, "sic-mmab", HORIZON, replication=replication)
        run.to(seating_slots(4, HORIZON) + 8 + 4 * 4)
        sums += [value for one in run.state for value in one.sent.tolist()]
    assert set(sums) == {1, 2}
    error = math.sqrt(0.8 * 0.2 / len(sums))
    assert abs(np.mean(sums) - 1.2) < 4 * error
