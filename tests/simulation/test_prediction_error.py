"""Prediction errors: predictions of a policy against true perturbations, learned chains, and refusals."""

import io
import math
import sys
from typing import Any

import numpy as np
import pandas
import pytest

import idleband as ib
from idleband.kernels.rng import CONTEXTS, FRESH, fill_uniform, stream
from idleband.policies.belief_state import Chains
from idleband.policies.registry import policy
from idleband.progress import Progress
from idleband.simulation.path import path_parameters
from idleband.simulation.prediction_error import (
    FRESH_SLOTS,
    MAX_SLOTS,
    WITH_CHAINS,
    Learned,
    learned,
    learned_csv,
    root_mean_square,
)
from idleband.simulation.run import PolicyRun

THETA = [0.2, 0.5, 0.3]
SMALL: dict[str, Any] = {"p01": [0.5, 0.3, 0.4], "p10": [0.4, 0.5, 0.2], "users": 2, "context": {"dimension": 3}}


def small(**settings: Any) -> ib.Scenario:
    """Return a scenario of three channels with contexts of three entries and a given theta."""
    return ib.scenario(**{**SMALL, "perturbation": {"theta": THETA}, **settings})


class Recorder(Progress):
    """Records announced and finished slots."""

    def __init__(self) -> None:
        self.expected = 0.0
        self.slots: list[float] = []

    def expect(self, slots: float) -> None:
        self.expected += slots

    def advance(self, slots: float) -> None:
        self.slots.append(slots)


def test_linear_policy_learns_a_linear_perturbation() -> None:
    """Without noise the error of a ridge estimate is lambda A^-1 theta, which goes to zero, also on fresh contexts."""
    found = learned("S1", "mp-lucb", horizon=5000, replications=2)
    assert (found.played_last < 0.01).all()
    assert np.isnan(found.played[:, 0]).all()  # networks have no weights before slot 1
    assert (found.played[:, -1] < found.played[:, 1] / 100).all()
    assert (found.fresh_last < found.fresh[:, 0] / 10).all()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mp-lucb", {}),
        ("mp-lucb", {"shared": True}),
        ("mp-lucb-rca", {}),
        ("mp-nucb", {"D": 4}),
        ("mp-nucb", {"D": 4, "shared": True}),
        ("mp-nucb-rca", {"D": 4}),
    ],
)
def test_errors_use_the_predictions_made_before_each_selection(name: str, parameters: dict[str, Any]) -> None:
    """They equal errors computed slot by slot from the predictions stored in the policy state."""
    scenario, T, seed = small(), 230, 4
    found = learned(scenario, name, horizon=T, replications=2, seed=seed, **parameters)
    spread = found.pairs_fresh[1].std()
    marks = found.t.tolist()
    for replication in range(2):
        run = PolicyRun.start(scenario, policy(name, **parameters), T, seed, replication)
        pairs = []
        for t in range(1, T + 1):
            run.to(t)
            picks = run.tally.picks[: run.tally.picked[0]]
            pairs.append([run.state.estimates.n_hat[picks].copy(), run.path.n[picks].copy()])
        if replication == 0:
            assert np.array_equal(found.pairs_played, np.concatenate(pairs[207:], axis=1))
        else:
            spread = fresh_truth(scenario, seed, 1).std()
        for i, (before, mark) in enumerate(zip([0, *marks], marks, strict=False)):
            if before > 0:  # in slot 1 a network has no weights when it predicts
                error = np.concatenate(pairs[before:mark], axis=1)
                expected = np.sqrt(np.mean((error[0] - error[1]) ** 2)) / spread
                assert found.played[replication, i] == pytest.approx(expected, rel=1e-12)
        last = np.concatenate(pairs[207:], axis=1)
        expected = np.sqrt(np.mean((last[0] - last[1]) ** 2)) / spread
        assert found.played_last[replication] == pytest.approx(expected, rel=1e-12)


def fresh_contexts(scenario: ib.Scenario, seed: int, replication: int) -> np.ndarray:
    """Return the fresh contexts, shape (slots, K, d), from their stream."""
    x = np.zeros(FRESH_SLOTS * scenario.K * scenario.dimension)
    fill_uniform(stream(seed, replication, FRESH), x)
    return x.reshape(FRESH_SLOTS, scenario.K, scenario.dimension)


def fresh_truth(scenario: ib.Scenario, seed: int, replication: int) -> np.ndarray:
    """Return the true perturbations of the fresh contexts, shape (slots, K)."""
    theta, _ = path_parameters(scenario, seed, replication)
    return np.asarray(np.einsum("skd,kd->sk", fresh_contexts(scenario, seed, replication), theta))


def test_fresh_contexts_are_not_those_of_the_sample_path() -> None:
    """They come from a separate stream of the seed and replication, and are the same for every policy."""
    scenario = ib.scenario("S1")
    found = [learned(scenario, name, horizon=60, replications=1, seed=7) for name in ("mp-lucb", "mp-lucb-rca")]
    for one in found:
        np.testing.assert_allclose(one.pairs_fresh[1], fresh_truth(scenario, 7, 0).ravel(), rtol=1e-12)
    path = np.zeros(FRESH_SLOTS * 80)
    fill_uniform(stream(7, 0, CONTEXTS), path)
    assert not set(path.tolist()) & set(fresh_contexts(scenario, 7, 0).ravel().tolist())
    other = learned(scenario, "mp-lucb", horizon=60, replications=1, seed=8)
    assert not np.isclose(other.pairs_fresh[1], found[0].pairs_fresh[1]).any()


def test_fresh_predictions_use_the_model_at_the_checkpoint() -> None:
    scenario, T = small(), 100
    found = learned(scenario, "mp-lucb", horizon=T, replications=2, seed=3)
    for replication in range(2):
        run = PolicyRun.start(scenario, policy("mp-lucb"), T, 3, replication)
        truth = fresh_truth(scenario, 3, replication)
        for i, mark in enumerate(found.t.tolist()):
            run.to(mark)
            predicted = np.einsum("skd,kd->sk", fresh_contexts(scenario, 3, replication), run.state.theta)
            error = np.sqrt(np.mean((predicted - truth) ** 2)) / truth.std()
            assert found.fresh[replication, i] == pytest.approx(error, rel=1e-9)
        if replication == 0:
            np.testing.assert_allclose(found.pairs_fresh[0], predicted.ravel(), rtol=1e-12)
    assert np.array_equal(found.fresh_last, found.fresh[:, -1])


def test_predictions_of_fresh_contexts_do_not_change_the_run() -> None:
    """The final weights are those of a run without them."""
    scenario = small()
    found = learned(scenario, "mp-nucb", D=4, horizon=200, replications=1, seed=2)
    [state] = ib.simulate(scenario, "mp-nucb", D=4, horizon=200, replications=1, seed=2).state or ()
    configured, n_hat = policy("mp-nucb", D=4), np.zeros(3)
    run = PolicyRun.start(scenario, configured, 200, 2, 0)
    assert configured.policy.predict is not None
    for i, x in enumerate(fresh_contexts(scenario, 2, 0)[:20]):
        configured.policy.predict(run.setup, state, x, n_hat)
        assert np.array_equal(n_hat, found.pairs_fresh[0].reshape(FRESH_SLOTS, 3)[i])


def test_result_has_shapes_progress_and_columns() -> None:
    recorder = Recorder()
    found = learned("S1", "mp-lucb", beta=0.5, horizon=2300, replications=2, progress=recorder)
    assert isinstance(found, Learned)
    assert (found.horizon, found.replications, found.label) == (2300, 2, "mp-lucb beta=0.5")
    assert found.t[-1] == 2300
    assert found.t[-2] <= 0.9 * 2300
    assert (np.diff(found.t) > 0).all()
    assert found.played.shape == found.fresh.shape == (2, len(found.t))
    assert found.pairs_played.shape == (2, 5 * 230)
    assert found.pairs_fresh.shape == (2, 10 * FRESH_SLOTS)
    assert sum(recorder.slots) == recorder.expected == 2 * 2300
    assert max(recorder.slots) == 1000
    columns = found.columns()
    assert list(columns) == ["scenario", "label", "replication", "t", "error_played", "error_fresh"]
    assert {len(column) for column in columns.values()} == {2 * len(found.t)}
    row = 2 * len(found.t) - 1
    assert [columns[name][row] for name in columns] == [
        "S1", "mp-lucb beta=0.5", 1, 2300, found.played[1, -1], found.fresh[1, -1]
    ]  # fmt: skip
    assert repr(found).startswith("Learned(mp-lucb beta=0.5 on S1: error ")
    assert root_mean_square(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))


def test_csv_keeps_numbers_exactly() -> None:
    found = [learned("S1", name, horizon=50, replications=2) for name in ("mp-lucb", "mp-lucb-rca")]
    table = pandas.read_csv(io.StringIO(learned_csv(found)))
    assert len(table) == 4 * len(found[0].t)
    assert table.label.unique().tolist() == ["mp-lucb", "mp-lucb-rca"]
    for one in found:
        rows = table[table.label == one.label]
        assert np.array_equal(rows.error_played, one.played.ravel(), equal_nan=True)
        assert np.array_equal(rows.error_fresh, one.fresh.ravel())


def test_replications_and_seeds_differ() -> None:
    one, two = (learned("S1", "mp-lucb", horizon=100, replications=2, seed=seed) for seed in (0, 1))
    again = learned("S1", "mp-lucb", horizon=100, replications=1, seed=0)
    errors = [*one.fresh_last, *two.fresh_last]
    assert len(set(errors)) == 4
    assert again.fresh_last[0] == one.fresh_last[0]


def test_slots_without_plays_have_no_error() -> None:
    """No channel is available in the first slots and in the last tenth."""
    rows = [[0] * 3] * 5 + [[1] * 3] * 80 + [[0] * 3] * 15
    found = learned(small(availability=rows), "mp-lucb", horizon=100, replications=1)
    defined = np.isfinite(found.played[0])
    assert not defined[found.t <= 5].any()
    assert defined[(found.t > 5) & (found.t <= 85)].all()
    assert np.isnan(found.played_last).all()
    assert found.pairs_played.shape == (2, 0)


# --- user policies ---------------------------------------------------------------------------------------------------


def test_error_is_0_for_the_true_model_and_1_for_a_constant() -> None:
    """The errors of two user policies show the scale."""

    @ib.register(name="knows")
    class Knows:
        def init(setup: Any) -> Any:
            return ()

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            for m in range(setup.M):
                picks[m] = m if object() else 0  # cannot be compiled, which saves the time of compiling
            return int(setup.M)

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            pass

        def predict(setup: Any, state: Any, contexts: Any, out: Any) -> None:
            out[:] = contexts @ np.array(THETA)

    @ib.register(name="constant")
    class Constant:
        init, select, update = Knows.init, Knows.select, Knows.update

        def predict(setup: Any, state: Any, contexts: Any, out: Any) -> None:
            out[:] = 0.5  # the mean: half the sum of theta

    knows = learned(small(), Knows, horizon=50, replications=1)
    assert knows.played_last[0] < 1e-12
    assert knows.fresh_last[0] < 1e-12
    constant = learned(small(), "constant", horizon=2000, replications=1)
    n = constant.pairs_fresh.shape[1]
    # The error is sqrt(1 + z^2 / n) where the mean is wrong by z standard errors; z = 5.
    assert abs(constant.fresh_last[0] - 1) < 12.5 / n
    assert 0.8 < constant.played_last[0] < 1.2


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "name", "parameters", "message"),
    [
        (
            {},
            "mp-ucb",
            {},
            "policy mp-ucb: has no model of the perturbation; policies that have one: mp-lucb, mp-lucb-rca,"
            " mp-lucb-printed, mp-nucb, mp-nucb-rca, mp-nucb-printed",
        ),
        (
            {},
            "mp-nucb",
            {"target": "reward"},
            "policy mp-nucb: target = reward: it does not predict the perturbation",
        ),
        (
            {"feedback": "reward"},
            "mp-lucb",
            {},
            "scenario.feedback = reward: policies learn a probability from the threshold reward, not the perturbation;"
            " must be perturbation here",
        ),
        (
            {"perturbation": "none"},
            "mp-lucb",
            {},
            "scenario.perturbation.kind = none: there is nothing to learn; must be another model here",
        ),
        (
            {},
            "mp-lucb",
            {"horizon": MAX_SLOTS + 1},
            "experiment.horizon = 10000001: must be from 2 to 10000000 here",
        ),
        ({"perturbation": {"theta": [0.0] * 8}}, "mp-lucb", {}, "scenario.perturbation: does not vary"),
        ({}, "mp-lucb", {"horizon": 1}, "experiment.horizon = 1: must be from 2 to"),
        ({}, "mp-lucb", {"depth": 3}, "unknown parameter 'depth' of policy mp-lucb: did you mean 'width'?"),
    ],
)
def test_unsuitable_arguments_are_refused(
    scenario: dict[str, Any], name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ib.InputError) as refused:
        learned(ib.scenario("S1", **scenario), name, **parameters)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(message)


def test_perturbation_is_learned_from_additive_rewards() -> None:
    """With the additive reward, feedback = reward is not refused."""
    found = learned(small(feedback="reward", reward="additive"), "mp-lucb", horizon=2000, replications=1)
    assert found.played_last[0] < 0.05


def test_intervals_of_learned_chains_have_their_coverage() -> None:
    """160 probabilities of S1 to S4 without perturbation, at levels 95% and 50%. Intervals of one channel are slightly
    correlated; the bound is four standard errors of 160 independent ones."""
    covered = {0.5: 0, 0.95: 0}
    for name in ("S1", "S2", "S3", "S4"):
        result = ib.simulate(
            ib.scenario(name, perturbation="none"), "mp-belief", horizon=20_000, replications=2, seed=3
        )
        for level in covered:
            table = ib.learned_chains(result, level)
            assert len(table) == 20
            for p in ("p01", "p10"):
                covered[level] += int(table[p].between(table[f"{p}_low"], table[f"{p}_high"]).sum())
    for level, count in covered.items():
        assert abs(count / 160 - level) < 4 * math.sqrt(level * (1 - level) / 160), level


def test_learned_chains_list_channels_and_true_probabilities() -> None:
    scenario = ib.scenario(
        transition=[[[0.5, 0.5], [0.2, 0.8]], [[0.2, 0.4, 0.4]] * 3, [[0.9, 0.1], [0.3, 0.7]]],
        good=[[1], [2], [1]], users=2, perturbation="none",
    )  # fmt: skip
    table = ib.learned_chains(ib.simulate(scenario, "mp-belief-lucb", horizon=3000, replications=2))
    assert table.channel.tolist() == [0, 2, 0, 2]  # channel 1 has three states and no p01
    assert table.p01.tolist() == [0.5, 0.1, 0.5, 0.1]
    assert table.p10.tolist() == [0.2, 0.3, 0.2, 0.3]
    assert (table.p01_low < table.p01_learned).all()
    assert (table.p01_learned < table.p01_high).all()


def test_policies_with_learned_chains_are_those_whose_state_has_chains() -> None:
    found = set()
    for name, one in ib.POLICIES.items():
        state = getattr(sys.modules[one.init.__module__], "State", None)
        if one.source is None and getattr(state, "__annotations__", {}).get("chains") is Chains:
            found.add(name)
    assert found == set(WITH_CHAINS)


def test_learned_chains_refuse_policies_without_chains() -> None:
    with pytest.raises(ib.InputError, match="mp-ucb: has no learned chains"):
        ib.learned_chains(ib.simulate("S1", "mp-ucb", horizon=10, replications=1))
    with pytest.raises(ib.InputError, match="level"):
        ib.learned_chains(ib.simulate("S1", "mp-belief", horizon=10, replications=1), 1.5)
