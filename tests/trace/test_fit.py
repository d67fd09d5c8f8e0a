"""Estimates, tests and models of `Trace.fit` by hand and on simulated traces.

Bounds on shares are four standard deviations of a binomial share: channels of these traces are independent."""

import itertools
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import idleband as ib
from idleband.cli.parser import MODELS
from idleband.trace.fit import fit as fit_module
from idleband.trace.fit.change_points import find_changes
from idleband.trace.fit.checks import check_model
from idleband.trace.fit.correlation import correlate
from idleband.trace.fit.counts import BUSY, IDLE, age_edges, ages, count
from idleband.trace.fit.dwell_times import age_test, geometric_tests
from idleband.trace.fit.hazards import fit_hazards, hazard
from idleband.trace.fit.intervals import binomial_interval, combined_p_value, effective_interval, holm
from idleband.trace.fit.model_choice import choose
from idleband.trace.fit.models import RegimeModel, fit_markov, fit_semi_markov, stationary
from idleband.trace.fit.regimes import fit_regimes, forward_pass, predictive_log_loss, propagate, transitions_of
from idleband.trace.fit.transitions import cluster_test, design_effect, estimate_transitions
from tests.trace import worlds


def trace_of(busy: Any, **settings: Any) -> ib.Trace:
    return ib.Trace.from_arrays(busy=busy, **settings)


def slack(p: float, n: int) -> float:
    return 4 * math.sqrt(p * (1 - p) / n)


def estimates(busy: Any) -> Any:
    counts = count(busy)
    tests = geometric_tests(counts)
    return estimate_transitions(busy, counts, np.stack([test.p_values for test in tests]))


# --- counts ----------------------------------------------------------------------------------------------------------


@given(hnp.arrays(bool, st.tuples(st.integers(2, 70), st.integers(1, 3))))
def test_counts_agree_with_a_loop(busy: Any) -> None:
    T, K = busy.shape
    counts = count(busy)
    assert counts.slots.sum(axis=(0, 2, 3)).tolist() == [T - 1] * K
    for k in range(K):
        age, known = ages(busy[:, k])
        found = np.zeros((2, 2, 1 + len(counts.edges)), int)  # state, slots and leaves, bin
        run, seen = 1, False
        for t in range(T - 1):
            place = int(np.sum(counts.edges <= run)) if seen else 0
            left = busy[t + 1, k] != busy[t, k]
            found[int(busy[t, k]), :, place] += [1, left]
            assert (age[t], known[t]) == (run, seen)
            run, seen = (1, True) if left else (run + 1, seen)
        assert np.array_equal(counts.slots[:, k].sum(axis=1), found[:, 0])
        assert np.array_equal(counts.leaves[:, k].sum(axis=1), found[:, 1])


def test_bins_of_age_cover_all_ages_and_are_fewer_with_many_channels() -> None:
    assert age_edges(20, 1).tolist() == [*range(1, 17)]
    assert len(age_edges(10**6, 10)) > len(age_edges(10**6, 1000))


# --- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_of_proportions() -> None:
    low, high = binomial_interval(3, 20)
    assert float(low) == pytest.approx(stats.beta(3.5, 17.5).ppf(0.025))
    assert float(high) == pytest.approx(stats.beta(3.5, 17.5).ppf(0.975))
    assert [float(end) for end in binomial_interval(0, 0)] == [0, 1]
    assert float(binomial_interval(0, 50)[0]) == 0
    assert float(binomial_interval(50, 50)[1]) == 1
    same = effective_interval(3, 20, 1.0, 1e9)
    assert np.allclose(same, (low, high), atol=1e-6)
    wide = effective_interval(3, 20, 4.0, 20)
    assert wide[0] < low
    assert wide[1] > high


def test_adjusted_and_combined_p_values() -> None:
    p = np.array([0.01, math.nan, 0.02, 0.5])
    assert np.allclose(holm(p), [0.03, math.nan, 0.04, 0.5], equal_nan=True)
    assert combined_p_value([1e-12, 0.5]) < 1e-11
    assert math.isnan(combined_p_value([math.nan]))
    uniform = worlds.generator(5).random((4000, 6))
    rejected = np.mean([combined_p_value(row) < 0.05 for row in uniform])
    assert abs(rejected - 0.05) < slack(0.05, 4000)


def test_intervals_cover_in_markov_channels() -> None:
    busy = worlds.markov(400, 300)
    p10, p01 = estimates(busy)
    for found, true in ((p10, 0.05), (p01, 0.25)):
        inside = np.mean([one.low <= true <= one.high for one in found])
        assert abs(inside - 0.95) < slack(0.95, 300)
        assert np.mean([one.method == "binomial" for one in found]) > 0.6


def test_intervals_cover_where_dwell_times_are_not_geometric() -> None:
    p10, p01 = estimates(worlds.semi_markov(4000, 150))
    true = 1 / worlds.MIXTURE_MEAN
    inside = np.mean([one.low <= true <= one.high for one in p10])
    assert abs(inside - 0.95) < slack(0.95, 150)
    assert np.mean([one.binomial[0] <= true <= one.binomial[1] for one in p10]) < 0.95 - slack(0.95, 150)
    assert {one.method for one in p10} == {"blocks"}
    assert abs(np.mean([one.low <= 0.25 <= one.high for one in p01]) - 0.95) < slack(0.95, 150)


def test_hazards_cover_the_true_hazard() -> None:
    counts = count(worlds.semi_markov(4000, 150))
    true = worlds.mixture()
    inside = []
    for k in range(150):
        part = hazard(counts, IDLE, k)
        inside += [part.low[a] <= true[a] <= part.high[a] for a in range(3)]  # bins of a single age
    assert abs(np.mean(inside) - 0.95) < slack(0.95, len(inside))
    pooled = hazard(counts, IDLE)
    assert np.all((pooled.low <= pooled.probability) & (pooled.probability <= pooled.high))
    assert abs(pooled.probability[0] - true[0]) < 4 * math.sqrt(true[0] / pooled.slots[0])
    assert pooled.probability[0] > 2 * pooled.geometric[0]


def test_block_variance_is_binomial_for_markov_channels_and_larger_for_clusters() -> None:
    busy = worlds.markov(20_000, 1)[:, 0]
    inside, left = ~busy[:-1], ~busy[:-1] & busy[1:]
    effect, freedom = design_effect(inside, left)
    assert abs(effect - 1) < 4 * math.sqrt(2 / freedom)
    clustered = np.zeros(4000, bool)
    clustered[1000:2000:4] = True
    assert design_effect(np.ones(4000, bool), clustered)[0] > 10
    assert cluster_test(clustered) < 1e-6
    assert math.isnan(cluster_test(clustered[:100]))
    assert math.isnan(design_effect(inside[:15], left[:15])[0])


# --- tests of dwell times --------------------------------------------------------------------------------------------


def test_geometric_dwell_times_are_rejected_at_the_stated_rate() -> None:
    idle, busy = geometric_tests(count(worlds.markov(2000, 400)))
    for test in (idle, busy):
        assert test.tested == 400
        assert abs(np.mean(test.p_values < 0.05) - 0.05) < slack(0.05, 400)
        assert test.rejected <= 2  # Holm: none with a probability of 99%


def test_other_dwell_times_are_rejected() -> None:
    idle, busy = geometric_tests(count(worlds.semi_markov(4000, 20)))
    assert idle.rejected == 20
    assert idle.pooled < 1e-6
    assert busy.rejected <= 1
    assert math.isnan(age_test(np.array([5, 5]), np.array([0, 0])))
    assert math.isnan(age_test(np.array([5, 5]), np.array([1, 1])))


# --- change points and correlation -----------------------------------------------------------------------------------


def test_a_change_of_one_channel_is_found_and_no_other() -> None:
    busy = worlds.markov(3000, 6)
    busy[1700:, 2] = worlds.markov(1300, 1, p10=0.5, seed=8)[:, 0]
    found = find_changes(busy, count(busy), worlds.generator(1))
    assert [len(points) for points in found.channels] == [0, 0, 1, 0, 0, 0]
    (point,) = found.channels[2]
    assert abs(point.slot - 1700) < 60
    assert point.after > point.before + 0.3
    assert not found.common
    assert found.drifting == 1
    assert found.drift_low[2] > 0


def test_a_common_burst_is_found_with_both_ends() -> None:
    busy = worlds.markov(3000, 12)
    busy[1200:1800] |= worlds.markov(600, 12, p10=0.5, seed=9)
    found = find_changes(busy, count(busy), worlds.generator(1))
    first, second = found.common
    assert abs(first.slot - 1200) <= 30
    assert abs(second.slot - 1800) <= 30
    assert first.after > 2 * second.after
    assert found.common_p_value <= 0.01


def test_stationary_channels_have_no_change_points() -> None:
    busy = worlds.semi_markov(4000, 40)
    found = find_changes(busy, count(busy), worlds.generator(1))
    assert found.tested == 40
    assert found.changed <= 1  # none with a probability of 99%
    assert np.mean(found.p_values < 0.05) < 0.05 + slack(0.05, 40)
    assert found.drifting <= 1


def test_the_effective_number_of_channels() -> None:
    busy = worlds.markov(2000, 10)
    p = np.full(10, 0.25), np.full(10, 0.05)
    assert correlate(busy, *p).effective_channels == pytest.approx(10, rel=0.1)
    assert correlate(busy, *p).significant <= 0.1
    copies = np.repeat(busy[:, :1], 4, axis=1)
    found = correlate(copies, p[0][:4], p[1][:4])
    assert found.mean == pytest.approx(1)
    assert found.simultaneous == pytest.approx(1)
    assert found.effective_channels == pytest.approx(1, rel=0.02)
    alone = correlate(busy[:, :1], p[0][:1], p[1][:1])
    assert math.isnan(alone.mean)
    constant = busy & False
    assert math.isnan(correlate(constant, *p).mean)


# --- models ----------------------------------------------------------------------------------------------------------


def test_products_of_matrices_in_parts_agree_with_a_loop() -> None:
    matrices = worlds.generator(4).random((23, 3, 3))
    vector = np.array([0.2, 0.3, 0.5])
    found = propagate(vector, matrices)
    for t in range(23):
        vector = vector @ matrices[t]
        vector = vector / vector.sum()
        assert np.allclose(found[t], vector)


def test_the_likelihood_agrees_with_a_sum_over_all_paths() -> None:
    model = worlds.BURSTS
    busy = worlds.bursts(6)
    joint, single = predictive_log_loss(busy, model)
    total = 0.0
    for path in itertools.product(range(2), repeat=5):
        probability = stationary(model.transition)[path[0]]
        for before, after in itertools.pairwise(path):
            probability *= model.transition[before, after]
        for t, regime in enumerate(path):
            leave = np.where(busy[t], model.p01[regime], model.p10[regime])
            probability *= np.prod(np.where(busy[t + 1] != busy[t], leave, 1 - leave))
        total += probability
    assert -joint.sum() == pytest.approx(math.log(total))
    alone = RegimeModel(model.p01[:, :1], model.p10[:, :1], model.transition)
    joint, single = predictive_log_loss(busy[:, :1], alone)
    assert np.allclose(joint, single)


def test_a_restart_forgets_the_past() -> None:
    evidence = np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.7]]))
    restart = np.array([True, False, True])
    _, before, _ = forward_pass(worlds.BURSTS.transition, evidence, restart)
    share = stationary(worlds.BURSTS.transition)
    assert np.allclose(before[[0, 2]], share)
    assert before[1, 0] > share[0]


def test_em_recovers_regimes() -> None:
    busy = worlds.bursts(4000)
    data = transitions_of(busy, np.array([0, len(busy) - 1]))
    model, likelihood = fit_regimes(data, 2, np.ones(len(busy) - 1, bool))
    order = np.argsort(model.p10.mean(axis=1))
    assert np.allclose(model.p10[order].mean(axis=1), [0.03, 0.4], rtol=0.15)
    assert np.allclose(model.p01[order].mean(axis=1), [0.4, 0.1], rtol=0.15)
    assert np.allclose(model.transition[np.ix_(order, order)], worlds.BURSTS.transition, atol=0.03)
    assert -likelihood < predictive_log_loss(busy, worlds.BURSTS)[0].mean() + 0.01


def test_equal_regimes_have_the_loss_of_markov_channels() -> None:
    busy = worlds.markov(300, 4)
    markov = fit_markov(count(busy))
    twice = RegimeModel(np.stack([markov.p01] * 2), np.stack([markov.p10] * 2), np.array([[0.9, 0.1], [0.5, 0.5]]))
    joint, single = predictive_log_loss(busy, twice)
    leave = np.where(busy[:-1], markov.p01, markov.p10)
    expected = -np.log(np.where(busy[1:] != busy[:-1], leave, 1 - leave)).sum(axis=1)
    assert np.allclose(joint, expected)
    assert np.allclose(single, expected)


def test_hazards_of_channels_are_drawn_towards_the_common_shape() -> None:
    slots = np.array([[0, 1000, 1000], [0, 1000, 1000], [0, 10, 10]])
    leaves = np.array([[0, 300, 30], [0, 150, 15], [0, 3, 0]])
    found = fit_hazards(slots, leaves, np.array([1, 2]))
    assert np.allclose(found.values[0], [0.3, 0.03], rtol=0.1)
    assert 0.0 < found.values[2, 1] < found.values[2, 0]
    assert np.all((found.table() > 0) & (found.table() < 1))


@pytest.mark.parametrize(
    ("world", "expected"), [("markov", "markov"), ("semi_markov", "semi-markov"), ("bursts", "regimes")]
)
def test_the_model_that_made_a_trace_is_chosen(world: str, expected: str) -> None:
    busy = worlds.bursts(1000) if world == "bursts" else getattr(worlds, world)(1000, 8)
    choice = choose(busy, count(busy))
    assert choice.model.name == expected
    chosen = choice.chosen
    assert chosen is not None
    assert chosen.excess <= chosen.excess_error
    assert [candidate.name for candidate in choice.candidates] == ["markov", "semi-markov", "regimes", "regimes"]
    checks = check_model(busy, choice.model, worlds.generator(1))
    assert not checks.failed()
    forced = choose(busy, count(busy), "semi-markov")
    assert forced.model.name == "semi-markov"


def test_the_loss_of_held_out_parts_is_that_of_the_true_model_for_long_traces() -> None:
    busy = worlds.markov(1000, 8)
    choice = choose(busy, count(busy))
    rate = {0.05: 1 / 6 * 5, 0.25: 1 / 6}  # share of slots in which a channel leaves with that probability
    entropy = sum(share * -(p * math.log(p) + (1 - p) * math.log(1 - p)) for p, share in rate.items())
    markov = choice.candidates[0]
    assert markov.log_loss == pytest.approx(entropy, abs=0.03)
    assert markov.log_loss == markov.single_log_loss


# --- the whole fit ---------------------------------------------------------------------------------------------------


def test_models_in_the_parser_are_those_of_the_package() -> None:
    assert MODELS == fit_module.MODELS


def loaded(fit: Any, tmp_path: Path) -> dict[str, Any]:
    fit.save(tmp_path / "scenario.toml")
    text = (tmp_path / "scenario.toml").read_text()
    assert text.startswith("# Fitted to a trace of ")
    assert f"# Trust is {fit.verdict.trust}" in text
    found: dict[str, Any] = tomllib.loads(text)["scenario"]
    assert found == fit.scenario_table()["scenario"]
    return found


def test_a_scenario_of_markov_channels_can_be_simulated(tmp_path: Path) -> None:
    trace = trace_of(worlds.markov(1000, 5), channel_names=[f"868.{k} MHz" for k in range(5)])
    fit = trace.fit(name="my band", users=2)
    assert fit.verdict.trust == "high"
    found = loaded(fit, tmp_path)
    scenario = ib.scenario(tmp_path / "scenario.toml")
    assert (scenario.K, scenario.users, scenario.name) == (5, 2, "my band")
    assert scenario.channel_names == trace.channel_names
    assert found["p10"] == pytest.approx([one.p10.probability for one in fit.channels], rel=0.05)
    assert repr(fit) == "TraceFit(5 channels, 1,000 slots: markov, trust high)"
    assert fit.hazard("idle", "868.2 MHz").channel == 2
    assert json.loads(json.dumps(fit.to_dict(), allow_nan=False))["model"] == "markov"
    again = trace.fit(name="my band", users=2)
    assert again.to_dict() == fit.to_dict()


def test_a_scenario_with_hazards_by_age(tmp_path: Path) -> None:
    fit = trace_of(worlds.semi_markov(600, 3)).fit(model="semi-markov")
    found = loaded(fit, tmp_path)
    assert "p01" not in found
    assert len(found["dwell"]["good"]) == len(found["dwell"]["bad"]) == 3
    for part in (*found["dwell"]["good"], *found["dwell"]["bad"]):
        assert part["kind"] == "empirical"
        assert all(0 < h <= 1 for h in part["hazard"])
    model = fit_semi_markov(fit.counts)
    assert len(found["dwell"]["good"][0]["hazard"]) == model.idle.first_age[-1]
    assert found["dwell"]["good"][1]["hazard"][0] == pytest.approx(model.idle.values[1, 0], rel=1e-5)


def test_a_scenario_with_regimes_and_its_verdict(tmp_path: Path) -> None:
    fit = trace_of(worlds.bursts(1000)).fit()
    found = loaded(fit, tmp_path)["regimes"]
    regimes = len(found["transition"])
    assert np.shape(found["p01"]) == np.shape(found["p10"]) == (regimes, 8)
    assert all(math.fsum(row) == pytest.approx(1, abs=1e-12) for row in found["transition"])
    assert "common regimes" in fit.verdict.headline
    forced = trace_of(worlds.bursts(1000)).fit(model="markov")
    assert forced.verdict.trust == "low"
    assert any("Channels are not independent" in text for text in forced.verdict.limits)


def test_a_change_in_the_middle_is_stated_in_the_verdict() -> None:
    busy = np.concatenate([worlds.markov(700, 5), worlds.markov(700, 5, p10=0.4, seed=7)])
    verdict = trace_of(busy).fit(model="markov").verdict
    assert verdict.trust == "low"
    text = " ".join(verdict.limits)
    assert "Change points of the occupancy in all 5 channels: a stationary model does not describe" in text
    assert "The occupancy of many channels changes together at slot" in text
    assert "The mean occupancy rises by" in text


def test_the_verdict_says_what_correlation_of_either_sign_means() -> None:
    x = np.random.default_rng(2).random(90) < 0.5
    for other, word in ((x, "fewer"), (~x, "more")):
        fit = ib.Trace.from_arrays(busy=np.column_stack([x, other])).fit(users=1, model="markov")
        (text,) = (line for line in fit.verdict.limits if "not independent" in line)
        assert f"it has {word} slots in which nearly all channels are busy" in text


def test_channels_that_never_change(tmp_path: Path) -> None:
    busy = worlds.markov(200, 4)
    busy[:, 0], busy[:, 1] = False, True
    fit = trace_of(busy).fit()
    never, always = fit.channels[0], fit.channels[1]
    assert (never.p10.probability, never.p10.low) == (0, 0)
    assert 0 < never.p10.high < 0.05
    assert math.isnan(never.p01.probability)
    assert (never.p01.low, never.p01.high) == (0, 1)
    assert always.p01.probability == 0
    assert any("1 of 4 channels is never busy" in text for text in fit.verdict.limits)
    assert any("1 of 4 channels is always busy" in text for text in fit.verdict.limits)
    json.dumps(fit.to_dict(), allow_nan=False)
    loaded(fit, tmp_path)
    assert ib.scenario(tmp_path / "scenario.toml").K == 4


@pytest.mark.parametrize("busy", [np.zeros((12, 1)), np.ones((12, 2)), np.arange(12)[:, None] % 2, np.eye(40)])
@pytest.mark.parametrize("model", MODELS)
def test_short_traces_give_a_fit_that_is_not_trusted(busy: Any, model: str, tmp_path: Path) -> None:
    fit = trace_of(busy).fit(model=model)
    assert fit.verdict.trust == "low"
    assert any("too short to compare models" in text for text in fit.verdict.limits)
    json.dumps(fit.to_dict(), allow_nan=False)
    loaded(fit, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"users": 3}, "users = 3: must be a whole number from 1 to 2"),
        ({"users": "many"}, "users = many: must be a whole number"),
        ({"model": "hmm"}, "model = 'hmm': must be one of auto, markov, semi-markov, regimes"),
        ({"name": "a/b"}, "name = 'a/b': must be"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ib.InputError, match="^" + message.replace("(", r"\(")):
        trace_of(np.zeros((20, 2))).fit(**settings)


def test_too_few_slots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ib.InputError, match=r"^trace: has 9 slots; a fit needs at least 10$"):
        trace_of(np.zeros((9, 2))).fit()
    with pytest.raises(ib.InputError, match=r"must be the name of a file that ends in \.toml"):
        trace_of(np.zeros((10, 2))).fit().save(tmp_path / "scenario.json")


def test_the_busy_state_has_its_own_hazard() -> None:
    counts = count(worlds.markov(3000, 10))
    part = hazard(counts, BUSY)
    assert part.state == "busy"
    assert abs(part.probability[0] - 0.25) < slack(0.25, int(part.slots[0]))
