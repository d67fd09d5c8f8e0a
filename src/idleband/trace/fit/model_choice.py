"""Choice between the models by their log-loss on held-out parts of the trace.

The trace is divided into five folds of consecutive slots. Parameters are fitted to four of them. In the fifth, each
slot is predicted from all slots before it. The log-loss is the mean of minus the log-probability of the states of all
channels in the next slot, jointly, in nats per channel and slot. For models with independent channels that is the mean
over single channels; for common regimes the mean over single channels is stated as well.

The model with the lowest log-loss is chosen, unless a model that it contains is within one standard error of it: the
Markov model is contained in all others, and two regimes in three. The standard error is that of the difference, from 30
blocks of the trace, which are taken as independent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.trace.fit.counts import FOLDS, Counts, block_starts
from idleband.trace.fit.hazards import bins_in_use, merged
from idleband.trace.fit.models import (
    MarkovModel,
    Model,
    RegimeModel,
    SemiMarkovModel,
    fit_markov,
    fit_semi_markov,
)
from idleband.trace.fit.regimes import fit_regimes, predictive_log_loss, transitions_of
from idleband.trace.fit.transitions import finite

MIN_TRANSITIONS, MIN_SLOTS = 50, 100  # to compare models at all
REGIMES = (2, 3)


@dataclass(frozen=True)
class Candidate:
    """Held-out log-loss of one model, in nats per channel and slot."""

    name: str
    regimes: int | None  # number of regimes
    log_loss: float  # of all channels jointly
    single_log_loss: float  # of single channels
    excess: float  # log-loss minus that of the best candidate
    excess_error: float  # standard error of the excess, from blocks of the trace

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.regimes} common regimes" if self.regimes else LABELS[self.name]

    def to_dict(self) -> dict[str, object]:
        """Return the candidate for JSON."""
        return {
            "model": self.name,
            "regimes": self.regimes,
            "log_loss": finite(self.log_loss),
            "single_log_loss": finite(self.single_log_loss),
            "excess": finite(self.excess),
            "excess_error": finite(self.excess_error),
        }


LABELS = {"markov": "Markov", "semi-markov": "semi-Markov", "regimes": "common regimes"}


@dataclass(frozen=True)
class Choice:
    """The chosen model and its competitors."""

    model: Model
    candidates: tuple[Candidate, ...]  # empty where the trace is too short to compare models
    subsampled: float  # share of the slots that the fit of regimes used

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that was chosen."""
        regimes = self.model.regimes if isinstance(self.model, RegimeModel) else None
        same = [found for found in self.candidates if (found.name, found.regimes) == (self.model.name, regimes)]
        return same[0] if same else None


def choose(busy: Any, counts: Counts, force: str | None = None) -> Choice:
    """Fit all models and choose one; `force` names the one to return whatever its log-loss."""
    T, K = busy.shape
    transitions = int(counts.leaves.sum())
    if transitions < MIN_TRANSITIONS or T - 1 < MIN_SLOTS:
        if force == "regimes":
            data = transitions_of(busy, block_starts(T, counts.blocks))
            return Choice(fit_regimes(data, 2, np.ones(T - 1, bool))[0], (), len(data.used) / (T - 1))
        short: Model = fit_semi_markov(counts) if force == "semi-markov" else fit_markov(counts)
        return Choice(short, (), 1.0)
    starts = block_starts(T, counts.blocks)
    data = transitions_of(busy, starts)
    folds = counts.folds()
    fold_of_slot = np.repeat(folds, np.diff(starts))
    size = np.diff(starts) * K
    losses: dict[tuple[str, int | None], tuple[Floats, Floats]] = {}
    for name, loss in (("markov", _markov_loss), ("semi-markov", _semi_markov_loss)):
        per_block = np.concatenate([loss(counts, folds, fold) for fold in range(FOLDS)])
        losses[name, None] = (per_block, per_block)
    for regimes in REGIMES:
        joint, single = np.empty(T - 1), np.empty(T - 1)
        for fold in range(FOLDS):
            held = fold_of_slot == fold
            model, _ = fit_regimes(data, regimes, ~held)
            found = predictive_log_loss(busy, model)
            joint[held], single[held] = found[0][held], found[1][held]
        losses["regimes", regimes] = (np.add.reduceat(joint, starts[:-1]), np.add.reduceat(single, starts[:-1]))
    total = {key: float(values[0].sum() / size.sum()) for key, values in losses.items()}
    best = min(total, key=lambda key: total[key])
    candidates = tuple(
        Candidate(
            name, regimes, total[name, regimes], float(values[1].sum() / size.sum()),
            total[name, regimes] - total[best], _error(values[0] - losses[best][0], size),
        )
        for (name, regimes), values in losses.items()
    )  # fmt: skip
    allowed = [found for found in candidates if force in (None, found.name)]
    best_allowed = min(allowed, key=lambda found: found.log_loss)
    winner = next(
        found for found in allowed
        if found is best_allowed
        or (force is None and _contains(best_allowed, found) and found.excess <= found.excess_error)
    )  # fmt: skip
    final: Model
    if winner.regimes:
        final = fit_regimes(data, winner.regimes, np.ones(T - 1, bool))[0]
    else:
        final = fit_markov(counts) if winner.name == "markov" else fit_semi_markov(counts)
    return Choice(final, candidates, len(data.used) / (T - 1))


def _contains(large: Candidate, small: Candidate) -> bool:
    return small.name == "markov" or (small.name == large.name == "regimes" and small.log_loss > large.log_loss)


def _error(differences: Floats, size: Ints) -> float:
    """Return the standard error of sum(differences) / sum(size)."""
    rest = differences - size * (differences.sum() / size.sum())
    n = len(size)
    return float(np.sqrt(np.sum(rest**2) * n / (n - 1)) / size.sum())


def _markov_loss(counts: Counts, folds: Ints, fold: int) -> Floats:
    """Return the log-loss of each block of a fold, summed over channels and slots."""
    model: MarkovModel = fit_markov(counts, folds != fold)
    held = folds == fold
    total = np.zeros(int(held.sum()))
    for state, p in ((0, model.p10), (1, model.p01)):
        slots, leaves = counts.slots[state][:, held].sum(axis=2), counts.leaves[state][:, held].sum(axis=2)
        total -= np.log(p) @ leaves + np.log1p(-p) @ (slots - leaves)
    return total


def _semi_markov_loss(counts: Counts, folds: Ints, fold: int) -> Floats:
    model: SemiMarkovModel = fit_semi_markov(counts, folds != fold)
    held = folds == fold
    total = np.zeros(int(held.sum()))
    for state, part in ((0, model.idle), (1, model.busy)):
        bins = bins_in_use(counts, state)
        slots, leaves = merged(counts.slots[state][:, held], bins), merged(counts.leaves[state][:, held], bins)
        h = part.table()
        total -= np.einsum("kb,kfb->f", np.log(h), leaves) + np.einsum("kb,kfb->f", np.log1p(-h), slots - leaves)
    return total
