"""MP-SWUCB: sums recomputed in every slot, shortest and longest windows, rounding, and late feedback."""

import math
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.policies.station import ADDITIVE, Recount, Station, best


class Plain(Recount):
    """Indices by definition, from sums over the window recomputed in every slot."""

    def indices(self) -> np.ndarray:
        """Return the indices of the present slot of the station."""
        t, found = self.station.t, []
        for channel in range(self.station.setup.K):
            rewards = [r for s, k, r in self.feedback if k == channel and t - self.values["window"] <= s < t]
            width = math.sqrt(self.values["L"] * math.log(min(t, self.values["window"])) / max(len(rewards), 1))
            found.append(np.mean(rewards) + self.station.setup.span * width if rewards else math.inf)
        return np.array(found)


@pytest.mark.parametrize("L", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 20, 299, 300, 1000])
def test_sums_equal_recomputed_sums(window: int, L: float) -> None:
    """Some slots have fewer available channels than users, and some have none for longer than a short window."""
    station = Station("mp-swucb", K=5, M=2, scenario=ADDITIVE, window=window, L=L)
    plain, rng = Plain(station), np.random.default_rng(window)
    for t in range(1, 301):
        available = rng.uniform(size=5) < (0.0 if 100 < t <= 108 else 0.4 if t % 3 else 1.0)
        picks = station.choose(available=available)
        expected = plain.indices()
        np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)
        assert picks == best(expected, available, 2)
        for k in picks:
            plain.learn(k, int(rng.integers(0, 2)), rng.uniform(0, 1.4))


def test_indices_of_a_worked_example() -> None:
    """With one user and window 3, a channel without plays in the window is selected first."""
    station = Station("mp-swucb", K=3, M=1, window=3)
    assert [station.play([1, 0, 0]) for _ in range(3)] == [[0], [1], [2]]
    picks = station.choose()
    width = math.sqrt(0.6 * math.log(3))
    np.testing.assert_allclose(station.slot.indices, [1 + width, 0.1 + width, 0.1 + width])
    assert picks == [0]
    station.learn(0, 1)
    assert station.play([1, 0, 0]) == [0]  # slots 2, 3 and 4 contain plays of all channels
    assert station.play([1, 0, 0]) == [1]  # slots 3, 4 and 5 contain no play of channel 1


def test_window_of_one_slot_uses_the_last_slot_only() -> None:
    station = Station("mp-swucb", K=3, M=2, window=1)
    assert station.play([1, 0, 1]) == [0, 1]
    assert station.play([1, 0, 1]) == [0, 2]
    assert station.slot.indices.tolist() == [1.0, 0.1, math.inf]  # the width is zero because ln 1 = 0
    assert station.play([1, 1, 1]) == [0, 1]
    assert station.slot.indices.tolist() == [1.0, math.inf, 1.0]


@pytest.mark.parametrize("scenario", ["S1", "S4"])
@pytest.mark.parametrize("window", [2000, 2001, 10**6])
def test_window_as_long_as_the_run_plays_as_mp_ucb(window: int, scenario: str) -> None:
    """Plays and rewards are equal bit for bit, because sums are computed in the same order."""
    size: dict[str, Any] = {"horizon": 2000, "replications": 2, "L": 0.6}
    whole, windowed = ib.simulate(scenario, "mp-ucb", **size), ib.simulate(scenario, "mp-swucb", window=window, **size)
    assert np.array_equal(whole.plays, windowed.plays)
    assert np.array_equal(whole.reward, windowed.reward)


def test_slots_without_available_channels_move_the_window() -> None:
    station = Station("mp-swucb", K=2, M=1, window=2)
    station.play([1, 1], available=[True, False])
    station.choose(available=[False, False])
    assert np.isfinite(station.slot.indices[0])
    station.choose(available=[False, False])
    assert np.isfinite(station.slot.indices[0])  # slot 1 is in the window of slot 3
    station.choose(available=[False, False])
    assert station.slot.indices[0] == math.inf


@pytest.mark.parametrize("missed", [1, 3, 4, 5, 50])
def test_skipped_slots_move_the_window(missed: int) -> None:
    station = Station("mp-swucb", K=2, M=2, window=5)
    station.play([1, 1])
    station.t += missed
    station.choose()
    assert np.isfinite(station.slot.indices).all() == (missed <= 4)
    assert station.state.plays.tolist() == [float(missed < 4)] * 2  # counts for the next slot


def test_totals_equal_the_sums_of_stored_rows_after_many_slots() -> None:
    """After 3 * 10^5 slots the totals equal the sums of the stored rows up to rounding.

    Totals are at most 1000, so each addition or subtraction errs by at most 1000 * 2^-53; errors accumulate over at
    most 2 windows of 1000 slots.
    """
    result = ib.simulate(ib.scenario("S4", reward="additive"), "mp-swucb", horizon=300_500, replications=1)
    assert result.state is not None
    state = result.state[0]
    for k in range(len(state.total)):
        kept = [r for row, n in zip(state.rewards, state.filled, strict=True) for r in row[:n].tolist()]
        channels = [c for row, n in zip(state.channels, state.filled, strict=True) for c in row[:n].tolist()]
        rewards = [r for r, c in zip(kept, channels, strict=True) if c == k]
        assert state.plays[k] == len(rewards)
        assert abs(state.total[k] - math.fsum(rewards)) <= 3000 * 1000 * 2.0**-53
    assert state.plays.sum() == 1000 * ib.scenario("S4").users


def test_rounding_errors_are_removed_once_per_window() -> None:
    station = Station("mp-swucb", K=2, M=2, window=10)
    for _ in range(25):
        station.play([1, 0])
    station.state.total[:] += 0.5
    for _ in range(5):
        station.play([1, 0])
    np.testing.assert_allclose(station.state.total, [10.0, 1.0], rtol=1e-12)


# --- late, missing and repeated feedback -----------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 3, 6, 7, 8, 30])
def test_late_feedback_counts_in_its_slot_if_that_is_in_the_window(delay: int) -> None:
    """Compare with the definition, given the same feedback; feedback older than the window has no effect."""
    station = Station("mp-swucb", K=4, M=2, scenario=ADDITIVE, window=7)
    plain, rng, waiting = Plain(station), np.random.default_rng(delay), []
    for t in range(1, 101):
        picks = station.choose()
        expected = plain.indices()
        np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)
        assert picks == best(expected, np.ones(4), 2)
        waiting += [(t, station.slot, k) for k in picks if rng.uniform() < 0.8]  # a fifth is never reported
        while waiting and waiting[0][0] <= t - delay:
            _, station.slot, k = waiting.pop(0)
            plain.learn(k, int(rng.integers(0, 2)), rng.uniform(0, 1.4))
    assert (station.state.plays.sum() > 0) == (delay < 7)


def test_repeated_feedback_stays_within_the_row_of_its_slot() -> None:
    station = Station("mp-swucb", K=3, M=2, window=4)
    station.choose()
    for _ in range(5):
        station.learn(0, 1)
    assert station.state.filled.tolist() == [0, 2, 0, 0]
    assert station.state.plays.tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 0}, "window = 0: must be a whole number of at least 1, at most 1e\\+06"),
        ({"window": 10**7}, "window = 10000000: must be a whole number of at least 1, at most 1e\\+06"),
        ({"window": 2.5}, "window = 2.5: must be a whole number of at least 1, at most 1e\\+06"),
        ({"L": -1}, "L = -1: must be a finite number of at least 0"),
    ],
)
def test_parameters_out_of_bounds_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=f"^policy mp-swucb: {message}$"):
        ib.policy("mp-swucb", **parameters)


def test_window_that_needs_too_much_memory_is_refused() -> None:
    scenario = ib.scenario(p01=[0.5] * 1000, p10=[0.5] * 1000, users=600)
    with pytest.raises(ib.InputError) as refused:
        ib.simulate(scenario, "mp-swucb", window=10**6, horizon=10, replications=1)
    message = "window = 1000000 would take 9 GiB with 600 users; must be at most 8 GiB: choose a smaller one"
    assert str(refused.value) == message
