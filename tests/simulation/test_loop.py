"""Recorded curves against a recount from single slots, observations of policies, checkpoints and references."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

import idleband as ib
from idleband.scenario.upper_bound import bound
from idleband.simulation.loop import REFERENCES
from idleband.simulation.path import checkpoints
from idleband.simulation.run import PolicyRun, ReferenceRun
from tests.contracts.configurations import CONFIGURED, SCENARIOS

SLOTS = 150


def m_largest(values: np.ndarray, m: int) -> np.ndarray:
    """Return the m largest values."""
    return np.sort(values)[::-1][:m]


@pytest.mark.parametrize("where", SCENARIOS)
@pytest.mark.parametrize("label", ["mp-random", "mp-lucb"])
def test_curves_equal_a_recount_from_recorded_slots(where: str, label: str) -> None:
    scenario = SCENARIOS[where]
    result = ib.simulate(scenario, CONFIGURED[label], horizon=SLOTS, replications=1, seed=4, record="slots")
    assert result.slots is not None
    mu, _ = scenario.mean_rewards(scenario.theta(4, 0))
    table = scenario.table_means
    M = scenario.users
    totals = dict.fromkeys(result.curves, 0.0)
    for _, slot in result.slots.groupby("t"):
        available = slot.available.to_numpy()
        picked = slot.picked.to_numpy()
        n, state, good = slot.perturbation.to_numpy(), slot.state.to_numpy(), slot.good.to_numpy()
        h = np.array([scenario.rewards[k][state[k]] for k in range(scenario.K)])
        r = h - n if scenario.reward == "additive" else np.where(good - n > 0, 1.0, 0.1)
        expected = slot.expected_reward.to_numpy()
        reward = r[picked].sum()
        totals["reward"] += reward
        totals["regret_static"] += m_largest(mu[available], M).sum() - reward
        totals["regret_contextual"] += m_largest(expected[available], M).sum() - reward
        totals["regret_genie"] += m_largest(r[available], M).sum() - reward
        totals["regret_table"] += m_largest(table[available], M).sum() - table[picked].sum()
        totals["collisions"] += (~good[picked]).sum()
        for name, values in (("suboptimal_static", mu), ("suboptimal_contextual", expected)):
            better = [(values[available] > values[k] + 1e-12).sum() for k in np.flatnonzero(picked)]
            totals[name] += sum(count >= M for count in better)
    upper_bound = bound(scenario, scenario.theta(4, 0))
    totals["regret_bound"] = math.nan if upper_bound is None else SLOTS * upper_bound - totals["reward"]
    for name, total in totals.items():
        assert result.curves[name][0, -1] == pytest.approx(total, abs=1e-8, nan_ok=True), name


class Observed(NamedTuple):
    """What a policy observed."""

    inputs: np.ndarray  # (3,) K, M and d
    x: np.ndarray  # (slots, K, d)
    sensed: np.ndarray  # (slots, K)
    feedback: np.ndarray  # (slots, K, 3) s, r and n of selected channels


class Witness:
    "Records what it observes and selects different channels in every slot."

    def init(setup):  # type: ignore[no-untyped-def]
        K, d = setup.K, setup.d
        return Observed(
            np.array([K, setup.M, d]),
            np.zeros((SLOTS, K, d)),
            np.zeros((SLOTS, K), np.int64),
            np.full((SLOTS, K, 3), np.inf),
        )

    def select(setup, state, slot, picks):  # type: ignore[no-untyped-def]
        for k in range(setup.K):
            state.sensed[slot.t - 1, k] = slot.sensed[k]
            for i in range(setup.d):
                state.x[slot.t - 1, k, i] = slot.contexts[k, i]
        for m in range(setup.M):
            picks[m] = (slot.t + m) % setup.K
        return setup.M

    def update(setup, state, slot, feedback):  # type: ignore[no-untyped-def]
        row = state.feedback[slot.t - 1, feedback.channel]
        row[0], row[1], row[2] = feedback.state, feedback.reward, feedback.perturbation


WITNESSED: tuple[dict[str, Any], ...] = (
    {},
    {"sensing": "all"},
    {"feedback": "reward"},
    {"users": 3, "context": {"dimension": 5}},
)


def test_policy_observes_what_the_scenario_allows() -> None:
    """Before it selects: contexts of all channels, and the states of all or none. Afterwards: state, reward and (if
    the feedback contains it) perturbation of the selected channels only."""
    ib.register(name="witness")(Witness)
    for settings in WITNESSED:
        check_observations(ib.scenario("S1", **settings))


def check_observations(scenario: ib.Scenario) -> None:
    result = ib.simulate(scenario, "witness", horizon=SLOTS, replications=1, record="slots")
    assert result.state is not None
    assert result.slots is not None
    observed: Observed = result.state[0]
    K, d = scenario.K, scenario.dimension
    assert observed.inputs.tolist() == [K, scenario.users, d]

    def column(name: str) -> np.ndarray:
        assert result.slots is not None
        return np.asarray(result.slots[name].to_numpy().reshape(SLOTS, K))

    assert np.array_equal(observed.x, np.stack([column(f"x{i}") for i in range(d)], axis=2))
    assert np.array_equal(observed.sensed, column("state") if scenario.sensing == "all" else np.full((SLOTS, K), -1))
    n = column("perturbation") if scenario.feedback == "perturbation" else np.full((SLOTS, K), np.nan)
    expected = np.stack([column("state"), column("reward"), n], axis=2)
    expected[~column("picked")] = np.inf
    np.testing.assert_array_equal(observed.feedback, expected)


def test_plays_of_tied_channels_are_not_suboptimal() -> None:
    """Channels 0 and 1 of S2 tie for the last of nine places: a play of either is not counted as suboptimal."""
    scenario = ib.scenario("S2", users=9, perturbation="none")
    result = ib.simulate(scenario, "mp-random", horizon=2000, replications=1, record="slots")
    assert result.slots is not None
    assert set(result.slots.query("~picked").channel) == set(range(10))  # every channel was left out in some slot
    assert result.curves["suboptimal_static"][0, -1] == 0


@pytest.mark.parametrize("where", SCENARIOS)
def test_no_policy_exceeds_the_genie(where: str) -> None:
    for label in ("mp-random", "mp-ucb", "mp-lucb-rca"):
        result = ib.simulate(SCENARIOS[where], CONFIGURED[label], horizon=500, replications=2)
        assert (np.diff(result.regret("genie"), axis=1) >= -1e-9).all()


def test_regret_to_the_genie_is_zero_with_all_states_sensed_and_no_perturbation() -> None:
    """With `replace=indicator`, mp-lucb-printed then selects a best set in every slot."""
    scenario = ib.scenario("S1", sensing="all", perturbation="none")
    result = ib.simulate(scenario, "mp-lucb-printed", replace="indicator", horizon=2000, replications=2)
    assert np.abs(result.regret("genie")).max() < 1e-9


def test_checkpoints_are_20_per_decade_and_the_horizon() -> None:
    """They are rounded and unique, and those before T do not depend on T."""
    assert checkpoints(1).tolist() == [1]
    long = checkpoints(10**6)
    assert {10**i for i in range(7)} <= set(long.tolist())
    decade = long[(long >= 10**4) & (long < 10**5)]
    assert len(decade) == 20
    np.testing.assert_allclose(decade, np.round(10 ** (4 + np.arange(20) / 20)))
    for T in (7, 100, 12345, 10**10):
        marks = checkpoints(T)
        assert marks[-1] == T
        assert (np.diff(marks) > 0).all()
        shorter = long[long < T]
        assert marks[: len(shorter)].tolist() == shorter[: len(marks)].tolist()


def test_curves_at_a_checkpoint_do_not_depend_on_the_horizon() -> None:
    short, long = (ib.simulate("S3", "mp-lucb", horizon=T, replications=2) for T in (100, 1000))
    shared = np.flatnonzero(np.isin(long.t, short.t))
    for name, curve in short.curves.items():
        assert np.array_equal(curve, long.curves[name][:, shared])


def test_references_use_the_sample_path_of_policies() -> None:
    """The results are the same in one piece and in segments."""
    pieces = ReferenceRun.start(ib.scenario("S4"), 400, 3, 0)
    for t in (1, 2, 77, 400):
        pieces.to(t)
    whole = ReferenceRun.start(ib.scenario("S4"), 400, 3, 0)
    whole.to(400)
    assert np.array_equal(pieces.references.curves, whole.references.curves)
    run = PolicyRun.start(ib.scenario("S4"), CONFIGURED["mp-ucb"], 400, 3, 0)
    run.to(400)
    assert np.array_equal(run.path.s, whole.path.s)
    assert np.array_equal(run.path.x, whole.path.x)
    assert dict(zip(REFERENCES, whole.references.now, strict=True))["genie"] > run.tally.now[0]
