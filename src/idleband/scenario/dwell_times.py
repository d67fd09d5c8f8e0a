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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.channels import channel_text, check_channel_names
from idleband.errors import InputError, counted
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, fill_uniform

MAX_CHANNELS = 100_000
MAX_AGES = 4096  # entries of a hazard
NEGLIGIBLE = 1e-12  # probability of longer periods at which a hazard is cut off
TAIL = 1e-9  # probability of longer periods above which the last hazard is chosen so that the mean is exact
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


def _hazard(survival: Floats, mean: float) -> tuple[float, ...]:
    """Return the hazard of a distribution with P(dwell > a) = survival[a], a = 0, 1, ..., and the given mean."""
    negligible = survival < NEGLIGIBLE
    if negligible.any():
        survival = survival[: max(2, int(np.argmax(negligible)) + 1)]
    hazard = 1.0 - survival[1:] / survival[:-1]
    if survival[-1] > TAIL:  # the mean number of slots beyond the last age is known
        beyond = mean - float(survival[:-1].sum())
        hazard = np.append(hazard, min(1.0, float(survival[-1]) / beyond))
    return tuple(hazard.tolist())


@lru_cache(maxsize=4096)
def _weibull(mean: float, shape: float) -> tuple[float, ...]:
    from scipy.special import gammaincc, gammaln  # slow to import

    log_age = np.log(np.maximum(np.arange(MAX_AGES), 1e-300))

    def survival_of(log_scale: float) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.exp(-np.exp(shape * (log_age - log_scale))))

    def mean_above_1(log_scale: float) -> float:
        survival = survival_of(log_scale)
        beyond = 0.0
        if survival[-1] > 0.0:  # the integral of P(dwell > a) instead of the sum
            z = math.exp(shape * (math.log(MAX_AGES - 0.5) - log_scale))
            beyond = float(gammaincc(1.0 / shape, z) * math.exp(gammaln(1.0 + 1.0 / shape) + log_scale))
        return float(survival[1:].sum()) + beyond

    low = high = math.log(mean)
    while mean_above_1(low) > mean - 1.0:
        low -= 2.0
    while mean_above_1(high) < mean - 1.0:
        high += 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mean_above_1(middle) < mean - 1.0 else (low, middle)
    return _hazard(survival_of(high), mean)


@lru_cache(maxsize=4096)
def _negative_binomial(mean: float, shape: float) -> tuple[float, ...]:
    from scipy.special import betainc  # slow to import

    failure = (mean - 1.0) / (shape + mean - 1.0)
    ages = np.arange(1, MAX_AGES)
    return _hazard(np.concatenate([[1.0], betainc(ages, shape, failure)]), mean)


def _mixture(weights: Floats, means: Floats) -> tuple[float, ...]:
    shares, ages = weights / weights.sum(), np.arange(MAX_AGES)
    return _hazard((shares[:, None] * (1.0 - 1.0 / means[:, None]) ** ages).sum(axis=0), float(shares @ means))


def read_dwell_time(value: Any, field: str, mean: float | None = None, channel: str = "") -> DwellTime:
    """Return the distribution that a table describes; `mean` is used where the table has none.

    `channel` is named in messages after the field.
    """
    of = f", {channel}" if channel else ""
    table = validation.table(value, field + of)
    if "kind" not in table:
        raise InputError(f"{field}.kind{of} is missing: one of {', '.join(KEYS)}")
    kind = validation.choice(table["kind"], f"{field}.kind{of}", KEYS)
    validation.check_keys(table, ("kind", *KEYS[kind]), field + of)
    given = {key: table[key] for key in KEYS[kind] if key in table}
    if mean is not None and "mean" in KEYS[kind]:
        given.setdefault("mean", mean)
    for key in KEYS[kind]:
        if key not in given:
            raise InputError(f"{field}.{key}{of} is missing: {kind} dwell times have {', '.join(KEYS[kind])}")
    numbers = {key: _parameter(key, given[key], f"{field}.{key}{of}") for key in KEYS[kind]}
    return DwellTime(kind, tuple(numbers.items()), _hazard_of(kind, numbers, field, of))


def _parameter(key: str, entry: Any, field: str) -> Any:
    if key == "mean":
        return validation.number(entry, field, 1.0, MAX_MEAN)
    if key == "shape":
        return validation.number(entry, field, 0.1, 100.0)
    if key in ("low", "high"):
        return validation.whole(entry, field, 1, MAX_AGES)
    values = validation.sequence(entry, field, "of numbers")
    if not 1 <= len(values) <= MAX_AGES:
        raise InputError(f"{field}: has {counted(len(values), 'entry')}; must be from 1 to {MAX_AGES}")
    low, high = {"weights": (0.0, 1e9), "means": (1.0, MAX_MEAN), "hazard": (0.0, 1.0)}[key]
    return tuple(validation.number(x, f"{field}, entry {i}", low, high) for i, x in enumerate(values))


def _hazard_of(kind: str, numbers: Mapping[str, Any], field: str, of: str) -> tuple[float, ...]:
    if kind == "geometric":
        return (1.0 / numbers["mean"],)
    if kind == "empirical":
        last = numbers["hazard"][-1]
        if last < 1.0 / MAX_MEAN:
            raise InputError(
                f"{field}.hazard{of}: the last value, {last:g}, holds for all longer ages; must be at least"
                f" {1.0 / MAX_MEAN:g}"
            )
        hazard: tuple[float, ...] = numbers["hazard"]
        return hazard
    if kind == "uniform":
        low, high = numbers["low"], numbers["high"]
        if low > high:
            raise InputError(f"{field}.high{of} = {high}: must be at least low = {low}")
        return tuple(0.0 if age < low else 1.0 / (high + 1 - age) for age in range(1, high + 1))
    if kind == "mixture":
        weights, means = np.array(numbers["weights"]), np.array(numbers["means"])
        if len(weights) != len(means):
            raise InputError(
                f"{field}.weights{of}: has {counted(len(weights), 'entry')} for {counted(len(means), 'mean')}"
            )
        if weights.sum() <= 0.0:
            raise InputError(f"{field}.weights{of}: all are 0; at least one must be above 0")
        return _mixture(weights, means)
    if numbers["mean"] == 1.0:
        return (1.0,)
    make = _weibull if kind == "weibull" else _negative_binomial
    return make(numbers["mean"], numbers["shape"])


def read_dwell_times(
    value: Any, K: int | None, channel_names: Any, means: Mapping[str, Sequence[float]] | None
) -> DwellTimes:
    """Return the dwell times that the table [scenario.dwell] describes.

    `K` and `means`, the mean dwell times by state, are those of the chains given beside it, if there are any. Means are
    used where a table has none.
    """
    where = "scenario.dwell"
    table = validation.table(value, where)
    validation.check_keys(table, STATES, where)
    for state in STATES:
        if state not in table:
            raise InputError(f"{where}.{state} is missing: the distribution of {state} periods")
    lengths = {state: len(entry) for state, entry in table.items() if isinstance(entry, list | tuple)}
    if K is None:
        named = len(channel_names) if isinstance(channel_names, list | tuple | np.ndarray) else 0
        if not lengths and not named:
            raise InputError(f"{where}: number of channels unknown; give one table per channel, or channel_names")
        K = next(iter(lengths.values()), named)
    names = check_channel_names(channel_names, K, "scenario.channel_names")
    found: dict[str, tuple[DwellTime, ...]] = {}
    for state in STATES:
        field, entry = f"{where}.{state}", table[state]
        if not 1 <= lengths.get(state, K) <= MAX_CHANNELS:
            raise InputError(f"{field}: has {lengths.get(state, K)} tables; must be from 1 to {MAX_CHANNELS}")
        if lengths.get(state, K) != K:
            raise InputError(f"{field}: has {counted(lengths[state], 'table')} for {counted(K, 'channel')}")
        if state in lengths or means is not None:
            each = entry if state in lengths else [entry] * K
            found[state] = tuple(
                read_dwell_time(one, field, means[state][k] if means else None, channel_text(k, names))
                for k, one in enumerate(each)
            )
        else:
            found[state] = (read_dwell_time(entry, field),) * K
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
