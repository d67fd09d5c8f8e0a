"""Mixing of predictions of a binary outcome, and trust in one of them.

The logits of several predictors and other features x are combined by an online logistic regression,

    P(y = 1) = 1 / (1 + exp(-theta . x)),

with one theta per group of channels, shared by the channels of the group. This is logistic mixing as in the PAQ
compressors (Mattern, "Mixing strategies in data compression", DCC 2012), a logarithmic opinion pool (Genest and Zidek,
"Combining probability distributions", Statistical Science 1986) whose weights are learned and need not add up to 1. The
posterior of theta is updated by `kernels/logistic.py`; its variance grows slowly up to that of the prior, so that the
weights follow changes.

The first predictor, a two-state chain, is special: if it is right, the value of looking ahead is known (Whittle index).
`trust` is the weight of the chain against the mixture under the fixed-share algorithm (Herbster and Warmuth, "Tracking
the best expert", Machine Learning 1998) on their log-losses. Where the chain is right the mixture is nearly as good but
not better; so the loss of the mixture counts 1% more.

All references are from memory.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.kernels import logistic, ridge
from idleband.kernels.compile import jit

PRIOR_VARIANCE = 0.1  # of the weights
MEMORY = 2000.0  # plays after which the variance of a weight would have grown by a factor e
MAX_LOGIT = 7.0
RATE, SHARE, MARGIN = 0.5, 0.001, 0.01  # of trust: learning rate, share per slot, handicap of the mixture


class Mixture(NamedTuple):
    A_inv: Floats  # (groups, d, d) posterior covariance of the weights
    theta: Floats  # (groups, d) weights
    v: Floats  # (K, d) working array
    logit: Floats  # (K,) of the mixture in this slot
    past_logit: Floats  # (memory, K) the same in the last slots in which a channel was played
    trust: Floats  # (1,) weight of the chain


def new_mixture(K: int, prior: Floats, memory: int) -> Mixture:
    """Return a mixture with prior weights (groups, d)."""
    groups, d = prior.shape
    return Mixture(
        A_inv=np.tile(PRIOR_VARIANCE * np.eye(d), (groups, 1, 1)),
        theta=prior.copy(),
        v=np.zeros((K, d)),
        logit=np.zeros(K),
        past_logit=np.zeros((memory, K)),
        trust=np.full(1, 0.5),
    )


@jit
def mix(mixture: Mixture, group: int, x: Floats, k: int) -> float:
    """Return the logit of the mixture for the features x[k]."""
    return min(max(ridge.predict(mixture.theta, group, x, k), -MAX_LOGIT), MAX_LOGIT)


@jit
def log_loss(logit: float, y: float) -> float:
    """Return -log P(y) of a prediction."""
    return math.log1p(math.exp(-logit if y > 0.5 else logit))


@jit
def learn(mixture: Mixture, group: int, x: Floats, k: int, y: float) -> None:
    """Update the weights of a group with the outcome y at the features x[k]."""
    A_inv = mixture.A_inv
    for i in range(x.shape[1]):
        if A_inv[group, i, i] < PRIOR_VARIANCE:
            A_inv[group, i, i] = min(PRIOR_VARIANCE, A_inv[group, i, i] * (1.0 + 1.0 / MEMORY))
    q = ridge.width_squared(A_inv, group, x, k, mixture.v, k)
    logistic.learn(A_inv, mixture.theta, group, mixture.v, k, q, ridge.predict(mixture.theta, group, x, k), y)


@jit
def learn_trust(mixture: Mixture, mixed: float, chain: float, y: float, plays: int) -> None:
    """Update trust from the logits that mixture and chain had predicted; `plays` is the number of plays in a slot."""
    trust = mixture.trust[0]
    evidence = (1.0 + MARGIN) * log_loss(mixed, y) - log_loss(chain, y)
    trust = logistic.probability(math.log(trust / (1.0 - trust)) + RATE * evidence)
    share = SHARE / plays
    mixture.trust[0] = (1.0 - share) * trust + 0.5 * share
