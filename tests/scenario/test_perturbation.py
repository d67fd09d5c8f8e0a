"""P(n < level) against exact arithmetic and sampling, and the thetas that are drawn to meet it."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.scenario.perturbation import LINEAR, NONE, SAMPLES, below, least_clear, perturb

Floats = npt.NDArray[np.float64]


def exact_below(theta: Floats, level: float) -> float:
    """The corner sum in exact arithmetic, with the same reflection of negative entries."""
    weights = [Fraction(abs(float(w))) for w in theta if w != 0]
    over = Fraction(level) + sum(Fraction(-float(w)) for w in theta if w < 0)
    if not weights:
        return float(over > 0)
    total = Fraction(0)
    for corner in product((0, 1), repeat=len(weights)):
        rest = over - sum(w for w, v in zip(weights, corner, strict=True) if v)
        total += (-1) ** sum(corner) * max(rest, Fraction(0)) ** len(weights)
    return float(total / (math.factorial(len(weights)) * math.prod(weights)))


def irwin_hall(d: int, level: Fraction) -> float:
    """P(the sum of d uniforms < level), exactly, for any d."""
    terms = ((-1) ** k * math.comb(d, k) * (level - k) ** d for k in range(math.floor(level) + 1))
    return float(sum(terms, Fraction(0)) / math.factorial(d))


entries = st.one_of(st.just(0.0), st.floats(0.01, 1), st.floats(-1, -0.01))
thetas = st.lists(entries, min_size=1, max_size=6).map(np.array)


# --- P(n < level) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theta", "level", "expected"),
    [
        ([2.0], 0.5, 0.25),
        ([2.0], 2.0, 1.0),
        ([2.0], 3.0, 1.0),
        ([2.0], 0.0, 0.0),
        ([2.0], -1.0, 0.0),
        ([1.0, 1.0], 1.0, 0.5),
        ([1.0, 1.0], 0.5, 0.125),
        ([1.0, 2.0], 1.0, 0.25),
        ([1.0, 1.0, 1.0], 1.0, 1 / 6),
        ([1.0, 1.0, 1.0], 1.5, 0.5),
        ([1.0, 1.0, 1.0], 2.0, 5 / 6),
        ([0.0, 2.0, 0.0], 0.5, 0.25),  # zeros drop out
        ([0.0, 0.0], 1.0, 1.0),  # n is 0, always
        ([0.0, 0.0], 0.0, 0.0),  # and not below 0
        ([0.0, 0.0], -0.5, 0.0),
        ([-1.0], -0.25, 0.75),  # negative entries are reflected
        ([-1.0], 0.0, 1.0),
        ([-1.0], -1.0, 0.0),
        ([1.0, -1.0], 0.0, 0.5),
        ([1.0, -1.0], 0.5, 0.875),
        ([-1.0, 0.0, -1.0], -1.5, 0.125),
    ],
)
def test_below_on_hand_cases(theta: list[float], level: float, expected: float) -> None:
    found, error = below(np.array(theta), level)
    assert found == pytest.approx(expected, abs=1e-12)
    assert error == 0


@given(thetas, st.floats(-4, 4))
def test_below_equals_exact_arithmetic(theta: Floats, level: float) -> None:
    found, error = below(theta, level)
    assert 0 <= found <= 1
    assert found == pytest.approx(exact_below(theta, level), abs=1e-8 + 5 * error)


@pytest.mark.parametrize(
    "theta",
    [
        [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197],
        [0.9, -0.3, 0.0, 0.7, -0.2],
        [0.2] * 12,
        [1.0, 0.5, 1e-9],
        [0.2] * 18,
    ],
    ids=["prototype", "signs", "twelve", "unlike", "eighteen"],
)
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_below_agrees_with_sampling(theta: list[float], level: float) -> None:
    samples = 200_000
    x = np.random.default_rng(11).random((samples, len(theta)))
    share = float(np.mean(x @ np.array(theta) < level))
    found, error = below(np.array(theta), level)
    sigma = math.hypot(math.sqrt(found * (1 - found) / samples), error)
    assert abs(share - found) <= 5 * sigma


@pytest.mark.parametrize("tiny", [1e-6, 1e-9, 1e-100, 5e-324])
def test_below_with_entries_of_very_unlike_size(tiny: float) -> None:
    """The corner sum cancels, so a sample answers and says how well: the tiny entries do not move the answer by more
    than their size."""
    found, error = below(np.array([1.0, tiny, 0.5, tiny, tiny, 1.0]), 1.0)
    assert 0 < error <= 0.5 / math.sqrt(SAMPLES)
    assert abs(found - exact_below(np.array([1.0, 0.5, 1.0]), 1.0)) < 5 * error + 10 * tiny


@pytest.mark.parametrize(("d", "level"), [(17, 8), (20, 10), (20, 7), (24, 13)])
def test_below_in_many_dimensions_is_sampled_with_its_error(d: int, level: int) -> None:
    found, error = below(np.full(d, 0.25), level / 4)
    exact = irwin_hall(d, Fraction(level))
    assert error == pytest.approx(math.sqrt(exact * (1 - exact) / SAMPLES), rel=0.05)
    assert abs(found - exact) < 5 * error
    assert below(np.full(d, 0.25), level / 4) == (found, error)  # the sample is fixed


@given(thetas, st.floats(-4, 4), st.floats(0, 4))
def test_below_rises_with_the_level(theta: Floats, level: float, more: float) -> None:
    (low, error), (high, other) = below(theta, level), below(theta, level + more)
    assert low <= high + 1e-9 + 5 * (error + other)


@given(thetas, st.floats(-4, 4))
def test_below_of_the_mirror_image(theta: Floats, level: float) -> None:
    """P(-n < -level) = P(n > level), and n has no atoms unless theta is zero."""
    if not np.any(theta):
        return
    (p, error), (q, other) = below(theta, level), below(-theta, -level)
    assert p + q == pytest.approx(1, abs=1e-8 + 5 * (error + other))


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 8])
def test_least_clear_is_the_smallest_over_directions(dimension: int) -> None:
    least = least_clear(dimension)
    directions = np.abs(np.random.default_rng(0).normal(size=(200, dimension)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert all(below(direction, 1.0)[0] >= least - 1e-12 for direction in directions)
    assert least == pytest.approx(exact_below(np.full(dimension, dimension**-0.5), 1.0), abs=1e-9)


def test_perturb_is_theta_times_context() -> None:
    rng = np.random.default_rng(1)
    theta, x, n = rng.normal(size=(3, 4)), rng.random((3, 4)), np.full(3, np.nan)
    perturb(LINEAR, theta, x, n)
    np.testing.assert_allclose(n, np.sum(theta * x, axis=1), rtol=1e-14)
    perturb(NONE, theta, x, n)
    assert n.tolist() == [0, 0, 0]


# --- drawn thetas ----------------------------------------------------------------------------------------------------


def world(dimension: int = 8, **perturbation: Any) -> ib.Scenario:
    return ib.scenario(
        p01=[0.1] * 4, p10=[0.3] * 4, users=2, context={"dimension": dimension}, perturbation=perturbation
    )


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("clear", "dimension"), [(0.2, 8), (0.5, 8), (0.7, 8), (0.97, 8), (1.0, 3), (0.85, 2), (0.7, 4), (1.0, 1)]
)
def test_drawn_theta_meets_its_clear(clear: float, dimension: int, per_channel: bool) -> None:
    for seed in range(4):
        theta = world(dimension, clear=clear, per_channel=per_channel).theta(seed, 0)
        assert theta.shape == (4, dimension)
        assert np.all(theta >= 0)
        assert np.all(np.linalg.norm(theta, axis=1) <= 1 + 1e-12)
        assert len(np.unique(theta, axis=0)) == (4 if per_channel and dimension > 1 else 1)
        for row in theta if per_channel else theta[:1]:
            assert exact_below(row, 1.0) == pytest.approx(clear, abs=0.005)


def test_drawn_theta_meets_its_clear_where_only_a_sample_knows() -> None:
    theta = world(20, clear=0.7).theta(0, 0)[0]
    samples = 400_000
    share = np.mean(np.random.default_rng(3).random((samples, 20)) @ theta < 1)
    assert abs(share - 0.7) < 5 * math.sqrt(0.7 * 0.3 * (1 / samples + 1 / SAMPLES))  # of this sample and of its own


@pytest.mark.parametrize("norm", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("per_channel", [False, True])
def test_theta_of_a_given_norm(norm: float, per_channel: bool) -> None:
    theta = world(theta_norm=norm, per_channel=per_channel).theta(0, 0)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), norm, rtol=1e-12)
    assert np.all(theta >= 0)


def test_directions_are_spread_evenly() -> None:
    """Absolute normals have directions uniform on the sphere, where u = an entry's square has the moments
    E u^m = 1 * 3 * ... * (2m - 1) / (d (d + 2) ... (d + 2m - 2))."""
    d, R = 8, 400
    squares = np.array([world(d, theta_norm=1.0).theta(0, replication)[0] ** 2 for replication in range(R)])
    moment = [math.prod((2 * i + 1) / (d + 2 * i) for i in range(m)) for m in range(5)]
    for m in (1, 2):
        sigma = math.sqrt((moment[2 * m] - moment[m] ** 2) / R)
        assert np.all(np.abs(np.mean(squares**m, axis=0) - moment[m]) < 5 * sigma)


def test_a_given_theta_is_used_as_it_is() -> None:
    one, each = [0.1, -0.2, 5.0], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [-0.7, 0.0, 0.8], [0.9, 1.0, 1.1]]
    assert world(3, theta=one).theta(0, 0).tolist() == [one] * 4
    assert world(3, theta=each).theta(7, 9).tolist() == each
    assert world(3, kind="none").theta(0, 0).tolist() == [[0, 0, 0]] * 4


@pytest.mark.parametrize("settings", [{"clear": 0.7}, {"clear": 0.7, "per_channel": True}, {"theta_norm": 0.5}])
def test_theta_is_named_by_seed_and_replication(settings: dict[str, Any]) -> None:
    def draw(seed: int, replication: int) -> bytes:
        return bytes(world(**settings).theta(seed, replication).tobytes())

    names = [(0, 0), (0, 1), (1, 0), (1, 1), (2**40, 0)]
    assert len({draw(*name) for name in names}) == len(names)
    assert all(draw(*name) == draw(*name) for name in names)


def test_theta_does_not_depend_on_users_sensing_or_feedback() -> None:
    usual = ib.scenario("S1").theta(3, 4)
    other = ib.scenario("S4", users=2, sensing="all", feedback="reward", reward="additive").theta(3, 4)
    assert usual.tolist() == other.tolist()


def test_a_clear_close_to_what_is_possible_is_refused_in_one_line() -> None:
    clear = least_clear(8) + 1e-4  # all but never met by a random direction
    with pytest.raises(ib.InputError) as caught:
        world(clear=clear).theta(0, 0)
    message = str(caught.value)
    assert "\n" not in message
    assert "scenario.perturbation.clear" in message
    assert "well above 0.077" in message


@pytest.mark.parametrize("settings", [{"per_channel": True}, {"theta": [[0.1] * 8] * 4}])
def test_theta_is_writeable_whatever_it_comes_from(settings: dict[str, Any]) -> None:
    assert world(**settings).theta(0, 0).flags.writeable == world().theta(0, 0).flags.writeable


def test_chances_with_zeros_of_both_signs() -> None:
    theta = np.array([[0.0, 2.0], [-0.0, 2.0], [0.0, 4.0], [2.0, -0.0]])
    chances, error = ib.scenario("S1", perturbation="none").chances(theta, 1.0)
    assert chances.tolist() == [0.5, 0.5, 0.25, 0.5]
    assert error == 0
