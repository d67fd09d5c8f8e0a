"""What callers give, as arrays: checked, with one line that names the field where it is wrong."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from idleband import validation
from idleband.allocator.events import Decision
from idleband.arrays import Flags, Floats, Ints
from idleband.errors import InputError, shown
from idleband.policies.protocol import Setup


def contexts(value: Any, K: int, d: int) -> Floats:
    x = _numbers(value)
    if x.shape != (K, d):
        shape = f" of shape {x.shape}" if x.ndim and x.size else ""
        raise InputError(f"contexts{shape}: must be {K} rows, one a channel, of {d} numbers each")
    return x


def flags(value: Any, K: int, field: str) -> Flags:
    found = np.array(value) if isinstance(value, np.ndarray) else _flat(value)
    if found.shape != (K,) or found.dtype.kind not in NUMBERS or not np.isin(found, (0, 1)).all():
        raise InputError(f"{field} = {shown(value)}: must be {K} values, true or false, one a channel")
    return found.astype(np.bool_)


def _flat(value: Any) -> Any:
    plain = isinstance(value, Sequence) and all(isinstance(one, bool | int | np.bool_) for one in value)
    return np.array(value) if plain else np.empty(0)


def states(value: Any, known: Setup) -> Ints:
    """States that were sensed, -1 where none was."""
    found = _numbers(value)
    if found.shape == (known.K,) and not _has_nan(value, found):
        found[np.isnan(found)] = -1.0
        if (np.floor(found) == found).all() and (found >= -1).all() and (found < known.states).all():
            return found.astype(np.int64)
    two = (known.states == 2).all() and known.good[:, 1].all() and not known.good[:, 0].any()
    each = "0 (a primary user is there) or 1 (none is)" if two else "a whole number below its number of states"
    raise InputError(f"states = {shown(value)}: must be {known.K}, one a channel, {each}, or None where not sensed")


def channels(value: Any, K: int, field: str) -> tuple[int, ...]:
    found = tuple(validation.whole(k, field, 0, K - 1) for k in validation.sequence(value, field, "of channels"))
    if len(set(found)) != len(found):
        raise InputError(f"{field} = {shown(value)}: each channel once")
    return found


def name(value: Any) -> str:
    """What a caller calls a decision. Numbers are for those that nobody has named: their slots."""
    if isinstance(value, str) and 0 < len(value) <= 128 and value.isprintable():
        return value
    raise InputError(f"id = {shown(value)}: must be text of 1 to 128 characters that can be printed")


def feedback(value: Any, decision: Decision, field: str) -> Floats:
    """A value for each channel of a decision, in its order or by channel; nan where there is none."""
    handed = decision.channels
    if isinstance(value, Mapping):
        strange = [k for k in value if k not in handed]
        if strange:
            which = f"these were: {', '.join(map(str, handed))}" if handed else "none was"
            raise InputError(
                f"{field}: channel {shown(strange[0])} was not handed out in {shown(decision.id)}; {which}"
            )
        value = [value.get(k) for k in handed]
    found = _numbers(value)
    if found.shape != (len(handed),):
        raise InputError(
            f"{field} = {shown(value)}: must be {len(handed)} numbers, one for each of the channels {list(handed)}"
        )
    if _has_nan(value, found):
        raise InputError(f"{field} = {shown(value)}: a nan is no number; None where there is nothing to report")
    return found


def _has_nan(value: Any, found: Floats) -> bool:
    """Whether somebody gave a nan, and not only None."""
    if not math.isnan(found.dot(found)):  # the quickest way to ask, and this is asked in every slot
        return False
    return int(np.isnan(found).sum()) != sum(one is None for one in value)


NUMBERS = "biuf"  # kinds of arrays: true or false, whole numbers, with a sign or without, and others


def _numbers(value: Any) -> Floats:
    """A new array; nan for None. Empty where it cannot be one: text is no number, whatever it says."""
    try:
        found = np.array(value)
        if found.dtype.kind == "O" and all(one is None or isinstance(one, int | float) for one in found.flat):
            return found.astype(np.float64)
        return found.astype(np.float64, copy=False) if found.dtype.kind in NUMBERS else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
