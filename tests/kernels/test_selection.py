"""Selection of the M largest values compared with sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from idleband.kernels.selection import mark_top_m, mth_largest, top_m, top_sum

VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(np.inf), st.just(-np.inf))


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Draw indices, allowed channels and the number of channels to select."""
    K = draw(st.integers(1, 60))
    index = np.array(draw(st.lists(VALUES, min_size=K, max_size=K)))
    allowed = np.array(draw(st.lists(st.booleans(), min_size=K, max_size=K)))
    return index, allowed, draw(st.integers(1, K))


def by_sorting(index: np.ndarray, allowed: np.ndarray, m: int) -> list[int]:
    """Return the m largest allowed channels; of equal ones the lowest."""
    channels = [k for k in range(len(index)) if allowed[k]]
    return sorted(sorted(channels, key=lambda k: (-index[k], k))[:m])


@given(problems())
def test_top_m_equals_sorting(problem: tuple[np.ndarray, np.ndarray, int]) -> None:
    index, allowed, m = problem
    picks = np.zeros(len(index), np.int64)
    count = top_m(index, allowed, m, np.zeros(2 * len(index)), picks)
    assert picks[:count].tolist() == by_sorting(index, allowed, m)


@given(problems())
def test_top_sum_equals_sorting(problem: tuple[np.ndarray, np.ndarray, int]) -> None:
    index, allowed, m = problem
    index = np.where(np.isfinite(index), index, 0.0)
    expected = index[by_sorting(index, allowed, m)].sum()
    assert np.isclose(top_sum(index, allowed, m, np.zeros(2 * len(index))), expected, rtol=1e-12, atol=1e-6)


def test_selection_of_thousands_of_channels_equals_sorting() -> None:
    """Sizes far above the one up to which all pairs are compared, with many ties."""
    rng = np.random.default_rng(0)
    for K, m in ((1000, 200), (5000, 1), (5000, 4999), (777, 777)):
        index = rng.integers(0, 50, K) / 7.0
        a = np.concatenate([index, np.zeros(K)])
        assert mth_largest(a, K, m) == np.sort(index)[::-1][m - 1]
        picks = np.zeros(K, np.int64)
        assert top_m(index, np.ones(K, np.bool_), m, np.zeros(2 * K), picks) == m
        assert picks[:m].tolist() == by_sorting(index, np.ones(K, np.bool_), m)


def test_selection_terminates_with_nan() -> None:
    """No selection is right, but the search must end; the simulation then refuses the picks."""
    for K in (5, 40):
        top_m(np.full(K, np.nan), np.ones(K, np.bool_), 3, np.zeros(2 * K), np.zeros(K, np.int64))


def test_marks_are_the_selection_of_top_m() -> None:
    """Values with many ties, infinite ones, and channels that are not allowed."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        K = int(rng.integers(1, 40))
        values, allowed = rng.choice([0.0, 0.5, 0.5, 1.0, np.inf], K), rng.random(K) < 0.7
        m, picks = int(rng.integers(0, K + 1)), np.zeros(K, np.int64)
        count = top_m(values, allowed, m, np.zeros(2 * K), picks)
        mark_top_m(values, allowed, m, np.zeros(2 * K))
        assert np.flatnonzero(values).tolist() == picks[:count].tolist()
        assert set(values.tolist()) <= {0.0, 1.0}
