"""How a predicted perturbation becomes what each state of a channel pays in this slot, doubt included.

Under the threshold reward a good state pays if n < 1 and any other if n < 0. With n predicted as n_hat,

    P(n < 1 | x) = Phi((1 - n_hat) / e),

and e^2 the mean square of the errors that the model has made, each divided by 1 + q, q the model's own doubt at that
context (x' A^-1 x): measured, not assumed, so that a model which cannot represent the model says so. Under the
additive reward h(s) - n_hat is paid.

Doubt about the model is explored by sampling: every `redraw` slots a channel gets a standard normal draw z, and its
prediction is taken to be n_hat + z e sqrt(q) until the next. Taking the doubt into sigma instead and never drawing
sticks with the channels that happened to be learned first: in S2 without perturbation it earned 3.31 a slot, not 3.64.

With `feedback = "reward"` and the threshold reward the perturbation is never seen. Then a good state's chance to be
paid is what the model predicts, from the good slots there were.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels.compile import jit
from idleband.policies.protocol import Setup

ERRORS = 200.0  # that e^2 is the mean of, about; older ones fade
# Errors of 1 to begin with: a model with more weights than samples makes none, and knows nothing.
FIRST = 10.0
TINY = 1e-12


class Clearness(NamedTuple):
    square: Floats  # (models,) e^2
    errors: Floats  # (models,) how many errors it is the mean of
    doubt: Floats  # (K,) z
    spared: Floats  # (K,) slots in which a channel that was not good was paid
    spoilt: Floats  # (K,) and was not
    pays: Floats  # (K, S) what each state pays in this slot


def new_clearness(setup: Setup, models: int) -> Clearness:
    K = setup.K
    return Clearness(
        square=np.ones(models), errors=np.full(models, FIRST), doubt=np.zeros(K),
        spared=np.zeros(K), spoilt=np.zeros(K), pays=np.zeros(setup.h.shape),
    )  # fmt: skip


@jit
def measures(setup: Setup) -> bool:
    """Whether the size of the perturbation is known after a play: it is reported, or follows from the reward."""
    return setup.measured or not setup.threshold


@jit
def lesson(setup: Setup, clearness: Clearness, k: int, s: int, r: float, n: float) -> float:
    """What there is to learn from a play of channel k: the perturbation, or, where it is not to be had, whether a good
    slot was spoilt (1) or not (0); nan: nothing."""
    if setup.threshold and not setup.good[k, s]:
        paid = r > setup.low
        clearness.spared[k] += paid
        clearness.spoilt[k] += not paid
    if setup.measured:
        return n
    if not setup.threshold:
        return setup.h[k, s] - r
    if not setup.good[k, s]:
        return np.nan
    return 0.0 if r > setup.low else 1.0


@jit
def observe_error(clearness: Clearness, m: int, error: float, q: float) -> None:
    """Model m was off by so much where it said q."""
    clearness.errors[m] += 1.0
    share = max(1.0 / clearness.errors[m], 1.0 / ERRORS)
    clearness.square[m] += share * (error * error / (1.0 + q) - clearness.square[m])


@jit
def below(level: float, n_hat: float, e: float) -> float:
    """P(n < level)."""
    z = (level - n_hat) / e
    if z > 6.0:
        return 1.0
    if z < -6.0:
        return 0.0
    return 0.5 * math.erfc(-0.7071067811865476 * z)


@jit
def fill_pays(setup: Setup, clearness: Clearness, m: int, k: int, n_hat: float, q: float) -> None:
    """What the states of channel k pay if n_hat is predicted, into pays[k]."""
    e = math.sqrt(clearness.square[m])
    n_hat += clearness.doubt[k] * e * math.sqrt(q)
    if setup.threshold:
        # That a perturbation adds to a reward is believed when it has been seen: where n is 0 or little more, the
        # prediction lies on both sides of 0.
        other = below(0.0, n_hat, e + TINY) if clearness.spared[k] > 0.0 else 0.0
        fill_at_random(setup, clearness, k, below(1.0, n_hat, e + TINY), other)
    else:
        for s in range(setup.states[k]):
            clearness.pays[k, s] = setup.h[k, s] - n_hat


@jit
def fill_at_random(setup: Setup, clearness: Clearness, k: int, good: float, other: float) -> None:
    """The same from the chances that a good state and that any other is paid in full."""
    for s in range(setup.states[k]):
        clearness.pays[k, s] = setup.low + (setup.high - setup.low) * (good if setup.good[k, s] else other)


@jit
def spared_probability(clearness: Clearness, k: int) -> float:
    """How likely a channel that is not good is paid, whatever the context."""
    return clearness.spared[k] / (1.0 + clearness.spared[k] + clearness.spoilt[k])


def terms(setup: Setup) -> tuple[str, str]:
    if setup.measured or not setup.threshold:
        return "predicted perturbation", "doubt about that prediction"
    return "predicted chance to be spoilt", "doubt about that prediction"
