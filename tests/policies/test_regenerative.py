"""The block machine on states written by hand, slot by slot."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idleband.policies.protocol import Slot
from idleband.policies.regenerative import DONE, IDLE, PATIENCE, SB1, SB2
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


# --- a live station: feedback that is missing, late, in another order; users that come and go ------------------------


class Late:
    """A station whose feedback comes when the test says so: decisions and what came of them apart."""

    def __init__(self, K: int = 1, M: int = 1, **parameters: object) -> None:
        self.station = Station("rca-m", K=K, M=M, **parameters)
        self.slots: dict[int, Slot] = {}

    def decide(self, slots: int = 1) -> list[int]:
        for _ in range(slots):
            picks = self.station.choose()
            self.slots[self.station.t] = self.station.slot
        return picks

    def tell(self, t: int, s: int, k: int = 0) -> tuple[int, float, float, int]:
        """Channel k was in state s in slot t: then its phase, the slots and the sum of its statistics, and how many
        blocks were dropped."""
        self.station.slot = self.slots[t]
        self.station.learn(k, s)
        blocks = self.station.state
        return int(blocks.phase[k]), float(blocks.slots[k]), float(blocks.total[k]), int(blocks.dropped[0])


def test_a_block_with_a_slot_missing_is_dropped() -> None:
    """Slot 3 of SB2 is not reported: what its reward was nobody knows, so the block tells nothing."""
    live = Late()
    live.decide(4)
    assert live.tell(1, 1) == (SB2, 0, 0, 0)
    assert live.tell(2, 0) == (SB2, 0, 0, 0)
    assert live.tell(4, 0) == (IDLE, 0, 0, 1)
    assert live.tell(3, 0) == (IDLE, 0, 0, 1)  # too late
    live.decide(2)
    assert live.tell(5, 1) == (SB2, 0, 0, 1)  # a new block, which begins where it is at home
    assert live.tell(6, 1) == (IDLE, 1, 1, 1)


def test_a_block_whose_end_comes_out_of_order_is_dropped() -> None:
    """The home state in slot 3 before slot 2 is known: the block would end without slot 2's reward."""
    live = Late()
    live.decide(3)
    assert live.tell(1, 1) == (SB2, 0, 0, 0)
    assert live.tell(3, 1) == (IDLE, 0, 0, 1)
    assert live.tell(2, 0) == (IDLE, 0, 0, 1)


def test_feedback_that_is_late_but_in_order_counts() -> None:
    """All of four slots at once: the same as if each had come in time. What follows the end is of no block."""
    live = Late()
    live.decide(6)
    reported = [live.tell(t, s) for t, s in enumerate((1, 0, 0, 1, 1, 0), 1)]
    assert reported[3] == (IDLE, 3, pytest.approx(1.2), 0)
    assert reported[4:] == [reported[3]] * 2
    assert live.decide() == [0]
    assert live.tell(7, 1) == (SB2, 3, pytest.approx(1.2), 0)


def test_feedback_from_before_a_block_is_not_its_own() -> None:
    live = Late()
    live.decide(2)
    live.tell(1, 1)
    live.decide(2)
    assert live.tell(2, 1) == (IDLE, 1, 1, 0)  # the first block has ended, while slots 3 and 4 were played on
    assert live.decide() == [0]  # slot 5: a second block
    assert live.tell(3, 1) == (SB1, 1, 1, 0)
    assert live.tell(4, 1) == (SB1, 1, 1, 0)
    assert live.tell(5, 1) == (SB2, 1, 1, 0)
    assert live.tell(4, 0) == (SB2, 1, 1, 0)
    live.decide()
    assert live.tell(6, 1) == (IDLE, 2, 2, 0)


def test_in_sb1_nothing_counts_and_nothing_is_missed() -> None:
    """While a block waits for its home state, slots may be missing, and what is late is of no use."""
    live = Late()
    live.decide(2)
    live.tell(1, 1)
    live.tell(2, 1)
    live.decide(6)  # slots 3 to 8, a second block
    assert live.tell(3, 0) == (SB1, 1, 1, 0)
    assert live.tell(6, 0) == (SB1, 1, 1, 0)
    assert live.tell(4, 1) == (SB1, 1, 1, 0)  # home, but slot 6 is known: nobody can tell what came between
    assert live.tell(7, 1) == (SB2, 1, 1, 0)
    assert live.tell(8, 1) == (IDLE, 2, 2, 0)


def test_told_twice_is_told_once() -> None:
    """An allocator does not let it through, but the block machine does not need it to."""
    live = Late()
    live.decide(3)
    live.tell(1, 1)
    assert live.tell(1, 1) == (SB2, 0, 0, 0)
    live.tell(2, 0)
    live.tell(2, 0)
    assert live.tell(3, 1) == (IDLE, 2, pytest.approx(1.1), 0)


def test_a_block_that_is_never_heard_of_is_dropped_in_the_end() -> None:
    """Else a channel that does not report would keep its place for ever."""
    live = Late(K=2)
    assert live.decide(PATIENCE) == [0]
    assert int(live.station.state.dropped[0]) == 0
    live.decide()
    assert int(live.station.state.dropped[0]) == 1
    # A channel that reports now and then keeps it.
    live = Late(K=2)
    live.decide(600)
    live.tell(600, 1)
    assert live.decide(PATIENCE) == [0]
    assert int(live.station.state.dropped[0]) == 0
    live.decide()
    assert int(live.station.state.dropped[0]) == 1
    assert live.station.state.slots.tolist() == [0, 0]


def test_fewer_places_than_running_blocks() -> None:
    """Users leave: the first channels keep their blocks, the others are dropped without a trace."""
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


def test_a_place_that_is_kept_until_the_round_ends_is_no_running_block() -> None:
    """Synchronous: a block that has ended is given up when users leave, and was not dropped."""
    station = Station("rca-m", K=3, M=2, synchronous=True)
    station.play([1, 0, 0])
    station.play([0, 0, 0])  # channel 1 has ended
    assert station.state.phase.tolist() == [SB2, DONE, IDLE]
    station.setup = station.setup._replace(M=1)
    assert station.play([0, 0, 0]) == [0]
    assert station.state.phase.tolist() == [SB2, IDLE, IDLE]
    assert int(station.state.dropped[0]) == 0


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.8]))
def test_statistics_are_made_of_whole_blocks_whatever_comes(seed: int, chaos: float) -> None:
    """A channel whose home state is 1, reported in any order or not at all: every counted block is one of the runs that
    truly happened, from a 1 to the last slot before the next, each of its slots reported."""
    rng = np.random.default_rng(seed)
    live, truth, waiting, reported = Late(), {}, [], set()
    committed: list[float] = []
    live.decide()
    truth[1] = 1
    live.tell(1, 1)
    reported.add(1)
    for t in range(2, 60):
        live.decide()
        truth[t] = int(rng.random() < 0.5)
        waiting.append(t)
        while waiting and rng.random() > chaos / 2:
            now = waiting.pop(0 if rng.random() > chaos else int(rng.integers(len(waiting))))
            if rng.random() < chaos / 4:
                continue  # never
            before = float(live.station.state.slots[0])
            _, after, _, _ = live.tell(now, truth[now])
            reported.add(now)
            if after > before:
                committed.append(after - before)
                first = now - int(after - before)
                assert truth[first] == truth[now] == 1
                assert all(truth[u] == 0 and u in reported for u in range(first + 1, now))
    blocks = live.station.state
    assert blocks.slots[0] == blocks.all_slots[0] == sum(committed)
    assert blocks.total[0] == pytest.approx(sum(1.0 + 0.1 * (length - 1) for length in committed))
    if chaos == 0.0:
        assert int(blocks.dropped[0]) == 0
