"""Regenerative blocks of RCA-M, slot by slot on given states."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idleband.policies.protocol import Slot
from idleband.policies.regenerative import DONE, IDLE, PATIENCE, SB1, SB2
from tests.policies.station import Station


def only_channel(states: list[int]) -> list[tuple[int, float, float]]:
    """Play a single channel; return its phase and the number of slots and sum of its index after each slot."""
    station = Station("rca-m", K=1, M=1)
    rows = []
    for s in states:
        assert station.play([s]) == [0]
        blocks = station.state
        rows.append((int(blocks.phase[0]), float(blocks.slots[0]), round(float(blocks.total[0]), 9)))
    return rows


def test_first_block_has_no_sb1() -> None:
    """The first observed state is the regenerative state, so SB2 starts in the first slot."""
    assert only_channel([1, 0, 0, 1]) == [
        (SB2, 0, 0.0),  # SB2: reward 1
        (SB2, 0, 0.0),  # SB2: reward 0.1
        (SB2, 0, 0.0),  # SB2: reward 0.1
        (IDLE, 3, 1.2),  # SB3: the state recurs; its reward does not count and the block ends
    ]


def test_later_blocks_wait_for_the_regenerative_state() -> None:
    assert only_channel([0, 0, 1, 1, 0, 1, 0]) == [
        (SB2, 0, 0.0),
        (IDLE, 1, 0.1),  # SB3 follows at once: a block of two slots
        (SB1, 1, 0.1),  # a new block: state 1 is not the regenerative one
        (SB1, 1, 0.1),
        (SB2, 1, 0.1),  # state 0: this slot is the first of SB2
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


def test_unplayed_channels_come_first_and_ties_go_to_the_lowest_index() -> None:
    station = Station("rca-m", K=5, M=2)
    assert station.play([0, 1, 0, 0, 0]) == [0, 1]
    assert station.play([0, 1, 0, 0, 0]) == [0, 1]  # both blocks end here
    assert station.play([0, 0, 0, 0, 0]) == [2, 3]  # both users get unplayed channels
    assert station.play([0, 0, 0, 1, 0]) == [2, 3]  # the block of channel 2 ends, that of channel 3 continues
    assert station.play([0, 0, 0, 0, 0]) == [3, 4]  # the free user gets the last unplayed channel


def test_channel_with_the_best_index_follows_a_finished_block() -> None:
    station = Station("rca-m", K=3, M=1, L=0.0)  # no width: the best mean is selected
    for k, s in enumerate((0, 1, 0)):
        states = [0, 0, 0]
        states[k] = s
        assert station.play(states) == [k]
        assert station.play(states) == [k]
    assert station.play([0, 1, 0]) == [1]  # mean 1 instead of 0.1
    assert station.play([0, 1, 0]) == [1]
    assert station.play([0, 1, 0]) == [1]  # its block has ended and it is selected again


def test_unavailable_channel_drops_its_block() -> None:
    station = Station("rca-m", K=2, M=1)
    assert station.play([1, 0]) == [0]
    assert station.play([0, 0]) == [0]
    assert station.play([0, 0], available=[False, True]) == [1]
    blocks = station.state
    assert blocks.phase.tolist() == [IDLE, SB2]
    assert blocks.slots.tolist() == [0, 0]
    assert int(blocks.dropped[0]) == 1
    assert blocks.origin[0] == 1  # the regenerative state is kept
    station.play([0, 0])  # the block of channel 1 ends
    assert station.play([0, 0]) == [0]  # without data it is selected first
    assert blocks.phase[0] == SB1  # it waits for state 1


def test_fewer_available_channels_than_users() -> None:
    station = Station("rca-m", K=3, M=2)
    assert station.play([0, 0, 0], available=[False, False, True]) == [2]
    assert station.play([0, 0, 0], available=[False, False, False]) == []
    assert station.play([0, 0, 0]) == [0, 1]


def test_synchronous_mode_replaces_all_channels_together() -> None:
    """All channels are replaced together; a channel whose block ended early is still played, without effect."""
    station = Station("rca-m", K=4, M=2, synchronous=True)
    assert station.play([0, 1, 0, 0]) == [0, 1]
    assert station.play([0, 0, 0, 0]) == [0, 1]  # the block of channel 0 ends, channel 1 is in SB2
    assert station.state.phase.tolist() == [DONE, SB2, IDLE, IDLE]
    assert station.play([1, 0, 0, 0]) == [0, 1]  # channel 0 is still played
    assert station.state.slots.tolist() == [1, 0, 0, 0]
    assert station.play([0, 1, 0, 0]) == [0, 1]  # the block of channel 1 ends, and with it the round
    assert station.state.slots.tolist() == [1, 3, 0, 0]
    assert station.play([0, 0, 0, 0]) == [2, 3]


def test_synchronous_mode_replaces_a_dropped_block_at_once() -> None:
    station = Station("rca-m", K=3, M=2, synchronous=True)
    assert station.play([0, 1, 0]) == [0, 1]
    assert station.play([0, 0, 0], available=[True, False, True]) == [0, 2]


def test_blocks_of_a_channel_with_three_states() -> None:
    """The regenerative state is one of three; SB2 contains visits to the other two with their rewards."""
    third = 1 / 3
    chain = {"transition": [[[third] * 3] * 3], "rewards": [0.0, 0.5, 1.0], "reward": "additive"}
    station = Station("rca-m", K=1, M=1, scenario=chain)
    for s in (1, 0, 2, 1, 0, 2, 1, 2, 1):
        station.play([s])
    blocks = station.state
    assert int(blocks.origin[0]) == 1
    assert float(blocks.slots[0]) == 5  # 1 0 2 | SB3 | SB1 0 2, then 1 2 | SB3
    assert float(blocks.total[0]) == pytest.approx((0.5 + 0.0 + 1.0) + (0.5 + 1.0))


# --- missing, late and unordered feedback, and changing numbers of users ---------------------------------------------


class Late:
    """A station that separates decisions from feedback, which may come late or in any order."""

    def __init__(self, K: int = 1, M: int = 1, **parameters: object) -> None:
        self.station = Station("rca-m", K=K, M=M, **parameters)
        self.slots: dict[int, Slot] = {}

    def decide(self, slots: int = 1) -> list[int]:
        """Decide some slots and return the selected channels of the last one."""
        for _ in range(slots):
            picks = self.station.choose()
            self.slots[self.station.t] = self.station.slot
        return picks

    def report(self, t: int, s: int, k: int = 0) -> tuple[int, float, float, int]:
        """Report state s of channel k in slot t.

        Return the phase, number of slots and sum of the channel, and the number of dropped blocks.
        """
        self.station.slot = self.slots[t]
        self.station.learn(k, s)
        blocks = self.station.state
        return int(blocks.phase[k]), float(blocks.slots[k]), float(blocks.total[k]), int(blocks.dropped[0])


def test_block_with_a_missing_slot_is_dropped() -> None:
    """The reward of slot 3, which belongs to SB2, is missing, so the mean over the block cannot be computed."""
    live = Late()
    live.decide(4)
    assert live.report(1, 1) == (SB2, 0, 0, 0)
    assert live.report(2, 0) == (SB2, 0, 0, 0)
    assert live.report(4, 0) == (IDLE, 0, 0, 1)
    assert live.report(3, 0) == (IDLE, 0, 0, 1)  # too late
    live.decide(2)
    assert live.report(5, 1) == (SB2, 0, 0, 1)  # a new block, which begins in the regenerative state
    assert live.report(6, 1) == (IDLE, 1, 1, 1)


def test_block_whose_end_is_reported_early_is_dropped() -> None:
    """The report of slot 3 ends the block before the reward of slot 2 is reported."""
    live = Late()
    live.decide(3)
    assert live.report(1, 1) == (SB2, 0, 0, 0)
    assert live.report(3, 1) == (IDLE, 0, 0, 1)
    assert live.report(2, 0) == (IDLE, 0, 0, 1)


def test_late_feedback_in_order_counts() -> None:
    """Late reports in order equal prompt reports. Slots after the end belong to no block."""
    live = Late()
    live.decide(6)
    reported = [live.report(t, s) for t, s in enumerate((1, 0, 0, 1, 1, 0), 1)]
    assert reported[3] == (IDLE, 3, pytest.approx(1.2), 0)
    assert reported[4:] == [reported[3]] * 2
    assert live.decide() == [0]
    assert live.report(7, 1) == (SB2, 3, pytest.approx(1.2), 0)


def test_feedback_of_slots_before_a_block_is_ignored() -> None:
    live = Late()
    live.decide(2)
    live.report(1, 1)
    live.decide(2)
    assert live.report(2, 1) == (IDLE, 1, 1, 0)  # the first block has ended; slots 3 and 4 belong to no block
    assert live.decide() == [0]  # slot 5: a second block
    assert live.report(3, 1) == (SB1, 1, 1, 0)
    assert live.report(4, 1) == (SB1, 1, 1, 0)
    assert live.report(5, 1) == (SB2, 1, 1, 0)
    assert live.report(4, 0) == (SB2, 1, 1, 0)
    live.decide()
    assert live.report(6, 1) == (IDLE, 2, 2, 0)


def test_missing_and_late_slots_in_sb1_have_no_effect() -> None:
    """While a block waits for its regenerative state, missing slots do not matter and late reports have no effect."""
    live = Late()
    live.decide(2)
    live.report(1, 1)
    live.report(2, 1)
    live.decide(6)  # slots 3 to 8, a second block
    assert live.report(3, 0) == (SB1, 1, 1, 0)
    assert live.report(6, 0) == (SB1, 1, 1, 0)
    assert live.report(4, 1) == (SB1, 1, 1, 0)  # regenerative state, but slot 6 was already reported
    assert live.report(7, 1) == (SB2, 1, 1, 0)
    assert live.report(8, 1) == (IDLE, 2, 2, 0)


def test_repeated_report_has_no_effect() -> None:
    """Allocators reject repeated reports before the policy; the policy does not depend on that."""
    live = Late()
    live.decide(3)
    live.report(1, 1)
    assert live.report(1, 1) == (SB2, 0, 0, 0)
    live.report(2, 0)
    live.report(2, 0)
    assert live.report(3, 1) == (IDLE, 2, pytest.approx(1.1), 0)


def test_block_without_reports_is_dropped_after_the_patience() -> None:
    """Otherwise a channel without reports would be played for ever."""
    live = Late(K=2)
    assert live.decide(PATIENCE) == [0]
    assert int(live.station.state.dropped[0]) == 0
    live.decide()
    assert int(live.station.state.dropped[0]) == 1
    # A report restarts the count.
    live = Late(K=2)
    live.decide(600)
    live.report(600, 1)
    assert live.decide(PATIENCE) == [0]
    assert int(live.station.state.dropped[0]) == 0
    live.decide()
    assert int(live.station.state.dropped[0]) == 1
    assert live.station.state.slots.tolist() == [0, 0]


def test_fewer_users_than_running_blocks() -> None:
    """With fewer users the first channels keep their blocks and the other blocks are dropped."""
    station = Station("rca-m", K=4, M=3)
    assert station.play([1, 1, 1, 1]) == [0, 1, 2]
    station.setup = station.setup._replace(M=1)
    assert station.play([0, 1, 1, 1]) == [0]
    blocks = station.state
    assert blocks.phase.tolist() == [SB2, IDLE, IDLE, IDLE]
    assert int(blocks.dropped[0]) == 2
    station.setup = station.setup._replace(M=0)
    assert station.play([0, 1, 1, 1]) == []
    assert int(blocks.dropped[0]) == 3
    station.setup = station.setup._replace(M=4)
    assert station.play([1, 1, 1, 1]) == [0, 1, 2, 3]
    assert blocks.slots.tolist() == [0, 0, 0, 0]


def test_finished_block_of_a_synchronous_round_is_released_without_being_dropped() -> None:
    """In synchronous mode a channel with a finished block is released when users leave; no block is dropped."""
    station = Station("rca-m", K=3, M=2, synchronous=True)
    station.play([1, 0, 0])
    station.play([0, 0, 0])  # the block of channel 1 has ended
    assert station.state.phase.tolist() == [SB2, DONE, IDLE]
    station.setup = station.setup._replace(M=1)
    assert station.play([0, 0, 0]) == [0]
    assert station.state.phase.tolist() == [SB2, IDLE, IDLE]
    assert int(station.state.dropped[0]) == 0


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.8]))
def test_statistics_consist_of_whole_blocks_under_random_feedback(seed: int, disorder: float) -> None:
    """A channel with regenerative state 1 is reported in random order, with omissions.

    Every counted block extends from one visit of state 1 to the slot before the next, with all slots reported.
    """
    rng = np.random.default_rng(seed)
    live, truth, waiting, reported = Late(), {}, [], set()
    committed: list[float] = []
    live.decide()
    truth[1] = 1
    live.report(1, 1)
    reported.add(1)
    for t in range(2, 60):
        live.decide()
        truth[t] = int(rng.random() < 0.5)
        waiting.append(t)
        while waiting and rng.random() > disorder / 2:
            now = waiting.pop(0 if rng.random() > disorder else int(rng.integers(len(waiting))))
            if rng.random() < disorder / 4:
                continue  # never reported
            before = float(live.station.state.slots[0])
            _, after, _, _ = live.report(now, truth[now])
            reported.add(now)
            if after > before:
                committed.append(after - before)
                first = now - int(after - before)
                assert truth[first] == truth[now] == 1
                assert all(truth[u] == 0 and u in reported for u in range(first + 1, now))
    blocks = live.station.state
    assert blocks.slots[0] == blocks.all_slots[0] == sum(committed)
    assert blocks.total[0] == pytest.approx(sum(1.0 + 0.1 * (length - 1) for length in committed))
    if disorder == 0.0:
        assert int(blocks.dropped[0]) == 0
