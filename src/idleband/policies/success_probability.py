"""Expected reward of each state of a channel in this slot, from a predicted perturbation and its uncertainty.

Under the threshold reward a good state pays if n < 1 and any other state if n < 0. With the prediction n_hat,

    P(n < 1 | x) = Phi((1 - n_hat) / e),

where e^2 is the mean square of the prediction errors, each divided by 1 + q, and q = x' A^-1 x is the variance factor
of the model at that context. Errors are measured, so a model that cannot represent the perturbation has a large e.
Under the additive reward a state pays h(s) - n_hat.

Uncertainty of the model is explored by sampling: every `redraw` slots a channel gets a standard normal draw z, and its
prediction is n_hat + z e sqrt(q) until the next draw. Adding the uncertainty to e instead, without sampling, prefers
the channels that were learned first: in S2 without perturbation it earned 3.31 per slot instead of 3.64.

With `feedback = "reward"` and the threshold reward the perturbation is not observed. Then the model predicts the
probability that a good state fails, from the good slots.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.policies.protocol import Setup

ERRORS = 200.0  # number of errors that e^2 averages, approximately; older errors are discounted
# Initial errors of 1: a model with more weights than samples has small errors without having learned.
FIRST = 10.0
TINY = 1e-12


class SuccessEstimates(NamedTuple):
    square: Floats  # (models,) e^2
    errors: Floats  # (models,) number of errors in e^2
    deviate: Floats  # (K,) z
    spared: Floats  # (K,) slots in which a channel that was not good paid
    perturbed: Floats  # (K,) slots in which it did not
    pays: Floats  # (K, S) expected reward of each state in this slot


def new_success_estimates(setup: Setup, models: int) -> SuccessEstimates:
    K = setup.K
    return SuccessEstimates(
        square=np.ones(models), errors=np.full(models, FIRST), deviate=np.zeros(K),
        spared=np.zeros(K), perturbed=np.zeros(K), pays=np.zeros(setup.h.shape),
    )  # fmt: skip


@jit
def measures(setup: Setup) -> bool:
    """Return whether the perturbation is known after a play: it is measured, or follows from the reward."""
    return setup.measured or not setup.threshold


@jit
def regression_target(setup: Setup, success: SuccessEstimates, k: int, s: int, r: float, n: float) -> float:
    """Return the regression target after a play of channel k.

    The perturbation or, where it is not observed, whether a good slot failed (1) or not (0); nan if there is none.
    """
    if setup.threshold and not setup.good[k, s]:
        paid = r > setup.low
        success.spared[k] += paid
        success.perturbed[k] += not paid
    if setup.measured:
        return n
    if not setup.threshold:
        return setup.h[k, s] - r
    if not setup.good[k, s]:
        return np.nan
    return 0.0 if r > setup.low else 1.0


@jit
def observe_error(success: SuccessEstimates, m: int, error: float, q: float) -> None:
    """Record a prediction error of model m at a context with variance factor q."""
    success.errors[m] += 1.0
    share = max(1.0 / success.errors[m], 1.0 / ERRORS)
    success.square[m] += share * (error * error / (1.0 + q) - success.square[m])


@jit
def below(level: float, n_hat: float, e: float) -> float:
    """Return P(n < level)."""
    z = (level - n_hat) / e
    if z > 6.0:
        return 1.0
    if z < -6.0:
        return 0.0
    return 0.5 * math.erfc(-0.7071067811865476 * z)


@jit
def fill_pays(setup: Setup, success: SuccessEstimates, m: int, k: int, n_hat: float, q: float) -> None:
    """Write the expected reward of each state of channel k, given the prediction n_hat, into pays[k]."""
    e = math.sqrt(success.square[m])
    n_hat += success.deviate[k] * e * math.sqrt(q)
    if setup.threshold:
        # A channel that is not good is assumed to pay only after it has done so: where n is close to 0, predictions
        # lie on both sides of 0.
        other = below(0.0, n_hat, e + TINY) if success.spared[k] > 0.0 else 0.0
        fill_at_random(setup, success, k, below(1.0, n_hat, e + TINY), other)
    else:
        for s in range(setup.states[k]):
            success.pays[k, s] = setup.h[k, s] - n_hat


@jit
def fill_at_random(setup: Setup, success: SuccessEstimates, k: int, good: float, other: float) -> None:
    """Write the same from the probabilities that a good state and that any other state pays."""
    for s in range(setup.states[k]):
        success.pays[k, s] = setup.low + (setup.high - setup.low) * (good if setup.good[k, s] else other)


@jit
def spared_probability(success: SuccessEstimates, k: int) -> float:
    """Return the probability that channel k pays when it is not good, for any context."""
    return success.spared[k] / (1.0 + success.spared[k] + success.perturbed[k])


def terms(setup: Setup) -> tuple[str, str]:
    if setup.measured or not setup.threshold:
        return "predicted perturbation", "standard deviation of that prediction"
    return "predicted probability of failure", "standard deviation of that prediction"
