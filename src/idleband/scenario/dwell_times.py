"""Dwell times: lengths of idle and busy periods that are not geometric (semi-Markov channels).

In a two-state Markov channel the probability of leaving a state does not depend on how long the channel has been in it.
Here it does. A distribution of dwell times is stored as its hazard: hazard[a - 1] is the probability that a period ends
after exactly a slots, given that it has lasted a slots; the last value holds for all longer periods. State and age
together are a finite Markov chain, so that long-run quantities are exact.

    geometric            mean
    negative-binomial    mean, shape: 1 + a negative binomial variable; shape 1 is geometric, below 1 more variable
    weibull              mean, shape: P(dwell > a) = exp(-(a / c)^shape); below 1 the hazard decreases with age
    uniform              low, high: whole numbers, both included
    mixture              weights, means: of geometric distributions
    empirical            hazard: one value per age
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.channels import channel_text
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, fill_uniform

MAX_AGES = 4096  # entries of a hazard
NEGLIGIBLE = 1e-12  # probability of longer periods at which a hazard is cut off
MAX_MEAN = 1e9  # slots
KEYS = {
    "geometric": ("mean",),
    "negative-binomial": ("mean", "shape"),
    "weibull": ("mean", "shape"),
    "uniform": ("low", "high"),
    "mixture": ("weights", "means"),
    "empirical": ("hazard",),
}
STATES = ("bad", "good")  # by the number of the state


@dataclass(frozen=True)
class DwellTime:
    """Distribution of the dwell time in one state."""

    kind: str
    parameters: tuple[tuple[str, Any], ...]
    hazard: tuple[float, ...]

    @cached_property
    def mean(self) -> float:
        """Mean dwell time in slots."""
        return mean_dwell(np.array(self.hazard))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of the distribution."""
        listed = {key: list(value) if isinstance(value, tuple) else value for key, value in self.parameters}
        return {"kind": self.kind, **listed}


@dataclass(frozen=True)
class DwellTimes:
    """Distributions of the dwell times of all channels, one per channel and state."""

    good: tuple[DwellTime, ...]
    bad: tuple[DwellTime, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, one table per channel and state."""
        return {state: [one.to_dict() for one in getattr(self, state)] for state in STATES}


def mean_dwell(hazard: Floats) -> float:
    """Return the mean dwell time of a hazard.

    >>> mean_dwell(np.array([0.25]))
    4.0
    """
    survival = np.cumprod(np.concatenate([[1.0], 1.0 - hazard[:-1]]))
    return float(survival[:-1].sum() + survival[-1] / hazard[-1])


def _hazard(survival: Floats) -> Floats:
    """Return the hazard of P(dwell > a), a = 0, 1, ..., cut off where longer periods are negligible."""
    last = int(np.argmax(np.append(survival, 0.0) < NEGLIGIBLE))
    survival = survival[: max(2, min(last, MAX_AGES) + 1)]
    hazard = 1.0 - survival[1:] / survival[:-1]
    return np.asarray(hazard[: max(1, int(np.flatnonzero(hazard > 0)[-1]) + 1)])


def _weibull(mean: float, shape: float) -> Floats:
    ages = np.arange(MAX_AGES + 1)

    def of_scale(scale: float) -> Floats:
        with np.errstate(over="ignore"):
            return _hazard(np.exp(-((ages / scale) ** shape)))

    low, high = 1e-3, 1.0
    while mean_dwell(of_scale(high)) < mean:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mean_dwell(of_scale(middle)) < mean else (low, middle)
    return of_scale(high)


def _negative_binomial(mean: float, shape: float) -> Floats:
    from scipy.special import betainc  # slow to import

    p = shape / (shape + mean - 1.0)
    ages = np.arange(1, MAX_AGES + 1)
    return _hazard(np.concatenate([[1.0], betainc(ages, shape, 1.0 - p)]))


def _mixture(weights: Floats, means: Floats) -> Floats:
    ages = np.arange(MAX_AGES + 1)
    return _hazard((weights[:, None] * (1.0 - 1.0 / means[:, None]) ** ages).sum(axis=0) / weights.sum())


def read_dwell_time(value: Any, field: str, mean: float | None = None) -> DwellTime:
    """Return the distribution that a table describes; `mean` is used where the table has none."""
    table = validation.table(value, field)
    kind = validation.choice(table.get("kind"), f"{field}.kind", KEYS)
    validation.check_keys(table, ("kind", *KEYS[kind]), field)
    given = {key: table[key] for key in KEYS[kind] if key in table}
    if mean is not None and "mean" in KEYS[kind]:
        given.setdefault("mean", mean)
    for key in KEYS[kind]:
        if key not in given:
            raise InputError(f"{field}.{key} is missing: {kind} dwell times have {', '.join(KEYS[kind])}")
    numbers: dict[str, Any] = {}
    for key, entry in given.items():
        numbers[key] = _parameter(key, entry, f"{field}.{key}")
    hazard = _hazard_of(kind, numbers, field)
    ordered = tuple((key, numbers[key]) for key in KEYS[kind])
    return DwellTime(kind, ordered, tuple(float(h) for h in hazard))


def _parameter(key: str, entry: Any, field: str) -> Any:
    if key == "mean":
        return validation.number(entry, field, 1.0, MAX_MEAN)
    if key == "shape":
        return validation.number(entry, field, 0.1, 100.0)
    if key in ("low", "high"):
        return validation.whole(entry, field, 1, MAX_AGES)
    values = validation.sequence(entry, field, "of numbers")
    if not 1 <= len(values) <= MAX_AGES:
        raise InputError(f"{field}: has {len(values)} entries; must be from 1 to {MAX_AGES}")
    low, high = {"weights": (0.0, 1e9), "means": (1.0, MAX_MEAN), "hazard": (0.0, 1.0)}[key]
    return tuple(validation.number(x, f"{field}[{i}]", low, high) for i, x in enumerate(values))


def _hazard_of(kind: str, numbers: Mapping[str, Any], field: str) -> Floats:
    if kind == "geometric":
        return np.array([1.0 / numbers["mean"]])
    if kind == "empirical":
        if numbers["hazard"][-1] <= 1.0 / MAX_MEAN:
            raise InputError(
                f"{field}.hazard: the last value must be above {1.0 / MAX_MEAN:g}; it holds for longer ages"
            )
        return np.array(numbers["hazard"])
    if kind == "uniform":
        low, high = numbers["low"], numbers["high"]
        if low > high:
            raise InputError(f"{field}.high = {high}: must be at least low = {low}")
        ages = np.arange(1, high + 1)
        return np.where(ages < low, 0.0, 1.0 / (high + 1 - np.maximum(ages, low)))
    if kind == "mixture":
        weights, means = np.array(numbers["weights"]), np.array(numbers["means"])
        if len(weights) != len(means) or weights.sum() <= 0.0:
            raise InputError(f"{field}.weights: must have one number per mean, not all zero")
        return _mixture(weights, means)
    if numbers["mean"] == 1.0:
        return np.array([1.0])
    make = _weibull if kind == "weibull" else _negative_binomial
    return make(numbers["mean"], numbers["shape"])


def read_dwell_times(
    value: Any, K: int | None, names: Sequence[str], means: Mapping[str, Sequence[float]] | None
) -> DwellTimes:
    """Return the dwell times that the table [scenario.dwell] describes.

    `means` are the mean dwell times of the chains given beside it, by state; they are used where a table has no mean.
    """
    table = validation.table(value, "scenario.dwell")
    validation.check_keys(table, STATES, "scenario.dwell")
    for state in STATES:
        if state not in table:
            raise InputError(f"scenario.dwell.{state} is missing: the distribution of {state} periods")
    lengths = {state: len(entry) for state, entry in table.items() if isinstance(entry, list | tuple)}
    if K is None:
        if not lengths and not names:
            raise InputError("scenario.dwell: number of channels unknown; give one table per channel, or channel_names")
        K = next(iter(lengths.values()), len(names))
    found: dict[str, tuple[DwellTime, ...]] = {}
    for state in STATES:
        entry = table[state]
        if lengths.get(state, K) != K or K == 0:
            raise InputError(f"scenario.dwell.{state}: has {lengths.get(state, 0)} tables for {K} channels")
        if state in lengths or means is not None:
            each = entry if state in lengths else [entry] * K
            found[state] = tuple(
                read_dwell_time(
                    one, f"scenario.dwell.{state}, {channel_text(k, names)}", means[state][k] if means else None
                )
                for k, one in enumerate(each)
            )
        else:
            found[state] = (read_dwell_time(entry, f"scenario.dwell.{state}"),) * K
    return DwellTimes(found["good"], found["bad"])


# --- in the loop -----------------------------------------------------------------------------------------------------


class DwellProcess(NamedTuple):
    """Ages of all channels, and the hazards by which they leave their states."""

    which: Ints  # (K, 2) row of the hazard of each channel and state; no rows if channels are Markov
    hazard: Floats  # (D, A)
    start_age: Floats  # (D, A) cumulative stationary distribution of the age in the state
    age: Ints  # (K,) slots spent in the state before this one, at most A - 1


def new_dwell_process(dwell: DwellTimes | None, K: int) -> DwellProcess:
    """Return the process at its start."""
    if dwell is None:
        return DwellProcess(np.zeros((0, 2), np.int64), np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(0, np.int64))
    rows: dict[tuple[float, ...], int] = {}
    which = np.zeros((K, 2), np.int64)
    for state, name in enumerate(STATES):
        for k, one in enumerate(getattr(dwell, name)):
            which[k, state] = rows.setdefault(one.hazard, len(rows))
    longest = max(map(len, rows))
    hazard = np.array([[*row, *[row[-1]] * (longest - len(row))] for row in rows])
    survival = np.cumprod(np.column_stack([np.ones(len(hazard)), 1.0 - hazard[:, :-1]]), axis=1)
    survival[:, -1] = survival[:, -1] / hazard[:, -1]  # the last age stands for all longer ones
    start_age = np.cumsum(survival, axis=1) / survival.sum(axis=1, keepdims=True)
    return DwellProcess(which, hazard, start_age, np.zeros(K, np.int64))


@jit
def enter_dwell(process: DwellProcess, rng: Rng, u: Floats, s: Ints) -> None:
    """Draw the age of every channel in its state s."""
    fill_uniform(rng, u)
    last = process.hazard.shape[1] - 1
    for k in range(s.size):
        row, age = process.which[k, s[k]], 0
        while age < last and u[k] >= process.start_age[row, age]:
            age += 1
        process.age[k] = age


@jit
def step_dwell(process: DwellProcess, u: Floats, s: Ints) -> None:
    """Advance every channel by one slot; a larger draw u is never worse for the next state."""
    last = process.hazard.shape[1] - 1
    for k in range(s.size):
        hazard = process.hazard[process.which[k, s[k]], process.age[k]]
        leaves = u[k] < hazard if s[k] == 1 else u[k] >= 1.0 - hazard
        if leaves:
            s[k] = 1 - s[k]
            process.age[k] = 0
        elif process.age[k] < last:
            process.age[k] += 1
