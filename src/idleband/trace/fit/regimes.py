"""Markov-switching model: a hidden regime, common to all channels, sets their p01 and p10. Fitted by EM.

Given the regime of a slot the channels are independent two-state chains. The likelihood and the posterior probabilities
of the regimes come from the forward-backward recursion (Hamilton 1989), the parameters of a channel in a regime from
expected counts, shrunk towards the parameter of the channel in all regimes times a factor that the channels share in
this regime. Where the training part is interrupted, the regime starts anew from its stationary distribution.

Products of the matrices of the recursion are computed for all parts of about sqrt(T) slots at once.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from idleband.arrays import Flags, Floats
from idleband.trace.fit.hazards import MAX_HAZARD, MIN_HAZARD, shrunk_levels
from idleband.trace.fit.models import RegimeModel, stationary

MAX_SLOTS, MAX_VALUES = 30_000, 4_000_000  # slots and channel-slots that EM uses, of each block the first ones
SHRINKAGE = 5.0  # slots
FIRST_ROUNDS, MAX_ROUNDS = 6, 40
CLOSE = 2e-5  # gain of the log-likelihood per slot and channel, in nats, at which EM stops
NEGLIGIBLE = 1e-15  # probability of a regime in a slot
CHUNK = 1_000_000  # channel-slots at once


@dataclass(frozen=True)
class Transitions:
    """The transitions of the slots that EM uses, and which slots these are."""

    busy: Any  # (T, K), bool
    used: Any  # indices of transitions
    features: Any  # (used, 3 K), float32: left idle, left busy, was busy

    @property
    def K(self) -> int:
        """Number of channels."""
        return int(self.busy.shape[1])


def transitions_of(busy: Any, starts: Any) -> Transitions:
    """Return the transitions of a trace, or of the first part of each block where there are too many."""
    T, K = busy.shape
    share = min(1.0, MAX_SLOTS / (T - 1), MAX_VALUES / ((T - 1) * K))
    used = np.concatenate([
        np.arange(begin, begin + max(1, int(share * (end - begin))))
        for begin, end in pairwise(starts)
    ])  # fmt: skip
    return Transitions(busy, used, _features(busy, used))


def _features(busy: Any, at: Any) -> Any:
    before, after = busy[at], busy[at + 1]
    features = np.empty((len(at), 3, busy.shape[1]), np.float32)
    features[:, 0] = after & ~before
    features[:, 1] = before & ~after
    features[:, 2] = before
    return features.reshape(len(at), -1)


def fit_regimes(data: Transitions, regimes: int, train: Flags) -> tuple[RegimeModel, float]:
    """Fit the model to the transitions in `train`, of shape (T - 1,); return it and the log-likelihood per slot."""
    rows = train[data.used]
    part = data if rows.all() else Transitions(data.busy, data.used[rows], data.features[rows])
    restart = np.diff(part.used, prepend=-2) != 1
    candidates = [_rounds(part, restart, _start(part, regimes, kind), FIRST_ROUNDS) for kind in range(2)]
    best, _ = max(candidates, key=lambda found: found[1])
    return _rounds(part, restart, best, MAX_ROUNDS)


def _start(data: Transitions, regimes: int, kind: int) -> RegimeModel:
    """Return parameters from groups of slots with similar occupancy (kind 0) or similar numbers of changes (kind 1)."""
    counts = data.features.reshape(len(data.used), 3, data.K).mean(axis=2)
    score, width = (counts[:, 2], max(3, len(counts) // 100)) if kind == 0 else (counts[:, 0] + counts[:, 1], 3)
    width = min(width, len(score))
    smooth = np.convolve(score, np.full(width, 1 / width), mode="same")
    # The rarest regime has the largest scores: a burst takes little of the time.
    shares = np.array([0.7, 0.3]) if regimes == 2 else np.array([0.55, 0.3, 0.15])
    label = np.searchsorted(np.quantile(smooth, np.cumsum(shares)[:-1]), smooth, side="right")
    weights = np.full((len(label), regimes), 0.1 / regimes)
    weights[np.arange(len(label)), label] += 0.9
    pairs = np.full((regimes, regimes), 1.0)
    np.add.at(pairs, (label[:-1], label[1:]), 1.0)
    return _maximise(data, weights, pairs)


def _rounds(data: Transitions, restart: Flags, model: RegimeModel, rounds: int) -> tuple[RegimeModel, float]:
    before, value = -np.inf, -np.inf
    for _ in range(rounds):
        evidence = _log_likelihood(data.features, model)
        after, predicted, gain = forward_pass(model.transition, evidence, restart)
        weights, pairs = _backward_pass(model.transition, after, predicted, restart)
        value = float(gain.mean())
        model = _maximise(data, weights, pairs)
        if value - before < CLOSE * data.K:
            break
        before = value
    return model, value


def _maximise(data: Transitions, weights: Floats, pairs: Floats) -> RegimeModel:
    K, regimes = data.K, weights.shape[1]
    weights = np.where(weights < NEGLIGIBLE, 0.0, weights)  # denormal numbers are slow
    counts = (weights.T.astype(np.float32) @ data.features).astype(float).reshape(regimes, 3, K)
    slots_busy = counts[:, 2]
    slots_idle = np.maximum(0.0, weights.sum(axis=0)[:, None] - slots_busy)
    p10, p01 = _shrunk(slots_idle, counts[:, 0]), _shrunk(slots_busy, counts[:, 1])
    prior = 0.1 + 0.9 * np.eye(regimes)
    transition = (pairs + prior) / (pairs + prior).sum(axis=1, keepdims=True)
    return RegimeModel(p01, p10, transition)


def _shrunk(slots: Floats, leaves: Floats) -> Floats:
    """Return probabilities of shape (regimes, K), drawn towards products of a channel's and a regime's level."""
    level = shrunk_levels(slots.sum(axis=0), leaves.sum(axis=0))
    factor = (leaves.sum(axis=1) + 0.5) / (slots @ level + 0.5)
    prior = np.clip(np.outer(factor, level), MIN_HAZARD, 0.999)
    found = (leaves + SHRINKAGE * prior) / (slots + SHRINKAGE)
    return np.clip(found, MIN_HAZARD, MAX_HAZARD)


def _log_likelihood(features: Any, model: RegimeModel, kind: Any = np.float32) -> Floats:
    """Return the log-probability of the transitions of each slot in each regime."""
    stay_idle, stay_busy = np.log1p(-model.p10), np.log1p(-model.p01)
    weights = np.concatenate(
        [np.log(model.p10) - stay_idle, np.log(model.p01) - stay_busy, stay_busy - stay_idle], axis=1
    )
    product = features.astype(kind, copy=False) @ weights.T.astype(kind)
    return np.asarray(product + stay_idle.sum(axis=1), float)


def forward_pass(transition: Floats, evidence: Floats, restart: Flags | None = None) -> tuple[Floats, Floats, Floats]:
    """Return the regime's distribution after and before each slot is seen, and the log-probability of the slot.

    `evidence` has the log-probability of each slot in each regime, of shape (slots, regimes). In slots of `restart` the
    regime has its stationary distribution, whatever was before.
    """
    top = evidence.max(axis=1)
    likelihood = np.exp(evidence - top[:, None])
    first = stationary(transition)
    steps = _steps(transition, len(evidence), restart)
    after = propagate(first, steps * likelihood[:, None, :])
    before = np.einsum("ti,tij->tj", np.concatenate([first[None], after[:-1]]), steps)
    return after, before, np.log(np.sum(before * likelihood, axis=1)) + top


def _steps(transition: Floats, count: int, restart: Flags | None) -> Floats:
    steps = np.broadcast_to(transition, (count, *transition.shape))
    if restart is None:
        return steps
    anew = np.broadcast_to(stationary(transition), transition.shape)
    return np.where(restart[:, None, None], anew, steps)


def _backward_pass(transition: Floats, after: Floats, before: Floats, restart: Flags) -> tuple[Floats, Floats]:
    """Return the distribution of each slot's regime given all slots, and the expected numbers of regime changes."""
    # back[t, i, j]: probability of regime i in slot t given regime j in slot t + 1 and the slots up to t.
    steps = _steps(transition, len(after), restart)[1:]
    back = after[:-1, :, None] * steps / np.maximum(before[1:, None, :], 1e-300)
    reversed_weights = propagate(after[-1], back.transpose(0, 2, 1)[::-1])
    weights = np.concatenate([reversed_weights[::-1], after[-1:]])
    inner = np.where(restart[1:, None], 0.0, weights[1:])
    return weights, np.einsum("tij,tj->ij", back, inner)


def propagate(first: Floats, matrices: Floats) -> Floats:
    """Return v_t = v_(t-1) M_t, scaled to the sum 1, for t = 1, 2, ... from v_0 = `first`.

    The vectors are computed in parts of about sqrt(T) slots at once: first the product of the matrices of each part,
    then the vector at the beginning of each part, then those within.

    >>> flip = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> propagate(np.array([0.75, 0.25]), np.stack([flip, np.eye(2), flip])).tolist()
    [[0.25, 0.75], [0.25, 0.75], [0.75, 0.25]]
    """
    T, size, _ = matrices.shape
    length = max(1, int(np.ceil(np.sqrt(T))))
    parts = -(-T // length)
    padded = np.broadcast_to(np.eye(size), (parts * length, size, size)).copy()
    padded[:T] = matrices
    padded = padded.reshape(parts, length, size, size)
    product = padded[:, 0]
    for i in range(1, length):
        product = product @ padded[:, i]
        product /= product.sum(axis=(1, 2), keepdims=True)
    begin = np.empty((parts, 1, size))
    vector = first
    for part in range(parts):
        begin[part, 0] = vector
        vector = vector @ product[part]
        vector = vector / vector.sum()
    out = np.empty((parts, length, size))
    vectors = begin
    for i in range(length):
        vectors = vectors @ padded[:, i]
        vectors = vectors / vectors.sum(axis=2, keepdims=True)
        out[:, i] = vectors[:, 0]
    return out.reshape(-1, size)[:T]


def predictive_log_loss(busy: Any, model: RegimeModel) -> tuple[Floats, Floats]:
    """Return the log-loss of each slot given all earlier ones: of all channels jointly, and summed over channels.

    The state of the regime is filtered from all earlier slots. In nats; both of shape (T - 1,).
    """
    T, K = busy.shape
    step = max(1, CHUNK // K)
    evidence = np.empty((T - 1, model.regimes))
    for begin in range(0, T - 1, step):
        at = np.arange(begin, min(T - 1, begin + step))
        evidence[at] = _log_likelihood(_features(busy, at), model, float)
    _, before, gain = forward_pass(model.transition, evidence)
    single = np.empty(T - 1)
    for begin in range(0, T - 1, step):
        part = slice(begin, min(T - 1, begin + step))
        now, after = busy[part], busy[begin + 1 : min(T, begin + step + 1)]
        leave = np.where(now, before[part] @ model.p01, before[part] @ model.p10)
        single[part] = -np.sum(np.log(np.where(now != after, leave, 1 - leave)), axis=1)
    return -gain, single
