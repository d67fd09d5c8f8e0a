"""MP-UCB, MP-KLUCB, MP-TS and MP-Random compared with their definitions."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from tests.policies.station import ADDITIVE, Station


def played(name: str, scenario: dict[str, object] | None = None, slots: int = 40, **parameters: object) -> Station:
    """Return a station after some slots with random states and perturbations."""
    station = Station(name, K=4, M=2, scenario=scenario, **parameters)
    rng = np.random.default_rng(1)
    for _ in range(slots):
        station.play(rng.integers(0, 2, 4).tolist(), n=rng.uniform(0, 1.4, 4).tolist())
    return station


@pytest.mark.parametrize(("scenario", "span"), [(None, 1.0), (ADDITIVE, 2.4)])
@pytest.mark.parametrize("L", [0.0, 0.3, 1.5])
def test_ucb_index(scenario: dict[str, object] | None, span: float, L: float) -> None:
    station = played("mp-ucb", scenario, L=L)
    plays, total = station.state.plays, station.state.total
    station.choose()
    expected = total / plays + span * np.sqrt(L * math.log(41) / plays)
    np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)


@pytest.mark.parametrize(("clock", "time"), [("slots", 401), ("plays", 800)])
@pytest.mark.parametrize("scenario", [None, ADDITIVE])
def test_klucb_index(scenario: dict[str, object] | None, clock: str, time: int) -> None:
    """After 400 slots with 2 plays each, ln t is that of slot 401 or of 800 plays."""
    station = played("mp-klucb", scenario, slots=400, clock=clock)
    station.choose()
    for k in range(4):
        plays = station.state.plays[k]
        mean = station.state.total[k] / plays
        assert 0 < mean < 1

        def excess(q: float, mean: float = mean, plays: float = plays) -> float:
            kl = mean * math.log(mean / q) + (1 - mean) * math.log((1 - mean) / (1 - q))
            return plays * kl - math.log(time)

        root = brentq(excess, mean, 1 - 1e-15, xtol=1e-14)
        assert abs(station.slot.indices[k] - root) < 1e-9


@pytest.mark.parametrize("name", ["mp-ucb", "mp-klucb", "mp-ts"])
def test_unplayed_channels_come_first_in_channel_order(name: str) -> None:
    station = Station(name, K=5, M=2)
    assert station.play([1] * 5) == [0, 1]
    assert station.play([1] * 5) == [2, 3]
    assert station.play([1] * 5)[-1] == 4


@pytest.mark.parametrize("name", ["mp-klucb", "mp-ts"])
def test_rewards_are_rescaled_to_the_unit_interval(name: str) -> None:
    """Reward 0.1 counts as 0 and 1 as 1; additive rewards are rescaled from the range of the scenario."""
    station = Station(name, K=1, M=1)
    station.play([1])
    station.play([0])
    gained = station.state.total[0] if name == "mp-klucb" else station.state.successes[0] - 1
    assert gained == pytest.approx(1.0)
    station = Station(name, K=1, M=1, scenario=ADDITIVE)
    station.play([1], n=[0.7])  # reward 0.3 in [-1.4, 1]
    gained = station.state.total[0] if name == "mp-klucb" else station.state.successes[0] - 1
    assert gained == pytest.approx(1.7 / 2.4)


def test_thompson_sampling_draws_from_the_posterior() -> None:
    """After 3 successes and 1 failure draws are Beta(4, 2): Kolmogorov-Smirnov test at level 1e-6, fixed seed."""
    station = Station("mp-ts", K=2, M=2)
    for s in (1, 1, 1, 0):
        station.play([s, 0])
    draws = []
    for _ in range(3000):
        station.choose()
        draws.append(station.slot.indices.copy())
    sample = np.array(draws)
    assert stats.kstest(sample[:, 0], stats.beta(4, 2).cdf).pvalue > 1e-6
    assert stats.kstest(sample[:, 1], stats.beta(1, 5).cdf).pvalue > 1e-6


def test_random_picks_every_set_equally_often() -> None:
    """Chi-square test of the 10 pairs of 5 channels at level 1e-6, fixed seed; only available channels are selected."""
    station = Station("mp-random", K=5, M=2)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(5000):
        pick = tuple(station.choose())
        counts[pick] = counts.get(pick, 0) + 1
    assert len(counts) == 10
    assert stats.chisquare(list(counts.values())).pvalue > 1e-6
    for _ in range(50):
        assert station.choose(available=[0, 1, 0, 1, 0]) == [1, 3]
        assert set(station.choose(available=[1, 0, 1, 0, 1])) < {0, 2, 4}
