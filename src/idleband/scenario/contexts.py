"""Contexts: independent and uniform, correlated in time, or replayed from a recording.

uniform     independent, uniform on the unit cube
ar1         entries are AR(1) processes with the given correlation from slot to slot; the margin is normal with mean 1/2
            and variance 1/12, or uniform on [0, 1] (a normal AR(1) process through its distribution function)
recorded    those of a trace or of an array file, from a starting point that differs between replications
"""

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, fill_uniform, normal

UNIFORM, AR1, RECORDED = range(3)
CONTEXTS = ("uniform", "ar1", "recorded")
MARGINS = ("uniform", "normal")
MAX_CORRELATION = 1.0 - 1e-9
SPREAD = 1.0 / math.sqrt(12.0)  # standard deviation of a uniform variable
SAMPLE = 200_000  # contexts from which long-run quantities are estimated where they are not uniform
MAX_SAMPLE_ENTRIES = 10**7
MAX_DIMENSION = 1024


@dataclass(frozen=True)
class Contexts:
    """Distribution of the contexts."""

    kind: str = "uniform"
    dimension: int = 8
    correlation: float = 0.0
    margin: str = "uniform"
    file: str = ""
    recorded: Floats | None = field(default=None, compare=False)  # (T, K, d)
    digest: str = ""  # of the recorded contexts

    @property
    def uniform(self) -> bool:
        """Whether the context of a single slot is uniform on the unit cube."""
        return self.kind != "recorded" and self.margin == "uniform"

    @property
    def bounded(self) -> bool:
        """Whether all entries lie in [0, 1]."""
        return not (self.kind == "ar1" and self.margin == "normal")

    @property
    def independent(self) -> bool:
        """Whether contexts are independent from slot to slot."""
        return self.kind == "uniform"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings."""
        found: dict[str, Any] = {"kind": self.kind, "dimension": self.dimension}
        if self.kind == "ar1":
            found |= {"correlation": self.correlation, "margin": self.margin}
        if self.file:
            found["file"] = self.file
        return found

    def sample(self, k: int) -> Floats:
        """Return contexts of channel k from which long-run quantities are estimated, always the same."""
        if self.recorded is not None:
            return np.ascontiguousarray(self.recorded[:, k])
        return _normal_sample(self.dimension)


@lru_cache(maxsize=1)
def _normal_sample(dimension: int) -> Floats:
    """Return normal contexts."""
    count = min(SAMPLE, MAX_SAMPLE_ENTRIES // dimension)
    return np.asarray(0.5 + SPREAD * np.random.default_rng(0).standard_normal((count, dimension)))


UNIFORM_CONTEXTS = Contexts()


def read_contexts(value: Any, K: int, recorded: Floats | None) -> Contexts:
    """Return the contexts that the table [scenario.context] describes; `recorded` are those of the scenario's trace."""
    where = "scenario.context"
    table = validation.table(value, where)
    kind = validation.choice(
        table.get("kind", "uniform" if recorded is None else "recorded"), f"{where}.kind", CONTEXTS
    )
    allowed = {"uniform": (), "ar1": ("correlation", "margin"), "recorded": ("file",)}[kind]
    for key in ("correlation", "margin", "file"):
        if key in table and key not in allowed:
            raise InputError(f"{where}.{key}: not used where kind is {kind}")
    validation.check_keys(table, ("kind", "dimension", *allowed), where)
    if kind != "recorded":
        dimension = validation.whole(table.get("dimension", 8), f"{where}.dimension", 1, MAX_DIMENSION)
        correlation = 0.0
        if kind == "ar1":
            if "correlation" not in table:
                raise InputError(f"{where}.correlation is missing: the correlation of a context from slot to slot")
            correlation = validation.number(table["correlation"], f"{where}.correlation", 0, 1)
            if correlation > MAX_CORRELATION:
                raise InputError(
                    f"{where}.correlation = {table['correlation']}: must be a number of at least 0 and at most 1 - 1e-9"
                )
        return Contexts(
            kind, dimension, correlation, validation.choice(table.get("margin", "uniform"), f"{where}.margin", MARGINS)
        )
    file, source = "", "scenario.trace"
    if "file" in table:
        file, source = str(table["file"]), f"{where}.file"
        recorded = _read_file(Path(file), source)
    if recorded is None:
        raise InputError(
            f"{where}.file is missing: a trace file or .npy file with contexts of shape (slots, channels, d)"
        )
    if recorded.shape[1] != K:
        raise InputError(f"{source}: has contexts of {recorded.shape[1]} channels; the scenario has {K}")
    if recorded.min() < 0.0 or recorded.max() > 1.0:
        raise InputError(
            f"{source}: has contexts from {recorded.min():g} to {recorded.max():g}; must be from 0 to 1: rescale them,"
            ' or set scenario.context.kind = "uniform"'
        )
    if not 1 <= recorded.shape[2] <= MAX_DIMENSION:
        raise InputError(f"{source}: has contexts of dimension {recorded.shape[2]}; must be from 1 to {MAX_DIMENSION}")
    if "dimension" in table and table["dimension"] != recorded.shape[2]:
        raise InputError(f"{where}.dimension = {table['dimension']}: recorded contexts have {recorded.shape[2]}")
    digest = hashlib.sha256(recorded.tobytes()).hexdigest()[:32]
    return Contexts(kind, recorded.shape[2], file=file, recorded=recorded, digest=digest)


def _read_file(path: Path, field: str) -> Floats:
    try:
        if path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            from idleband.trace.trace import Trace

            values = Trace.load(path).contexts
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{field} = {path}: {getattr(error, 'strerror', None) or error}") from None
    if values is None or getattr(values, "ndim", 0) != 3 or values.dtype.kind not in "iuf" or not values.size:
        raise InputError(f"{field} = {path}: has no contexts of shape (slots, channels, d)")
    values = np.ascontiguousarray(values, float)
    if not np.isfinite(values).all():
        raise InputError(f"{field} = {path}: contains values that are not finite")
    return values


# --- in the loop -----------------------------------------------------------------------------------------------------


class ContextProcess(NamedTuple):
    """What the contexts of a slot are made from."""

    kind: int
    keep: float  # correlation of z from slot to slot
    innovation: float
    normal_margin: bool
    z: Floats  # (K*d,) standard normal variables of an AR(1) process
    recorded: Floats  # (T, K*d)
    row: Ints  # (1,) row of the recording in the last slot


def new_context_process(contexts: Contexts, K: int, rng: Rng, first: int) -> ContextProcess:
    """Return the process at its start; `first` is the row of recorded contexts in slot 1."""
    kind, count = CONTEXTS.index(contexts.kind), K * contexts.dimension
    z, recorded, row = np.zeros(0), np.zeros((0, 0)), 0
    if kind == AR1:
        z = np.zeros(count)
        fill_normal(rng, z)
    elif contexts.recorded is not None:
        recorded = contexts.recorded.reshape(-1, count)
        row = first - 1
    keep = contexts.correlation
    if contexts.margin == "uniform":  # of the normal variables, so that that of the contexts is as given
        keep = 2.0 * math.sin(math.pi / 6.0 * keep)
    return ContextProcess(
        kind, keep, math.sqrt(1.0 - keep * keep), contexts.margin == "normal", z, recorded, np.array([row])
    )


@jit
def fill_normal(rng: Rng, out: Floats) -> None:
    """Write independent standard normal draws."""
    for i in range(out.size):
        out[i] = normal(rng)


@jit
def next_contexts(process: ContextProcess, rng: Rng, contexts: Floats) -> None:
    """Write the contexts of the next slot, flat."""
    if process.kind == UNIFORM:
        fill_uniform(rng, contexts)
    elif process.kind == AR1:
        z = process.z
        for i in range(z.size):
            z[i] = process.keep * z[i] + process.innovation * normal(rng)
            contexts[i] = 0.5 + SPREAD * z[i] if process.normal_margin else 0.5 * math.erfc(-0.7071067811865476 * z[i])
    else:
        row = process.row[0] + 1
        row = row if row < process.recorded.shape[0] else 0
        process.row[0] = row
        for i in range(contexts.size):
            contexts[i] = process.recorded[row, i]
