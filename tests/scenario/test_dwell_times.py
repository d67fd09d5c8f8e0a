"""Dwell times: hazards against closed forms, simulated periods against hazards, long-run shares, refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import idleband as ib
from idleband.scenario.dwell_times import MAX_AGES, mean_dwell, read_dwell_time
from tests.scenario.paths import Walk, check_channels, check_round_trip, refused, walk

KINDS: dict[str, dict[str, Any]] = {
    "geometric": {"kind": "geometric", "mean": 12.0},
    "variable": {"kind": "negative-binomial", "mean": 9.0, "shape": 0.6},
    "regular": {"kind": "negative-binomial", "mean": 9.0, "shape": 4.0},
    "bursty": {"kind": "weibull", "mean": 14.0, "shape": 0.6},
    "aging": {"kind": "weibull", "mean": 7.0, "shape": 2.5},
    "uniform": {"kind": "uniform", "low": 3, "high": 20},
    "mixture": {"kind": "mixture", "weights": [0.9, 0.1], "means": [2.0, 40.0]},
    "empirical": {"kind": "empirical", "hazard": [0.5, 0.0, 0.25, 0.05]},
}
GOOD, BAD = list(KINDS.values()), list(KINDS.values())[3:] + list(KINDS.values())[:3]
AGES = np.arange(1, 2000)


def probabilities(table: dict[str, Any]) -> np.ndarray:
    """Return P(dwell = a), a = 1, 2, ..., by closed forms that do not use the package's hazards."""
    kind, mean, shape = table["kind"], table.get("mean", 0.0), table.get("shape", 1.0)
    if kind == "geometric":
        return np.asarray(stats.geom.pmf(AGES, 1 / mean))
    if kind == "negative-binomial":
        return np.asarray(stats.nbinom.pmf(AGES - 1, shape, shape / (shape + mean - 1)))
    if kind == "uniform":
        return np.asarray(stats.randint.pmf(AGES, table["low"], table["high"] + 1))
    if kind == "mixture":
        parts = [w * stats.geom.pmf(AGES, 1 / m) for w, m in zip(table["weights"], table["means"], strict=True)]
        return np.asarray(np.sum(parts, axis=0))
    if kind == "weibull":  # the scale by the sum of the survival function over all ages
        low, high = 1e-3, 10 * mean
        for _ in range(100):
            scale = (low + high) / 2
            low, high = (scale, high) if weibull_survival(scale, shape, 10**5).sum() < mean else (low, scale)
        return -np.diff(weibull_survival(high, shape, len(AGES) + 1))
    hazard = np.array([*table["hazard"], *[table["hazard"][-1]] * (len(AGES) - len(table["hazard"]))])
    return hazard * np.cumprod([1.0, *(1 - hazard[:-1])])


def weibull_survival(scale: float, shape: float, count: int) -> np.ndarray:
    """Return P(dwell > a), a = 0, 1, ..."""
    return np.asarray(np.exp(-((np.arange(count) / scale) ** shape)))


@pytest.fixture(scope="module")
def scenario() -> ib.Scenario:
    """A channel for each kind of good periods, with bad periods of another kind."""
    return ib.scenario(dwell={"good": GOOD, "bad": BAD}, users=1, perturbation="none", context={"dimension": 1})


@pytest.fixture(scope="module")
def path(scenario: ib.Scenario) -> Walk:
    return walk(scenario)


def check_frequencies(values: np.ndarray, probability: np.ndarray) -> None:
    """Chi-square test of whole numbers from 1; ages with few expected values are taken together."""
    expected = probability * len(values)
    found = np.bincount(values, minlength=len(AGES) + 1)[1 : len(AGES) + 1]
    edges, total = [0], 0.0
    for a, count in enumerate(expected):
        total += count
        if total >= 20.0 and expected[a + 1 :].sum() >= 20.0:
            edges.append(a + 1)
            total = 0.0
    pooled = np.add.reduceat(expected, edges)
    pooled[-1] += len(values) - expected.sum()
    observed = np.add.reduceat(found, edges).astype(float)
    observed[-1] += len(values) - found.sum()
    assert len(edges) > 3
    assert stats.chisquare(observed, pooled).pvalue > 1e-5


# --- hazards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_hazards_are_those_of_the_distribution(name: str) -> None:
    expected = probabilities(KINDS[name])
    hazard = np.array(read_dwell_time(KINDS[name], "dwell").hazard)[: len(AGES)]
    hazard = np.append(hazard, np.full(len(AGES) - len(hazard), hazard[-1]))
    found = hazard * np.cumprod([1.0, *(1 - hazard[:-1])])
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert mean_dwell(hazard) == pytest.approx(float(AGES @ expected), rel=1e-6)


@given(
    st.sampled_from(["weibull", "negative-binomial"]),
    st.one_of(st.floats(1.0, 1e9), st.floats(1.0, 50.0)),
    st.floats(0.1, 100.0),
)
def test_means_are_as_asked(kind: str, mean: float, shape: float) -> None:
    """Also where the hazard is cut off, and in the limits of all parameters."""
    found = read_dwell_time({"kind": kind, "mean": mean, "shape": shape}, "dwell")
    hazard = np.array(found.hazard)
    assert len(hazard) <= MAX_AGES
    assert ((hazard >= 0) & (hazard <= 1)).all()
    assert hazard[-1] > 0
    assert found.mean == pytest.approx(mean, rel=1e-6)


@given(st.floats(1.0, 1e9))
def test_shape_1_is_geometric(mean: float) -> None:
    for kind in ("weibull", "negative-binomial"):
        found = read_dwell_time({"kind": kind, "mean": mean, "shape": 1.0}, "dwell")
        # Beyond the ages at which a period is still likely the last hazard stands for a remainder below 1e-12.
        np.testing.assert_allclose(found.hazard[:20], 1 / mean, rtol=1e-5, atol=1e-15)


def test_periods_longer_than_a_hazard_are_geometric_with_the_asked_mean() -> None:
    for shape in (0.5, 2.0):
        found = read_dwell_time({"kind": "weibull", "mean": 1e5, "shape": shape}, "dwell")
        assert len(found.hazard) == MAX_AGES
        assert found.mean == pytest.approx(1e5)


def test_hazards_decrease_below_shape_1_and_increase_above() -> None:
    for kind in ("weibull", "negative-binomial"):
        for shape, sign in ((0.5, -1), (3.0, 1)):
            hazard = read_dwell_time({"kind": kind, "mean": 20.0, "shape": shape}, "dwell").hazard
            assert (sign * np.diff(hazard[:100]) > 0).all()


# --- simulated periods -----------------------------------------------------------------------------------------------


def test_long_run_shares_and_transitions(scenario: ib.Scenario, path: Walk) -> None:
    means = {state: np.array([one.mean for one in getattr(scenario.dwell, state)]) for state in ("good", "bad")}
    np.testing.assert_allclose(scenario.good_shares, means["good"] / (means["good"] + means["bad"]))
    check_channels(scenario, path.states, largest_error=0.007)


@pytest.mark.parametrize("k", range(len(GOOD)), ids=list(KINDS))
def test_periods_have_the_distribution(path: Walk, k: int) -> None:
    changes = np.flatnonzero(np.diff(path.states[:, k])) + 1
    lengths, states = np.diff(changes), path.states[changes[:-1], k]
    assert len(lengths) > 9000
    check_frequencies(lengths[states == 1], probabilities(GOOD[k]))
    check_frequencies(lengths[states == 0], probabilities(BAD[k]))
    # Successive periods are independent: the correlation has standard deviation 1 / sqrt(n), at most, of the ranks.
    ranks = stats.rankdata(lengths)
    good = ranks[: len(ranks) // 2 * 2].reshape(-1, 2)
    assert abs(np.corrcoef(good.T)[0, 1]) < 5.5 / np.sqrt(len(good))


@pytest.mark.parametrize("name", ["uniform", "bursty", "empirical"])
def test_paths_start_within_a_period(name: str) -> None:
    """In slot 1 the rest of a period, this slot included, has the probabilities P(dwell >= r) / mean."""
    table = KINDS[name]
    channels = 4000
    many = ib.scenario(
        dwell={"good": [table] * channels, "bad": {"kind": "geometric", "mean": 5.0}},
        users=1, perturbation="none", context={"dimension": 1},
    )  # fmt: skip
    states = walk(many, slots=400).states
    assert many.dwell is not None
    share = many.dwell.good[0].mean / (many.dwell.good[0].mean + 5.0)
    assert abs(states[0].mean() - share) < 5.5 * np.sqrt(share * (1 - share) / channels)
    good = states[:, states[0] == 1] == 0
    left = np.where(good.any(axis=0), good.argmax(axis=0), 400)
    probability = probabilities(table)
    longer = 1 - np.cumsum(probability) + probability  # P(dwell >= a)
    check_frequencies(left, longer / float(AGES @ probability))


def test_periods_of_one_slot_alternate() -> None:
    one = {"kind": "geometric", "mean": 1.0}
    scenario = ib.scenario(dwell={"good": [one] * 3, "bad": one}, users=1)
    states = walk(scenario, slots=50).states
    assert (np.abs(np.diff(states, axis=0)) == 1).all()


# --- tables ----------------------------------------------------------------------------------------------------------


def test_means_that_are_left_out_are_those_of_the_chains() -> None:
    scenario = ib.scenario("S4", dwell={"good": {"kind": "weibull", "shape": 0.6}, "bad": {"kind": "geometric"}})
    S4 = ib.scenario("S4")
    assert scenario.dwell is not None
    for k, P in enumerate(S4.transition):
        assert scenario.dwell.good[k].mean == pytest.approx(1 / P[1, 0], rel=1e-9)
        assert scenario.dwell.bad[k].mean == pytest.approx(1 / P[0, 1])
    np.testing.assert_allclose(scenario.good_shares, S4.good_shares)
    np.testing.assert_allclose(scenario.autocorrelations, S4.autocorrelations, atol=1e-12)
    assert not scenario.markov
    check_round_trip(scenario)


def test_another_description_of_the_channels_replaces_dwell_times() -> None:
    one = {"kind": "geometric", "mean": 4}
    scenario = ib.scenario("S1", dwell={"good": one, "bad": one})
    assert ib.scenario(scenario, users=3).dwell == scenario.dwell
    assert ib.scenario(scenario, p01=[0.1, 0.2], p10=[0.1, 0.2], users=1).dwell is None
    other = {"p01": [[0.1], [0.2]], "p10": [[0.2], [0.1]], "at": [5]}
    regimes = ib.scenario(scenario, regimes=other, users=1)
    assert (regimes.dwell, regimes.channel_names) == (None, ())
    assert ib.scenario(regimes, dwell={"good": [one], "bad": one}).regimes is None
    assert ib.scenario("S1", dwell=None) == ib.scenario("S1")


def test_number_of_channels_comes_from_lists_or_names() -> None:
    one = {"kind": "geometric", "mean": 4}
    by_name = ib.scenario(channel_names=np.array(["a", "b"]), dwell={"good": one, "bad": one}, users=1)
    by_list = ib.scenario(dwell={"good": one, "bad": [one] * 2}, users=1)
    assert by_name.K == by_list.K == 2
    assert by_name.identity() == by_list.identity()


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    mean = st.floats(1.0, 1e4)
    count = draw(st.integers(1, 4))
    return draw(
        st.sampled_from([
            {"kind": "geometric", "mean": draw(mean)},
            {"kind": "weibull", "mean": draw(mean), "shape": draw(st.floats(0.1, 100))},
            {"kind": "negative-binomial", "mean": draw(mean), "shape": draw(st.floats(0.1, 100))},
            {"kind": "uniform", "low": draw(st.integers(1, 9)), "high": draw(st.integers(9, 4096))},
            {
                "kind": "mixture",
                "weights": [draw(st.floats(0.01, 9.0)) for _ in range(count)],
                "means": [draw(mean) for _ in range(count)],
            },
            {"kind": "empirical", "hazard": [draw(st.floats(0, 1)) for _ in range(count)] + [draw(st.floats(1e-9, 1))]},
        ])
    )  # fmt: skip


@given(st.lists(st.tuples(tables(), tables()), min_size=1, max_size=3))
def test_round_trip(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    good, bad = zip(*pairs, strict=True)
    scenario = ib.scenario(dwell={"good": list(good), "bad": list(bad)}, users=1)
    check_round_trip(scenario)
    assert (scenario.good_shares > 0).all()
    assert (scenario.good_shares < 1).all()


ONE = {"kind": "geometric", "mean": 4}


@pytest.mark.parametrize(
    ("dwell", "line"),
    [
        (5, "scenario.dwell = 5: must be a table of settings"),
        ({"god": ONE}, "unknown key 'god' in scenario.dwell: did you mean 'good'?"),
        ({"good": ONE}, "scenario.dwell.bad is missing: the distribution of bad periods"),
        ({"good": ONE, "bad": ONE}, "scenario.dwell: number of channels unknown"),
        ({"good": [ONE] * 2, "bad": [ONE] * 3}, "scenario.dwell.bad: has 3 tables for 2 channels"),
        ({"good": [], "bad": ONE}, "scenario.dwell.bad: has 0 tables; must be from 1 to"),
        ({"good": [{"mean": 4}], "bad": ONE}, "scenario.dwell.good.kind, channel 0 is missing: one of geometric"),
        ({"good": [{"kind": "gamma"}], "bad": ONE}, "scenario.dwell.good.kind, channel 0 = 'gamma': must be one of"),
        ({"good": [{"kind": "weibull", "mean": 2}], "bad": ONE}, "scenario.dwell.good.shape, channel 0 is missing"),
        ({"good": [{**ONE, "mean": 0.5}], "bad": ONE}, "scenario.dwell.good.mean, channel 0 = 0.5: must be a number"),
        ({"good": [ONE, {**ONE, "shape": 2}], "bad": ONE}, "unknown key 'shape' in scenario.dwell.good, channel 1"),
        ({"good": [{"kind": "weibull", "mean": 2, "shape": 0.01}], "bad": ONE}, "of at least 0.1 and at most 100"),
        ({"good": [{"kind": "uniform", "low": 3, "high": 2}], "bad": ONE}, "scenario.dwell.good.high, channel 0 = 2:"),
        ({"good": [{"kind": "uniform", "low": 0, "high": 2}], "bad": ONE}, "must be a whole number from 1 to 4096"),
        ({"good": [{"kind": "empirical", "hazard": []}], "bad": ONE}, "has 0 entries; must be from 1 to 4096"),
        ({"good": [{"kind": "empirical", "hazard": [0.5, 0.0]}], "bad": ONE}, "the last value, 0, holds for all"),
        ({"good": [{"kind": "empirical", "hazard": [1.5]}], "bad": ONE}, "hazard, channel 0, entry 0 = 1.5: must be"),
        (
            {"good": [{"kind": "mixture", "weights": [1], "means": [1, 2]}], "bad": ONE},
            "scenario.dwell.good.weights, channel 0: has 1 entry for 2 means",
        ),
        (
            {"good": [{"kind": "mixture", "weights": [0, 0], "means": [1, 2]}], "bad": ONE},
            "scenario.dwell.good.weights, channel 0: all are 0",
        ),
    ],
)
def test_invalid_dwell_times_are_refused_in_one_line(dwell: Any, line: str) -> None:
    assert line in refused({"dwell": dwell, "users": 1})


def test_settings_that_exclude_dwell_times_are_refused() -> None:
    good = {"good": [ONE], "bad": ONE}
    matrix = [[[0.5, 0.5], [0.5, 0.5]]]
    assert "scenario.transition: not used with dwell" in refused({"dwell": good, "transition": matrix, "users": 1})
    regimes = {"p01": [[0.1]], "p10": [[0.1]], "transition": [[1.0]]}
    assert "scenario.regimes: give only one of" in refused({"dwell": good, "regimes": regimes, "users": 1})
    assert "channel_names = 'a': is given twice" in refused(
        {"dwell": good | {"good": ONE}, "channel_names": ["a", "a"]}
    )
    assert "channel_names = 5: must be a list" in refused({"dwell": good, "channel_names": 5, "users": 1})
    slow = {
        "p01": [1e-12],
        "p10": [0.5],
        "users": 1,
        "dwell": {"good": {"kind": "geometric"}, "bad": {"kind": "geometric"}},
    }
    assert "scenario.dwell.bad.mean, channel 0 = 1000000000000.0: must be" in refused(slow)
