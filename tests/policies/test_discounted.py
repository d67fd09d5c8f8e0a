"""MP-DUCB: sums recomputed in every slot, discounts 0 and 1, and late feedback."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import idleband as ib
from tests.policies.station import ADDITIVE, Recount, Station, best


class Plain(Recount):
    """Indices by definition, from discounted sums recomputed in every slot."""

    def indices(self) -> np.ndarray:
        """Return the indices of the present slot of the station."""
        plays, total = np.zeros((2, self.station.setup.K))
        for s, k, r in self.feedback:
            weight = self.values["discount"] ** (self.station.t - 1 - s)
            plays[k] += weight
            total[k] += weight * r
        played = plays > 1e-290
        n, some = max(plays.sum(), 1.0), np.where(played, plays, 1.0)
        width = 2 * self.station.setup.span * np.sqrt(self.values["L"] * math.log(n) / some)
        return np.where(played, total / some + width, math.inf)


@pytest.mark.parametrize("L", [0.0, 0.6])
@pytest.mark.parametrize("discount", [0.0, 0.3, 0.9, 0.999, 1.0])
def test_sums_equal_recomputed_sums(discount: float, L: float) -> None:
    """Some slots have fewer available channels than users, and some have none for so long that n falls below 1."""
    station = Station("mp-ducb", K=5, M=2, scenario=ADDITIVE, discount=discount, L=L)
    plain, rng = Plain(station), np.random.default_rng(3)
    for t in range(1, 251):
        available = rng.uniform(size=5) < (0.0 if 100 < t <= 140 else 0.4 if t % 3 else 1.0)
        picks = station.choose(available=available)
        expected = plain.indices()
        np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-10)
        assert picks == best(expected, available, 2)
        for k in picks:
            plain.learn(k, int(rng.integers(0, 2)), rng.uniform(0, 1.4))


def test_indices_of_a_worked_example() -> None:
    """With discount 1/2 each channel is played once; its weight is checked up to two slots later."""
    station = Station("mp-ducb", K=2, M=1, discount=0.5, L=0.6)
    assert station.play([1, 0]) == [0]
    assert station.play([1, 0]) == [1]
    station.choose()
    widths = [2 * math.sqrt(0.6 * math.log(1.5) / 0.5), 2 * math.sqrt(0.6 * math.log(1.5))]
    np.testing.assert_allclose(station.slot.indices, [1 + widths[0], 0.1 + widths[1]])
    station.choose()  # without feedback n becomes 0.75 and the width zero
    np.testing.assert_allclose(station.slot.indices, [1, 0.1])


@pytest.mark.parametrize("scenario", ["S1", "S3"])
def test_discount_zero_uses_the_last_slot_only(scenario: str) -> None:
    """The plays are those of a window of one slot, because all channels played in the last slot have equal widths."""
    size: dict[str, Any] = {"horizon": 500, "replications": 2}
    discounted = ib.simulate(scenario, "mp-ducb", discount=0.0, **size)
    windowed = ib.simulate(scenario, "mp-swucb", window=1, **size)
    assert np.array_equal(discounted.plays, windowed.plays)
    assert np.array_equal(discounted.reward, windowed.reward)


def test_discount_one_weights_all_slots_equally() -> None:
    """n is M (t - 1), so that the index is that of MP-UCB with 4 L, and with n instead of t."""
    station = Station("mp-ducb", K=4, M=2, scenario=ADDITIVE, discount=1.0)
    rng = np.random.default_rng(1)
    for _ in range(40):
        station.play(rng.integers(0, 2, 4).tolist(), n=rng.uniform(0, 1.4, 4).tolist())
    plays, total = station.state.plays, station.state.total
    station.choose()
    assert plays.sum() == 80
    expected = total / plays + 2.4 * np.sqrt(4 * 0.6 * math.log(80) / plays)
    np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)


def test_play_with_negligible_weight_counts_as_none() -> None:
    """Otherwise weights would become subnormal numbers, lose precision, and no longer shrink by the factor 0.8."""
    station = Station("mp-ducb", K=2, M=1, discount=0.8)
    station.play([1, 1], available=[True, False])
    last = []
    for _ in range(3100):
        station.choose(available=[False, True])
        station.learn(1, 1)
        last.append(float(station.slot.indices[0]))
    assert all(a < b for a, b in pairwise(last[1:2900]))
    assert last[-1] == math.inf
    assert station.state.plays[0] == station.state.total[0] == 0.0


@pytest.mark.parametrize("delay", [1, 3, 30])
def test_late_feedback_has_the_weight_of_its_slot(delay: int) -> None:
    station = Station("mp-ducb", K=4, M=2, scenario=ADDITIVE, discount=0.9)
    plain, rng, waiting = Plain(station), np.random.default_rng(delay), []
    for t in range(1, 101):
        picks = station.choose()
        expected = plain.indices()
        np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-10)
        assert picks == best(expected, np.ones(4), 2)
        waiting += [(t, station.slot, k) for k in picks if rng.uniform() < 0.8]  # a fifth is never reported
        while waiting and waiting[0][0] <= t - delay:
            _, station.slot, k = waiting.pop(0)
            plain.learn(k, int(rng.integers(0, 2)), rng.uniform(0, 1.4))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"discount": 1.1}, "discount = 1.1: must be a finite number of at least 0, at most 1"),
        ({"discount": -0.1}, "discount = -0.1: must be a finite number of at least 0, at most 1"),
        ({"L": -1}, "L = -1: must be a finite number of at least 0"),
    ],
)
def test_parameters_out_of_bounds_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match=f"^policy mp-ducb: {message}$"):
        ib.policy("mp-ducb", **parameters)
