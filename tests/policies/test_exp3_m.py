"""Exp3.M: probabilities, the cap, dependent rounding, and updates of the weights."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from idleband.kernels.rng import POLICY, stream
from idleband.policies import exp3_m
from tests.policies.station import Station


def test_cap_of_a_worked_example() -> None:
    """Four channels, two plays, gamma = 0.2 and weights 10, 1, 1, 1.

    1/2 - 0.2/4 = 0.45, and 0.8 10 > 0.45 13, so the first is capped at 0.45 3 / (0.8 - 0.45) = 27/7. Its probability is
    1, that of the others 2 (0.8 / (27/7 + 3) + 0.05) = 1/3.
    """
    station = Station("exp3-m", K=4, M=2, gamma=0.2)
    station.state.log_weight[0] = math.log(10)
    station.choose()
    np.testing.assert_allclose(station.slot.indices, [1, 1 / 3, 1 / 3, 1 / 3], rtol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.01, 0.3, 1.0])
def test_probabilities_equal_their_definition(gamma: float) -> None:
    """The cap is found by another method: as the root of p = 1. Weights are equal, close, or many powers apart."""
    K, M, rng = 7, 3, np.random.default_rng(4)
    station = Station("exp3-m", K=K, M=M, gamma=gamma)
    used = gamma or max(1e-6, math.sqrt(K * math.log(K / M) / ((math.e - 1) * M * 100_000)))
    for scale in (0.0, 0.1, 1.0, 3.0, 30.0):
        log_weight = scale * rng.standard_normal(K)
        station.state.log_weight[:] = log_weight
        picks = station.choose()
        weights = np.exp(log_weight - log_weight.max())

        def shares(cap: float, weights: np.ndarray = weights) -> np.ndarray:
            capped = np.minimum(weights, cap)
            return M * ((1 - used) * capped / capped.sum() + used / K)

        def excess(log_cap: float) -> float:
            return float(shares(math.exp(log_cap)).max()) - 1.0

        largest = math.exp(brentq(excess, -700, 0, xtol=1e-13)) if excess(0.0) > 0 else 1.0
        np.testing.assert_allclose(station.slot.indices, shares(largest), rtol=1e-6, atol=1e-9)
        assert station.slot.indices.sum() == pytest.approx(M)
        assert len(picks) == M


def test_dependent_rounding_has_the_given_probabilities() -> None:
    """In each of 20,000 draws exactly three channels are chosen; shares are within 5 standard errors."""
    p = np.array([[0.9, 0.25, 1.0, 0.35, 0.0, 0.3, 0.2]])
    rng, chosen, total = stream(0, 0, POLICY), np.zeros(7, np.bool_), np.zeros(7)
    for _ in range(20_000):
        exp3_m.round_dependently(p, 0, rng, chosen)
        assert chosen.sum() == 3
        total += chosen
    error = np.sqrt(p[0] * (1 - p[0]) / 20_000)
    assert (np.abs(total / 20_000 - p[0]) <= 5 * error).all()


def test_weights_equal_recomputed_weights() -> None:
    """log w_k grows by M gamma r / (K p_k), except where p_k is 1; feedback comes later and later."""
    K, M, gamma = 5, 2, 0.4
    station = Station("exp3-m", K=K, M=M, gamma=gamma)
    rng, log_weight = np.random.default_rng(8), np.zeros(K)
    waiting = []
    capped = late = 0
    for _ in range(400):
        picks = station.choose()
        waiting.append((station.slot, station.slot.indices.copy(), picks))
        while waiting and rng.uniform() < 0.44:
            slot, p, played = waiting.pop(0)
            station.slot = slot
            for k in played:
                s = int(rng.uniform() < (0.9 if k == 3 else 0.2))
                station.learn(k, s)
                if station.t - slot.t >= exp3_m.MEMORY:
                    late += 1
                elif p[k] < 1.0:
                    log_weight[k] += M * gamma * s / (K * p[k])
                else:
                    capped += 1
        np.testing.assert_allclose(station.state.log_weight, log_weight, rtol=1e-12)
    assert min(capped, late) > 5


def test_only_available_channels_count() -> None:
    station = Station("exp3-m", K=4, M=2, gamma=0.1)
    picks = {tuple(station.choose(available=[1, 0, 1, 1])) for _ in range(100)}
    assert picks == {(0, 2), (0, 3), (2, 3)}
    np.testing.assert_allclose(station.slot.indices, [2 / 3, 0, 2 / 3, 2 / 3])
    assert station.choose(available=[0, 1, 0, 1]) == [1, 3]
    station.learn(1, 1)
    assert not station.state.log_weight.any()  # there was no choice
    assert station.choose(available=[0] * 4) == []


def test_finds_the_best_channels() -> None:
    """Two of four channels are good in every slot; after 3000 slots they are nearly always played."""
    station = Station("exp3-m", K=4, M=2, slots=3000)
    plays = np.zeros(4)
    for _ in range(3000):
        plays[station.play([0, 1, 0, 1])] += 1
    assert plays[[1, 3]].min() > 2600
    assert station.slot.indices[[1, 3]].min() > 0.95
