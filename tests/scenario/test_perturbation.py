"""Perturbation models: values, probabilities and means against sampling and closed forms, and drawn thetas."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idleband as ib
from idleband.kernels.rng import PERTURBATION, stream
from idleband.scenario.halfspace_volume import SAMPLES, below
from idleband.scenario.perturbation import COSINE, LINEAR, NONE, PERTURBATION_MODELS, QUADRATIC, least_clear, perturb
from tests.scenario.test_halfspace_volume import exact_below

Floats = npt.NDArray[np.float64]

# The formulas of the models, written independently; contexts are rows.
FORMULAS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "none": lambda theta, x: np.zeros(len(x)),
    "linear": lambda theta, x: x @ theta,
    "quadratic": lambda theta, x: 0.5 + theta[0] * ((x - 0.5) @ theta[1:]) ** 2,
    "cosine": lambda theta, x: theta[0] + 0.5 * np.cos(6 * ((x - 0.5) @ theta[1:])),
}
NONLINEAR = ["quadratic", "cosine"]
NO_FAULT = np.zeros(4)


# --- values, probabilities, means and bounds of a model -------------------------------------------------------------


@pytest.mark.parametrize(("model", "kind"), list(enumerate(FORMULAS)))
def test_perturb_equals_the_formula(model: int, kind: str) -> None:
    assert (PERTURBATION_MODELS[kind].number, PERTURBATION_MODELS[kind].name) == (model, kind)
    rng = np.random.default_rng(1)
    theta, x, n = rng.normal(size=(3, PERTURBATION_MODELS[kind].size(4))), rng.random((3, 4)), np.full(3, np.nan)
    perturb(model, theta, x, n, NO_FAULT)
    expected = [FORMULAS[kind](theta[k], x[k : k + 1])[0] for k in range(3)]
    np.testing.assert_allclose(n, expected, rtol=1e-13)


@pytest.mark.parametrize("kind", FORMULAS)
def test_perturb_compiled_equals_interpreted(kind: str) -> None:
    rng = np.random.default_rng(3)
    theta, x = rng.normal(size=(500, PERTURBATION_MODELS[kind].size(8))), rng.random((500, 8))
    compiled, interpreted = np.zeros(500), np.zeros(500)
    perturb(PERTURBATION_MODELS[kind].number, theta, x, compiled, NO_FAULT)
    getattr(perturb, "py_func", perturb)(PERTURBATION_MODELS[kind].number, theta, x, interpreted, NO_FAULT)
    np.testing.assert_array_equal(compiled, interpreted)


def test_perturb_equals_values_computed_by_hand() -> None:
    x, n = np.array([[0.0, 1.0]]), np.full(1, np.nan)
    for model, theta, expected in (
        (NONE, [5.0, 5.0], 0.0),
        (LINEAR, [0.25, 0.5], 0.5),
        (QUADRATIC, [4.0, -1.0, 0.0], 1.5),  # z = 1/2
        (QUADRATIC, [4.0, 1.0, 1.0], 0.5),  # z = 0
        (COSINE, [0.7, 1.0, 1.0], 1.2),
        (COSINE, [0.7, 0.0, math.pi / 3], 0.2),  # 6 z = pi
    ):
        perturb(model, np.array([theta]), x, n, NO_FAULT)
        assert n[0] == pytest.approx(expected, abs=1e-15), (model, theta)


THETAS = {
    "quadratic": [[2.0, 1.0], [5.0, 0.6, -0.8], [-3.0, 0.5, 0.5, 0.7], [0.0, 1.0, 1.0], [4.0, 0.0, 0.0], [-1e-3, 1.0]],
    "cosine": [[0.6, 1.0], [0.9, 0.6, -0.8], [0.2, 3.0, -2.0, 0.5], [0.4, 0.0, 0.0], [1.0, 100.0], [0.7, 0.05]],
    "linear": [[0.5, 1.0, -0.7]],
    "none": [[0.0, 0.0]],
}
MODELS = [(kind, theta) for kind, thetas in THETAS.items() for theta in thetas]


@pytest.mark.parametrize(("kind", "theta"), MODELS, ids=[f"{kind} {theta}" for kind, theta in MODELS])
def test_probabilities_means_and_bounds_agree_with_sampling(kind: str, theta: list[float]) -> None:
    model, row = PERTURBATION_MODELS[kind], np.array(theta)
    d, samples = len(theta) - (kind in NONLINEAR), 200_000
    n = FORMULAS[kind](row, np.random.default_rng(5).random((samples, d)))
    mean, error = model.mean(row, d)
    assert abs(n.mean() - mean) <= 5 * (n.std() / math.sqrt(samples) + error) + 1e-12
    least, most = model.bounds(row)
    assert least - 1e-12 <= n.min() <= n.max() <= most + 1e-12
    assert (
        most - n.max() + n.min() - least <= 0.2 * (most - least) + 1e-12
    )  # the bounds are not much wider than necessary
    for level in (-1.0, 0.0, 0.3, 0.5, 0.7, 1.0, 1.3, 2.0):
        p, error = model.probability_below(row, d, level)
        share = float(np.mean(n < level))
        assert abs(share - p) <= 5 * math.hypot(math.sqrt(p * (1 - p) / samples), error), level
        assert abs(model.probability_below(row, d, np.nextafter(level, 9))[0] - p) < 1e-6 or least == most  # no atoms


@pytest.mark.parametrize(
    ("kind", "theta", "level", "expected"),
    [
        ("quadratic", [8.0, 1.0], 1.0, 0.5),  # |x - 1/2| < 1/4
        ("quadratic", [2.0, 1.0], 1.0, 1.0),
        ("quadratic", [2.0, 1.0], 0.5, 0.0),
        ("quadratic", [-8.0, 1.0], 0.0, 0.5),
        ("quadratic", [-8.0, 1.0], 0.5, 1.0),  # n = 0.5 at one point only
        ("quadratic", [-8.0, 0.0], 0.5, 0.0),  # n = 0.5 everywhere
        ("quadratic", [0.0, 1.0], 0.5, 0.0),
        ("quadratic", [0.0, 1.0], 0.6, 1.0),
        ("quadratic", [8.0, 1.0, 1.0], 1.0, 1 - 0.75**2),  # |x1 + x2 - 1| < 1/4
        ("cosine", [1.0, math.pi / 3], 1.0, 0.5),  # 6 z from -pi to pi
        ("cosine", [0.75, math.pi / 3], 1.0, 2 / 3),  # cos < 1/2
        ("cosine", [0.5, math.pi / 3], 0.0, 0.0),
        ("cosine", [0.5, math.pi / 3], 1.0, 1.0),
        ("cosine", [0.75, 10 * math.pi / 3], 1.0, 2 / 3),  # ten periods
        ("cosine", [0.75, 0.0], 1.0, 0.0),  # n = 1.25 everywhere
        ("cosine", [0.25, 0.0], 1.0, 1.0),
    ],
)
def test_probabilities_equal_values_computed_by_hand(
    kind: str, theta: list[float], level: float, expected: float
) -> None:
    found, error = PERTURBATION_MODELS[kind].probability_below(np.array(theta), len(theta) - 1, level)
    assert found == pytest.approx(expected, abs=1e-12)
    assert error == 0


@pytest.mark.parametrize(
    ("kind", "theta", "expected"),
    [
        ("none", [0.0], 0.0),
        ("linear", [1.0, -0.5], 0.25),
        ("quadratic", [12.0, 0.6, -0.8], 1.5),
        ("quadratic", [-6.0, 2.0], -1.5),
        ("cosine", [0.5, math.pi / 6], 0.5 + 1 / math.pi),  # sin(3 a) / (3 a) = 2 / pi
        ("cosine", [0.5, math.pi / 6, -math.pi / 6], 0.5 + 2 / math.pi**2),
        ("cosine", [0.5, 0.0], 1.0),
    ],
)
def test_means_equal_values_computed_by_hand(kind: str, theta: list[float], expected: float) -> None:
    assert PERTURBATION_MODELS[kind].mean(np.array(theta), 1) == (pytest.approx(expected, abs=1e-14), 0)


@pytest.mark.parametrize("kind", NONLINEAR)
def test_standard_error_of_a_sample_enters_mean_rewards(kind: str) -> None:
    scenario = ib.scenario("S1", context={"dimension": 20}, perturbation={"kind": kind})
    theta = scenario.theta(0, 0)
    probabilities, error = scenario.probabilities_below(theta, 1.0)
    assert error == pytest.approx(math.sqrt(0.7 * 0.3 / SAMPLES), rel=0.01)
    assert np.abs(probabilities - 0.7).max() < 1e-5
    assert scenario.mean_rewards(theta)[1] == pytest.approx(0.9 * error)
    assert ib.scenario(scenario, reward="additive").mean_rewards(theta)[1] == 0  # means are exact in any dimension


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 8])
def test_least_clear_is_the_minimum_over_directions(dimension: int) -> None:
    least = least_clear(dimension)
    directions = np.abs(np.random.default_rng(0).normal(size=(200, dimension)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert all(below(direction, 1.0)[0] >= least - 1e-12 for direction in directions)
    assert least == pytest.approx(exact_below(np.full(dimension, dimension**-0.5), 1.0), abs=1e-9)


# --- drawn thetas ----------------------------------------------------------------------------------------------------


def four_channels(dimension: int = 8, **perturbation: Any) -> ib.Scenario:
    """Return a scenario of four equal channels with the given perturbation."""
    return ib.scenario(
        p01=[0.1] * 4, p10=[0.3] * 4, users=2, context={"dimension": dimension}, perturbation=perturbation
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("clear", "dimension"), [(0.2, 8), (0.5, 8), (0.7, 8), (0.97, 8), (1.0, 3), (0.85, 2), (0.7, 4), (1.0, 1)]
)
def test_drawn_theta_has_the_requested_success_probability(clear: float, dimension: int, per_channel: bool) -> None:
    for seed in range(4):
        theta = four_channels(dimension, clear=clear, per_channel=per_channel).theta(seed, 0)
        assert theta.shape == (4, dimension)
        assert np.all(theta >= 0)
        assert np.all(np.linalg.norm(theta, axis=1) <= 1 + 1e-12)
        assert len(np.unique(theta, axis=0)) == (4 if per_channel and dimension > 1 else 1)
        for row in theta if per_channel else theta[:1]:
            assert exact_below(row, 1.0) == pytest.approx(clear, abs=0.005)


def test_drawn_theta_has_the_requested_success_probability_where_it_is_sampled() -> None:
    theta = four_channels(20, clear=0.7).theta(0, 0)[0]
    samples = 400_000
    share = np.mean(np.random.default_rng(3).random((samples, 20)) @ theta < 1)
    assert abs(share - 0.7) < 5 * math.sqrt(
        0.7 * 0.3 * (1 / samples + 1 / SAMPLES)
    )  # errors of this sample and of the internal one


@pytest.mark.parametrize("norm", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("per_channel", [False, True])
def test_drawn_theta_has_the_requested_norm(norm: float, per_channel: bool) -> None:
    theta = four_channels(theta_norm=norm, per_channel=per_channel).theta(0, 0)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), norm, rtol=1e-12)
    assert np.all(theta >= 0)


def test_directions_are_uniform_on_the_sphere() -> None:
    """The square u of an entry of a uniform direction has the moments
    E u^m = 1 * 3 * ... * (2m - 1) / (d (d + 2) ... (d + 2m - 2))."""
    d, R = 8, 400
    squares = np.array([four_channels(d, theta_norm=1.0).theta(0, replication)[0] ** 2 for replication in range(R)])
    moment = [math.prod((2 * i + 1) / (d + 2 * i) for i in range(m)) for m in range(5)]
    for m in (1, 2):
        sigma = math.sqrt((moment[2 * m] - moment[m] ** 2) / R)
        assert np.all(np.abs(np.mean(squares**m, axis=0) - moment[m]) < 5 * sigma)


def test_given_theta_is_used_unchanged() -> None:
    one, each = [0.1, -0.2, 5.0], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [-0.7, 0.0, 0.8], [0.9, 1.0, 1.1]]
    assert four_channels(3, theta=one).theta(0, 0).tolist() == [one] * 4
    assert four_channels(3, theta=each).theta(7, 9).tolist() == each
    assert four_channels(3, kind="none").theta(0, 0).tolist() == [[0, 0, 0]] * 4


@pytest.mark.parametrize("settings", [{"clear": 0.7}, {"clear": 0.7, "per_channel": True}, {"theta_norm": 0.5}])
def test_theta_is_determined_by_seed_and_replication(settings: dict[str, Any]) -> None:
    def draw(seed: int, replication: int) -> bytes:
        return bytes(four_channels(**settings).theta(seed, replication).tobytes())

    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2**40, 0)]
    assert len({draw(*pair) for pair in pairs}) == len(pairs)
    assert all(draw(*pair) == draw(*pair) for pair in pairs)


def test_theta_does_not_depend_on_users_sensing_or_feedback() -> None:
    usual = ib.scenario("S1").theta(3, 4)
    other = ib.scenario("S4", users=2, sensing="all", feedback="reward", reward="additive").theta(3, 4)
    assert usual.tolist() == other.tolist()


def test_success_probability_close_to_the_minimum_is_refused_in_one_line() -> None:
    clear = least_clear(8) + 1e-4  # random directions almost never reach it
    with pytest.raises(ib.InputError) as caught:
        four_channels(clear=clear).theta(0, 0)
    message = str(caught.value)
    assert "\n" not in message
    assert "scenario.perturbation.clear" in message
    assert "well above 0.077" in message


@pytest.mark.parametrize("settings", [{"per_channel": True}, {"theta": [[0.1] * 8] * 4}])
def test_drawn_and_given_thetas_are_equally_writeable(settings: dict[str, Any]) -> None:
    assert four_channels(**settings).theta(0, 0).flags.writeable == four_channels().theta(0, 0).flags.writeable


def test_probabilities_do_not_depend_on_the_sign_of_zeros() -> None:
    theta = np.array([[0.0, 2.0], [-0.0, 2.0], [0.0, 4.0], [2.0, -0.0]])
    probabilities, error = ib.scenario("S1").probabilities_below(theta, 1.0)
    assert probabilities.tolist() == [0.5, 0.5, 0.25, 0.5]
    assert error == 0


# --- drawn thetas of the nonlinear models ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NONLINEAR)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("clear", "dimension"), [(0.01, 8), (0.3, 2), (0.7, 8), (0.97, 8), (1.0, 3), (0.7, 1)])
def test_drawn_nonlinear_model_has_the_requested_success_probability(
    kind: str, per_channel: bool, clear: float, dimension: int
) -> None:
    scenario = four_channels(dimension, kind=kind, clear=clear, per_channel=per_channel)
    model, samples = PERTURBATION_MODELS[kind], 100_000
    x = np.random.default_rng(2).random((samples, dimension))
    least, most = model.drawn_bounds(dimension, clear, None)
    for seed in range(3):
        theta = scenario.theta(seed, 0)
        assert theta.shape == (4, dimension + 1)
        assert np.all(theta[:, 1:] >= 0)
        np.testing.assert_allclose(np.linalg.norm(theta[:, 1:], axis=1), 1, rtol=1e-12)
        assert len(np.unique(theta, axis=0)) == (4 if per_channel and dimension > 1 else 1)
        for row in theta if per_channel else theta[:1]:
            assert model.probability_below(row, dimension, 1.0) == (pytest.approx(clear, abs=1e-6), 0)
            n = FORMULAS[kind](row, x)
            assert abs(np.mean(n < 1) - clear) <= 5 * math.sqrt(clear * (1 - clear) / samples) + 1e-9
            assert least <= model.bounds(row)[0] <= model.bounds(row)[1] <= most


def test_nonlinear_models_have_the_directions_of_the_linear_model() -> None:
    usual = four_channels(theta_norm=1.0).theta(4, 2)[0]
    for kind in NONLINEAR:
        np.testing.assert_array_equal(four_channels(kind=kind).theta(4, 2)[0, 1:], usual)


def test_strengths_at_the_default_success_probability() -> None:
    """c is slightly below 5.58, its value for a normally distributed z, and m is about 0.65."""
    drawn = {kind: [four_channels(kind=kind).theta(seed, 0)[0, 0] for seed in range(30)] for kind in NONLINEAR}
    assert all(4.6 < c < 5.6 for c in drawn["quadratic"])
    assert all(0.6 < m < 0.7 for m in drawn["cosine"])
    equal = np.full(8, 8**-0.5)
    assert PERTURBATION_MODELS["quadratic"].probability_below(np.array([5.58, *equal]), 8, 1.0)[0] == pytest.approx(
        0.7, abs=0.01
    )


@pytest.mark.parametrize("kind", NONLINEAR)
def test_linear_regression_explains_no_variance_of_nonlinear_models(kind: str) -> None:
    """The best linear fit is constant, because n is even about the centre of the cube. The R^2 of a fit is due to
    noise and is d / samples on average."""
    samples, d = 50_000, 8
    x = np.random.default_rng(6).random((samples, d))
    for seed in range(3):
        n = FORMULAS[kind](four_channels(d, kind=kind).theta(seed, 0)[0], x)
        columns = np.column_stack([np.ones(samples), x])
        rest = n - columns @ np.linalg.lstsq(columns, n, rcond=None)[0]
        assert 1 - rest.var() / n.var() < 6 * d / samples


def test_strength_of_the_quadratic_model_is_bounded() -> None:
    """No slice through the centre of the cube is larger than sqrt(2), which bounds c and the rewards of every draw."""
    rng = stream(0, 0, PERTURBATION)
    for d in (1, 2, 3, 8):
        for clear in (0.01, 0.1, 0.7, 1.0):
            for _ in range(20):
                theta = PERTURBATION_MODELS["quadratic"].draw(rng, d, clear, None)
                assert theta[0] <= 4 / clear**2
                assert PERTURBATION_MODELS["quadratic"].bounds(theta)[1] <= 0.5 + d / clear**2
    half = np.array([4 / 0.01**2, math.sqrt(0.5), math.sqrt(0.5)])  # the direction with the largest slice
    assert PERTURBATION_MODELS["quadratic"].probability_below(half, 2, 1.0)[0] == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("kind", NONLINEAR)
@pytest.mark.parametrize("reward", ["threshold", "additive"])
def test_sample_path_follows_the_model(kind: str, reward: str) -> None:
    """Perturbations follow the formula, and rewards have the computed means and range."""
    scenario = ib.scenario("S2", reward=reward, perturbation={"kind": kind, "per_channel": True})
    slots = ib.simulate(scenario, "mp-random", horizon=2000, replications=1, record="slots").slots
    assert slots is not None
    theta = scenario.theta(0, 0)
    x = slots[[f"x{i}" for i in range(8)]].to_numpy().reshape(2000, 10, 8)
    n = slots["perturbation"].to_numpy().reshape(2000, 10)
    model = PERTURBATION_MODELS[kind]
    for k in range(10):
        np.testing.assert_allclose(n[:, k], FORMULAS[kind](theta[k], x[:, k]), rtol=1e-12)
        assert abs(n[:, k].mean() - model.mean(theta[k], 8)[0]) < 5 * n[:, k].std() / math.sqrt(2000)
    low, high = scenario.reward_range()
    paid = slots["reward"].dropna()
    assert low <= paid.min() <= paid.max() <= high
    expected = slots.groupby("channel")["expected_reward"]
    means, error = scenario.mean_rewards(theta)
    assert error == 0
    assert np.all(np.abs(expected.mean() - means) < 5 * expected.std() / math.sqrt(2000))


def test_reward_ranges_of_nonlinear_models() -> None:
    def range_of(**perturbation: Any) -> tuple[float, float]:
        return ib.scenario("S1", reward="additive", perturbation=perturbation).reward_range()

    assert range_of(kind="quadratic", clear=0.5) == (0.1 - 0.5 - 8 / 0.25, 1 - 0.5)
    assert range_of(kind="cosine") == (0.1 - 2, 1.0)
    assert range_of(kind="quadratic", theta=[4.0, 1.0] + [0.0] * 7) == (0.1 - 1.5, 1 - 0.5)
    assert range_of(kind="quadratic", theta=[-4.0, 1.0] + [0.0] * 7) == (0.1 - 0.5, 1 + 0.5)
    low, high = range_of(kind="cosine", theta=[0.7, math.pi / 6] + [0.0] * 7)  # 6 z from -pi/2 to pi/2
    assert (low, high) == (0.1 - 1.2, pytest.approx(1 - 0.7))


@pytest.mark.parametrize("kind", NONLINEAR)
def test_given_theta_of_a_nonlinear_model_is_used_unchanged(kind: str) -> None:
    one, each = [0.7, 0.6, -0.8], [[0.1 * k, 0.3, 0.4] for k in range(4)]
    assert four_channels(2, kind=kind, theta=one).theta(0, 0).tolist() == [one] * 4
    assert four_channels(2, kind=kind, theta=each).theta(7, 9).tolist() == each
