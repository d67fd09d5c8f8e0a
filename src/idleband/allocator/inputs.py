"""Conversion of callers' values to arrays, with errors that name the field."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from idleband.allocator.events import Decision
from idleband.arrays import Flags, Floats, Ints
from idleband.channels import channel_label
from idleband.errors import InputError, shown, unknown
from idleband.policies.protocol import Setup


def contexts(value: Any, K: int, d: int) -> Floats:
    """Return contexts of K channels. The range of their entries is checked by `occupancy.begin_slot`."""
    _refuse_masked(value, "contexts")
    # Lengths first: a list of another length, perhaps of millions of rows, is not converted.
    fits = not isinstance(value, list | tuple) or _has_shape(value, K, d)
    found = _numbers(value) if fits else np.empty(0)
    if found.shape != (K, d):
        if d == 0:
            raise InputError("contexts: must be None; this allocator has dimension = 0, so it takes no contexts")
        shape = f" of shape {found.shape}" if found.ndim and found.size else "" if fits else _shape_text(value)
        raise InputError(f"contexts{shape}: must be {K} rows, one per channel, of {d} numbers each")
    return found


def _has_shape(rows: Sequence[Any], K: int, d: int) -> bool:
    """Return whether there are K rows of d entries each; entries are not looked at."""
    try:
        return len(rows) == K and list(map(len, rows)) == [d] * K
    except TypeError:  # a row is a number
        return False


def _shape_text(rows: Sequence[Any]) -> str:
    """Return the shape of rows of the same length for a message; empty for others."""
    try:
        lengths = set(map(len, rows))
    except TypeError:
        return ""
    return f" of shape {(len(rows), *lengths)}" if len(lengths) == 1 else ""


def _refuse_masked(value: Any, field: str) -> None:
    """Refuse masked arrays, also as rows: their data contain numbers where values are missing."""
    rows = value if isinstance(value, list | tuple) and len(value) <= MAX_ROWS else ()
    if isinstance(value, np.ma.MaskedArray) or any(
        issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, rows))
    ):
        raise InputError(f"{field}: is a masked array; must be an ordinary one, or a list with None where it may be")


def flags(value: Any, K: int, field: str) -> Flags:
    """Return one flag per channel."""
    _refuse_masked(value, field)
    found = np.array(value) if isinstance(value, np.ndarray) else _flat(value, K)
    if found.shape != (K,) or found.dtype.kind not in NUMBERS or not np.isin(found, (0, 1)).all():
        raise InputError(f"{field} = {shown(value)}: must be {K} values, true or false, one per channel")
    return found.astype(np.bool_)


def _flat(value: Any, K: int) -> Any:
    plain = isinstance(value, Sequence) and len(value) == K and all(isinstance(one, FLAGS) for one in value)
    return np.array(value) if plain else np.empty(0)


def states(value: Any, setup: Setup) -> Ints:
    """Return sensed states, -1 where a channel was not sensed."""
    _refuse_masked(value, "states")
    found = _numbers(value, setup.K)
    if found.shape == (setup.K,) and not _has_nan(value, found):
        found[np.isnan(found)] = -1.0
        if (np.floor(found) == found).all() and (found >= -1).all() and (found < setup.states).all():
            return found.astype(np.int64)
    two = (setup.states == 2).all() and setup.good[:, 1].all() and not setup.good[:, 0].any()
    each = "0 (busy) or 1 (idle)" if two else "a whole number below the channel's number of states"
    raise InputError(f"states = {shown(value)}: must be {setup.K}, one per channel: {each}, or None where not sensed")


def step_parts(report: Any, decide: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the arguments of `report` and of `decide` in a step; None for a part that is left out."""
    if report is None and decide is None:
        raise InputError("report, decide: one of them must be given, or both")
    return _part(report, "report", REPORT_ARGUMENTS), _part(decide, "decide", DECIDE_ARGUMENTS)


def _part(value: Any, field: str, allowed: Sequence[str]) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InputError(f"{field} = {shown(value)}: must be a mapping with the arguments of {field}")
    for key in value:
        if key not in allowed:
            raise unknown(f"{field}: argument", str(key)[:80], allowed)
    for key in ("request_id", "rewards") if field == "report" else ():
        if key not in value:
            raise InputError(f"{field}: {key} must be given")
    return dict(value)


def request_name(value: Any) -> str:
    """Check a caller's name for a decision. Numbers are reserved for slots."""
    if isinstance(value, str) and 0 < len(value) <= 128 and value.isprintable():
        return value
    raise InputError(f"request_id = {shown(value)}: must be text of 1 to 128 printable characters")


def feedback(value: Any, decision: Decision, names: Sequence[str], field: str) -> Floats:
    """Return a value for each channel of a decision, given in its order or by channel; nan where there is none."""
    assigned = decision.channels
    _refuse_masked(value, field)
    if isinstance(value, Mapping):
        value = _by_channel(value, decision, names, field)
    found = _numbers(value, len(assigned))
    if found.shape != (len(assigned),):
        raise InputError(
            f"{field} = {shown(value)}: must be {len(assigned)} numbers, one for each of the channels {list(assigned)}"
        )
    if _has_nan(value, found):
        raise InputError(f"{field} = {shown(value)}: must not contain nan; use None where there is no feedback")
    return found


def _by_channel(value: Mapping[Any, Any], decision: Decision, names: Sequence[str], field: str) -> list[Any]:
    """Return the values of a mapping from channels, given by index or name, in the order of the decision."""
    found: dict[int, Any] = {}
    for key, one in value.items():
        k = key
        if isinstance(key, str):
            k = names.index(key) if key in names else int(key) if re.fullmatch("[0-9]{1,9}", key) else key
        if isinstance(k, bool | np.bool_) or k not in decision.channels:
            which = ", ".join(channel_label(j, names) for j in decision.channels) or "none"
            raise InputError(
                f"{field}: channel {shown(key)} was not assigned in {shown(decision.request_id)}; assigned: {which}"
            )
        if k in found:
            raise InputError(f"{field}: channel {shown(key)} is given twice")
        found[k] = one
    return [found.get(k) for k in decision.channels]


def _has_nan(value: Any, found: Floats) -> bool:
    """Return whether the caller's values contain a nan, not only None."""
    if not math.isnan(found.dot(found)):  # the fastest test, because this runs in every slot
        return False
    return int(np.isnan(found).sum()) != sum(one is None for one in value)


# Arguments of the methods of an allocator, which a step takes as mappings.
DECIDE_ARGUMENTS = ("contexts", "users", "available", "states", "request_id", "slot", "incumbent")
REPORT_ARGUMENTS = ("request_id", "rewards", "states", "perturbations")

NUMBERS = "biuf"  # kinds of NumPy data types: bool, int, unsigned int, float


FLAGS = bool | int | np.bool_ | np.integer
SCALARS = int | float | np.bool_ | np.integer | np.floating
MAX_ROWS = 10**5  # rows of a list that are looked at; settings allow fewer channels


def _numbers(value: Any, length: int | None = None) -> Floats:
    """Return a new array with nan for None, or an empty array if a value is not a number. Text is not a number.

    A list of another length than `length` is not converted.
    """
    if length is not None and isinstance(value, list | tuple) and len(value) != length:
        return np.empty((0, 0))  # also where the length is 0
    try:
        found = np.array(value)
        if found.dtype.kind == "O" and all(one is None or isinstance(one, SCALARS) for one in found.flat):
            return found.astype(np.float64)
        return found.astype(np.float64, copy=False) if found.dtype.kind in NUMBERS else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
