"""The block machine on states written by hand, slot by slot."""

import math

import numpy as np
import pytest

from idleband.policies.regenerative import DONE, IDLE, SB1, SB2
from tests.policies.station import Station


def only_channel(states: list[int]) -> list[tuple[int, float, float]]:
    """One channel alone: after each slot the phase, the slots and the sum that feed its index."""
    station = Station("rca-m", K=1, M=1)
    seen = []
    for s in states:
        assert station.play([s]) == [0]
        blocks = station.state
        seen.append((int(blocks.phase[0]), float(blocks.slots[0]), round(float(blocks.total[0]), 9)))
    return seen


def test_first_block_has_no_sb1() -> None:
    """The first state ever seen is the regenerative one, so SB2 starts with the first slot."""
    assert only_channel([1, 0, 0, 1]) == [
        (SB2, 0, 0.0),  # SB2: reward 1
        (SB2, 0, 0.0),  # SB2: reward 0.1
        (SB2, 0, 0.0),  # SB2: reward 0.1
        (IDLE, 3, 1.2),  # SB3: seen again; its reward does not count, the block is committed
    ]


def test_later_blocks_wait_for_the_regenerative_state() -> None:
    assert only_channel([0, 0, 1, 1, 0, 1, 0]) == [
        (SB2, 0, 0.0),
        (IDLE, 1, 0.1),  # SB3 at once: a block of two slots
        (SB1, 1, 0.1),  # a new block: state 1 is not the regenerative one
        (SB1, 1, 0.1),
        (SB2, 1, 0.1),  # state 0 seen: this slot is the first of SB2
        (SB2, 1, 0.1),
        (IDLE, 3, pytest.approx(1.2)),  # 0.1 before, 0.1 + 1 in this block
    ]


def test_index_is_mean_over_sb2_plus_width() -> None:
    station = Station("rca-m", K=2, M=1, L=0.7)
    for s in ([1, 0], [0, 0], [1, 0], [0, 0], [0, 0]):  # channel 0: SB2 of 2 slots; then channel 1: SB2 of 1 slot
        station.play(s)
    station.choose()
    t2 = 3
    expected = [1.1 / 2 + math.sqrt(0.7 * math.log(t2) / 2), 0.1 / 1 + math.sqrt(0.7 * math.log(t2) / 1)]
    np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)


def test_unplayed_channels_come_first_and_ties_go_to_the_lowest_number() -> None:
    station = Station("rca-m", K=5, M=2)
    assert station.play([0, 1, 0, 0, 0]) == [0, 1]
    assert station.play([0, 1, 0, 0, 0]) == [0, 1]  # both blocks end here
    assert station.play([0, 0, 0, 0, 0]) == [2, 3]  # both places go to channels never played
    assert station.play([0, 0, 0, 1, 0]) == [2, 3]  # channel 2 ends, channel 3 goes on
    assert station.play([0, 0, 0, 0, 0]) == [3, 4]  # the freed place goes to the last unplayed channel


def test_a_freed_place_goes_to_the_best_index_itself_included() -> None:
    station = Station("rca-m", K=3, M=1, L=0.0)  # no width: the best mean wins
    for k, s in enumerate((0, 1, 0)):
        states = [0, 0, 0]
        states[k] = s
        assert station.play(states) == [k]
        assert station.play(states) == [k]
    assert station.play([0, 1, 0]) == [1]  # mean 1 against 0.1
    assert station.play([0, 1, 0]) == [1]
    assert station.play([0, 1, 0]) == [1]  # its own block ended, it takes the place again


def test_an_unavailable_channel_drops_its_block_without_a_trace() -> None:
    station = Station("rca-m", K=2, M=1)
    assert station.play([1, 0]) == [0]
    assert station.play([0, 0]) == [0]
    assert station.play([0, 0], available=[False, True]) == [1]
    blocks = station.state
    assert blocks.phase.tolist() == [IDLE, SB2]
    assert blocks.slots.tolist() == [0, 0]
    assert int(blocks.dropped[0]) == 1
    assert blocks.origin[0] == 1  # what the regenerative state is stays known
    station.play([0, 0])  # channel 1 ends
    assert station.play([0, 0]) == [0]  # back with no data: first again
    assert blocks.phase[0] == SB1  # and it waits for state 1


def test_fewer_available_than_places() -> None:
    station = Station("rca-m", K=3, M=2)
    assert station.play([0, 0, 0], available=[False, False, True]) == [2]
    assert station.play([0, 0, 0], available=[False, False, False]) == []
    assert station.play([0, 0, 0]) == [0, 1]


def test_synchronous_refill() -> None:
    """All places are refilled together; a channel that finished early goes on playing and feeds nothing."""
    station = Station("rca-m", K=4, M=2, synchronous=True)
    assert station.play([0, 1, 0, 0]) == [0, 1]
    assert station.play([0, 0, 0, 0]) == [0, 1]  # channel 0 ends, channel 1 is in SB2
    assert station.state.phase.tolist() == [DONE, SB2, IDLE, IDLE]
    assert station.play([1, 0, 0, 0]) == [0, 1]  # channel 0 goes on
    assert station.state.slots.tolist() == [1, 0, 0, 0]
    assert station.play([0, 1, 0, 0]) == [0, 1]  # channel 1 ends: the round is over
    assert station.state.slots.tolist() == [1, 3, 0, 0]
    assert station.play([0, 0, 0, 0]) == [2, 3]


def test_synchronous_place_of_a_dropped_block_is_filled_at_once() -> None:
    station = Station("rca-m", K=3, M=2, synchronous=True)
    assert station.play([0, 1, 0]) == [0, 1]
    assert station.play([0, 0, 0], available=[True, False, True]) == [0, 2]


def test_three_states() -> None:
    """The regenerative state is one of three; SB2 takes in visits to the other two, at their own rewards."""
    third = 1 / 3
    chain = {"transition": [[[third] * 3] * 3], "rewards": [0.0, 0.5, 1.0], "reward": "additive"}
    station = Station("rca-m", K=1, M=1, world=chain)
    for s in (1, 0, 2, 1, 0, 2, 1, 2, 1):
        station.play([s])
    blocks = station.state
    assert int(blocks.origin[0]) == 1
    assert float(blocks.slots[0]) == 5  # 1 0 2 | SB3 | SB1 0 2, then 1 2 | SB3
    assert float(blocks.total[0]) == pytest.approx((0.5 + 0.0 + 1.0) + (0.5 + 1.0))
