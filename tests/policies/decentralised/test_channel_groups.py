"""The partition of channels into groups: values against exact ones, and the best partition against all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idleband.kernels.rng import POLICY, stream
from idleband.policies.decentralised import channel_groups
from idleband.policies.decentralised.channel_groups import MAX_SIZE, Grouping, new_grouping

probability = st.floats(0.02, 0.98)


def grouping_of(p01: list[float], p10: list[float], users: int, low: float = 0.0) -> Grouping:
    grouping = new_grouping(len(p01), users)
    grouping.p01[:], grouping.p10[:], grouping.low[:] = p01, p10, low
    channel_groups.prepare(grouping, stream(1, 0, POLICY))
    return grouping


def value_of(grouping: Grouping, channels: list[int]) -> float:
    grouping.members[: len(channels)] = channels
    return channel_groups.group_value(grouping, len(channels))


def best_by_hand(grouping: Grouping, users: int) -> float:
    """Return the largest sum of values over all ways to give each channel to a user or to none."""
    K, best = grouping.label.size, -np.inf
    values: dict[tuple[int, ...], float] = {}
    for labels in itertools.product(range(users + 1), repeat=K):
        groups = [tuple(k for k in range(K) if labels[k] == g) for g in range(users)]
        if any(not 0 < len(group) <= MAX_SIZE for group in groups):
            continue
        for group in groups:
            if group not in values:
                values[group] = value_of(grouping, list(group))
        best = max(best, sum(values[group] for group in groups))
    return best


@settings(max_examples=15)
@given(st.data(), st.integers(1, 3))
def test_the_partition_is_the_best_of_all(data: st.DataObject, users: int) -> None:
    K = data.draw(st.integers(users, 5))
    p01, p10 = (data.draw(st.lists(probability, min_size=K, max_size=K)) for _ in range(2))
    grouping = grouping_of(p01, p10, users, low=0.1)
    channel_groups.partition(grouping, users, stream(2, 0, POLICY))
    total = channel_groups.total_value(grouping, users)
    assert total == pytest.approx(best_by_hand(grouping, users), abs=1e-12)
    assert set(range(users)) <= set(grouping.label.tolist()) <= set(range(users + 1))


@settings(max_examples=15)
@given(st.data(), st.integers(1, 3))
def test_the_search_finds_at_least_what_it_starts_from_and_at_most_the_best(data: st.DataObject, users: int) -> None:
    K = data.draw(st.integers(users, 5))
    p01, p10 = (data.draw(st.lists(probability, min_size=K, max_size=K)) for _ in range(2))
    grouping = grouping_of(p01, p10, users)
    channel_groups.deal(grouping, users)
    dealt = channel_groups.total_value(grouping, users)
    channel_groups.search_partition(grouping, users, stream(3, 0, POLICY))
    found = channel_groups.total_value(grouping, users)
    channel_groups.partition(grouping, users, stream(2, 0, POLICY))
    best = channel_groups.total_value(grouping, users)
    assert dealt - 1e-12 <= found <= best + 1e-12
    assert found >= 0.97 * best


def test_more_than_15_channels_are_searched() -> None:
    """Twenty channels of two kinds, ten users: the best groups have one of each kind."""
    grouping = grouping_of([0.05] * 10 + [0.9] * 10, [0.05] * 10 + [0.9] * 10, 10)
    assert grouping.best.shape[1] == 0
    channel_groups.partition(grouping, 10, stream(4, 0, POLICY))
    sizes = np.bincount(grouping.label, minlength=10)[:10]
    assert (sizes > 0).all()
    assert (sizes <= MAX_SIZE).all()
    pairs = 10 * value_of(grouping, [0, 10])
    assert channel_groups.total_value(grouping, 10) > 0.98 * pairs


def test_value_of_one_channel_is_its_mean_reward() -> None:
    grouping = grouping_of([0.3, 0.5], [0.1, 0.5], 1, low=0.1)
    assert value_of(grouping, [0]) == pytest.approx(0.1 + 0.9 * 0.75)


def test_value_of_two_opposite_channels_is_nearly_that_of_a_good_one() -> None:
    """Two channels that change their state in almost every slot: one of them is good, unless both have one phase."""
    slots = channel_groups.SLOTS
    grouping = grouping_of([0.999] * 2, [0.999] * 2, 1)
    grouping.path[:, 0], grouping.path[:, 1] = np.arange(slots) % 2, (np.arange(slots) + 1) % 2
    assert value_of(grouping, [0, 1]) > 0.99
    grouping.path[:, 1] = grouping.path[:, 0]
    assert value_of(grouping, [0, 1]) < 0.51


def test_value_of_a_pair_is_close_to_the_exact_one() -> None:
    """Two slow equal channels. Exact: the chain of both states and ages of the policy that leaves a bad channel.

    With p = p01 = p10 and equal channels the index is larger for the channel that was not played as soon as the played
    one is bad, and for the played one while it is good. So the user stays while good and changes after each bad slot.
    """
    p = 0.1
    # State: of the played channel now, and of the other one. The user sees the first only.
    chain = np.zeros((4, 4))
    for (own, other), (own_next, other_next) in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        probability = (1 - p if own == own_next else p) * (1 - p if other == other_next else p)
        place = (own_next, other_next) if own == 1 else (other_next, own_next)
        chain[2 * own + other, 2 * place[0] + place[1]] += probability
    weights = np.linalg.matrix_power(chain, 4000)[0]
    exact = weights[2] + weights[3]
    grouping = grouping_of([p, p], [p, p], 1)
    # The expected rewards of SLOTS slots are correlated over about 1 / (2p) slots.
    error = np.sqrt(0.25 / (channel_groups.SLOTS * 2 * p))
    assert abs(value_of(grouping, [0, 1]) - exact) < 5 * error
