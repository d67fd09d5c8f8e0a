"""Regimes: all channels change their transition probabilities together, at random or at given times.

With `transition` the regime is a Markov chain that policies do not see; a regime in which most channels become busy is
a common shock, and makes channels dependent. With `at` the regimes are used in turn, each from a given slot on.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.errors import InputError, counted
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.scenario.markov import cumulative, gilbert_elliott, irreducible, stationary

MAX_REGIMES, MAX_CHANNELS, MAX_CHANGES, MAX_SLOT = 64, 100_000, 100_000, 10**10
MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Regimes:
    """Transition probabilities of every channel in every regime, and when regimes change."""

    p01: tuple[tuple[float, ...], ...]  # one row per regime
    p10: tuple[tuple[float, ...], ...]
    transition: tuple[tuple[float, ...], ...] = ()  # of the regime from slot to slot; empty with `at`
    at: tuple[int, ...] = ()  # first slots of the next regime

    @property
    def count(self) -> int:
        """Number of regimes."""
        return len(self.p01)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings."""
        found: dict[str, Any] = {"p01": [list(row) for row in self.p01], "p10": [list(row) for row in self.p10]}
        if self.transition:
            return found | {"transition": [list(row) for row in self.transition]}
        return found | {"at": list(self.at)}

    def joint(self) -> Floats:
        """Return the long-run probabilities of regime, channel and state, shape (R, K, 2).

        With given times every regime counts equally, whatever the number of slots for which it is used.
        """
        chains = np.array([[gilbert_elliott(a, b) for a, b in zip(*row, strict=True)] for row in self._rows()])
        R, K = chains.shape[:2]
        if not self.transition:
            return np.array([[stationary(P) for P in row] for row in chains]) / R
        moves = np.array(self.transition)
        found = np.zeros((R, K, 2))
        for k in range(K):  # the regime moves first, then the channel under the new regime
            found[:, k] = stationary(_joint_matrix(moves, chains[:, k])).reshape(R, 2)
        return found

    def marginal_transition(self) -> tuple[Floats, ...]:
        """Return the long-run transition matrix of each channel from slot to slot."""
        joint = self.joint()
        moves = np.array(self.transition) if self.transition else np.eye(self.count)
        after = np.einsum("rks,rq->qks", joint, moves)  # state before a slot, regime in it
        p01 = (after[:, :, 0] * np.array(self.p01)).sum(axis=0) / after[:, :, 0].sum(axis=0)
        p10 = (after[:, :, 1] * np.array(self.p10)).sum(axis=0) / after[:, :, 1].sum(axis=0)
        return tuple(gilbert_elliott(min(1.0, float(a)), min(1.0, float(b))) for a, b in zip(p01, p10, strict=True))

    def _rows(self) -> Sequence[tuple[tuple[float, ...], tuple[float, ...]]]:
        return list(zip(self.p01, self.p10, strict=True))


def _joint_matrix(moves: Floats, chains: Floats) -> Floats:
    """Return the transition matrix of regime and state of one channel, shape (2R, 2R)."""
    size = 2 * len(moves)
    return np.asarray(np.einsum("qr,rst->qsrt", moves, chains).reshape(size, size))


def read_regimes(value: Any) -> Regimes:
    """Return the regimes that the table [scenario.regimes] describes."""
    where = "scenario.regimes"
    table = validation.table(value, where)
    validation.check_keys(table, ("p01", "p10", "transition", "at"), where)
    rows: dict[str, tuple[tuple[float, ...], ...]] = {}
    K = None
    for key in ("p01", "p10"):
        if key not in table:
            raise InputError(f"{where}.{key} is missing: one list of probabilities per regime")
        rows[key] = _rows(table[key], f"{where}.{key}", K)
        K = len(rows[key][0])
    R = len(rows["p01"])
    if len(rows["p10"]) != R:
        raise InputError(f"{where}.p10: has {counted(len(rows['p10']), 'regime')}, p01 has {R}")
    if ("transition" in table) == ("at" in table):
        raise InputError(f"{where}: give either transition, for random changes, or at, for changes at given slots")
    if "at" in table:
        return Regimes(rows["p01"], rows["p10"], at=_slots(table["at"], f"{where}.at", R))
    found = Regimes(rows["p01"], rows["p10"], transition=_moves(table["transition"], f"{where}.transition", R))
    for k, pair in enumerate(zip(*rows["p01"], *rows["p10"], strict=True)):
        if 1.0 in pair:  # otherwise every state is reached from every other
            chains = np.array([gilbert_elliott(a, b) for a, b in zip(pair[:R], pair[R:], strict=True)])
            if not irreducible(_joint_matrix(np.array(found.transition), chains)):
                raise InputError(
                    f"{where}: regimes and states of channel {k} together are a chain in which some state can never be"
                    " reached from another; choose p01 or p10 below 1"
                )
    return found


def _slots(value: Any, field: str, R: int) -> tuple[int, ...]:
    """Return the slots in which regimes change."""
    entries = validation.sequence(value, field, "of slots")
    if not max(1, R - 1) <= len(entries) <= MAX_CHANGES:
        raise InputError(
            f"{field}: has {counted(len(entries), 'slot')}; must be from {max(1, R - 1)}, so that all {R} regimes are"
            f" used, to {MAX_CHANGES}"
        )
    at = tuple(validation.whole(t, field, 2, MAX_SLOT) for t in entries)
    if any(a >= b for a, b in itertools.pairwise(at)):
        raise InputError(f"{field}: slots must increase")
    return at


def _moves(value: Any, field: str, R: int) -> tuple[tuple[float, ...], ...]:
    """Return the transition matrix of the regime."""
    rows = [
        [validation.number(p, field, 0, 1) for p in validation.sequence(row, field, "of probabilities")]
        for row in validation.sequence(value, field, "rows of probabilities")
    ]
    if len(rows) != R or any(len(row) != R or abs(sum(row) - 1) > 1e-9 for row in rows):
        raise InputError(f"{field}: must be {R} rows of {R} probabilities that add up to 1")
    if any(0 < p < MIN_PROBABILITY for row in rows for p in row):
        raise InputError(f"{field}: contains a probability below {MIN_PROBABILITY:g}; must be 0, or at least that")
    if not irreducible(np.array(rows)):
        raise InputError(f"{field}: some regime can never be reached from another; must be irreducible")
    return tuple(tuple(row) for row in rows)


def _rows(value: Any, field: str, K: int | None) -> tuple[tuple[float, ...], ...]:
    lists = validation.sequence(value, field, "one list of probabilities per regime")
    if not 1 <= len(lists) <= MAX_REGIMES:
        raise InputError(f"{field}: has {counted(len(lists), 'regime')}; must be from 1 to {MAX_REGIMES}")
    rows = []
    for r, entry in enumerate(lists):
        values = validation.sequence(entry, f"{field}, regime {r}", "one probability per channel")
        if not 1 <= len(values) <= MAX_CHANNELS:
            raise InputError(
                f"{field}, regime {r}: has {counted(len(values), 'channel')}; must be from 1 to {MAX_CHANNELS}"
            )
        K = len(values) if K is None else K
        if len(values) != K:
            raise InputError(f"{field}, regime {r}: has {counted(len(values), 'entry')} for {counted(K, 'channel')}")
        rows.append(tuple(validation.number(p, f"{field}, regime {r}", MIN_PROBABILITY, 1) for p in values))
    return tuple(rows)


# --- in the loop -----------------------------------------------------------------------------------------------------


class RegimeProcess(NamedTuple):
    """The regime of the slot."""

    rng: Rng  # (2,)
    current: Ints  # (1,)
    start: Floats  # (R - 1,) cumulative stationary distribution
    limits: Floats  # (R, R - 1) cumulative rows of its transition matrix; no rows if it does not change at random
    at: Ints  # (n,) slots in which the next regime begins
    passed: Ints  # (1,) how many of them have passed


def new_regime_process(regimes: Regimes | None, rng: Rng) -> RegimeProcess:
    """Return the process at its start."""
    start, limits, at = np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.int64)
    if regimes is not None and regimes.transition and regimes.count > 1:
        moves, R = np.array(regimes.transition), regimes.count
        start = cumulative(np.tile(stationary(moves), (R, 1)), R)[0]
        limits = cumulative(moves, R)
    elif regimes is not None:
        at = np.array(regimes.at, np.int64)
    return RegimeProcess(rng, np.zeros(1, np.int64), start, limits, at, np.zeros(1, np.int64))


@jit
def enter_regime(process: RegimeProcess) -> None:
    """Draw the regime before slot 1."""
    if process.limits.shape[0] > 0:
        u, regime = uniform(process.rng), 0
        for j in range(process.start.size):
            regime += u >= process.start[j]
        process.current[0] = regime


@jit
def step_regime(process: RegimeProcess, slot: int, count: int) -> None:
    """Move to the regime of a slot; `count` is the number of regimes."""
    if process.limits.shape[0] > 0:
        u, regime = uniform(process.rng), 0
        for j in range(process.start.size):
            regime += u >= process.limits[process.current[0], j]
        process.current[0] = regime
    elif process.passed[0] < process.at.size and slot == process.at[process.passed[0]]:
        process.passed[0] += 1
        process.current[0] = process.passed[0] % count
