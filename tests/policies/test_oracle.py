"""Oracles: indices by definition, rewards in simulations, and that only oracles receive the true parameters."""

import inspect
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.whittle import whittle
from idleband.policies import oracle
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import PARAMETERS
from idleband.policies.registry import POLICIES
from idleband.scenario.reward import REWARDS, expected_reward, reward
from idleband.scenario.upper_bound import bound
from idleband.simulation.path import new_path, new_tally, path_parameters
from idleband.simulation.statistics import paired_difference, student_t
from tests.contracts.configurations import THREE_STATES
from tests.policies.station import Station

TWO: dict[str, Any] = {"p01": [0.1, 0.3, 0.6, 0.3], "p10": [0.2, 0.1, 0.9, 0.5]}
# A channel with three states of which the first is good, a channel with two states, and one that is always good.
UNLIKE: dict[str, Any] = {
    "transition": [[[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]], [[0.9, 0.1], [0.4, 0.6]], [[1.0]]],
    "rewards": [[1.0, 0.1, 0.1], [0.1, 1.0], [1.0]],
    "good": [[0], [1], [0]],
}
ADDITIVE_S4: dict[str, Any] = {"reward": "additive", "perturbation": {"theta": [0.1] * 8}}
ADDITIVE = {"reward": "additive", "perturbation": {"theta": [0.4, 0.6]}}
LEVELS = [-0.2, 0.0, 0.3, 0.999, 1.0, 1.7]  # bad states have the full reward below n = 0, good ones below n = 1


def distribution_after(station: Station, k: int, s: int, age: int) -> np.ndarray:
    """Return the distribution of the state of channel k `age` slots after state s."""
    return np.asarray(np.linalg.matrix_power(station.scenario.transition[k], age)[s])


def rewards_of(station: Station, k: int, n: float) -> np.ndarray:
    """Return the reward of each state of channel k under perturbation n."""
    kind = REWARDS.index(station.scenario.reward)
    count = len(station.scenario.transition[k])
    return np.array([reward(kind, station.setup.h[k, s], station.setup.good[k, s], n) for s in range(count)])


# --- indices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [TWO, UNLIKE, TWO | ADDITIVE])
def test_static_ranks_by_mean_rewards_only(scenario: dict[str, Any]) -> None:
    station = Station("oracle-static", scenario=scenario)
    K = station.setup.K
    means, _ = station.scenario.mean_rewards(station.scenario.theta(0, 0))
    for t in range(5):
        picks = station.play([t % len(P) for P in station.scenario.transition], n=[0.3 * t] * K, sensed=[0] * K)
        assert picks == [int(means.argmax())]
        np.testing.assert_array_equal(station.slot.indices, means)


@pytest.mark.parametrize("scenario", [TWO, UNLIKE, TWO | ADDITIVE])
def test_contextual_ranks_by_the_reward_expected_from_the_context_alone(scenario: dict[str, Any]) -> None:
    station = Station("oracle-contextual", scenario=scenario)
    K, built = station.setup.K, station.scenario
    kind = REWARDS.index(built.reward)
    for n in LEVELS:
        station.play([0] * K, n=[n] * K, sensed=[0] * K)  # observations do not matter
        expected = [expected_reward(kind, built.mean_h[k], built.good_shares[k], n) for k in range(K)]
        np.testing.assert_allclose(station.slot.indices, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scenario", [TWO, UNLIKE, UNLIKE | ADDITIVE])
def test_belief_is_a_row_of_a_matrix_power(scenario: dict[str, Any]) -> None:
    """index = sum_j (P^age)_sj r(j, n) at any age; the largest age stands for all later ones, within 1e-5.

    A channel without observations has its stationary distribution.
    """
    station = Station("oracle-belief", scenario=scenario)
    K, seen = station.setup.K, dict[int, tuple[int, int]]()
    rng = np.random.default_rng(2)
    for t in range(1, 200):
        n = rng.choice(LEVELS, K)
        picks = station.choose(n=n, available=np.arange(K) == rng.integers(0, K) if t % 10 == 0 else np.zeros(K))
        for k in range(K):
            model = (
                distribution_after(station, k, seen[k][0], t - seen[k][1])
                if k in seen
                else station.scenario.stationary_distributions[k]
            )
            assert station.slot.indices[k] == pytest.approx(model @ rewards_of(station, k, n[k]), abs=2e-5)
            if k in seen and t - seen[k][1] <= 5:
                assert station.slot.indices[k] == pytest.approx(model @ rewards_of(station, k, n[k]), abs=1e-12)
        for k in picks:
            seen[k] = int(rng.integers(0, len(station.scenario.transition[k]))), t
            station.learn(k, seen[k][0])
    assert len(seen) == K


@pytest.mark.parametrize("name", ["oracle-whittle", "whittle"])
def test_whittle_index_equals_the_closed_form_for_two_states(name: str) -> None:
    """With two states and one perturbation level it is LOW + (HIGH - LOW) W(belief), within the step of 257 charges."""
    station = Station(name, K=4, M=4, scenario=TWO)
    station.choose(n=[0.0] * 4)
    for k, s in enumerate([0, 1, 0, 1]):
        station.learn(k, s)
    for age in range(1, 30):
        station.choose(n=[0.0] * 4)
        for k, s in enumerate([0, 1, 0, 1]):
            w = distribution_after(station, k, s, age)[1]
            expected = 0.1 + 0.9 * whittle(TWO["p01"][k], TWO["p10"][k], w)
            assert station.slot.indices[k] == pytest.approx(expected, abs=3e-3)


def test_whittle_without_contexts_uses_the_average_perturbation() -> None:
    """Theta 2 reduces the reward in half of the slots and theta 1.25 in a fifth; the index uses the average."""
    scenario = {**TWO, "context": {"dimension": 1}, "perturbation": {"theta": [[2.0], [2.0], [1.25], [1.25]]}}
    station = Station("whittle", K=4, M=4, scenario=scenario)
    station.choose(n=[0.0] * 4)
    for k in range(4):
        station.learn(k, 0)
    for n in ([0.0] * 4, [1.2] * 4):
        age = station.t
        station.choose(n=n)
        for k, clear in enumerate([0.5, 0.5, 0.8, 0.8]):
            w = distribution_after(station, k, 0, age)[1]
            expected = 0.1 + 0.9 * clear * whittle(TWO["p01"][k], TWO["p10"][k], w)
            assert station.slot.indices[k] == pytest.approx(expected, abs=3e-3)


def test_whittle_index_includes_the_gain_of_an_observation() -> None:
    """Of two unobserved channels that are good in half of the slots, one changes slowly and one independently.

    Their beliefs are equal, but an observation of the slow one shows whether to keep playing it.
    """
    scenario = {"p01": [0.05, 0.5], "p10": [0.05, 0.5]}
    belief, whittle_index = (Station(name, K=2, M=1, scenario=scenario) for name in ("oracle-belief", "oracle-whittle"))
    for station in (belief, whittle_index):
        station.choose(n=[0.0, 0.0])
    np.testing.assert_allclose(belief.slot.indices, 0.55, rtol=0, atol=1e-9)
    assert whittle_index.slot.indices[1] == pytest.approx(0.55, abs=3e-3)
    assert whittle_index.slot.indices[0] > 0.8


@pytest.mark.parametrize("scenario", [TWO, UNLIKE, UNLIKE | ADDITIVE])
@pytest.mark.parametrize("name", ["genie", "oracle-belief", "oracle-whittle"])
def test_index_of_a_sensed_state_is_its_reward(scenario: dict[str, Any], name: str) -> None:
    station = Station(name, scenario=scenario)
    K = station.setup.K
    for s, n in [(0, 0.3), (1, 0.3), (0, -0.1), (1, 1.2)]:
        states = [min(s, len(P) - 1) for P in station.scenario.transition]
        station.play(states, sensed=states, n=[n] * K)
        expected = [rewards_of(station, k, n)[states[k]] for k in range(K)]
        np.testing.assert_allclose(station.slot.indices, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name, p in POLICIES.items() if PARAMETERS in p.knows])
def test_oracles_select_available_channels_and_break_ties_by_lowest_index(name: str) -> None:
    station = Station(name, K=4, M=2, scenario={"p01": [0.3] * 4, "p10": [0.3] * 4})
    sensed = [1] * 4 if name == "genie" else None
    assert station.choose(n=[0.2] * 4, sensed=sensed) == [0, 1]
    assert station.choose(n=[0.2] * 4, sensed=sensed, available=[0, 0, 1, 1]) == [2, 3]
    assert station.choose(n=[0.2] * 4, sensed=sensed, available=[0, 0, 0, 1]) == [3]
    assert station.choose(n=[0.2] * 4, sensed=sensed, available=[0] * 4) == []


def test_belief_breaks_ties_of_equal_rewards_by_lowest_index() -> None:
    """A perturbation above 1 leaves 0.1 in every state, and one below 0 leaves 1, whatever the beliefs are.

    With p01 + p10 = 1 the last observation says nothing, so beliefs that were reached in different ways are equal.
    """
    for p01, p10, levels in (
        ([0.17, 0.31, 0.59, 0.73], [0.29, 0.13, 0.83, 0.07], (1.2, -0.1)),
        ([0.1] * 4, [0.9] * 4, (0.5,)),
    ):
        station = Station("oracle-belief", K=4, M=2, scenario={"p01": p01, "p10": p10})
        rng = np.random.default_rng(3)
        for _ in range(60):
            explored = np.isin(np.arange(4), rng.integers(0, 4, 2))
            station.play(rng.integers(0, 2, 4).tolist(), n=[0.5] * 4, available=explored)
            for n in levels:
                assert station.choose(n=[n] * 4) == [0, 1]


@pytest.mark.parametrize("name", ["oracle-belief", "oracle-whittle"])
def test_older_observation_is_ignored(name: str) -> None:
    """After late feedback of slot 1 the index still uses the observation of slot 2."""
    prompt, late = (Station(name, K=1, M=1, scenario={"p01": [0.1], "p10": [0.2]}) for _ in range(2))
    prompt.choose(n=[0.0])
    prompt.play([1], n=[0.0])
    late.choose(n=[0.0])
    first = late.slot
    late.play([1], n=[0.0])
    late.slot = first
    late.learn(0, 0)
    prompt.choose(n=[0.0])
    late.choose(n=[0.0])
    assert late.slot.indices.tolist() == prompt.slot.indices.tolist()


# --- in simulations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [ib.scenario("S1"), ib.scenario(THREE_STATES), ib.scenario("S4", **ADDITIVE_S4)])
def test_contextual_earns_its_reference_on_average(scenario: ib.Scenario) -> None:
    """The reference is E[r | x] of the same channels on the same contexts.

    The mean of 40 differences is within 4 standard errors of 0, and the standard error is below 1% of the reward.
    """
    result = ib.simulate(scenario, "oracle-contextual", horizon=2000, replications=40, seed=1)
    regret = result.regret("contextual")[:, -1]
    error = regret.std(ddof=1) / np.sqrt(40)
    assert abs(regret.mean()) < 4 * error
    assert error < 0.01 * result.reward[:, -1].mean()
    assert not result.curves["suboptimal_contextual"].any()


@pytest.mark.parametrize("settings", [{}, {"reward": "additive"}, {"availability": [[1] * 10, [0, 1] * 5]}])
def test_genie_earns_its_reference_exactly(settings: dict[str, Any]) -> None:
    for name in ("S1", "S4"):
        result = ib.simulate(ib.scenario(name, **settings), "genie", horizon=3000, replications=2)
        np.testing.assert_allclose(result.regret("genie"), 0.0, rtol=0, atol=1e-8)


def test_genie_earns_its_reference_exactly_with_more_states() -> None:
    result = ib.simulate(ib.scenario(THREE_STATES), "genie", horizon=3000, replications=2)
    np.testing.assert_allclose(result.regret("genie"), 0.0, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["oracle-belief", "oracle-whittle"])
def test_oracles_equal_the_genie_with_all_states_sensed(name: str) -> None:
    scenario = ib.scenario("S3", sensing="all")
    one, genie = (ib.simulate(scenario, policy, horizon=3000, replications=2) for policy in (name, "genie"))
    assert np.array_equal(one.plays, genie.plays)
    assert np.array_equal(one.reward, genie.reward)


def test_static_always_plays_the_best_set() -> None:
    """Of channels with equal means (ch1 and ch2 of S2, ch3 and ch10 of S4) the lower index is played."""
    for name in ("S1", "S2", "S3", "S4"):
        for users in (5, 9):
            scenario = ib.scenario(name, users=users, perturbation="none")
            result = ib.simulate(scenario, "oracle-static", horizon=500, replications=1)
            assert np.flatnonzero(result.plays[0]).tolist() == scenario.best(scenario.table_means)
            assert (result.plays[0][result.plays[0] > 0] == 500).all()
            assert not result.curves["suboptimal_static"].any()


def test_static_follows_availability() -> None:
    scenario = ib.scenario("S1", users=2, availability=[[1] * 10, [1] * 9 + [0], [1, 1, 1] + [0] * 7])
    result = ib.simulate(scenario, "oracle-static", horizon=300, replications=1)
    # The best channels are ch10 and ch8; without ch10 ch8 and ch9; of the first three ch3 and ch2.
    assert result.plays[0].tolist() == [0, 100, 100, 0, 0, 0, 0, 200, 100, 100]
    assert not result.curves["suboptimal_static"].any()


@pytest.fixture(scope="module")
def earned() -> dict[tuple[str, str], dict[str, Any]]:
    """Rewards per slot of the oracles in every preset with and without perturbation, 6 replications."""
    found = {}
    for model in ("none", "linear"):
        for preset in ("S1", "S2", "S3", "S4"):
            scenario = ib.scenario(preset, perturbation=model)
            found[preset, model] = {
                name: ib.simulate(scenario, name, horizon=20_000, replications=6, seed=4).reward[:, -1] / 20_000
                for name in ("oracle-static", "oracle-contextual", "oracle-belief", "oracle-whittle", "genie")
            }
    return found


SCENARIOS = [(preset, model) for model in ("none", "linear") for preset in ("S1", "S2", "S3", "S4")]


@pytest.mark.parametrize(("preset", "model"), SCENARIOS)
def test_oracles_with_more_information_earn_no_less(earned: Any, preset: str, model: str) -> None:
    """static <= contextual <= belief <= genie, within the 99.9% interval of paired differences.

    The difference is positive where the additional information matters: contexts if there is a perturbation, and
    observations if slots are not independent.
    """
    found = earned[preset, model]
    order = ["oracle-static", "oracle-contextual", "oracle-belief", "genie"]
    more = [model == "linear", preset != "S2", True]
    for less, better, clearly in zip(order[:-1], order[1:], more, strict=True):
        gain = paired_difference(found[better], found[less], level=0.999)
        assert gain.high >= 0.0, (less, better)
        if clearly:
            assert gain.low > 0.0, (less, better)
        else:
            np.testing.assert_allclose(found[better], found[less], rtol=1e-3)


@pytest.mark.parametrize(("preset", "model"), SCENARIOS)
def test_policies_that_observe_played_channels_stay_below_the_upper_bound(earned: Any, preset: str, model: str) -> None:
    """No mean exceeds it beyond its 99.9% interval, except the genie's; oracle-whittle comes within 4% of it."""
    scenario = ib.scenario(preset, perturbation=model)
    bounds = [bound(scenario, None if model == "none" else scenario.theta(4, i)) for i in range(6)]
    for name, rewards in earned[preset, model].items():
        mean, half = student_t(rewards - np.array(bounds, float), level=0.999)
        if name != "genie":
            assert mean - half <= 0.0, name
        if name == "oracle-whittle":
            assert mean > -0.04 * max(map(float, filter(None, bounds)))


# --- other policies --------------------------------------------------------------------------------------------------


def test_only_oracles_receive_the_truth() -> None:
    """The init of other policies takes no truth, and their runs hide the perturbations."""
    scenario = ib.scenario("S2")
    theta, means = path_parameters(scenario, 0, 0)
    for name, one in POLICIES.items():
        is_oracle = PARAMETERS in one.knows
        assert is_oracle == (one.init is oracle.init), name
        assert ("truth" in inspect.signature(one.init).parameters) == is_oracle, name
        tally = new_tally(scenario, new_path(scenario, 0, 0, theta), means, 1, one.knows)
        assert tally.sees_perturbations == is_oracle
        assert is_oracle or np.isnan(tally.hidden_perturbations).all()


def test_user_policy_sees_nan_where_oracles_see_the_perturbation() -> None:
    @ib.register(name="spy")
    class Spy:
        """Record what the slot contains."""

        def init(setup):  # type: ignore[no-untyped-def]
            return np.zeros(setup.K), np.zeros(setup.K, np.int64)

        def select(setup, state, slot, picks):  # type: ignore[no-untyped-def]
            for k in range(setup.K):  # without slices, which would compile with an allocation only
                state[0][k], state[1][k] = slot.perturbations[k], slot.sensed[k]
            for m in range(setup.M):
                picks[m] = m
            return setup.M

        def update(setup, state, slot, feedback):  # type: ignore[no-untyped-def]
            pass

    result = ib.simulate("S1", "spy", horizon=50, replications=1)
    assert result.state is not None
    n, sensed = result.state[0]
    assert np.isnan(n).all()
    assert (sensed == -1).all()


def test_tables_that_need_too_much_memory_are_refused() -> None:
    """Tables of slow channels, for the largest number of channels of a scenario."""
    scenario = ib.scenario(p01=[0.001] * 2, p10=[0.001] * 2, users=1, perturbation="none", reward="additive")
    configured, many = ib.policy("oracle-whittle"), 100_000
    setup, truth = setup_of(scenario, configured.params), truth_of(scenario, *path_parameters(scenario, 0, 0))
    pay = np.broadcast_to(truth.pay[:1], (many, 64, 2))
    huge = truth._replace(P=np.broadcast_to(truth.P[:1], (many, 2, 2)), pay=pay)
    with pytest.raises(ib.InputError, match=r"oracle-whittle: its tables would take \d+ GiB for 100000 channels"):
        configured.policy.init(setup._replace(K=many), huge)


def test_oracle_belief_is_not_below_mp_belief_on_slow_channels() -> None:
    """Two channels change every 2000 slots on average, and a third one is often bad and changes fast.

    oracle-belief earns at least as much as mp-belief, up to four standard errors of the difference.
    """
    scenario = ib.scenario(p01=[5e-4, 5e-4, 0.3], p10=[5e-4, 5e-4, 0.7], users=1, perturbation="none")
    study = ib.compare(scenario, ["oracle-belief", "mp-belief"], horizon=50_000, replications=4, seed=1)
    lead = study.results[0].reward[:, -1] - study.results[1].reward[:, -1]
    assert lead.mean() > -4 * lead.std(ddof=1) / 2
    assert study["oracle-belief"].reward[:, -1].mean() > 0.6 * 50_000
