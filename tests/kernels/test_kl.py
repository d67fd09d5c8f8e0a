"""Kullback-Leibler indices compared with a root finder."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from idleband.kernels.kl import kl_upper, negative_entropy

MEANS = (0.0, 1e-12, 1e-6, 0.01, 0.1, 0.37, 0.5, 0.63, 0.9, 0.99, 1 - 1e-6, 1 - 1e-12, 1 - 2**-53, 1.0)
BUDGETS = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.7, 1.0, 3.0, 11.5, 30.0)


def kl(p: float, q: float) -> float:
    """Return the Kullback-Leibler divergence of Bernoulli distributions with means p and q."""
    left = p * math.log(p / q) if p > 0 else 0.0
    return left + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def by_root_finder(mean: float, budget: float) -> float:
    """Return the largest q in [mean, 1] with kl(mean, q) <= budget."""
    top = 1 - 1e-16
    if mean >= top or kl(mean, top) <= budget:
        return 1.0
    return float(brentq(lambda q: kl(mean, q) - budget, mean, top, xtol=1e-15, rtol=1e-14))


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("start", [1.0, 0.0, 0.5, 0.999])
def test_kl_upper_equals_a_root_finder(mean: float, budget: float, start: float) -> None:
    found = kl_upper(mean, budget, start, negative_entropy(mean))
    assert abs(found - by_root_finder(mean, budget)) < 1e-9


@given(st.floats(0, 1), st.floats(0, 40), st.floats(0, 1))
def test_kl_upper_equals_a_root_finder_for_random_arguments(mean: float, budget: float, start: float) -> None:
    found = kl_upper(mean, budget, start, negative_entropy(mean))
    assert mean - 1e-12 <= found <= 1.0
    assert abs(found - by_root_finder(mean, budget)) < 1e-7
