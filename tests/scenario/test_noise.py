"""Noise of the perturbation: probabilities, drawn thetas, streams, rewards, levels, oracles and refusals."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import ndtr

import idleband as ib
from idleband.kernels.rng import NOISE, stream
from idleband.reporting.card import card, card_text
from idleband.scenario import noise
from idleband.scenario.noise import add_noise, probability_below
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.reward import ADDITIVE, THRESHOLD, expected_noisy_reward
from idleband.scenario.upper_bound import bound, levels, padded
from idleband.simulation.path import path_parameters
from idleband.simulation.run import PolicyRun, ReferenceRun
from idleband.simulation.statistics import paired_difference, student_t
from tests.own_model import LOUD
from tests.scenario.paths import check_mean, check_round_trip, refused, walk

KINDS = ["linear", "quadratic", "cosine"]
FORMULAS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "linear": lambda theta, x: x @ theta,
    "quadratic": lambda theta, x: 0.5 + theta[0] * ((x - 0.5) @ theta[1:]) ** 2,
    "cosine": lambda theta, x: theta[0] + 0.5 * np.cos(6 * ((x - 0.5) @ theta[1:])),
}
CHANNELS: dict[str, Any] = {"p01": [0.3, 0.4], "p10": [0.1, 0.5], "users": 1}


def with_noise(sigma: float, preset: str = "S1", **settings: Any) -> ib.Scenario:
    perturbation = settings.pop("perturbation", {})
    return ib.scenario(preset, perturbation={**perturbation, "noise": sigma}, **settings)


# --- probabilities ---------------------------------------------------------------------------------------------------


def integral(kind: str, theta: np.ndarray, d: int, level: float, sigma: float) -> float:
    """Return P(n < level) as the integral over e of the exact P(f < level - sigma e)."""
    model = PERTURBATION_MODELS[kind]

    def density(e: float) -> float:
        return model.probability_below(theta, d, level - sigma * e)[0] * math.exp(-e * e / 2) / math.sqrt(2 * math.pi)

    kinks = [e for e in ((level - end) / sigma for end in model.bounds(theta)) if -9 < e < 9]
    return float(integrate.quad(density, -9, 9, points=kinks, epsabs=1e-11, epsrel=0, limit=400)[0])


@pytest.mark.parametrize("sigma", [0.02, 0.2, 1.5])
@pytest.mark.parametrize(
    ("kind", "theta"),
    [
        ("linear", [0.8]),
        ("linear", [1.2, -0.7, 0.3]),
        ("linear", [0.3, 0.1, 0.2, 0.5, 0.2, 0.1, 0.4, 0.3]),
        ("linear", [0.0, 0.0]),
        ("quadratic", [6.0, 1.0]),
        ("quadratic", [-3.0, 0.6, -0.8]),
        ("quadratic", [5.2, 0.3, 0.1, 0.2, 0.5, 0.2, 0.1, 0.4, 0.3]),
        ("quadratic", [0.0, 1.0]),
        ("cosine", [0.65, 1.0]),
        ("cosine", [0.9, 0.6, -0.8]),
        ("cosine", [0.62, 0.3, 0.1, 0.2, 0.5, 0.2, 0.1, 0.4, 0.3]),
    ],
)
def test_probabilities_equal_an_integral_over_the_noise(kind: str, theta: list[float], sigma: float) -> None:
    row, d = np.array(theta), len(theta) - (kind != "linear")
    for level in (0.0, 0.5, 1.0):
        p, error = probability_below(PERTURBATION_MODELS[kind], row, d, level, sigma)
        assert p == pytest.approx(integral(kind, row, d, level, sigma), abs=1e-10), level
        assert error == 0.0


@given(
    kind=st.sampled_from(KINDS), d=st.sampled_from([1, 2, 5, 12]), seed=st.integers(0, 10**6),
    size=st.floats(-1.5, 1.5),
    strength=st.floats(-50, 50), level=st.sampled_from([0.0, 0.3, 0.5, 1.0]) | st.floats(-2, 3),
    sigma=st.floats(-2, 1).map(lambda power: 10.0**power),
)  # fmt: skip
def test_four_times_as_many_terms_give_the_same_probability(
    kind: str, d: int, seed: int, size: float, strength: float, level: float, sigma: float
) -> None:
    """What the sums leave out is below 1e-12: more terms, and a longer period of the square wave, change nothing."""
    a = np.random.default_rng(seed).normal(size=d) * 10.0**size
    theta = a if kind == "linear" else np.array([strength, *a])
    model = PERTURBATION_MODELS[kind]
    found = probability_below(model, theta, d, level, sigma)
    with mock.patch.multiple(noise, _DECAY=4 * noise._DECAY, _FAR=2 * noise._FAR):
        more = probability_below(model, theta, d, level, sigma)
    assert found[1] == more[1] == 0.0
    assert abs(found[0] - more[0]) < 1e-12
    assert 0.0 <= found[0] <= 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "context"), [(30, {}), (3, {"kind": "ar1", "correlation": 0.5, "margin": "normal"})])
def test_probabilities_agree_with_sampling(kind: str, d: int, context: dict[str, Any]) -> None:
    """Also in 30 dimensions, where there is no closed form without noise, and for contexts that are not uniform."""
    count, sigma = 200_000, 0.3
    scenario = ib.scenario(
        CHANNELS, context={"dimension": d, **context}, perturbation={"kind": kind, "noise": sigma, "clear": 0.8}
    )
    theta, rng = scenario.theta(0, 0), np.random.default_rng(1)
    x = 0.5 + rng.normal(size=(count, d)) / math.sqrt(12) if context else rng.random((count, d))
    n = FORMULAS[kind](theta[0], x) + sigma * rng.normal(size=count)
    for level in (0.0, 0.7, 1.0):
        (p, _), error = scenario.probabilities_below(theta, level)
        assert (error == 0.0) == (not context)
        assert abs((n < level).mean() - p) < 5 * math.hypot(math.sqrt(p * (1 - p) / count), error)


def test_recorded_contexts_have_probabilities_without_error() -> None:
    contexts = np.random.default_rng(3).random((50, 2, 3))
    trace = ib.Trace.from_arrays(busy=np.arange(100).reshape(50, 2) % 3 == 0, contexts=contexts)
    scenario = ib.scenario(trace, users=1, perturbation={"theta": [0.9, 0.4, 0.8], "noise": 0.2})
    found, error = scenario.probabilities_below(scenario.theta(0, 0), 1.0)
    expected = ndtr((1 - contexts @ np.array([0.9, 0.4, 0.8])) / 0.2).mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # a trace has single precision
    assert error == 0.0


def test_theta_that_needs_too_many_terms_is_sampled() -> None:
    """And the sample agrees with the sum, up to its standard error."""
    theta, model = np.array([0.9, 0.4, 0.8]), PERTURBATION_MODELS["linear"]
    exact, _ = probability_below(model, theta, 3, 1.0, 0.1)
    with mock.patch.object(noise, "MAX_TERMS", 10):
        found, error = probability_below(model, theta, 3, 1.0, 0.1)
    assert 0.0 < error < 0.0005
    assert abs(found - exact) < 5 * error
    assert probability_below(model, np.array([1e6]), 1, 1.0, 0.001)[1] > 0.0


def test_model_of_a_user_is_sampled_with_noise(tmp_path: Path) -> None:
    """n = s max(x) + t + sigma e; the larger of two uniform variables has the density 2 m. `draw` knows no noise."""
    path = tmp_path / "mine.py"
    path.write_text(LOUD)
    scenario = with_noise(0.2, context={"dimension": 2}, perturbation={"kind": f"{path}:loud", "clear": 0.7})
    theta = scenario.theta(0, 0)
    assert (
        theta.tolist()
        == ib.scenario(scenario, perturbation={"kind": f"{path}:loud", "clear": 0.7}).theta(0, 0).tolist()
    )
    s, t = theta[0]
    for level in (0.0, 1.0):
        p, error = scenario.probabilities_below(theta, level)
        expected = integrate.quad(lambda m, at=level: 2 * m * ndtr((at - s * m - t) / 0.2), 0, 1)[0]
        assert abs(p[0] - expected) < 5 * error + 1e-9
        assert error < 0.0006
    assert "noise" in card_text(card(scenario))
    check_round_trip(scenario)


# --- drawn thetas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sigma", "clear", "d"),
    [(0.1, 0.7, 8), (0.2, 0.3, 8), (0.05, 0.99, 8), (0.4, 0.85, 3), (0.2, 0.97, 1), (0.1, 0.5, 40)],
)
def test_drawn_theta_has_the_requested_success_probability(kind: str, sigma: float, clear: float, d: int) -> None:
    scenario = ib.scenario(
        CHANNELS,
        context={"dimension": d},
        perturbation={"kind": kind, "noise": sigma, "clear": clear, "per_channel": True},
    )
    model, count = PERTURBATION_MODELS[kind], 50_000
    low, high = noise.drawn_bounds(model, d, clear, None, sigma)
    for replication in range(3):
        theta, rng = scenario.theta(0, replication), np.random.default_rng(replication)
        found, error = scenario.probabilities_below(theta, 1.0)
        np.testing.assert_allclose(found, clear, rtol=0, atol=1e-13)
        assert error == 0.0
        n = FORMULAS[kind](theta[0], rng.random((count, d))) + sigma * rng.normal(size=count)
        assert abs((n < 1).mean() - clear) < 5 * math.sqrt(clear * (1 - clear) / count)
        a = theta if kind == "linear" else theta[:, 1:]
        assert (a >= 0).all()
        assert (np.linalg.norm(a, axis=1) <= 1 + 1e-12).all()
        assert all(low <= model.bounds(row)[0] <= model.bounds(row)[1] <= high for row in theta)


def test_small_noise_changes_theta_little() -> None:
    for kind in KINDS:
        plain, noisy = (ib.scenario("S1", perturbation={"kind": kind, "noise": s}).theta(1, 2) for s in (0.0, 0.001))
        np.testing.assert_allclose(noisy, plain, rtol=1e-4)


def test_least_success_probability_is_that_of_equal_entries() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 2, 8):
        directions = np.abs(rng.normal(size=(100, d)))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        for sigma in (0.05, 0.3, 1.0):
            values = [probability_below(PERTURBATION_MODELS["linear"], a, d, 1.0, sigma)[0] for a in directions]
            least = probability_below(PERTURBATION_MODELS["linear"], np.full(d, d**-0.5), d, 1.0, sigma)[0]
            assert min(values) >= least - 1e-12


# --- sample paths ----------------------------------------------------------------------------------------------------


def test_noise_has_its_own_stream_and_changes_no_other() -> None:
    """Noise is drawn channel by channel, slot by slot; states, contexts and given strengths are those without it."""
    settings = {"context": {"dimension": 3}, "perturbation": {"theta_norm": 0.8}}
    plain = ib.scenario(CHANNELS, **settings)
    noisy = ib.scenario(CHANNELS, **settings | {"perturbation": {"theta_norm": 0.8, "noise": 0.25}})
    one, other = (walk(scenario, slots=100, seed=5, replication=2) for scenario in (plain, noisy))
    assert np.array_equal(one.states, other.states)
    assert np.array_equal(one.contexts, other.contexts)
    assert np.array_equal(one.theta, other.theta)
    e = np.zeros((100, 2))
    rng = stream(5, 2, NOISE)
    for row in e:
        add_noise(np.zeros(2), 1.0, rng, row)
    np.testing.assert_allclose(other.perturbation, one.perturbation + 0.25 * e, rtol=0, atol=1e-15)
    assert not np.array_equal(e[:, 0], e[:, 1])


def test_noise_is_standard_normal_and_independent() -> None:
    sigma = 0.5
    channels = {"p01": [0.3] * 3, "p10": [0.1] * 3, "users": 1}
    scenario = ib.scenario(channels, context={"dimension": 1}, perturbation={"theta": [0.0], "noise": sigma})
    e = walk(scenario).perturbation / sigma
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        check_mean(e**power, moment, largest_error=0.03)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        check_mean(e[:, i] * e[:, j], 0.0, largest_error=0.005)
        check_mean(e[:, i] ** 2 * e[:, j] ** 2, 1.0, largest_error=0.02)
    check_mean(e[1:] * e[:-1], 0.0, largest_error=0.005)
    check_mean(e < 1.0, 0.8413447460685429, largest_error=0.002)


def test_expected_reward_is_a_mean_over_the_noise() -> None:
    for share in (0.0, 0.3, 1.0):
        for f in (-0.7, 0.0, 0.4, 1.1, 3.0):
            p1, p0 = ndtr((1 - f) / 0.3), ndtr(-f / 0.3)
            expected = 0.1 + 0.9 * (share * p1 + (1 - share) * p0)
            assert expected_noisy_reward(THRESHOLD, 0.0, share, f, 0.3) == pytest.approx(expected, abs=1e-14)
            assert expected_noisy_reward(ADDITIVE, 0.5, share, f, 0.3) == 0.5 - f


SIMULATED = [
    with_noise(0.2, context={"dimension": 2}, perturbation={"clear": 0.85}),
    with_noise(0.3, "S4", perturbation={"kind": "quadratic"}),
    with_noise(0.1, "S2", perturbation={"kind": "cosine", "per_channel": True}),
    with_noise(0.4, "S3", reward="additive", perturbation={"theta_norm": 0.5}),
    with_noise(0.2, "S4", perturbation={"theta": [0.2, -0.3] * 4}, context={"kind": "ar1", "correlation": 0.5}),
    with_noise(0.2, perturbation={"drift": 1000}),
]


@pytest.mark.parametrize("scenario", SIMULATED, ids=str)
def test_mean_and_expected_rewards_equal_simulated_averages(scenario: ib.Scenario) -> None:
    """Means of channels, E[r | x] and realised rewards agree, within intervals over replications; so do references."""
    T, R, seed = 600, 16, 3
    gaps, expected = np.zeros((R, scenario.K)), np.zeros((R, scenario.K))
    for i in range(R):
        run = ReferenceRun.start(scenario, T, seed, i)
        means = path_parameters(scenario, seed, i)[1]
        for t in range(T):
            run.to(t + 1)
            gaps[i] += (run.path.rewards - run.path.expected) / T
            expected[i] += (run.path.expected - means) / T
    for name, values in (("realised", gaps), ("expected", expected)):
        if name == "expected" and scenario.perturbation.drift:
            continue  # the mean is over the drift, the run longer
        error = values.std(axis=0, ddof=1) / math.sqrt(R)
        assert (np.abs(values.mean(axis=0)) < 5 * error + 1e-12).all(), name
        assert error.max() < 0.03


def test_range_of_the_additive_reward_includes_the_noise() -> None:
    settings = {"reward": "additive", "perturbation": {"theta": [0.5, 0.25]}, "context": {"dimension": 2}}
    plain = ib.scenario(CHANNELS, **settings)
    noisy = ib.scenario(CHANNELS, **settings | {"perturbation": {"theta": [0.5, 0.25], "noise": 0.1}})
    low, high = plain.reward_range()
    assert noisy.reward_range() == pytest.approx((low - 0.4, high + 0.4), abs=1e-12)
    assert with_noise(0.1).reward_range() == (0.1, 1.0)


# --- levels and the bound --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize(
    "scenario",
    [with_noise(s, perturbation={"kind": kind}) for kind in KINDS for s in (0.02, 0.2)]
    + [with_noise(5.0, perturbation={"theta": [0.9, -0.4, 0.8, 0.3, -0.6, 0.2, 0.5, 0.1]})]
    + [with_noise(0.3, perturbation={"clear": 0.8, "per_channel": True})],
    ids=lambda one: f"{one.perturbation.kind} {one.perturbation.noise}",
)
def test_levels_have_the_mean_rewards(scenario: ib.Scenario, steps: int) -> None:
    theta = scenario.theta(0, 0)
    ends, probability, pay = levels(scenario, theta, steps)
    assert ends.shape == probability.shape == pay.shape[:2]
    assert 2 * steps <= ends.shape[1] <= 2 * steps + 4
    assert (np.diff(ends, axis=1) > 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-12)
    distributions = padded(scenario.stationary_distributions, 0.0)
    means = np.einsum("kl,kls,ks->k", probability, pay, distributions)
    np.testing.assert_allclose(means, scenario.mean_rewards(theta)[0], atol=1e-9)
    assert ((pay >= 0.1) & (pay <= 1.0)).all()
    assert (np.diff(pay[:, :, 1], axis=1) <= 1e-12).all()  # a larger f never pays more


def test_levels_pay_the_mean_of_their_contexts() -> None:
    """The mean of the expected reward over the sampled contexts of each level, within five standard errors."""
    sigma, count = 0.2, 200_000
    scenario = with_noise(sigma, perturbation={"kind": "linear", "theta": [0.9, -0.4, 0.8, 0.3, -0.6, 0.2, 0.5, 0.1]})
    ends, probability, pay = levels(scenario, scenario.theta(0, 0))
    f = np.random.default_rng(0).random((count, 8)) @ np.array(scenario.perturbation.theta).ravel()
    level = np.searchsorted(ends[0], f, side="right")
    for state in (0, 1):
        expected = 0.1 + 0.9 * ndtr((state - f) / sigma)
        for i in np.unique(level):
            here = expected[level == i]
            if len(here) > 30:
                assert abs(here.mean() - pay[0, i, state]) < 5 * here.std() / math.sqrt(len(here)) + 1e-4
    share = np.bincount(level, minlength=len(ends[0])) / count
    assert (np.abs(share - probability[0]) < 5 * np.sqrt(probability[0] * (1 - probability[0]) / count) + 1e-9).all()


def test_bound_is_that_without_noise_where_there_is_almost_none() -> None:
    plain, noisy = ib.scenario("S4"), with_noise(0.002, "S4")
    assert bound(noisy, noisy.theta(0, 0)) == pytest.approx(bound(plain, plain.theta(0, 0)), abs=0.01)


def test_bound_falls_with_noise() -> None:
    scenarios = [ib.scenario("S4"), *(with_noise(s, "S4") for s in (0.1, 0.2, 0.4))]
    bounds = [bound(scenario, scenario.theta(0, 0)) for scenario in scenarios]
    assert bounds == sorted(bounds, reverse=True)  # type: ignore[type-var]


# --- oracles ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def earned() -> dict[str, Any]:
    """Rewards per slot in S4 with noise 0.2, 6 replications."""
    scenario, T = with_noise(0.2, "S4"), 20_000
    names = ("oracle-static", "oracle-contextual", "oracle-belief", "oracle-whittle", "genie", "mp-belief-lucb")
    results = {name: ib.simulate(scenario, name, horizon=T, replications=6, seed=4) for name in names}
    bounds = np.array([bound(scenario, scenario.theta(4, i)) for i in range(6)], float)
    return {
        "bound": bounds, "results": results, **{name: one.reward[:, -1] / T for name, one in results.items()}
    }  # fmt: skip


def test_oracles_with_more_information_earn_more(earned: dict[str, Any]) -> None:
    order = ["oracle-static", "oracle-contextual", "oracle-belief", "genie"]
    for less, better in itertools.pairwise(order):
        assert paired_difference(earned[better], earned[less], level=0.999).low > 0.0, (less, better)


def test_oracles_stay_below_the_bound_and_come_close_to_it(earned: dict[str, Any]) -> None:
    for name in ("oracle-static", "oracle-contextual", "oracle-belief", "oracle-whittle", "mp-belief-lucb"):
        mean, half = student_t(earned[name] - earned["bound"], level=0.999)
        assert mean - half <= 0.0, name
    assert earned["oracle-whittle"].mean() > 0.96 * earned["bound"].mean()


def test_belief_policy_is_close_to_the_oracle_with_noise(earned: dict[str, Any]) -> None:
    assert paired_difference(earned["mp-belief-lucb"], 0.98 * earned["oracle-whittle"], level=0.99).low > 0.0


def test_oracles_have_no_regret_against_their_references(earned: dict[str, Any]) -> None:
    """The contextual oracle knows f(x) alone, so that its realised reward differs from E[r | x] at random."""
    genie, contextual = (earned["results"][name] for name in ("genie", "oracle-contextual"))
    np.testing.assert_allclose(genie.regret("genie"), 0.0, atol=1e-8)
    assert not contextual.curves["suboptimal_contextual"].any()
    regret = contextual.regret("contextual")[:, -1]
    assert abs(regret.mean()) < 5 * regret.std(ddof=1) / math.sqrt(6)
    assert regret.std() > 0


def test_oracles_observe_f_and_the_genie_observes_n() -> None:
    """The index of a channel whose state is sensed is its reward: expected for an oracle, realised for the genie."""
    scenario = with_noise(0.3, sensing="all")
    for name in ("oracle-belief", "oracle-whittle", "genie"):
        run = PolicyRun.start(scenario, ib.policy(name), 30, 0, 0)
        found = []
        for t in range(30):
            run.to(t + 1)
            path = run.path
            good = path.good[np.arange(10), path.s].astype(float)
            realised = np.where(good - path.n > 0, 1.0, 0.1)
            expected = 0.1 + 0.9 * ndtr((good - path.f) / 0.3)
            np.testing.assert_allclose(run.tally.indices, realised if name == "genie" else expected, atol=1e-12)
            found.append(path.n - path.f)
        assert np.std(found) == pytest.approx(0.3, abs=0.06)


def test_whittle_index_is_that_of_the_mean_reward_if_slots_are_independent() -> None:
    """In S2 an observation has no value, so the index is E[r | x], wherever f lies within its level."""
    scenario = with_noise(0.2, "S2")
    run = PolicyRun.start(scenario, ib.policy("oracle-whittle"), 50, 0, 0)
    for t in range(50):
        run.to(t + 1)
        np.testing.assert_allclose(run.tally.indices, run.path.expected, atol=3e-3)  # the step of 257 charges


def test_genie_is_refused_in_an_allocator() -> None:
    with pytest.raises(
        ib.InputError, match=r"policy genie: knows the perturbations of a slot, .*noise = 0\.1; must be"
    ):
        ib.Allocator("genie", scenario=with_noise(0.1))


# --- learning --------------------------------------------------------------------------------------------------------


def test_learned_errors_are_those_without_noise() -> None:
    """A linear model learns f(x) from noisy measurements; the error against n would be sigma / sd(f), above 1."""
    sigma = 0.4
    scenario = ib.scenario(
        CHANNELS, context={"dimension": 2}, perturbation={"theta": [0.6, 0.8], "noise": sigma}, users=2
    )
    found = ib.learned(scenario, "mp-lucb", horizon=4000, replications=2)
    spread = found.pairs_fresh[1].std()
    assert spread == pytest.approx(math.sqrt((0.36 + 0.64) / 12), rel=0.05)
    assert (found.fresh_last < 5 * sigma / spread * math.sqrt(2 / 4000)).all()
    assert (found.played_last < 5 * sigma / spread * math.sqrt(2 / 4000)).all()
    assert sigma / spread > 1


# --- settings --------------------------------------------------------------------------------------------------------


def test_no_noise_is_the_default_and_leaves_no_trace() -> None:
    assert with_noise(0).to_dict() == with_noise(0.0).to_dict() == ib.scenario("S1").to_dict()
    assert with_noise(0) == ib.scenario("S1")
    assert "noise" not in ib.scenario("S1").to_dict()["perturbation"]


@pytest.mark.parametrize(
    "perturbation",
    [{}, {"kind": "cosine", "per_channel": True}, {"theta": [0.1] * 8}, {"theta_norm": 0.5, "drift": 100}],
)
def test_noise_is_part_of_a_scenario(perturbation: dict[str, Any]) -> None:
    scenario = with_noise(0.15, perturbation=perturbation)
    check_round_trip(scenario)
    assert scenario != with_noise(0.16, perturbation=perturbation)
    assert scenario.identity()["perturbation"]["noise"] == 0.15


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"noise": -0.1}, "scenario.perturbation.noise = -0.1: must be a number of at least 0 and at most 1e+06"),
        ({"noise": "0.1"}, "scenario.perturbation.noise = '0.1': must be a number"),
        ({"noise": math.nan}, "scenario.perturbation.noise = nan: must be a number"),
        ({"noise": 1e-6}, "scenario.perturbation.noise = 1e-06: must be 0, or from 0.001 to 1e+06"),
        ({"kind": "none", "noise": 0.1}, "scenario.perturbation.noise: not used where kind is none"),
        (
            {"noise": 1.0, "clear": 0.9},
            "scenario.perturbation.clear = 0.9: must be below 0.8413, the largest P(n < 1) of the linear model with"
            " noise = 1",
        ),
        ({"noise": 0.1, "clear": 1}, "scenario.perturbation.clear = 1: must be below 1, the largest P(n < 1)"),
        ({"kind": "quadratic", "noise": 0.5}, None),
        (
            {"kind": "quadratic", "noise": 1.0},
            "scenario.perturbation.clear = 0.7: must be below 0.6915, the largest P(n < 1) of the quadratic model with"
            " noise = 1",
        ),
        ({"kind": "cosine", "noise": 3.0, "clear": 0.99}, None),
        (
            {"noise": 0.4, "clear": 0.1},
            "scenario.perturbation.clear = 0.1: must be at least 0.2009, the smallest P(n < 1) that a theta of norm at"
            " most 1 can have in 8 dimensions with noise = 0.4",
        ),
    ],
)
def test_noise_that_the_model_cannot_have_is_refused_in_one_line(table: dict[str, Any], line: str | None) -> None:
    if line is None:
        scenario = ib.scenario("S1", perturbation=table)
        assert scenario.probabilities_below(scenario.theta(0, 0), 1.0)[0] == pytest.approx(scenario.perturbation.clear)
    else:
        assert line in refused({"base": "S1", "perturbation": table})


def test_success_probability_close_to_the_minimum_is_refused_in_one_line() -> None:
    with mock.patch.object(noise, "_DRAWS", 50), pytest.raises(ib.InputError) as caught:
        with_noise(0.1, perturbation={"clear": 0.095}).theta(0, 0)
    assert str(caught.value) == (
        "scenario.perturbation.clear = 0.095: no theta of norm at most 1 reached it in 50 draws with noise = 0.1;"
        " choose a larger value"
    )


def test_description_states_the_noise() -> None:
    text = card_text(card(with_noise(0.1)))
    assert "linear: n = theta . x + noise e, e ~ N(0, 1); clear = 0.7, noise =" in text
    assert "n = 0.5 + c z^2 + noise e, z =" in card_text(card(with_noise(0.1, perturbation={"kind": "quadratic"})))
