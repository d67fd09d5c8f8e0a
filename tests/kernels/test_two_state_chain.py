"""The posterior of a two-state chain observed at irregular times: numerical comparison and coverage."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from idleband.kernels.logistic import probability as logistic
from idleband.kernels.two_state_chain import (
    AGES,
    BINS,
    EXACT,
    EXACT_SENSING,
    GROWTH,
    MAX_LOGIT,
    UNIFORM,
    bin_of,
    climb,
    fit,
    power,
)

Floats = npt.NDArray[np.float64]

PROBABILITIES = [(0.02, 0.07), (0.04, 0.01), (0.2, 0.3), (0.4, 0.6), (0.7, 0.8), (0.95, 0.6)]


def observe(
    p01: float, p10: float, gaps: list[int], observations: int, chains: int, seed: int
) -> tuple[Floats, Floats]:
    """Simulate chains observed at random gaps.

    Return counts by bin, (chains, BINS, 2, 2), and by exact age, (chains, gaps, 2, 2).
    """
    rng = np.random.default_rng(seed)
    pairs, exact = np.zeros((chains, BINS, 2, 2)), np.zeros((chains, len(gaps), 2, 2))
    pi, rho, each = p01 / (p01 + p10), 1 - p01 - p10, np.arange(chains)
    state = (rng.random(chains) < pi).astype(int)
    for _ in range(observations):
        which = rng.integers(len(gaps), size=chains)
        age = np.array(gaps)[which]
        after = (rng.random(chains) < pi + rho**age * (state - pi)).astype(int)
        exact[each, which, state, after] += 1
        pairs[each, [bin_of(int(a)) for a in age], state, after] += 1
        state = after
    return pairs, exact


def fitted(pairs: Floats, start: tuple[float, float] = (0.0, 0.0)) -> tuple[Floats, Floats]:
    """Return modes (chains, 2) and covariances (chains, 2, 2)."""
    mode, spread = np.tile(np.array(start), (len(pairs), 1)), np.zeros((len(pairs), 3))
    for k in range(len(pairs)):
        fit(pairs, AGES, k, mode, spread)
    root = np.zeros((len(pairs), 2, 2))
    root[:, 0, 0], root[:, 1, 0], root[:, 1, 1] = spread.T
    return mode, root @ root.transpose(0, 2, 1)


def log_posterior(u: Floats, v: Floats, counts: Floats, gaps: list[int]) -> Floats:
    """Return the log posterior density of the logits u of p01 and v of p10, with uniform priors on p01 and p10."""
    p, q = expit(u), expit(v)
    total = np.log(p * (1 - p) * q * (1 - q))
    for a, table in zip(gaps, counts, strict=True):
        for i in range(2):
            good = p / (p + q) + (1 - p - q) ** a * (i - p / (p + q))
            total = total + table[i, 1] * np.log(good) + table[i, 0] * np.log1p(-good)
    return total


# --- bins and powers -------------------------------------------------------------------------------------------------


def test_bin_of_an_age_is_close_to_the_age() -> None:
    bins = [bin_of(age) for age in range(1, 5001)]
    assert bins[:EXACT] == list(range(EXACT))
    assert set(bins) == set(range(BINS))
    assert (np.diff(bins) >= 0).all()
    assert AGES[:EXACT].tolist() == list(range(1, EXACT + 1))
    for age in range(EXACT + 1, 3990):
        assert GROWTH**-0.51 < age / AGES[bin_of(age)] < GROWTH**0.51
    assert bin_of(2**62) == BINS - 1


def test_power_of_rho() -> None:
    for rho in (-1.0, -0.7, -1e-9, 0.0, 0.3, 1.0):
        for age in (0, 1, 2, 3, 10, 11):
            assert math.isclose(power(rho, float(age), True), rho**age, abs_tol=1e-300)
    assert power(0.9, 40.5, False) == 0.9**40.5
    assert power(-0.9, 40.5, False) == 0.0  # the age may be even or odd, so the sign is undetermined


def test_logistic_at_extreme_values() -> None:
    """Draws from a wide posterior may have any size."""
    assert [logistic(u) for u in (-1e4, 0.0, 1e4)] == pytest.approx([0.0, 0.5, 1.0], abs=1e-300)
    interpreted = getattr(logistic, "py_func", logistic)
    assert [interpreted(u) for u in (-1e4, -3.0)] == [logistic(u) for u in (-1e4, -3.0)]


# --- the fit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p01", "p10"), PROBABILITIES)
def test_fit_equals_the_numerical_posterior(p01: float, p10: float) -> None:
    """Compare with the density of 4000 observations on a grid of logits, five standard deviations to each side.

    Scoring ends within 0.01 standard deviations of the mode. The covariance comes from the expected information and a
    normal approximation, so that entries may differ by up to a tenth.
    """
    gaps = [1, 1, 2, 3, 5, 8, 20]
    pairs, counts = observe(p01, p10, gaps, 4000, 1, seed=1)
    (mode,), (covariance,) = fitted(pairs)
    found = minimize(
        lambda at: -log_posterior(at[0], at[1], counts[0], gaps), logit([p01, p10]), method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9},
    )  # fmt: skip
    spreads = np.sqrt(np.diag(covariance))
    assert (np.abs(mode - found.x) < 0.02 * spreads).all()
    u, v = np.meshgrid(*(found.x[i] + spreads[i] * np.linspace(-5, 5, 121) for i in range(2)), indexing="ij")
    density = log_posterior(u, v, counts[0], gaps)
    weight = np.exp(density - density.max()).ravel()
    exact = np.cov(np.stack([u.ravel(), v.ravel()]), aweights=weight)
    scale = np.outer(spreads, spreads)
    np.testing.assert_allclose(covariance / scale, exact / scale, atol=0.1)


@pytest.mark.parametrize("p01", [0.002, 0.01, 0.03])
def test_slow_channel_is_identified_from_rare_observations(p01: float) -> None:
    """With observations 20 to 60 slots apart the likelihood is flat at the start, but its maximum is found.

    Binning of ages changes the mode by less than a quarter of a standard deviation.
    """
    gaps, p10 = [20, 36, 40, 45, 60], 2 * p01
    pairs, counts = observe(p01, p10, gaps, 3000, 1, seed=2)
    (mode,), (covariance,) = fitted(pairs)
    found = minimize(lambda at: -log_posterior(at[0], at[1], counts[0], gaps), logit([p01, p10]), method="Nelder-Mead")
    assert (np.abs(mode - found.x) < 0.25 * np.sqrt(np.diag(covariance))).all()


def test_fast_channel_is_not_fitted_as_slow() -> None:
    """Rare observations determine the share of good slots, and that the channel is not slow."""
    for p01, p10 in ((0.4, 0.6), (0.3, 0.2), (0.9, 0.8)):
        pairs, _ = observe(p01, p10, [20, 36, 60], 3000, 1, seed=5)
        (mode,), (covariance,) = fitted(pairs, (-6.0, -6.0))
        p, q = expit(mode)
        assert abs(p / (p + q) - p01 / (p01 + p10)) < 5 * math.sqrt(0.25 / 3000)
        assert p + q > 0.1
        assert np.diag(covariance).min() > 0.1


def test_higher_of_two_maxima_is_found() -> None:
    """Four consecutive pairs differ, and many observations 20 slots apart are slightly correlated.

    The posterior has a local maximum for a slow channel and a higher one for a fast channel.
    """
    pairs = np.zeros((1, BINS, 2, 2))
    pairs[0, bin_of(1)] = [[0.0, 2.0], [2.0, 0.0]]
    pairs[0, bin_of(20)] = [[787.5, 712.5], [712.5, 787.5]]
    slow = np.array([[-3.0, -3.0]])
    climb(pairs, AGES, 0, slow, np.zeros((1, 3)), UNIFORM, EXACT_SENSING)
    assert expit(slow).sum() < 0.3
    (mode,), _ = fitted(pairs)
    assert expit(mode).sum() > 1.2


@pytest.mark.parametrize("gaps", [[1, 2, 3, 7], [1, 10, 30, 60]], ids=["frequent", "rare"])
@pytest.mark.parametrize(("p01", "p10"), PROBABILITIES)
def test_posterior_covers_the_true_probabilities(p01: float, p10: float, gaps: list[int]) -> None:
    """95% intervals of 400 chains contain the true value in 95%, within four standard errors (0.0109 each) plus 0.01.

    The 0.01 allows for posteriors that are not normal: probabilities near 0 or 1 depend on a few rare transitions.
    """
    pairs, _ = observe(p01, p10, gaps, 1500, 400, seed=3)
    mode, covariance = fitted(pairs)
    spreads = np.sqrt(np.stack([covariance[:, 0, 0], covariance[:, 1, 1]], axis=1))
    covered = (np.abs(mode - logit([p01, p10])) < 1.96 * spreads).mean(axis=0)
    assert (np.abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400) + 0.01).all(), covered
    # The joint coverage, by the chi-square distribution with two degrees of freedom, includes the correlation.
    error = mode - logit([p01, p10])
    distance = np.einsum("ki,kij,kj->k", error, np.linalg.inv(covariance), error)
    assert abs((distance < -2 * math.log(0.05)).mean() - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400) + 0.01


def test_posterior_without_data_is_the_prior() -> None:
    """Uniform priors have mode 0 and information 1/2 in logits."""
    for start in ((0.0, 0.0), (3.0, -5.0), (-MAX_LOGIT, MAX_LOGIT)):
        (mode,), (covariance,) = fitted(np.zeros((1, BINS, 2, 2)), start)
        np.testing.assert_allclose(mode, 0.0, atol=0.02)
        np.testing.assert_allclose(covariance, 2.0 * np.eye(2), atol=0.02)


def test_consecutive_slots_give_beta_posteriors() -> None:
    """With observations in every slot the posteriors are Beta distributions, with closed-form modes in logits."""
    pairs = np.zeros((1, BINS, 2, 2))
    pairs[0, 0] = [[30.0, 10.0], [5.0, 60.0]]
    (mode,), (covariance,) = fitted(pairs)
    np.testing.assert_allclose(mode, [math.log(11 / 31), math.log(6 / 61)], atol=0.01)
    information = [42 * (11 / 42) * (31 / 42), 67 * (6 / 67) * (61 / 67)]
    np.testing.assert_allclose(covariance, np.diag(1 / np.array(information)), rtol=0.01, atol=1e-9)


@pytest.mark.parametrize("start", [(-9.0, -9.0), (9.0, 9.0), (-9.0, 9.0), (9.0, -9.0), (-12.0, 0.0)])
@pytest.mark.parametrize(("p01", "p10"), PROBABILITIES)
def test_fit_does_not_depend_on_the_start(p01: float, p10: float, start: tuple[float, float]) -> None:
    pairs, _ = observe(p01, p10, [1, 1, 2, 3, 10, 40], 500, 5, seed=4)
    near, covariance = fitted(pairs, (logit(p01), logit(p10)))
    far, far_covariance = fitted(pairs, start)
    for k in range(5):
        assert (np.abs(near[k] - far[k]) < 0.03 * np.sqrt(np.diag(covariance[k]))).all()
        np.testing.assert_allclose(far_covariance[k], covariance[k], rtol=0.1, atol=1e-3)


@pytest.mark.parametrize("count", [1.0, 1e6, 1e9])
@pytest.mark.parametrize("age", [1, 2, 33, 10**6])
@pytest.mark.parametrize(
    "table",
    [[[1, 0], [0, 0]], [[0, 0], [0, 1]], [[1, 0], [0, 1]], [[0, 1], [1, 0]], [[1, 1], [1, 1]], [[0, 1], [0, 1]]],
)
def test_extreme_data_give_finite_values(table: list[list[int]], age: int, count: float) -> None:
    """Constant, alternating and independent states, up to 10^9 observations, all at the same age."""
    pairs = np.zeros((1, BINS, 2, 2))
    pairs[0, bin_of(age)] = np.array(table) * count
    mode, spread = np.zeros((1, 2)), np.zeros((1, 3))
    for _ in range(3):  # starting from the previous fit
        fit(pairs, AGES, 0, mode, spread)
        assert (np.abs(mode) <= MAX_LOGIT).all()
        assert np.isfinite(spread).all()
        assert (spread[0, [0, 2]] > 0).all()
        assert (spread[0] < 100).all()
