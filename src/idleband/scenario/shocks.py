"""Common shocks: periods in which many channels are busy at the same time, on top of their own states.

A shock starts with probability `start` per slot and ends with probability `end`. Each of the affected channels is hit
with probability `share`, drawn anew for each shock, and is busy until the shock ends. The channels' own chains continue
meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats, Ints
from idleband.channels import channel_indices
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, uniform
from idleband.scenario.markov import gilbert_elliott, stationary

MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Shocks:
    """When shocks start and end, and which channels they hit."""

    start: float
    end: float
    share: float = 1.0
    channels: tuple[int, ...] = ()  # empty: all

    def to_dict(self) -> dict[str, Any]:
        """Return the settings."""
        found: dict[str, Any] = {"start": self.start, "end": self.end, "share": self.share}
        return found | ({"channels": list(self.channels)} if self.channels else {})

    def affects(self, k: int) -> bool:
        """Return whether shocks can hit a channel."""
        return not self.channels or k in self.channels

    def marginal_transition(self, own: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the long-run transition matrices of the observed states, given those of the channels' own chains."""
        # Shocks as a chain: none, one that hits the channel, one that does not.
        P = np.array(
            [
                [1 - self.start, self.start * self.share, self.start * (1 - self.share)],
                [self.end, 1 - self.end, 0.0],
                [self.end, 0.0, 1 - self.end],
            ]
        )
        if self.share == 1.0:
            P = P[:2, :2]
        long_run = stationary(P)
        hit = float(long_run[1])
        becomes_hit = float(long_run[0]) * self.start * self.share
        found = []
        for k, matrix in enumerate(own):
            if not self.affects(k):
                found.append(matrix)
                continue
            busy, idle = stationary(matrix)
            # Probability of being good in a slot and bad in the next one, which equals that of the opposite.
            flow = idle * ((1.0 - hit) * float(matrix[1, 0]) + becomes_hit * float(matrix[1, 1]))
            p01, p10 = flow / (busy + idle * hit), flow / (idle * (1.0 - hit))
            found.append(gilbert_elliott(min(1.0, float(p01)), min(1.0, float(p10))))
        return tuple(found)


def read_shocks(value: Any, K: int, names: Sequence[str]) -> Shocks:
    """Return the shocks that the table [scenario.shocks] describes."""
    where = "scenario.shocks"
    table = validation.table(value, where)
    validation.check_keys(table, ("start", "end", "share", "channels"), where)
    for key, meaning in (("start", "begins"), ("end", "ends")):
        if key not in table:
            raise InputError(f"{where}.{key} is missing: the probability per slot that a shock {meaning}")
    numbers = {key: validation.number(table[key], f"{where}.{key}", MIN_PROBABILITY, 1) for key in ("start", "end")}
    share = validation.number(table.get("share", 1.0), f"{where}.share", MIN_PROBABILITY, 1)
    listed = table.get("channels")
    channels = () if listed is None else tuple(sorted(channel_indices(listed, K, names, f"{where}.channels")))
    if listed is not None and not channels:
        raise InputError(f"{where}.channels: must name at least one channel; leave it out for all")
    return Shocks(**numbers, share=share, channels=() if len(channels) == K else channels)


# --- in the loop -----------------------------------------------------------------------------------------------------


class ShockProcess(NamedTuple):
    """The shock of the slot, if any, and the states that channels would have without it."""

    rng: Rng  # (2,)
    present: Flags  # (1,)
    start: float  # 0 if there are no shocks
    end: float
    share: float
    affected: Flags  # (K,)
    hit: Flags  # (K,)
    own: Ints  # (K,) states of the channels' own chains


def new_shock_process(shocks: Shocks | None, K: int, rng: Rng) -> ShockProcess:
    """Return the process at its start."""
    one, every, own = np.zeros(1, np.bool_), np.zeros(K, np.bool_), np.zeros(K, np.int64)
    if shocks is None:
        return ShockProcess(rng, one, 0.0, 1.0, 1.0, every, every.copy(), own)
    affected = np.array([shocks.affects(k) for k in range(K)])
    return ShockProcess(rng, one, shocks.start, shocks.end, shocks.share, affected, every, own)


@jit
def begin_shock(process: ShockProcess) -> None:
    """Start a shock and draw the channels that it hits."""
    process.present[0] = True
    for k in range(process.hit.size):
        process.hit[k] = process.affected[k] and uniform(process.rng) < process.share


@jit
def enter_shocks(process: ShockProcess) -> None:
    """Draw whether there is a shock before slot 1."""
    if uniform(process.rng) < process.start / (process.start + process.end):
        begin_shock(process)


@jit
def step_shocks(process: ShockProcess) -> None:
    """Advance by one slot."""
    u = uniform(process.rng)
    if process.present[0]:
        if u < process.end:
            process.present[0] = False
            for k in range(process.hit.size):
                process.hit[k] = False
    elif u < process.start:
        begin_shock(process)
