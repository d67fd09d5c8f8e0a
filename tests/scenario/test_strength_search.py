"""Thetas that are drawn together equal those of the bisection in Python bit for bit."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.kernels.rng import PERTURBATION, stream
from idleband.scenario import perturbation, sampled_strength, strength_search
from idleband.scenario.halfspace_volume import SAMPLES, below, corners_of
from idleband.scenario.perturbation import PERTURBATION_MODELS, DirectedModel, prepare_drawing
from idleband.scenario.strength_search import EVALUATED, add_to, begun, exact_sum, rounded

Floats = npt.NDArray[np.float64]

MODELS = ["linear", "quadratic", "cosine"]


@pytest.fixture(autouse=True, scope="module")
def prepared() -> None:
    prepare_drawing()


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that draws a theta, or finds P(n < level), by the reference."""

    def call(method: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as context:
            context.setattr(strength_search, "_prepared", False)
            context.setattr(perturbation, "_known", {})
            return method(*arguments)

    return call


def model_of(kind: str) -> DirectedModel:
    model = PERTURBATION_MODELS[kind]
    assert isinstance(model, DirectedModel)
    return model


def generators(seed: int, count: int) -> npt.NDArray[np.uint64]:
    return np.array([stream(seed, i, PERTURBATION) for i in range(count)])


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("d", "clear"), [(8, 0.7), (8, 0.9), (1, 1.0), (2, 0.9), (3, 0.75), (5, 0.97), (10, 0.6)])
def test_drawn_thetas_and_their_probabilities_equal_the_reference(
    kind: str, d: int, clear: float, in_python: Any
) -> None:
    model, count = model_of(kind), 3 if d == 10 else 8
    many = model.draw_many(generators(d, count), 1, d, clear, None)
    assert len(many) == count
    for (theta,), rng in zip(many, generators(d, count), strict=True):
        assert theta.tobytes() == in_python(model.draw, rng, d, clear, None).tobytes()
        for level in (0.0, 1.0):
            assert model.probability_below(theta, d, level) == in_python(model.probability_below, theta, d, level)


@pytest.mark.parametrize("kind", MODELS)
def test_several_thetas_of_a_generator_and_single_draws_equal_the_reference(kind: str, in_python: Any) -> None:
    model = model_of(kind)
    (rows,), rng, again = model.draw_many(generators(5, 1), 3, 4, 0.6, None), generators(5, 1)[0], generators(5, 1)[0]
    for row in rows:
        assert row.tobytes() == in_python(model.draw, rng, 4, 0.6, None).tobytes()
        assert row.tobytes() == model.draw(again, 4, 0.6, None).tobytes()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("tiny", [3e-3, 1e-4, 1e-6])
def test_strength_equals_the_reference_where_it_may_count_a_sample(kind: str, tiny: float, in_python: Any) -> None:
    """Some or all steps are counted. The strengths of the first two directions differ by one context."""
    model, a = model_of(kind), np.array([0.1, 0.5, tiny, 0.2, 0.6, 0.3, 0.4, 0.05])
    a /= math.sqrt(float(a @ a))
    expected = in_python(model.with_clear, a, 0.7)
    (found,) = model.quick_strengths(a[None], 0.7)
    assert found is not None
    assert model.theta(a, found.value).tobytes() == expected.tobytes()
    model.remember([model.theta(a, found.value)], [found])
    assert model.probability_below(expected, 8, 1.0) == in_python(model.probability_below, expected, 8, 1.0)


@pytest.mark.parametrize("kind", MODELS)
def test_directions_that_are_not_searched_are_left_to_the_reference(kind: str, in_python: Any) -> None:
    model = model_of(kind)
    for a in (np.array([0.6, 0.0, 0.8]), np.full(11, 1 / math.sqrt(11))):
        assert model.quick_strengths(a[None], 0.8) == [None]
    assert model.with_clear(np.array([0.6, 0.0, 0.8]), 0.8).tobytes() == (
        in_python(model.with_clear, np.array([0.6, 0.0, 0.8]), 0.8).tobytes()
    )


def test_directions_that_need_a_norm_above_1_are_drawn_again(in_python: Any) -> None:
    model, rngs = model_of("linear"), generators(2, 12)
    many = model.draw_many(rngs, 1, 8, 0.3, None)
    expected = [in_python(model.draw, rng.copy(), 8, 0.3, None) for rng in rngs]
    assert [theta.tobytes() for (theta,) in many] == [theta.tobytes() for theta in expected]
    first = np.abs(np.array([in_python(model.draw, rng.copy(), 8, None, 1.0) for rng in rngs]))
    moved = [not np.allclose(a * np.linalg.norm(b), b) for a, b in zip(first, expected, strict=True)]
    assert any(moved)
    assert not all(moved)


def test_count_of_a_sample_equals_the_reference() -> None:
    weights = np.array([0.3, 1e-9, 0.4, 0.2, 0.1])
    for level in (0.2, 0.5, 0.61234, 0.9):
        count = sampled_strength.count_below(weights, level)
        assert count is not None
        assert count / SAMPLES == below(weights, level)[0]
    assert sampled_strength.count_below(np.array([0.3, 0.4]), 0.5) is None  # summed, not counted


# --- sums ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(st.floats(-1, 1), st.integers(-(2**54), 2**54).map(lambda i: i * 2.0**-54), st.just(2.0**-53)),
        max_size=12,
    )
)
def test_sum_in_three_parts_is_rounded_as_by_fsum(values: list[float]) -> None:
    parts = (0.0, 0.0, 0.0)
    for value in values:
        parts = getattr(add_to, "py_func", add_to)(parts, value)
    found = getattr(rounded, "py_func", rounded)(parts)
    assert math.isnan(found) or found == math.fsum(values)
    if all(value == 0 or abs(value) > 1e-10 for value in values):
        assert not math.isnan(found)


@pytest.mark.parametrize("level", [0.01, 0.21, 0.5, 0.99, 1.3, 1.49])
def test_exact_sum_equals_fsum(level: float) -> None:
    """Also of one or two terms, where half the sums lie halfway between two numbers."""
    direction = np.array([0.2, 0.25, 0.3, 0.75])
    s = begun(strength_search.LINEAR, direction[None], 0.5, np.array([[1.0, 1.0]]), EVALUATED)
    terms = np.random.default_rng(0).integers(1, 2**53, (50, 16)) * 2.0 ** np.array([-53, -54, -52, -60] * 4)
    active = level - corners_of(4)[1] @ direction > 0.0
    for row in terms:
        expected = math.fsum(np.where(active, corners_of(4)[0] * row, 0.0))
        assert exact_sum(s, 0, level, row, 0) == expected


# --- in a scenario ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{"kind": "linear"}, {"kind": "cosine", "per_channel": True}, {"kind": "linear", "theta_norm": 0.7}]
)
def test_parameters_of_a_path_do_not_depend_on_how_they_are_drawn(settings: dict[str, Any], in_python: Any) -> None:
    from idleband.simulation.path import draw_ahead, path_parameters

    ahead, single = (ib.scenario("S1", perturbation=settings) for _ in range(2))
    draw_ahead(ahead, 4, 0, 3)
    for i in range(4):
        found = path_parameters(ahead, 4, i)
        for ours, theirs in zip(found, in_python(path_parameters, single, 4, i), strict=True):
            assert ours.tobytes() == theirs.tobytes()
