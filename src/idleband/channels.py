"""Channel indices and names.

Channels are numbered from 0 and may have names, which are accepted wherever indices are.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from idleband.errors import InputError, counted, shown

SHOWN_NAMES = 12  # in a message
NAME = r"[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,39}"


def check_channel_names(value: Any, K: int, field: str) -> tuple[str, ...]:
    """Return K different channel names, or an empty tuple for None.

    A name that is a number would be confused with an index and is refused.

    >>> check_channel_names(["ch1", "ch2"], 2, "channel_names")
    ('ch1', 'ch2')
    """
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise InputError(f"{field} = {shown(value)}: must be a list of names, one per channel")
    names = tuple(value)
    if not names:
        return ()
    if len(names) != K:
        raise InputError(f"{field}: has {counted(len(names), 'name')} for {counted(K, 'channel')}")
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(NAME, name) or name.isdecimal():
            raise InputError(
                f"{field} = {shown(name)}: must be 1 to 40 letters, digits, spaces or . _ + / -, and not a number"
            )
    if len(set(names)) != K:
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{field} = {shown(twice)}: is given twice; channel names must differ")
    return names


def channel_index(value: Any, K: int, names: Sequence[str], field: str) -> int:
    """Return the index of a channel that is given by index (also as text) or by name.

    >>> channel_index("ch2", 2, ("ch1", "ch2"), "channel"), channel_index("0", 2, (), "channel")
    (1, 0)
    """
    if isinstance(value, str):
        if value in names:
            return names.index(value)
        if value.isdecimal() and value.isascii() and len(value) < 10:
            value = int(value)
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and 0 <= value < K:
        return int(value)
    listed = ", ".join(names[:SHOWN_NAMES]) + ", ..." * (len(names) > SHOWN_NAMES)
    known = f", or one of the names {listed}" if names else ""
    raise InputError(f"{field} = {shown(value)}: must be a channel index from 0 to {K - 1}{known}")


def channel_indices(values: Any, K: int, names: Sequence[str], field: str) -> tuple[int, ...]:
    """Return the indices of different channels, each given by index or by name."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise InputError(f"{field} = {shown(values)}: must be a list of channels")
    if len(values) > K:  # without looking at them
        raise InputError(f"{field} = {shown(values)}: each channel may be given once")
    found = tuple(channel_index(value, K, names, field) for value in values)
    if len(set(found)) != len(found):
        raise InputError(f"{field} = {shown(values)}: each channel may be given once")
    return found


def channel_label(k: int, names: Sequence[str]) -> str:
    """Return the name of channel k, or its index as text where channels have no names."""
    return names[k] if names else str(k)


def channel_text(k: int, names: Sequence[str]) -> str:
    """Return how a message refers to channel k: by index, and by name where channels have names.

    >>> channel_text(2, ("ch1", "ch2", "ch3")), channel_text(2, ())
    ('channel 2 (ch3)', 'channel 2')
    """
    return f"channel {k} ({names[k]})" if names else f"channel {k}"
