"""The three models that are fitted: what a scenario file contains for each, and how to simulate it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from idleband.arrays import Floats
from idleband.trace.fit.counts import BUSY, IDLE, Counts
from idleband.trace.fit.hazards import SharedHazards, bins_in_use, fit_hazards, merged, shrunk_levels

DIGITS = 6  # significant digits of probabilities in a scenario file


class Model(Protocol):
    """A fitted model of all channels."""

    @property
    def name(self) -> str:
        """Name in results."""
        ...

    def table(self) -> dict[str, Any]:
        """Return the keys of the scenario that describe the channels."""
        ...

    def simulate(self, T: int, copies: int, rng: np.random.Generator) -> Any:
        """Return busy of shape (T, copies, K)."""
        ...


@dataclass(frozen=True)
class MarkovModel:
    """Independent two-state Markov channels."""

    p01: Floats
    p10: Floats
    name: str = "markov"

    def table(self) -> dict[str, Any]:
        """Return p01 and p10."""
        return {"p01": rounded(self.p01), "p10": rounded(self.p10)}

    def simulate(self, T: int, copies: int, rng: np.random.Generator) -> Any:
        """Return busy of shape (T, copies, K), from the stationary distribution on."""
        hazards = np.stack([self.p10, self.p01])[:, :, None]
        return simulate_hazards(hazards, T, copies, rng)


@dataclass(frozen=True)
class SemiMarkovModel:
    """Independent channels whose probability of leaving a state depends on the age."""

    idle: SharedHazards
    busy: SharedHazards
    name: str = "semi-markov"

    def table(self) -> dict[str, Any]:
        """Return the tables of dwell times."""
        tables = {}
        for key, part in (("good", self.idle), ("bad", self.busy)):
            repeats = np.diff(np.append(part.first_age, part.first_age[-1] + 1))
            tables[key] = [{"kind": "empirical", "hazard": rounded(np.repeat(row, repeats))} for row in part.values]
        return {"dwell": tables}

    def simulate(self, T: int, copies: int, rng: np.random.Generator) -> Any:
        """Return busy of shape (T, copies, K); it begins with slots that are left out."""
        by_age = []
        longest = int(max(self.idle.first_age[-1], self.busy.first_age[-1]))
        for part in (self.idle, self.busy):
            repeats = np.diff(np.append(part.first_age, longest + 1))
            by_age.append(np.repeat(part.values, repeats, axis=1))
        warm = min(T, 10 * longest)
        return simulate_hazards(np.stack(by_age), T + warm, copies, rng)[warm:]


@dataclass(frozen=True)
class RegimeModel:
    """Two-state channels whose probabilities depend on a common regime, which is a Markov chain."""

    p01: Floats  # (regimes, K)
    p10: Floats
    transition: Floats  # (regimes, regimes)
    name: str = "regimes"

    @property
    def regimes(self) -> int:
        """Number of regimes."""
        return len(self.transition)

    @property
    def share(self) -> Floats:
        """Stationary distribution of the regime."""
        return stationary(self.transition)

    def table(self) -> dict[str, Any]:
        """Return the regimes."""
        return {
            "regimes": {
                "p01": [rounded(row) for row in self.p01],
                "p10": [rounded(row) for row in self.p10],
                "transition": [_rounded_distribution(row) for row in self.transition],
            }
        }

    def simulate(self, T: int, copies: int, rng: np.random.Generator) -> Any:
        """Return busy of shape (T, copies, K); it begins with slots that are left out."""
        slowest = float(np.min(np.sum(self.share * (self.p01 + self.p10).T, axis=1)))
        warm = int(min(T, 10 / max(slowest, 1e-3) + 10))
        cumulative = self.transition.cumsum(axis=1)
        regime = rng.choice(self.regimes, size=copies, p=self.share)
        K = self.p01.shape[1]
        share = self.share @ self.p10 / (self.share @ (self.p01 + self.p10))
        busy = rng.random((copies, K)) < share
        out = np.empty((T, copies, K), bool)
        for t in range(-warm, T):
            if t >= 0:
                out[t] = busy
            regime = np.minimum(self.regimes - 1, (rng.random(copies)[:, None] > cumulative[regime]).sum(axis=1))
            leave = np.where(busy, self.p01[regime], self.p10[regime])
            busy ^= rng.random((copies, K), dtype=np.float32) < leave
        return out


def fit_markov(counts: Counts, use: Any = slice(None)) -> MarkovModel:
    """Fit two-state chains to the blocks `use`; channels with few transitions are drawn towards the others."""
    slots, leaves = counts.slots[:, :, use].sum(axis=(2, 3)), counts.leaves[:, :, use].sum(axis=(2, 3))
    return MarkovModel(shrunk_levels(slots[BUSY], leaves[BUSY]), shrunk_levels(slots[IDLE], leaves[IDLE]))


def fit_semi_markov(counts: Counts, use: Any = slice(None)) -> SemiMarkovModel:
    """Fit hazards by age to the blocks `use`."""
    parts = []
    for state in (IDLE, BUSY):
        bins = bins_in_use(counts, state)
        slots = merged(counts.slots[state][:, use].sum(axis=1), bins)
        leaves = merged(counts.leaves[state][:, use].sum(axis=1), bins)
        parts.append(fit_hazards(slots, leaves, counts.edges[:bins].copy()))
    return SemiMarkovModel(parts[0], parts[1])


def simulate_hazards(hazards: Floats, T: int, copies: int, rng: np.random.Generator) -> Any:
    """Return busy of shape (T, copies, K) of hazards of shape (idle and busy, K, ages)."""
    _, K, ages = hazards.shape
    flat = hazards.astype(np.float32).reshape(-1)
    leave = hazards.mean(axis=2)
    busy = rng.random((copies, K)) < leave[IDLE] / leave.sum(axis=0)
    base = np.broadcast_to(np.arange(K) * ages, (copies, K))
    age = np.zeros((copies, K), np.int64)
    out = np.empty((T, copies, K), bool)
    for t in range(T):
        out[t] = busy
        place = busy * (K * ages) + base + age
        left = rng.random((copies, K), dtype=np.float32) < flat[place]
        busy = busy ^ left
        age = np.where(left, 0, np.minimum(age + 1, ages - 1))
    return out


def stationary(transition: Floats) -> Floats:
    """Return the stationary distribution of a Markov chain.

    >>> stationary(np.array([[0.9, 0.1], [0.3, 0.7]])).round(3).tolist()
    [0.75, 0.25]
    """
    size = len(transition)
    equations = np.vstack([transition.T - np.eye(size), np.ones(size)])
    found = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
    share = np.maximum(found, 0)
    return share / share.sum()


def rounded(values: Floats) -> list[float]:
    """Return probabilities with six significant digits, above 0 and at most 1.

    >>> rounded(np.array([1 / 3, 1e-30, 1.0]))
    [0.333333, 1e-07, 1.0]
    """
    return [min(1.0, max(1e-7, float(f"{value:.{DIGITS}g}"))) for value in values]


def _rounded_distribution(row: Floats) -> list[float]:
    """Return a distribution whose rounded entries have the sum 1 to the last digit."""
    values = [round(float(value), 9) for value in row]
    largest = int(np.argmax(values))
    values[largest] = round(1.0 - sum(value for i, value in enumerate(values) if i != largest), 9)
    return values


def scenario_table(model: Model, name: str, users: int, channel_names: tuple[str, ...]) -> dict[str, Mapping[str, Any]]:
    """Return the content of a scenario file."""
    scenario: dict[str, Any] = {"name": name, "users": users, "perturbation": "none"}
    if channel_names:
        scenario["channel_names"] = list(channel_names)
    return {"scenario": {**scenario, **model.table()}}
