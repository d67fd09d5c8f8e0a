"""Contexts: margins and autocorrelation of AR(1) processes, recorded contexts, changes of the kind, refusals."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.simulation.path import path_parameters
from tests.scenario.paths import SLOTS, check_mean, check_round_trip, refused, walk

CHANNELS: dict[str, Any] = {"p01": [0.3, 0.4], "p10": [0.1, 0.5], "users": 1}
SPREAD = 1 / math.sqrt(12)


def contexts_of(**table: Any) -> np.ndarray:
    return walk(ib.scenario(CHANNELS, perturbation={"clear": 0.9}, context={"dimension": 3, **table})).contexts


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_contexts_with_uniform_margin_have_its_distribution_and_correlation(correlation: float) -> None:
    """Contexts are uniform, and the correlation from slot to slot is the given one, not that of the normal process."""
    x = contexts_of(kind="ar1", correlation=correlation)
    assert ((x >= 0) & (x <= 1)).all()
    for level in (0.05, 0.3, 0.5, 0.9):
        check_mean(x < level, level, largest_error=0.006)
    centred = (x - 0.5) / SPREAD
    check_mean(centred[1:] * centred[:-1], correlation, largest_error=0.015)
    normal = 2 * math.sin(math.pi / 6 * correlation)
    check_mean(centred[3:] * centred[:-3], 6 / math.pi * math.asin(normal**3 / 2), largest_error=0.015)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_contexts_with_normal_margin_have_its_moments_and_correlation(correlation: float) -> None:
    x = contexts_of(kind="ar1", correlation=correlation, margin="normal")
    centred = (x - 0.5) / SPREAD
    check_mean(centred, 0.0, largest_error=0.015)
    check_mean(centred**2, 1.0, largest_error=0.015)
    check_mean(centred**4, 3.0, largest_error=0.08)
    for lag in (1, 4):
        check_mean(centred[lag:] * centred[:-lag], correlation**lag, largest_error=0.015)


def test_entries_and_channels_are_independent() -> None:
    x = contexts_of(kind="ar1", correlation=0.5).reshape(SLOTS, 6)
    centred = (x - 0.5) / SPREAD
    for i in range(6):
        for j in range(i):
            check_mean(centred[:, i] * centred[:, j], 0.0, largest_error=0.005)


def test_paths_start_in_the_long_run() -> None:
    scenario = ib.scenario(CHANNELS, context={"kind": "ar1", "correlation": 0.99, "dimension": 3})
    first = np.array([walk(scenario, slots=1, replication=i).contexts[0].ravel() for i in range(500)])
    assert abs(first.mean() - 0.5) < 5.5 * SPREAD / math.sqrt(first.size)
    assert abs(first.std() - SPREAD) < 5.5 * SPREAD * math.sqrt((9 / 5 - 1) / 4 / first.size)


def test_states_do_not_depend_on_contexts() -> None:
    plain = walk(ib.scenario(CHANNELS), slots=500)
    ar1 = walk(ib.scenario(CHANNELS, context={"kind": "ar1", "correlation": 0.5}), slots=500)
    assert np.array_equal(plain.states, ar1.states)
    assert not np.array_equal(plain.contexts, ar1.contexts)


# --- long-run means --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("margin", ["uniform", "normal"])
def test_probabilities_and_means_under_correlated_contexts(margin: str) -> None:
    context = {"kind": "ar1", "correlation": 0.5, "margin": margin, "dimension": 2}
    scenario = ib.scenario(CHANNELS, context=context, perturbation={"theta": [[1.2, 0.9], [0.4, 0.9]]})
    theta = scenario.theta(0, 0)
    below, error = scenario.probabilities_below(theta, 1.0)
    means, mean_error = scenario.mean_rewards(theta)
    assert (error > 0) == (mean_error > 0) == (margin == "normal")
    found = walk(scenario)
    check_mean(found.perturbation < 1.0, below, largest_error=0.003 + error)
    good = (found.states == 1) & (found.perturbation < 1) | (found.perturbation < 0)
    check_mean(0.1 + 0.9 * good, means, largest_error=0.004 + mean_error)
    if margin == "normal":  # n is normal
        sd = SPREAD * np.linalg.norm(theta, axis=1)
        exact = [0.5 * math.erfc(-z / math.sqrt(2)) for z in (1 - theta.sum(axis=1) / 2) / sd]
        assert np.abs(below - exact).max() < 5 * error


def test_normal_contexts_of_many_dimensions_fit_into_memory() -> None:
    scenario = ib.scenario(
        CHANNELS, context={"kind": "ar1", "correlation": 0.5, "margin": "normal", "dimension": 1024},
        perturbation={"theta": [0.01] * 1024},
    )  # fmt: skip
    assert scenario.contexts.sample(0).size <= 10**7


# --- recorded --------------------------------------------------------------------------------------------------------


def recorded(slots: int = 49, K: int = 2, d: int = 3) -> np.ndarray:
    return np.random.default_rng(0).random((slots, K, d)).astype(np.float32)


def test_recorded_contexts_of_a_file_are_replayed(tmp_path: Path) -> None:
    values = recorded()
    np.save(tmp_path / "x.npy", values)
    scenario = ib.scenario(CHANNELS, context={"kind": "recorded", "file": str(tmp_path / "x.npy")})
    assert (scenario.dimension, scenario.contexts.uniform, scenario.contexts.independent) == (3, False, False)
    starts = set()
    for replication in range(5):
        x = walk(scenario, slots=120, replication=replication).contexts
        shift = int(np.flatnonzero((values == x[0].astype(np.float32)).all(axis=(1, 2)))[0])
        assert np.array_equal(x, np.resize(np.roll(values, -shift, axis=0), x.shape))
        starts.add(shift)
    assert len(starts) == 5
    assert 0 in starts


@pytest.mark.parametrize("slots", [49, 50, 98, 103])
def test_contexts_of_a_trace_stay_with_its_states(slots: int) -> None:
    """In every replication: the starting point is not computed with rounding."""
    values = recorded(slots)
    busy = np.random.default_rng(1).random((slots, 2)) < 0.4
    trace = ib.Trace.from_arrays(busy=busy, contexts=values)
    scenario = ib.scenario(trace={"file": trace, "block": 1}, users=1)
    assert scenario.contexts.kind == "recorded"
    for replication in range(slots):
        found = walk(scenario, slots=slots + 3, replication=replication)
        shift = int(np.flatnonzero((values == found.contexts[0].astype(np.float32)).all(axis=(1, 2)))[0])
        assert np.array_equal(found.contexts[:slots], np.roll(values, -shift, axis=0))
        assert np.array_equal(found.states[:slots] == 0, np.roll(busy, -shift, axis=0))
    check_round_trip(scenario)


def test_means_of_recorded_contexts_are_exact(tmp_path: Path) -> None:
    values = recorded(200)
    np.save(tmp_path / "x.npy", values)
    context = {"kind": "recorded", "file": str(tmp_path / "x.npy")}
    scenario = ib.scenario(CHANNELS, context=context, perturbation={"theta": [1.0, 0.5, 0.7]}, reward="additive")
    means, error = scenario.mean_rewards(scenario.theta(0, 0))
    expected = scenario.mean_h - (values.astype(float) @ [1.0, 0.5, 0.7]).mean(axis=0)
    assert error == 0
    np.testing.assert_allclose(means, expected)


def test_another_file_is_another_scenario(tmp_path: Path) -> None:
    for name, slots in (("a", 40), ("b", 40), ("c", 41)):
        np.save(tmp_path / f"{name}.npy", recorded(slots))
    a, b, c = (
        ib.scenario(CHANNELS, context={"kind": "recorded", "file": str(tmp_path / f"{name}.npy")}) for name in "abc"
    )
    assert a == b != c
    check_round_trip(a)


# --- changes of the kind ---------------------------------------------------------------------------------------------


def test_another_kind_keeps_the_dimension_only(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", recorded(d=4))
    file = {"kind": "recorded", "file": str(tmp_path / "x.npy")}
    ar1 = ib.scenario(CHANNELS, context={"kind": "ar1", "correlation": 0.5, "dimension": 3})
    assert ib.scenario(ar1, context={"correlation": 0.6}).contexts.correlation == 0.6
    assert ib.scenario(ar1, context="uniform").contexts == ib.scenario(CHANNELS, context={"dimension": 3}).contexts
    replayed = ib.scenario(ar1, context=file)
    assert replayed.dimension == 4
    assert ib.scenario(replayed, context="uniform").contexts.to_dict() == {"kind": "uniform", "dimension": 4}
    trace = ib.Trace.from_arrays(busy=np.eye(6, 2), contexts=recorded(6))
    traced = ib.scenario(trace, users=1)
    assert ib.scenario(traced, trace=ib.Trace.from_arrays(busy=np.eye(6, 2))).contexts.kind == "uniform"
    assert ib.scenario(ib.scenario(CHANNELS), trace=trace).contexts.kind == "uniform"


@given(st.floats(0, 0.999), st.sampled_from(["uniform", "normal"]), st.integers(1, 9))
def test_round_trip(correlation: float, margin: str, dimension: int) -> None:
    context = {"kind": "ar1", "correlation": correlation, "margin": margin, "dimension": dimension}
    check_round_trip(ib.scenario(CHANNELS, context=context, perturbation="none"))


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ({"kind": "ar1"}, "scenario.context.correlation is missing"),
        (
            {"kind": "ar1", "correlation": 1.0},
            "scenario.context.correlation = 1.0: must be a number of at least 0 and at most 1 - 1e-9",
        ),
        ({"kind": "ar1", "correlation": -0.1}, "scenario.context.correlation = -0.1: must be a number of at least 0"),
        ({"kind": "ar1", "correlation": 0.5, "margin": "beta"}, "margin = 'beta': must be one of uniform, normal"),
        ({"kind": "ar2"}, "scenario.context.kind = 'ar2': must be one of uniform, ar1, recorded"),
        ({"correlation": 0.5}, "scenario.context.correlation: not used where kind is uniform"),
        ({"margin": "normal"}, "scenario.context.margin: not used where kind is uniform"),
        ({"file": "x.npy"}, "scenario.context.file: not used where kind is uniform"),
        ({"kind": "ar1", "correlation": 0.5, "file": "x"}, "scenario.context.file: not used where kind is ar1"),
        ({"kind": "recorded"}, "scenario.context.file is missing: a trace file or .npy file"),
        ({"kind": "recorded", "file": "no.npy"}, "scenario.context.file = no.npy: No such file"),
    ],
)
def test_invalid_contexts_are_refused_in_one_line(context: dict[str, Any], line: str) -> None:
    assert line in refused({**CHANNELS, "context": context})


@pytest.mark.parametrize(
    ("values", "change", "line"),
    [
        (recorded(K=3), {}, "scenario.context.file: has contexts of 3 channels; the scenario has 2"),
        (recorded() * 2, {}, "must be from 0 to 1: rescale them"),
        (recorded(), {"dimension": 4}, "scenario.context.dimension = 4: recorded contexts have 3"),
        (recorded()[0], {}, "has no contexts of shape (slots, channels, d)"),
        (recorded() > 0.5, {}, "has no contexts of shape (slots, channels, d)"),
        (recorded() + 0j, {}, "has no contexts of shape (slots, channels, d)"),
        (np.full((4, 2, 3), np.nan), {}, "contains values that are not finite"),
        (None, {}, "x.npy: "),  # an empty file
    ],
    ids=["channels", "range", "dimension", "shape", "flags", "complex", "nan", "empty"],
)
def test_unsuitable_files_are_refused_in_one_line(
    tmp_path: Path, values: Any, change: dict[str, Any], line: str
) -> None:
    path = tmp_path / "x.npy"
    if values is None:
        path.touch()
    else:
        np.save(path, values)
    message = refused({**CHANNELS, "context": {"kind": "recorded", "file": str(path), **change}})
    assert line in message
    assert message.startswith("scenario.context.")


def test_contexts_of_a_trace_outside_of_the_unit_cube() -> None:
    trace = ib.Trace.from_arrays(busy=np.eye(6, 2), contexts=recorded(6) * 2)
    assert "scenario.trace: has contexts from" in refused({"trace": trace, "users": 1})
    assert ib.scenario(trace, users=1, context="uniform").contexts.kind == "uniform"


def test_additive_reward_needs_bounded_contexts() -> None:
    context = {"kind": "ar1", "correlation": 0.5, "margin": "normal"}
    assert "scenario.context.margin = normal: the additive reward needs bounded contexts" in refused(
        {**CHANNELS, "context": context, "reward": "additive"}
    )


# --- drift of the perturbation ---------------------------------------------------------------------------------------


def test_theta_moves_in_a_straight_line() -> None:
    scenario = ib.scenario("S1", perturbation={"clear": 0.7, "drift": 40, "per_channel": True})
    found = walk(scenario, slots=60).theta
    first, last = scenario.theta(0, 0), scenario.last_theta(0, 0)
    assert np.array_equal(first, ib.scenario("S1", perturbation={"clear": 0.7, "per_channel": True}).theta(0, 0))
    assert not np.array_equal(first, last)
    for t in range(1, 61):
        np.testing.assert_allclose(found[t - 1], first + min(1, t / 40) * (last - first), atol=1e-15)
    assert np.array_equal(scenario.theta(0, 0), first)  # the path moves a copy
    check_round_trip(scenario)


def test_mean_rewards_of_a_drift_are_those_of_its_slots() -> None:
    """By Simpson's rule; a mean of the exact means along the drift is the same to 0.001."""
    scenario = ib.scenario("S4", perturbation={"clear": 0.7, "drift": 1000})
    first, last = scenario.theta(0, 0), scenario.last_theta(0, 0)
    along = [scenario.mean_rewards(first + share * (last - first))[0] for share in np.linspace(0, 1, 41)]
    trapezoid = (np.sum(along, axis=0) - 0.5 * (along[0] + along[-1])) / 40
    np.testing.assert_allclose(path_parameters(scenario, 0, 0)[1], trapezoid, atol=1e-3)


@pytest.mark.parametrize(
    ("perturbation", "line"),
    [
        ({"drift": 0}, "scenario.perturbation.drift = 0: must be a whole number from 1 to 10^10"),
        ({"drift": 9, "theta": [0.1] * 8}, "scenario.perturbation.drift: only for a drawn theta"),
        ({"kind": "none", "drift": 9}, "scenario.perturbation.drift: not used where kind is none"),
    ],
)
def test_invalid_drifts_are_refused_in_one_line(perturbation: dict[str, Any], line: str) -> None:
    assert line in refused({"base": "S1", "perturbation": perturbation})


def test_predictions_are_not_compared_while_the_perturbation_drifts() -> None:
    with pytest.raises(ib.InputError, match=r"scenario\.perturbation\.drift: fresh contexts need a perturbation"):
        ib.learned(ib.scenario("S1", perturbation={"drift": 50}), "mp-lucb", horizon=100)
