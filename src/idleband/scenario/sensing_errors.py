"""Sensing errors: the state that a policy observes is not always the true one.

A busy channel is observed as idle with probability `missed` (missed detection), an idle one as busy with probability
`false_alarm`, independently in every slot. Policies see the observed state and the reward that belongs to it; rewards
and collisions are counted by the true state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Floats, Ints
from idleband.channels import channel_text
from idleband.errors import InputError, counted
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, fill_uniform


@dataclass(frozen=True)
class SensingErrors:
    """Error probabilities, one per channel."""

    missed: tuple[float, ...]
    false_alarm: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings; one number where all channels are equal."""
        found: dict[str, Any] = {}
        for key in ("missed", "false_alarm"):
            values = getattr(self, key)
            found[key] = values[0] if len(set(values)) == 1 else list(values)
        return found


def read_sensing_errors(value: Any, K: int, names: Sequence[str], where: str) -> SensingErrors | None:
    """Return the errors that a table describes; None if there are none."""
    table = validation.table(value, where)
    validation.check_keys(table, ("missed", "false_alarm"), where)
    if not table:
        raise InputError(f"{where}: give missed, false_alarm, or both")
    found: dict[str, tuple[float, ...]] = {}
    for key in ("missed", "false_alarm"):
        given = table.get(key, 0.0)
        listed = isinstance(given, list | tuple | np.ndarray)
        values = validation.sequence(given, f"{where}.{key}", "one per channel") if listed else [given] * K
        if len(values) != K:
            raise InputError(f"{where}.{key}: has {counted(len(values), 'entry')} for {counted(K, 'channel')}")
        found[key] = tuple(
            validation.number(p, f"{where}.{key}" + (f", {channel_text(k, names)}" if listed else ""), 0, 1)
            for k, p in enumerate(values)
        )
    for k, (missed, false_alarm) in enumerate(zip(found["missed"], found["false_alarm"], strict=True)):
        if missed + false_alarm >= 1.0:
            raise InputError(
                f"{where}, {channel_text(k, names)}: missed + false_alarm = {missed + false_alarm:g};"
                " must be below 1, where observations say nothing"
            )
    return SensingErrors(**found) if any(map(any, found.values())) else None


@jit
def observe_states(missed: Floats, false_alarm: Floats, rng: Rng, u: Floats, s: Ints, observed: Ints) -> None:
    """Write the observed state of every channel into `observed`."""
    fill_uniform(rng, u)
    for k in range(s.size):
        wrong = u[k] < (false_alarm[k] if s[k] == 1 else missed[k])
        observed[k] = 1 - s[k] if wrong else s[k]
