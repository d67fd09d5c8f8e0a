"""Replay: a trace of recorded spectrum as the channels of a scenario.

States are those of the trace: idle is good. Replication i starts at another slot, i times a whole number of blocks
later, and the trace is continued from its beginning (circular shift). A trace is one recording: replications differ in
the starting point and in the randomness of the policy only, so intervals come from a bootstrap over blocks.
"""

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats, Ints
from idleband.errors import InputError, shown
from idleband.scenario.markov import gilbert_elliott
from idleband.trace.trace import Trace

BLOCKS = 20  # by default
MAX_BLOCKS = 1000
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, eq=False)
class Recording:
    """A trace that is replayed."""

    trace: Trace
    block: int  # slots
    file: str = ""  # where the trace was read from; empty if it is only in memory

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the fields, without what was derived from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def T(self) -> int:
        """Number of slots."""
        return self.trace.T

    @property
    def blocks(self) -> int:
        """Number of whole blocks."""
        return self.T // self.block

    @cached_property
    def digest(self) -> str:
        """Hash of everything in the trace that determines results."""
        found = hashlib.sha256(str(self.trace.busy.shape).encode())
        for layer in (self.trace.busy, self.trace.reward, self.trace.contexts):
            found.update(b"-" if layer is None else layer.tobytes())
        return found.hexdigest()[:32]

    @cached_property
    def idle(self) -> Flags:
        """Recorded states, shape (T, K); replications share them."""
        return np.array(self.trace.idle, np.bool_, order="C")

    @cached_property
    def rewards(self) -> Floats:
        """Recorded rewards, shape (T, K); no rows if there are none."""
        return np.zeros((0, 0)) if self.trace.reward is None else np.array(self.trace.reward, float, order="C")

    @cached_property
    def idle_share(self) -> Floats:
        """Share of slots in which each channel is idle."""
        return np.asarray(self.trace.idle.mean(axis=0), float)

    @cached_property
    def mean_rewards(self) -> Floats:
        """Mean recorded reward of each channel; only for a trace with rewards."""
        return np.asarray(self.trace.reward.mean(axis=0), float)

    def block_means(self, values: Any) -> Floats:
        """Return the means of a layer, shape (T, K), in each block, shape (blocks, K); the last has the remainder."""
        total = np.add.reduceat(values, np.arange(self.blocks) * self.block, axis=0, dtype=float)
        slots = np.full(self.blocks, self.block)
        slots[-1] += self.T - self.blocks * self.block
        return np.asarray(total / slots[:, None])

    def state_rewards(self) -> tuple[Floats, ...]:
        """Return the mean recorded reward of each channel while busy and while idle; 0 and 1 where it never was."""
        found = []
        for k in range(self.trace.K):
            values, idle = self.trace.reward[:, k], self.trace.idle[:, k]
            rows = (values[~idle], values[idle])
            found.append(np.array([float(row.mean()) if row.size else float(s) for s, row in enumerate(rows)]))
        return tuple(found)

    def transition(self) -> tuple[Floats, ...]:
        """Return the shares of transitions of each channel along the circular trace."""
        idle = self.trace.idle
        after = np.roll(idle, -1, axis=0)
        found = []
        for k in range(self.trace.K):
            here, there = idle[:, k], after[:, k]
            good = int(here.sum())
            bad = len(here) - good
            # A channel that never changes gets the smallest probability that keeps its share of idle slots.
            p10 = float((here & ~there).sum()) / good if 0 < good < len(here) else 1e-9 if good else 1.0 - 1e-9
            p01 = float((~here & there).sum()) / bad if 0 < good < len(here) else 1.0 - 1e-9 if good else 1e-9
            found.append(gilbert_elliott(p01, p10))
        return tuple(found)

    def first_slot(self, replication: int) -> int:
        """Return the slot, from 0, at which a replication starts.

        Starting points of successive replications are far apart; with as many replications as blocks each block is one.
        """
        n = self.blocks
        stride = max(1, round(n * GOLDEN))
        while math.gcd(stride, n) > 1:
            stride += 1
        return (replication * stride) % n * self.block

    def to_dict(self) -> dict[str, Any]:
        """Return the settings; a trace in memory stands for itself."""
        return {"file": self.file or self.trace, "block": self.block}


def read_recording(value: Any) -> Recording:
    """Return the recording that the value of scenario.trace describes: a file, a Trace, or a table."""
    where = "scenario.trace"
    table = {"file": value} if isinstance(value, str | Path | Trace) else validation.table(value, where)
    validation.check_keys(table, ("file", "block"), where)
    source = table.get("file")
    if isinstance(source, Trace):
        trace, file = source, ""
    elif isinstance(source, str | Path) and str(source):
        trace, file = Trace.load(source), str(Path(source).absolute())
    else:
        raise InputError(f"{where}.file = {shown(source)}: must be the name of a trace file, or an ib.Trace")
    if trace.T < 2:
        raise InputError(f"{where}: has {trace.T} slot; must have at least 2")
    smallest = math.ceil(trace.T / MAX_BLOCKS)
    block = validation.whole(table.get("block", max(1, trace.T // BLOCKS)), f"{where}.block", smallest, trace.T)
    return Recording(trace, block, file)


# --- in the loop -----------------------------------------------------------------------------------------------------


class Playback(NamedTuple):
    """The recorded states, and the row of the first slot."""

    idle: Flags  # (T, K); no rows if nothing is replayed
    rewards: Floats  # (T, K) recorded rewards; no rows if there are none
    first: Ints  # (1,)


def new_playback(recording: Recording | None, replication: int) -> Playback:
    """Return what a replication replays."""
    if recording is None:
        return Playback(np.zeros((0, 0), np.bool_), np.zeros((0, 0)), np.zeros(1, np.int64))
    return Playback(recording.idle, recording.rewards, np.array([recording.first_slot(replication)]))
