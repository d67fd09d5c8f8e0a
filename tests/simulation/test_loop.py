"""What is counted beside a run, against a plain recount from the recorded slots."""

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
    return np.sort(values)[::-1][:m]


@pytest.mark.parametrize("where", SCENARIOS)
@pytest.mark.parametrize("label", ["mp-random", "mp-lucb"])
def test_against_a_recount(where: str, label: str) -> None:
    scenario = SCENARIOS[where]
    result = ib.simulate(scenario, CONFIGURED[label], horizon=SLOTS, replications=1, seed=4, record="slots")
    assert result.slots is not None
    mu, _ = scenario.mean_rewards(scenario.theta(4, 0))
    table = scenario.table_means
    M = scenario.users
    totals = dict.fromkeys(result.curves, 0.0)
    for _, slot in result.slots.groupby("t"):
        free = slot.available.to_numpy()
        picked = slot.picked.to_numpy()
        n, state, good = slot.perturbation.to_numpy(), slot.state.to_numpy(), slot.good.to_numpy()
        h = np.array([scenario.rewards[k][state[k]] for k in range(scenario.K)])
        r = h - n if scenario.reward == "additive" else np.where(good - n > 0, 1.0, 0.1)
        expected = slot.expected_reward.to_numpy()
        reward = r[picked].sum()
        totals["reward"] += reward
        totals["regret_static"] += m_largest(mu[free], M).sum() - reward
        totals["regret_contextual"] += m_largest(expected[free], M).sum() - reward
        totals["regret_genie"] += m_largest(r[free], M).sum() - reward
        totals["regret_table"] += m_largest(table[free], M).sum() - table[picked].sum()
        totals["collisions"] += (~good[picked]).sum()
        for name, values in (("suboptimal_static", mu), ("suboptimal_contextual", expected)):
            better = [(values[free] > values[k] + 1e-12).sum() for k in np.flatnonzero(picked)]
            totals[name] += sum(count >= M for count in better)
    most = bound(scenario, scenario.theta(4, 0))
    totals["regret_bound"] = math.nan if most is None else SLOTS * most - totals["reward"]
    for name, total in totals.items():
        assert result.curves[name][0, -1] == pytest.approx(total, abs=1e-8, nan_ok=True), name


class Seen(NamedTuple):
    inputs: np.ndarray  # (3,) K, M and d
    x: np.ndarray  # (slots, K, d)
    sensed: np.ndarray  # (slots, K)
    feedback_seen: np.ndarray  # (slots, K, 3) s, r and n of selected channels


class Witness:
    "Records what it observes and selects other channels in every slot."

    def init(setup):  # type: ignore[no-untyped-def]
        K, d = setup.K, setup.d
        return Seen(
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
        feedback_seen = state.feedback_seen[slot.t - 1, feedback.channel]
        feedback_seen[0], feedback_seen[1], feedback_seen[2] = feedback.state, feedback.reward, feedback.perturbation


@pytest.mark.parametrize(
    "settings", [{}, {"sensing": "all"}, {"feedback": "reward"}, {"users": 3, "context": {"dimension": 5}}], ids=str
)
def test_policy_observes_what_the_scenario_allows(settings: dict[str, Any]) -> None:
    """Contexts of all channels; states of all or of none before it picks; then state, reward and maybe perturbation of
    what it picked, and nothing else."""
    ib.register(name="witness")(Witness)
    scenario = ib.scenario("S1", **settings)
    result = ib.simulate(scenario, "witness", horizon=SLOTS, replications=1, record="slots")
    assert result.state is not None
    assert result.slots is not None
    seen: Seen = result.state[0]
    K, d = scenario.K, scenario.dimension
    assert seen.inputs.tolist() == [K, scenario.users, d]

    def column(name: str) -> np.ndarray:
        assert result.slots is not None
        return np.asarray(result.slots[name].to_numpy().reshape(SLOTS, K))

    assert np.array_equal(seen.x, np.stack([column(f"x{i}") for i in range(d)], axis=2))
    assert np.array_equal(seen.sensed, column("state") if scenario.sensing == "all" else np.full((SLOTS, K), -1))
    n = column("perturbation") if scenario.feedback == "perturbation" else np.full((SLOTS, K), np.nan)
    expected = np.stack([column("state"), column("reward"), n], axis=2)
    expected[~column("picked")] = np.inf
    np.testing.assert_array_equal(seen.feedback_seen, expected)


def test_ties_are_never_sub_optimal() -> None:
    """Channels 1 and 2 of S2 tie for the last of nine places: whichever is picked, no pick counts."""
    scenario = ib.scenario("S2", users=9, perturbation="none")
    result = ib.simulate(scenario, "mp-random", horizon=2000, replications=1, record="slots")
    assert result.slots is not None
    assert set(result.slots.query("~picked").channel) == set(range(10))  # all were left out at some time
    assert result.curves["suboptimal_static"][0, -1] == 0


@pytest.mark.parametrize("where", SCENARIOS)
def test_nothing_beats_the_genie(where: str) -> None:
    for label in ("mp-random", "mp-ucb", "mp-lucb-rca"):
        result = ib.simulate(SCENARIOS[where], CONFIGURED[label], horizon=500, replications=2)
        assert (np.diff(result.regret("genie"), axis=1) >= -1e-9).all()


def test_all_states_sensed_and_no_perturbation_equals_the_genie() -> None:
    """With every state seen and nothing else to know, replacement by indicator picks a best set in every slot."""
    scenario = ib.scenario("S1", sensing="all", perturbation="none")
    result = ib.simulate(scenario, "mp-lucb-printed", replace="indicator", horizon=2000, replications=2)
    assert np.abs(result.regret("genie")).max() < 1e-9


def test_checkpoints() -> None:
    """20 a decade, rounded, unique, the same whatever T is, plus T."""
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


def test_references_are_those_of_the_path() -> None:
    """The walk sees the very path that policies see, whether it runs in one piece or in segments."""
    pieces = ReferenceRun.start(ib.scenario("S4"), 400, 3, 0)
    for t in (1, 2, 77, 400):
        pieces.to(t)
    whole = ReferenceRun.start(ib.scenario("S4"), 400, 3, 0)
    whole.to(400)
    assert np.array_equal(pieces.references.curves, whole.references.curves)
    run = PolicyRun.start(ib.scenario("S4"), CONFIGURED["mp-ucb"], 400, 3, 0)
    run.to(400)
    assert np.array_equal(run.path.s, whole.world.s)
    assert np.array_equal(run.path.x, whole.world.x)
    assert dict(zip(REFERENCES, whole.references.now, strict=True))["genie"] > run.tally.now[0]
