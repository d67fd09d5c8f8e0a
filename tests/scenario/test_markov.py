"""Markov channels: stationary distributions against linear algebra, and kernels of transitions on small examples."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

import idleband as ib
from idleband.scenario.markov import autocorrelation, cumulative, gilbert_elliott, irreducible, start, stationary, step

Floats = npt.NDArray[np.float64]

LAST = 1 - 2.0**-53  # the largest possible uniform draw


@st.composite
def chains(draw: st.DrawFn) -> Floats:
    """Draw irreducible chains of 1 to 6 states: a cycle through all states, and others; some are periodic."""
    S = draw(st.integers(1, 6))
    weights = np.array(draw(st.lists(st.one_of(st.just(0.0), st.floats(0.05, 1.0)), min_size=S * S, max_size=S * S)))
    weights = weights.reshape(S, S)
    weights[np.arange(S), (np.arange(S) + 1) % S] += draw(st.floats(0.05, 1.0))
    return weights / weights.sum(axis=1, keepdims=True)


probabilities = st.floats(1e-12, 1.0)


# --- stationary distributions ---------------------------------------------------------------------------------------


@given(chains())
def test_stationary_distribution_is_the_eigenvector(P: Floats) -> None:
    values, vectors = np.linalg.eig(P.T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    distribution = stationary(P)
    np.testing.assert_allclose(distribution, vector / vector.sum(), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(distribution @ P, distribution, rtol=1e-12)
    assert distribution.sum() == pytest.approx(1, abs=1e-14)
    assert np.all(distribution > 0)


@given(probabilities, probabilities)
def test_stationary_distribution_of_two_states_has_full_precision(p01: float, p10: float) -> None:
    """Transition probabilities may be so small that a computed eigenvector would lose most digits."""
    np.testing.assert_allclose(
        stationary(gilbert_elliott(p01, p10)), [p10 / (p01 + p10), p01 / (p01 + p10)], rtol=1e-14
    )


def test_stationary_distribution_of_a_slow_birth_death_chain() -> None:
    """Each state is 10^4 times rarer than the one before, down to 10^-20; every entry is accurate."""
    up, down = 1e-6, 1e-2
    P = np.diag([up] * 5, 1) + np.diag([down] * 5, -1)
    P += np.diag(1 - P.sum(axis=1))
    weights = (up / down) ** np.arange(6)
    np.testing.assert_allclose(stationary(P), weights / weights.sum(), rtol=1e-13)


def test_gilbert_elliott_transition_matrix() -> None:
    P = gilbert_elliott(0.25, 0.75)
    assert P.tolist() == [[0.75, 0.25], [0.75, 0.25]]
    assert P.dtype == np.float64


def test_probability_too_small_for_a_stationary_distribution_is_refused() -> None:
    with pytest.raises(ib.InputError, match=r"scenario\.p10, channel 0 = 1e-310: must be a number of at least 1e-100"):
        ib.scenario(p01=[1.0], p10=[1e-310], users=1)
    with pytest.raises(ib.InputError, match="contains a probability below 1e-100"):
        ib.scenario(transition=[[[1.0, 1e-200], [0.5, 0.5]]], rewards=[0, 1], users=1)
    np.testing.assert_allclose(stationary(gilbert_elliott(1.0, 1e-100)), [0, 1], atol=1e-99)


def test_many_rare_transitions_do_not_overflow() -> None:
    P = np.diag([0.5] * 5, 1) + np.diag([1e-100] * 5, -1)
    P += np.diag(1 - P.sum(axis=1))
    np.testing.assert_allclose(stationary(P), [0, 0, 0, 0, 0, 1], atol=1e-99)


# --- irreducible -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("P", "expected"),
    [
        ([[1.0]], True),
        ([[0.0, 1.0], [1.0, 0.0]], True),  # periodic
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], True),  # periodic
        ([[0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0.5, 0, 0.5, 0]], True),  # periodic
        ([[1.0, 0.0], [0.0, 1.0]], False),  # two separate states
        ([[1.0, 0.0], [0.5, 0.5]], False),  # state 0 is absorbing
        ([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]], False),  # state 2 is transient
        (np.eye(7, k=1) + np.eye(7, k=-6), True),  # one long cycle
        (np.eye(7, k=1) + np.diag([0, 0, 0, 0, 0, 0, 1]), False),
    ],
)
def test_irreducible_of_small_chains(P: list[list[float]], expected: bool) -> None:
    assert irreducible(np.array(P, float)) is expected


@given(st.integers(1, 6), st.integers(0, 2**36 - 1))
def test_irreducible_means_strongly_connected(S: int, bits: int) -> None:
    pattern = np.array([float(bits >> i & 1) for i in range(S * S)]).reshape(S, S)
    count, _ = connected_components(pattern, directed=True, connection="strong")
    assert irreducible(pattern) is (count == 1)


# --- autocorrelation -------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(0, 5))
def test_autocorrelation_of_two_states(p01: float, p10: float, lag: int) -> None:
    found = autocorrelation(gilbert_elliott(p01, p10), np.array([0.1, 1.0]), lag)
    assert found == pytest.approx((1 - p01 - p10) ** lag, abs=1e-9)


@given(chains(), st.integers(1, 4))
def test_autocorrelation_is_the_sum_over_pairs_of_states(P: Floats, lag: int) -> None:
    h = np.arange(len(P)) ** 2 + 0.5
    distribution, ahead = stationary(P), np.linalg.matrix_power(P, lag)
    mean = distribution @ h
    states = range(len(P))
    covariance = sum(distribution[i] * ahead[i, j] * (h[i] - mean) * (h[j] - mean) for i in states for j in states)
    variance = sum(distribution[i] * (h[i] - mean) ** 2 for i in states)
    expected = covariance / variance if len(P) > 1 else 0.0
    assert autocorrelation(P, h, lag) == pytest.approx(expected, abs=1e-9)


def test_autocorrelation_of_a_constant_is_zero() -> None:
    assert autocorrelation(gilbert_elliott(0.5, 0.25), np.array([1.0, 1.0])) == 0


# --- kernels of transitions ------------------------------------------------------------------------------------------


def next_state(P: Floats, state: int, u: float, S: int | None = None) -> int:
    s = np.array([state])
    step(cumulative(P, S or len(P))[None], np.array([u]), s)
    return int(s[0])


@pytest.mark.parametrize(
    ("u", "expected"), [(0.0, 0), (0.25 - 2**-54, 0), (0.25, 1), (0.75 - 2**-53, 1), (0.75, 2), (LAST, 2)]
)
def test_next_state_is_found_by_cumulative_probabilities(u: float, expected: int) -> None:
    P = np.array([[0.25, 0.5, 0.25], [1, 0, 0], [0, 1, 0]])
    assert next_state(P, 0, u) == expected
    assert next_state(P, 1, u) == 0
    assert next_state(P, 2, u) == 1
    s = np.array([7])
    start(np.array([[0.25, 0.75]]), np.array([u]), s)
    assert s[0] == expected


@given(chains(), st.data(), st.floats(0, LAST))
def test_transitions_of_probability_zero_do_not_happen(P: Floats, data: st.DataObject, u: float) -> None:
    """States that only pad the table are not entered either."""
    state = data.draw(st.integers(0, len(P) - 1))
    S = max(2, len(P) + data.draw(st.integers(0, 2)))
    moved = next_state(P, state, u, S)
    below = P[state, :moved].sum()
    assert below - 1e-12 <= u <= below + P[state, moved] + 1e-12


def test_every_channel_uses_a_separate_draw() -> None:
    swap, stay = gilbert_elliott(1.0, 1.0), gilbert_elliott(1e-12, 1e-12)
    limits = np.array([cumulative(P, 2) for P in (swap, stay, swap)])
    s = np.array([0, 1, 1])
    step(limits, np.array([0.3, 0.3, 0.9]), s)
    assert s.tolist() == [1, 1, 0]


def test_row_that_sums_to_slightly_less_than_1_enters_no_forbidden_state() -> None:
    assert next_state(np.array([[0.5, 0.5 - 5e-10, 0], [0, 0.5, 0.5], [0.5, 0.5, 0]]), 0, LAST) == 1
