"""Chains and beliefs of the belief policies: draws, beliefs, counts, forgetting, late feedback."""

import math
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels import two_state_chain
from idleband.kernels.whittle import whittle
from idleband.scenario.markov import stationary
from tests.policies.station import Station

NEVER = 10**9  # slots between draws: longer than any test
THREE = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
# Channels with three, two and one state; state 0 is the good one.
UNLIKE: dict[str, Any] = {
    "transition": [THREE, [[0.9, 0.1], [0.4, 0.6]], [[1.0]]],
    "rewards": [[1.0, 0.1, 0.1], [1.0, 0.1], [1.0]],
    "good": [[0], [0], [0]],
}
TWO: dict[str, Any] = {"p01": [0.1, 0.4, 0.7], "p10": [0.2, 0.5, 0.8]}


def after(P: np.ndarray, s: int, age: int) -> np.ndarray:
    """Return the distribution of the state `age` slots after state s."""
    return np.asarray(np.linalg.matrix_power(P, age)[s])


# --- beliefs ---------------------------------------------------------------------------------------------------------


def test_belief_follows_the_drawn_matrix() -> None:
    """The belief a slots after an observation of state s is row s of P^a, where P is the drawn matrix."""
    for scenario in (TWO, UNLIKE):
        station = Station("mp-belief", M=3, scenario=scenario, redraw=NEVER)
        chains = station.state.chains
        station.choose()
        P, states = chains.P.copy(), [1, 1, 0]
        for k, s in enumerate(states):
            station.learn(k, s)
        for age in range(1, 60):
            station.choose()
            assert np.array_equal(chains.P, P)
            for k, s in enumerate(states):
                S = station.setup.states[k]
                np.testing.assert_allclose(chains.belief[k, :S], after(P[k, :S, :S], s, age), rtol=0, atol=1e-12)


@pytest.mark.parametrize("state", [0, 1])
def test_matrix_is_drawn_every_redraw_slots(state: int) -> None:
    """The matrix of channel k is drawn in the first slot and in slots with (t + k) a multiple of `redraw`.

    The belief is then recomputed with the new matrix from the last observation; it is the stationary distribution if
    there was none.
    """
    station = Station("mp-belief", M=1, scenario=TWO, redraw=7)
    chains, P = station.state.chains, np.zeros((3, 2, 2))
    for t in range(1, 60):
        station.choose()
        for k in range(3):
            assert (not np.array_equal(chains.P[k], P[k])) == (t == 1 or (t + k) % 7 == 0)
            if (t + k) % 7 == 0 or t == 1:
                seen = k == 0 and t > 1
                expected = after(chains.P[k], state, t - 1) if seen else stationary(chains.P[k])
                np.testing.assert_allclose(chains.belief[k], expected, rtol=0, atol=1e-12)
        P = chains.P.copy()
        if t == 1:
            station.learn(0, state)


def test_unobserved_channel_with_more_states_has_the_drawn_belief() -> None:
    """The belief starts uniform and makes one step of the drawn matrix per slot towards its stationary distribution."""
    station = Station("mp-belief", scenario=UNLIKE, redraw=NEVER)
    chains = station.state.chains
    for t in range(1, 40):
        station.choose(available=[0, 0, 0])
        expected = np.full(3, 1 / 3) @ np.linalg.matrix_power(chains.P[0], t)
        np.testing.assert_allclose(chains.belief[0], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chains.belief[0], stationary(chains.P[0]), rtol=0, atol=1e-3)


def test_index_of_a_channel_with_one_state_is_its_drawn_reward() -> None:
    """No matrix is drawn for it, and its index is the drawn reward of its state."""
    for look_ahead in (True, False):
        station = Station("mp-belief", M=2, scenario=UNLIKE, look_ahead=look_ahead, redraw=3)
        for t in range(20):
            station.choose()
            assert station.state.chains.belief[2].tolist() == [1.0, 0.0, 0.0]
            assert station.slot.indices[2] == station.state.pays[2, 0]
            station.learn(2, 0, n=0.0 if t % 2 else 1.5)


def test_skipped_slots_advance_the_belief() -> None:
    """Selecting only in slots 1, 2, 9 and 10 gives the same beliefs as selecting in every slot."""
    for scenario in (TWO, UNLIKE):
        every_slot, some_slots = (Station("mp-belief", M=3, scenario=scenario, redraw=NEVER) for _ in range(2))
        for station in (every_slot, some_slots):
            station.play([1, 0, 0])
        for t in range(2, 11):
            every_slot.choose()
            if t in (2, 9, 10):
                some_slots.t = t - 1
                some_slots.choose()
                belief, expected = some_slots.state.chains.belief, every_slot.state.chains.belief
                np.testing.assert_allclose(belief, expected, rtol=0, atol=1e-12)


def test_repeated_slot_does_not_advance_the_belief() -> None:
    for scenario in (TWO, UNLIKE):
        station = Station("mp-belief", M=3, scenario=scenario, redraw=NEVER)
        station.play([1, 0, 0])
        station.choose()
        before = station.state.chains.belief.copy()
        station.t -= 1
        station.choose()
        assert np.array_equal(station.state.chains.belief, before)


# --- late feedback -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mp-belief", "mp-belief-lucb"])
def test_late_feedback_counts_for_its_slot(name: str) -> None:
    """Feedback of slot 1 after slot 4 has begun gives the beliefs and counts of prompt feedback from slot 5 on."""
    for scenario in (TWO, UNLIKE):
        prompt, late = (Station(name, M=3, scenario=scenario, redraw=NEVER) for _ in range(2))
        prompt.play([1, 0, 0])
        late.choose()
        slot = late.slot
        for station in (prompt, late):
            for _ in range(3):
                station.choose()
        late.slot = slot
        for k, s in enumerate([1, 0, 0]):
            late.learn(k, s)
        prompt.choose()
        late.choose()
        np.testing.assert_allclose(late.state.chains.belief, prompt.state.chains.belief, rtol=0, atol=1e-12)
        for station in (prompt, late):
            for k in range(3):
                station.learn(k, 0)
        assert np.array_equal(late.state.chains.pairs, prompt.state.chains.pairs)


@pytest.mark.parametrize("name", ["mp-belief", "mp-belief-lucb", "mp-ts-episodes", "mp-whittle"])
@pytest.mark.parametrize("behind", [1, 40, 3000])
def test_older_observation_is_ignored(name: str, behind: int) -> None:
    """It is not counted in any bin either; the same holds for a second report of the same slot."""
    station = Station(name, scenario=TWO)
    station.t = 5000
    station.choose()
    old = station.slot._replace(t=station.t - behind)
    station.learn(0, 1)
    last_observation = (
        station.state.chains.last_observation if "belief" in name else station.state.channels.last_observation
    )
    for late in (old, station.slot):
        station.slot = late
        station.learn(0, 0)
        assert (last_observation.state[0], last_observation.slot[0]) == (1, 5001)
    if name == "mp-ts-episodes":
        assert not station.state.posterior.any()
    elif name == "mp-whittle":
        assert (station.state.moves == 1.0).all()
    else:
        assert not station.state.chains.pairs.any()
        assert not station.state.chains.seen.any()


# --- counts ----------------------------------------------------------------------------------------------------------


def test_pairs_are_counted_by_age_and_states() -> None:
    """Pairs are counted by bin, earlier and later state; with three states only pairs of consecutive slots count."""
    station = Station("mp-belief", scenario=UNLIKE)
    pairs, rows = np.zeros((two_state_chain.BINS, 2, 2)), np.zeros((3, 3))
    rng, seen = np.random.default_rng(1), dict[int, tuple[int, int]]()
    for t in range(1, 1200):
        k = int(rng.integers(0, 2))
        station.choose(available=np.arange(3) == k)
        if rng.uniform() < (1.0 if t < 300 else 0.05):
            s = int(rng.integers(0, 3 - k))
            station.learn(k, s)
            if k in seen:
                before, when = seen[k]
                if k == 1:
                    pairs[two_state_chain.bin_of(t - when), before, s] += 1
                elif t - when == 1:
                    rows[before, s] += 1
            seen[k] = s, t
    assert np.array_equal(station.state.chains.pairs[1], pairs)
    assert np.array_equal(station.state.chains.rows[0], rows)
    assert (pairs.sum(axis=(1, 2)) > 0).sum() > 20  # many bins were used
    assert rows.sum() > 50


def test_draws_of_a_channel_with_more_states_are_dirichlet() -> None:
    """With given counts the mean of 4000 draws is (1 + count) / (S + sum), within 5 standard errors."""
    station = Station("mp-belief", scenario=UNLIKE, redraw=1)
    counts = np.array([[7.0, 0.0, 2.0], [1.0, 20.0, 0.0], [0.0, 0.0, 0.0]])
    station.state.chains.rows[0] = counts
    draws = []
    for _ in range(4000):
        station.choose()
        draws.append(station.state.chains.P[0].copy())
    a = counts + 1
    total = a.sum(axis=1, keepdims=True)
    mean = a / total
    deviation = np.sqrt(mean * (1 - mean) / (total + 1))
    assert (np.abs(np.mean(draws, axis=0) - mean) < 5 * deviation / math.sqrt(4000)).all()
    np.testing.assert_allclose(np.std(draws, axis=0), deviation, rtol=0.1)


def test_draws_of_a_channel_with_two_states_are_normal_in_logits() -> None:
    """Mean and covariance of 4000 draws are within 5 standard errors of those of the normal distribution."""
    station = Station("mp-belief", scenario=TWO, redraw=1)
    chains = station.state.chains
    chains.mode[1] = [-1.0, 0.5]
    chains.spread[1] = [0.5, -0.3, 0.4]
    draws = []
    for _ in range(4000):
        station.choose()
        draws.append([chains.P[1, 0, 1], chains.P[1, 1, 0]])
    p = np.array(draws)
    logits = np.log(p / (1 - p))
    root = np.array([[0.5, 0.0], [-0.3, 0.4]])
    z = (logits - [-1.0, 0.5]) @ np.linalg.inv(root).T
    assert (np.abs(z.mean(axis=0)) < 5 / math.sqrt(4000)).all()
    assert (np.abs(np.cov(z.T) - np.eye(2)) < 5 * math.sqrt(2 / 4000)).all()


def test_posterior_is_recomputed_as_observations_arrive() -> None:
    """It is recomputed after 2% more observations, and one, so that its mode stays close to a fit of all of them."""
    station = Station("mp-belief", scenario={"p01": [0.1], "p10": [0.2]})
    rng, chains, s = np.random.default_rng(3), station.state.chains, 0
    for t in range(2000):
        s = int(rng.uniform() < (0.1 if s == 0 else 0.8))
        station.play([s])
        mode, spread = chains.mode.copy(), chains.spread.copy()
        two_state_chain.fit(chains.pairs, chains.ages, 0, mode, spread)
        if t > 50:
            assert np.abs(mode[0] - chains.mode[0]).max() < spread[0, 0]
    np.testing.assert_allclose(chains.mode, mode, rtol=0, atol=0.2 * spread[0, 0])


# --- forgetting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("forget", "redraw"), [(50.0, 10), (3.0, 10), (0.5, 1), (40.0, NEVER), (1.0, 2000)])
def test_counts_are_discounted_by_age(forget: float, redraw: int) -> None:
    """Each observation has weight exp(-age / forget) whenever discounts are applied, also after long gaps."""
    station = Station("mp-belief", scenario=UNLIKE, forget=forget, redraw=redraw)
    rng, seen, counted = np.random.default_rng(5), dict[int, tuple[int, int]](), list[tuple[int, int, Any]]()
    for t in range(1, 3000):
        k = int(rng.integers(0, 2))
        station.choose(available=np.arange(3) == k)
        if t < 500 or t > 2500:
            s = int(rng.integers(0, 3 - k))
            station.learn(k, s)
            if k in seen and (k == 1 or t - seen[k][1] == 1):
                place = (two_state_chain.bin_of(t - seen[k][1]), seen[k][0], s) if k == 1 else (seen[k][0], s)
                counted.append((t, k, place))
            seen[k] = s, t
    chains = station.state.chains
    for k, counts in ((0, chains.rows[0]), (1, chains.pairs[1])):
        expected = np.zeros_like(counts)
        for t, channel, place in counted:
            if channel == k:
                expected[place] += math.exp((t - chains.since[k]) / forget)
        np.testing.assert_allclose(counts, expected, rtol=1e-9, atol=1e-9)
        assert chains.since[k] >= seen[k][1] - max(forget, 1)


def test_forgetting_adapts_to_a_change_of_the_channel() -> None:
    """p01 and p10 are exchanged after 3000 slots.

    1000 slots later the estimate with forgetting is within 4 standard deviations of the new values, and the estimate
    without forgetting is not.
    """
    errors = {}
    for forget in (0.0, 150.0):
        station = Station("mp-belief", scenario={"p01": [0.1], "p10": [0.3]}, forget=forget)
        rng, s = np.random.default_rng(8), 0
        for t in range(4000):
            p01, p10 = (0.1, 0.3) if t < 3000 else (0.3, 0.1)
            s = int(rng.uniform() < (p01 if s == 0 else 1 - p10))
            station.play([s])
        mode, spread = station.state.chains.mode[0], station.state.chains.spread[0]
        deviation = np.array([spread[0], math.hypot(spread[1], spread[2])])
        errors[forget] = np.abs(mode - [math.log(0.3 / 0.7), math.log(0.1 / 0.9)]) / deviation
        assert (deviation < 0.5).all()
    assert (errors[150.0] < 4).all()
    assert (errors[0.0] > 4).all()


# --- indices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look_ahead", [True, False])
def test_index_is_whittle_index_or_probability_of_the_better_state(look_ahead: bool) -> None:
    """The index is low + span w or, with look-ahead, low + span W(w); w is the belief of the state with more reward."""
    station = Station("mp-belief", M=2, scenario=UNLIKE, look_ahead=look_ahead, redraw=4)
    rng, better = np.random.default_rng(2), set()
    for _ in range(200):
        station.choose()
        P, belief, pays = station.state.chains.P[1], station.state.chains.belief[1], station.state.pays[1, :2]
        one = int(pays[1] >= pays[0])
        better.add(one)
        w = belief[one]
        if look_ahead:
            w = whittle(P[1 - one, one], P[one, 1 - one], w)
        assert station.slot.indices[1] == pytest.approx(pays.min() + np.ptp(pays) * w, abs=1e-12)
        # There is no look-ahead with three states.
        three = station.state.chains.belief[0] @ station.state.pays[0]
        assert station.slot.indices[0] == pytest.approx(three, abs=1e-12)
        if station.t > 100:
            for k in (0, 1):
                station.learn(k, int(rng.integers(0, 2)))
    assert better == {0, 1}


def test_sensed_state_determines_the_index() -> None:
    station = Station("mp-belief", M=3, scenario=UNLIKE)
    for sensed in ([2, 1, 0], [0, 0, 0], [1, -1, 0]):
        station.choose(sensed=sensed)
        for k, s in enumerate(sensed):
            assert (station.slot.indices[k] == station.state.pays[k, s]) == (s >= 0)


# --- in simulations -------------------------------------------------------------------------------------------------


def test_posteriors_cover_the_truth() -> None:
    """Check the posteriors of p01 and p10 for 10 channels, 4 scenarios and 8 replications after adaptive selection.

    95% intervals contain the true value in 95% of the pairs, and the mean squared error in units of the posterior
    variance is 1. The bounds are 4 standard errors of 320 independent samples, because the two errors of a channel
    may be fully correlated.
    """
    z = []
    for name in ("S1", "S2", "S3", "S4"):
        scenario = ib.scenario(name, perturbation="none")
        result = ib.simulate(scenario, "mp-belief", horizon=20_000, replications=8, seed=6)
        truth = np.array([[P[0, 1], P[1, 0]] for P in scenario.transition])
        assert result.state is not None
        for state in result.state:
            spread = state.chains.spread
            deviation = np.column_stack([spread[:, 0], np.hypot(spread[:, 1], spread[:, 2])])
            z.append((state.chains.mode - np.log(truth / (1 - truth))) / deviation)
    errors = np.array(z).ravel()
    assert errors.size == 640
    covered = float((np.abs(errors) < 1.96).mean())
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 320)
    assert abs(float((errors**2).mean()) - 1.0) < 4 * math.sqrt(2 / 320)


def test_policies_run_on_channels_with_different_numbers_of_states() -> None:
    """Of channels with one, two and three states, all three policies play almost always the one that is always good."""
    scenario = ib.scenario(**UNLIKE, users=1, context={"dimension": 2}, perturbation="none")
    for name in ("mp-belief", "mp-belief-lucb", "mp-belief-nucb"):
        result = ib.simulate(scenario, name, horizon=3000, replications=2)
        assert (result.plays[:, 2] > 2700).all(), name
