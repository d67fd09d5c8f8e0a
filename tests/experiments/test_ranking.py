"""The ranking: order, columns, paired differences and the closed gap."""

import math

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.arrays import Floats
from idleband.experiments.ranking import NEEDED, knows, ranking
from idleband.experiments.ranking import gap_closed as gap_of_samples
from idleband.scenario.upper_bound import bound
from idleband.simulation.statistics import Samples

LABELS = ["mp-random", "mp-belief-lucb", "mp-ucb", *NEEDED, "genie"]


def gap_closed(*rewards: Floats | None) -> tuple[float, float]:
    """The closed gap of rewards per replication."""
    return gap_of_samples(*(None if values is None else Samples(values, len(values)) for values in rewards))


@pytest.fixture(scope="module")
def study() -> ib.Study:
    return ib.compare("S4", LABELS, horizon=3000, replications=6, seed=2)


def test_rows_are_sorted_and_complete(study: ib.Study) -> None:
    rows = ranking(study)
    assert sorted(row.label for row in rows) == sorted(LABELS)
    rewards = [row.reward for row in rows]
    assert rewards == sorted(rewards, reverse=True)
    assert rows[0].label == "genie"


def test_columns_equal_those_of_the_study(study: ib.Study) -> None:
    table, upper_bound = study.table(full=True), bound(study.scenario, study.scenario.theta(2, 0))
    assert upper_bound is not None
    for row in ranking(study):
        expected = table.loc[row.label]
        assert (row.scenario, row.perturbation, row.horizon, row.replications) == ("S4", "linear", 3000, 6)
        assert row.reward_pm == pytest.approx(expected["reward_pm"])
        columns = ["reward", "regret_static", "regret_contextual", "regret_genie", "regret_bound", "regret_table"]
        for column in [*columns, "suboptimal_static", "suboptimal_contextual", "collisions"]:
            assert getattr(row, column) == pytest.approx(expected[column]), column
        assert row.share_of_bound == pytest.approx(row.reward / upper_bound)
        assert 0 < row.microseconds < 10_000


def test_behind_is_the_paired_difference_from_the_best_learner(study: ib.Study) -> None:
    """It is 0 for the best learner and negative for the genie."""
    rows = {row.label: row for row in ranking(study)}
    assert (rows["mp-belief-lucb"].behind, rows["mp-belief-lucb"].behind_pm) == (0.0, 0.0)
    for label in LABELS:
        paired = study.difference("mp-belief-lucb", label, per_slot=True)
        assert rows[label].behind == pytest.approx(paired.mean)
        assert rows[label].behind_pm == pytest.approx(paired.high - paired.mean)
    assert rows["genie"].behind < 0 < rows["mp-ucb"].behind


def test_gap_extends_from_rca_m_to_the_better_oracle(study: ib.Study) -> None:
    rows = {row.label: row for row in ranking(study)}
    assert (rows["rca-m"].gap_closed, rows["rca-m"].gap_closed_pm) == (0.0, 0.0)
    better = max(("oracle-belief", "oracle-whittle"), key=lambda label: rows[label].reward)
    assert (rows[better].gap_closed, rows[better].gap_closed_pm) == (pytest.approx(1.0), pytest.approx(0.0))
    whole = rows[better].reward - rows["rca-m"].reward
    for row in rows.values():
        assert row.gap_closed == pytest.approx((row.reward - rows["rca-m"].reward) / whole)


def test_interval_of_the_closed_gap_has_its_coverage() -> None:
    """In 1000 studies of 10 replications with a true value of 0.8, 95% of the intervals contain it, within four
    standard errors of that rate."""
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(1000):
        base = rng.normal(2.0, 0.1, 10)
        oracle = base + rng.normal(1.0, 0.15, 10)
        gap, half = gap_closed(base + 0.8 * (oracle - base) + rng.normal(0.0, 0.05, 10), base, oracle)
        covered += abs(gap - 0.8) <= half
    assert abs(covered / 1000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000)


def test_interval_of_the_closed_gap_is_that_of_the_delta_method() -> None:
    rng = np.random.default_rng(9)
    base, oracle, reward = rng.normal(1.0, 0.1, 8), rng.normal(3.0, 0.1, 8), rng.normal(2.0, 0.1, 8)
    gap, half = gap_closed(reward, base, oracle)
    a, b = reward - base, oracle - base
    variance = (np.var(a, ddof=1) - 2 * gap * np.cov(a, b)[0, 1] + gap**2 * np.var(b, ddof=1)) / 8 / b.mean() ** 2
    assert gap == pytest.approx(a.mean() / b.mean())
    assert half == pytest.approx(stats.t.ppf(0.975, 7) * math.sqrt(variance))


def test_closed_gap_is_nan_where_there_is_no_gap() -> None:
    """Where slots are independent and there is no perturbation, no policy exceeds the best fixed channels."""
    assert all(map(math.isnan, gap_closed(np.ones(3), np.array([1.0, 2.0, 3.0]), np.array([1.1, 1.9, 3.0]))))
    assert all(map(math.isnan, gap_closed(np.ones(3), np.full(3, 1.0), np.full(3, 1.004))))
    assert gap_closed(np.full(3, 1.006), np.full(3, 1.0), np.full(3, 1.006))[0] == pytest.approx(1.0)
    assert all(map(math.isnan, gap_closed(np.ones(3), None, np.ones(3))))
    assert all(map(math.isnan, gap_closed(np.ones(3), np.ones(3), None)))
    alone = ranking(ib.compare("S2", ["mp-ucb"], horizon=100, replications=1))
    assert math.isnan(alone[0].gap_closed)
    assert math.isnan(alone[0].reward_pm)


def test_knowledge_of_policies(study: ib.Study) -> None:
    known = {row.label: row.knows for row in ranking(study)}
    assert known["mp-ucb"] == "played states"
    assert known["mp-belief-lucb"] == "played states, contexts"
    assert known["oracle-belief"] == "played states, contexts, parameters"
    assert known["genie"] == "played states, contexts, parameters, all states"
    assert knows(study["mp-ucb"], "all") == "played states, all states"


def test_share_of_a_bound_that_is_not_positive_is_nan() -> None:
    scenario = ib.scenario("S1", reward="additive", perturbation={"theta_norm": 1.0})
    (row,) = ranking(ib.compare(scenario, ["mp-ucb"], horizon=20, replications=2))
    assert row.reward + row.regret_bound < 0
    assert math.isnan(row.share_of_bound)
    zero = ib.scenario(p01=[0.5], p10=[0.5], users=1, rewards=[0, 0], reward="additive", perturbation="none")
    assert math.isnan(ranking(ib.compare(zero, ["mp-ucb"], horizon=20, replications=2))[0].share_of_bound)
