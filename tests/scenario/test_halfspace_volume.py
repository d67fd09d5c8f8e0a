"""P(theta . x < level) and P(theta . x in slices) against exact arithmetic and sampling."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idleband.scenario.halfspace_volume import SAMPLES, below, within

Floats = npt.NDArray[np.float64]


def exact_below(theta: Floats, level: float) -> float:
    """Return the sum over corners in exact arithmetic, with negative entries reflected."""
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
    """Return P(sum of d uniforms < level), computed exactly for any d."""
    terms = ((-1) ** k * math.comb(d, k) * (level - k) ** d for k in range(math.floor(level) + 1))
    return float(sum(terms, Fraction(0)) / math.factorial(d))


entries = st.one_of(st.just(0.0), st.floats(0.01, 1), st.floats(-1, -0.01))
thetas = st.lists(entries, min_size=1, max_size=6).map(np.array)


# --- below a level ---------------------------------------------------------------------------------------------------


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
        ([0.0, 0.0], 1.0, 1.0),  # n is always 0
        ([0.0, 0.0], 0.0, 0.0),  # n is not below 0
        ([0.0, 0.0], -0.5, 0.0),
        ([-1.0], -0.25, 0.75),  # negative entries are reflected
        ([-1.0], 0.0, 1.0),
        ([-1.0], -1.0, 0.0),
        ([1.0, -1.0], 0.0, 0.5),
        ([1.0, -1.0], 0.5, 0.875),
        ([-1.0, 0.0, -1.0], -1.5, 0.125),
    ],
)
def test_below_equals_values_computed_by_hand(theta: list[float], level: float, expected: float) -> None:
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
    ids=["prototype", "signs", "twelve", "small entry", "eighteen"],
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
def test_below_with_entries_of_very_different_size(tiny: float) -> None:
    """The sum over corners cancels, so a sample is used, with its standard error. The tiny entries change the result by
    no more than their size."""
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
def test_below_increases_with_the_level(theta: Floats, level: float, more: float) -> None:
    (low, error), (high, other) = below(theta, level), below(theta, level + more)
    assert low <= high + 1e-9 + 5 * (error + other)


@given(thetas, st.floats(-4, 4))
def test_below_of_the_negated_theta_is_the_complement(theta: Floats, level: float) -> None:
    """P(-n < -level) = P(n > level), and n has no atoms unless theta is zero."""
    if not np.any(theta):
        return
    (p, error), (q, other) = below(theta, level), below(-theta, -level)
    assert p + q == pytest.approx(1, abs=1e-8 + 5 * (error + other))


# --- within slices ---------------------------------------------------------------------------------------------------


@given(thetas, st.lists(st.floats(-4, 4), max_size=8))
def test_within_equals_exact_arithmetic(theta: Floats, cuts: list[float]) -> None:
    edges = np.sort(np.array(cuts[: len(cuts) // 2 * 2]))
    low, high = edges[::2], edges[1::2]
    found, error = within(theta, low, high)
    exact = sum(exact_below(theta, float(b)) - exact_below(theta, float(a)) for a, b in zip(low, high, strict=True))
    assert 0 <= found <= 1
    assert found == pytest.approx(exact, abs=1e-8 + 5 * error)


@pytest.mark.parametrize(
    ("theta", "slices"),
    [(np.full(20, 0.25), 3), (np.array([1.0, -0.7, 0.4]), 200), (np.array([1.0, 1e-9, 0.5, 1e-9, 1.0]), 2)],
    ids=["many dimensions", "many slices", "small entries"],
)
def test_within_uses_a_sample_where_the_exact_sum_is_unsuitable(theta: Floats, slices: int) -> None:
    edges = np.linspace(float(theta.clip(max=0).sum()), float(theta.clip(min=0).sum()), 2 * slices + 1)
    low, high = edges[:-1:2], edges[1::2]
    found, error = within(theta, low, high)
    assert error == pytest.approx(math.sqrt(found * (1 - found) / SAMPLES))
    samples = 400_000
    n = np.random.default_rng(4).random((samples, len(theta))) @ theta
    share = float(np.mean((np.searchsorted(edges, n, side="right") - 1) % 2 == 0))
    assert abs(share - found) < 5 * math.hypot(error, math.sqrt(share * (1 - share) / samples))
    assert within(theta, low, high) == (found, error)  # the sample is fixed
