"""Compare a trace with traces of the same length that are simulated from the fitted model."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.trace.fit.counts import BLOCKS
from idleband.trace.fit.models import Model

MAX_SLOTS = 20_000  # of a simulated trace
MAX_VALUES = 80_000_000  # channel-slots of all simulated traces
MIN_COPIES, MAX_COPIES = 9, 39
MAX_PAIRED = 200  # channels for which correlation is compared

QUANTITIES = {
    "occupancy": "mean occupancy",
    "idle_mean": "mean idle period",
    "busy_mean": "mean busy period",
    "idle_cv2": "CV² of idle periods",
    "busy_cv2": "CV² of busy periods",
    "correlation": "correlation between channels",
    "few_idle": "5% quantile of idle channels",
    "slow_variation": "standard deviation of occupancy by block",
}


@dataclass(frozen=True)
class Check:
    """A quantity of the trace beside its range in simulated traces."""

    name: str  # a key of QUANTITIES
    observed: float
    low: float  # mean of the simulated traces minus three standard deviations
    high: float  # and plus three
    typical: float  # their mean

    @property
    def agrees(self) -> bool:
        """Whether the observed value is in the range."""
        return self.low <= self.observed <= self.high

    @property
    def label(self) -> str:
        """The quantity in words."""
        return QUANTITIES[self.name]

    def to_dict(self) -> dict[str, object]:
        """Return the check for JSON."""
        return {
            "quantity": self.name,
            "observed": self.observed,
            "simulated": [self.low, self.typical, self.high],
            "agrees": self.agrees,
        }


@dataclass(frozen=True)
class Checks:
    """All quantities, and the correlation of one simulated trace."""

    quantities: tuple[Check, ...]
    copies: int  # simulated traces
    slots: int  # of each
    correlation: Floats | None  # (K, K), mean over simulated traces

    def failed(self) -> list[Check]:
        """Return the quantities that the model does not reproduce."""
        return [check for check in self.quantities if not check.agrees]


def check_model(busy: Any, model: Model, rng: np.random.Generator) -> Checks:
    """Simulate traces and compare them; of longer traces than 20,000 slots, the mean over pieces is compared."""
    T, K = busy.shape
    length = min(T, MAX_SLOTS)
    copies = int(np.clip(MAX_VALUES // (length * K), MIN_COPIES, MAX_COPIES))
    pieces = [busy[begin : begin + length] for begin in range(0, T - length + 1, length)]
    observed = _means([_describe(piece)[0] for piece in pieces])
    simulated, matrices = [], []
    step = max(1, min(copies, MAX_VALUES // 4 // (length * K)))
    for begin in range(0, copies, step):
        size = min(step, copies - begin)
        traces = model.simulate(length, size, rng)
        for i in range(size):
            values, matrix = _describe(traces[:, i])
            simulated.append(values)
            matrices.append(matrix)
    found = []
    for name in QUANTITIES:
        found_values = np.array([one[name] for one in simulated])
        found_values = found_values[np.isfinite(found_values)]
        if np.isfinite(observed[name]) and len(found_values) > copies / 2:
            typical, half = float(found_values.mean()), 3 * float(found_values.std(ddof=1))
            half = max(half, 1.0 if name == "few_idle" else 0.01 * typical)  # one channel, or 1%, is no difference
            low = typical - half if name == "correlation" else max(0.0, typical - half)
            found.append(Check(name, float(observed[name]), low, typical + half, typical))
    correlation = None
    stack = [matrix for matrix in matrices if matrix is not None]
    if stack:
        known = np.isfinite(stack)
        total = np.where(known, stack, 0.0).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = total / known.sum(axis=0)
    return Checks(tuple(found), copies, length, correlation)


def _means(parts: list[dict[str, float]]) -> dict[str, float]:
    out = {}
    for name in QUANTITIES:
        known = [part[name] for part in parts if np.isfinite(part[name])]
        out[name] = float(np.mean(known)) if known else float("nan")
    return out


def _describe(busy: Any) -> tuple[dict[str, float], Floats | None]:
    T, K = busy.shape
    idle_mean, idle_cv2 = _dwell_moments(busy, False)
    busy_mean, busy_cv2 = _dwell_moments(busy, True)
    blocks = min(BLOCKS, T // 2)
    level = busy.mean(axis=1)
    by_block = np.add.reduceat(level, np.arange(blocks) * T // blocks) / np.diff(np.arange(blocks + 1) * T // blocks)
    matrix = None
    correlation = float("nan")
    if 1 < K <= MAX_PAIRED:
        centred = busy - busy.mean(axis=0, dtype=np.float32)
        product = (centred.T @ centred).astype(float)
        deviation = np.sqrt(np.diag(product))
        with np.errstate(invalid="ignore", divide="ignore"):
            matrix = product / np.outer(deviation, deviation)
        pairs = matrix[np.triu_indices(K, 1)]
        pairs = pairs[np.isfinite(pairs)]
        correlation = float(pairs.mean()) if len(pairs) else correlation
    return {
        "occupancy": float(level.mean()),
        "idle_mean": idle_mean,
        "busy_mean": busy_mean,
        "idle_cv2": idle_cv2,
        "busy_cv2": busy_cv2,
        "correlation": correlation,
        "few_idle": float(np.quantile(K * (1 - level), 0.05)) if K > 1 else float("nan"),
        "slow_variation": float(by_block.std()),
    }, matrix


def _dwell_moments(busy: Any, state: bool) -> tuple[float, float]:
    """Return medians over channels: slots per transition, and the squared coefficient of variation of periods."""
    K = busy.shape[1]
    columns = np.ascontiguousarray(busy.T)
    channel, slot = np.nonzero(columns[:, 1:] != columns[:, :-1])
    same = channel[1:] == channel[:-1]
    wanted = same & (columns[channel[:-1], slot[:-1] + 1] == state)
    length = (slot[1:] - slot[:-1])[wanted].astype(float)
    owner = channel[:-1][wanted]
    runs = np.bincount(owner, minlength=K)
    inside = np.count_nonzero(columns[:, :-1] == state, axis=1)
    left = np.bincount(channel[columns[channel, slot] == state], minlength=K)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(owner, length, K) / runs
        cv2 = (np.bincount(owner, length**2, K) - runs * mean**2) / (runs - 1) / mean**2
        per_transition = inside / left
    enough = runs >= 3
    period = float(np.median(per_transition[left >= 3])) if (left >= 3).any() else float("nan")
    return period, float(np.median(cv2[enough])) if enough.any() else float("nan")
