"""Sensing errors in belief policies: Bayes' rule, estimation of chains, and what is earned."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from idleband.kernels.two_state_chain import AGES, BINS, LEVELS, UNIFORM, add_pair, fit_posterior, given, later
from idleband.kernels.whittle import whittle
from idleband.policies.sensing_errors import idle_given, observed_idle, truly_idle
from tests.policies.station import Station

Ints = npt.NDArray[np.int64]

P01, P10 = [0.02, 0.04, 0.06, 0.5, 0.8, 0.9], [0.03, 0.04, 0.05, 0.4, 0.7, 0.9]  # channels of S4


def station_with_errors(name: str, missed: float, false_alarm: float, **settings: Any) -> Station:
    station = Station(name, M=2, scenario={"p01": P01, "p10": P10}, **settings)
    K = station.setup.K
    errors = {"missed": np.full(K, missed), "false_alarm": np.full(K, false_alarm)}
    station.setup = station.setup._replace(**errors)
    station.state = station.configured.policy.init(station.setup)
    return station


def simulated(slots: int, missed: float, false_alarm: float, seed: int) -> tuple[Ints, Ints]:
    """Return true and observed states, (slots, K)."""
    rng, up, down = np.random.default_rng(seed), np.array(P01), np.array(P10)
    states, observed = np.zeros((2, slots, len(P01)), np.int64)
    now = rng.random(len(up)) < up / (up + down)
    for t in range(slots):
        u = rng.random(len(up))
        now = np.where(now, u >= down, u < up)
        states[t] = now
        observed[t] = rng.random(len(up)) < np.where(now, 1 - false_alarm, missed)
    return states, observed


def filter_rewards(states: Ints, observed: Ints, missed: float, false_alarm: float) -> float:
    """Return the idle channels per slot of a policy that knows all parameters: exact filter, Whittle index, M = 2."""
    belief, total = [a / (a + b) for a, b in zip(P01, P10, strict=True)], 0
    for t in range(len(states)):
        belief = [later(a, b, w, 1) for a, b, w in zip(P01, P10, belief, strict=True)]
        indices = [whittle(a, b, w) for a, b, w in zip(P01, P10, belief, strict=True)]
        for k in np.argsort(indices)[-2:]:
            total += states[t, k]
            belief[k] = given(belief[k], (missed, 1 - false_alarm), int(observed[t, k]))
    return total / len(states)


@pytest.mark.parametrize("name", ["mp-belief", "mp-adaptive"])
def test_reward_is_97_percent_of_that_of_a_filter_with_all_parameters(name: str) -> None:
    """From slot 2000 on, with 10% errors of both kinds. The standard deviation over seeds is 0.6%."""
    states, observed = simulated(8000, 0.1, 0.1, seed=2)
    station = station_with_errors(name, 0.1, 0.1)
    total = 0
    for t in range(8000):
        picks = station.choose()
        for k in picks:
            station.learn(k, int(observed[t, k]))
        total += states[t, picks].sum() if t >= 2000 else 0
    assert total / 6000 > 0.97 * filter_rewards(states[2000:], observed[2000:], 0.1, 0.1)


def test_belief_is_that_of_an_exact_filter() -> None:
    """The filter of mp-belief uses the modes of its chains at the time of each observation."""
    station = station_with_errors("mp-belief", 0.1, 0.2, look_ahead=False)
    chains, rng = station.state.chains, np.random.default_rng(4)
    belief, seen = np.full(6, np.nan), np.zeros(6, int)
    for t in range(1, 500):
        picks = station.choose()
        for k in picks:
            s = int(rng.random() < 0.6)
            before = belief[k]
            gap = t - seen[k]
            station.learn(k, s)
            p01, p10 = expit(chains.mode[k])
            prior = p01 / (p01 + p10) if np.isnan(before) else later(p01, p10, before, gap)
            good, bad = (0.8, 0.1) if s else (0.2, 0.9)
            belief[k] = prior * good / (prior * good + (1 - prior) * bad)
            seen[k] = t
            assert chains.belief[k, 1] == pytest.approx(belief[k], abs=1e-12)


@pytest.mark.parametrize(("p01", "p10", "gap"), [(0.04, 0.03, 1), (0.05, 0.1, 7), (0.6, 0.3, 1)])
def test_chain_is_estimated_without_bias(p01: float, p10: float, gap: int) -> None:
    """From 6000 observations with 10% errors, within 3.5 standard deviations; more than 0.1 in logits is not needed."""
    rng, missed, false_alarm = np.random.default_rng(5), 0.1, 0.1
    pairs = np.zeros((1, BINS, len(LEVELS), 2))
    state, w = 1, p01 / (p01 + p10)
    for _ in range(6000):
        for _ in range(gap):
            state = int(rng.random() >= p10) if state else int(rng.random() < p01)
        observed = int(rng.random() < (1 - false_alarm if state else missed))
        add_pair(pairs, 0, gap, w, observed, 1.0)
        w = given(later(p01, p10, w, gap), (missed, 1 - false_alarm), observed)
    mode, spread = np.zeros((1, 2)), np.zeros((1, 3))
    fit_posterior(pairs, AGES, 0, mode, spread, UNIFORM, (missed, 1 - false_alarm))
    assert pairs.sum() == pytest.approx(6000)
    deviations = spread[0, 0], float(np.hypot(spread[0, 1], spread[0, 2]))
    for found, true, deviation in zip(mode[0], (p01, p10), deviations, strict=True):
        assert abs(found - np.log(true / (1 - true))) < 3.5 * deviation
        assert deviation < 0.5


def test_pairs_between_two_levels_keep_their_mean() -> None:
    pairs = np.zeros((1, BINS, len(LEVELS), 2))
    for w in (0.0, 0.001, 0.3, 0.9999, 1.0):
        pairs[:] = 0.0
        add_pair(pairs, 0, 3, w, 1, 2.0)
        assert pairs[0, 2, :, 1].sum() == pytest.approx(2.0)
        assert pairs[0, 2, :, 1] @ LEVELS == pytest.approx(2.0 * w)


def test_probabilities_of_observations() -> None:
    station = station_with_errors("mp-belief", 0.1, 0.3)
    setup = station.setup
    assert observed_idle(setup, 0, 1.0) == pytest.approx(0.7)
    assert observed_idle(setup, 0, 0.0) == pytest.approx(0.1)
    assert truly_idle(setup, 0, observed_idle(setup, 0, 0.42)) == pytest.approx(0.42)
    assert [truly_idle(setup, 0, p) for p in (0.05, 0.9)] == [0.0, 1.0]
    assert idle_given(setup, 0, 0.5, 1) == pytest.approx(0.7 / 0.8)
    reversed_setup = setup._replace(good=setup.good[:, ::-1].copy())
    assert idle_given(reversed_setup, 0, 0.5, 0) == pytest.approx(0.7 / 0.8)
    none = setup._replace(missed=np.zeros(6), false_alarm=np.zeros(6))
    assert [idle_given(none, 0, 0.5, s) for s in (0, 1)] == [0.0, 1.0]
    assert truly_idle(none, 0, 0.42) == observed_idle(none, 0, 0.42) == 0.42


def test_sensed_states_are_weighed_against_the_belief() -> None:
    """Channels 0 and 1 are idle for long and observed as busy once; the others the reverse. Beliefs prevail."""
    for name in ("mp-belief", "mp-adaptive"):
        station = station_with_errors(name, 0.3, 0.3)
        for _ in range(400):
            for k in station.choose():
                station.learn(k, int(k < 2))
        only = np.array([1, 1, 1, 0, 0, 0], bool)
        for _ in range(60):
            for k in station.choose(available=only):
                station.learn(k, int(k < 2))
        assert station.choose(sensed=[0, 0, 1, 1, 1, 1], available=only) == [0, 1], name
