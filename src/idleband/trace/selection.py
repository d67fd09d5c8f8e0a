"""Select channels by index, name, range or frequency."""

import re
from collections.abc import Sequence
from typing import Any

from idleband.channels import channel_index, channel_indices
from idleband.errors import InputError, shown
from idleband.trace.metadata import Metadata

UNITS = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
FREQUENCY = re.compile(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmg]?hz)\s*", re.IGNORECASE)


def select_channels(wanted: Any, metadata: Metadata, field: str = "channels") -> tuple[int, ...]:
    """Return the indices of selected channels.

    A sequence contains indices or names. Text contains indices, names or ranges, separated by commas; both ends of a
    range FIRST..LAST are included and may be indices, names or frequencies.

    >>> select_channels("0, 2..3", Metadata(K=5))
    (0, 2, 3)
    >>> select_channels("1 MHz..2.5MHz", Metadata(K=3, freq_low_hz=(0, 1e6, 2e6), freq_high_hz=(1e6, 2e6, 3e6)))
    (1, 2)
    """
    if not isinstance(wanted, str):
        found = channel_indices(wanted, metadata.K, metadata.channel_names, field)
    else:
        found = tuple(dict.fromkeys(k for part in wanted.split(",") for k in _range(part.strip(), metadata, field)))
    if not found:
        raise InputError(f"{field} = {shown(wanted)}: selects no channel")
    return found


def active_channels(occupancy: Any, channels: Sequence[int], limits: Any, field: str = "occupancy") -> tuple[int, ...]:
    """Return the channels that are busy in more than a low and less than a high share of the slots.

    `limits` is a pair of numbers, or text such as "0.02..0.98".

    >>> active_channels([0.0, 0.3, 1.0], range(3), "0.02..0.98")
    (1,)
    """
    try:
        low, high = map(float, limits.split("..") if isinstance(limits, str) else limits)
    except (TypeError, ValueError, AttributeError):
        low, high = 1.0, 0.0
    if not 0 <= low < high <= 1:
        raise InputError(f"{field} = {shown(limits)}: must be two shares from 0 to 1, such as 0.02..0.98")
    found = tuple(k for k in channels if low < occupancy[k] < high)
    if not found:
        raise InputError(f"{field} = {shown(limits)}: no channel is busy for such a share of the time")
    return found


def _range(part: str, metadata: Metadata, field: str) -> Sequence[int]:
    first, dots, last = (end.strip() for end in part.partition(".."))
    if not dots:
        return [channel_index(part, metadata.K, metadata.channel_names, field)]
    ends = [FREQUENCY.fullmatch(end) for end in (first, last)]
    named = first in metadata.channel_names and last in metadata.channel_names
    if ends[0] and ends[1] and not (named and not metadata.freq_low_hz):
        low, high = (float(end[1]) * UNITS[end[2].lower()] for end in ends if end)
        if not metadata.freq_low_hz:
            raise InputError(f"{field} = {part}: the frequencies of the channels are not known; use indices or names")
        edges = zip(metadata.freq_low_hz, metadata.freq_high_hz, strict=True)
        found = [k for k, (a, b) in enumerate(edges) if low <= (a + b) / 2 <= high]
        if not found:
            raise InputError(f"{field} = {part}: no channel has its centre in this range")
        return found
    start, stop = (channel_index(end, metadata.K, metadata.channel_names, field) for end in (first, last))
    if start > stop:
        raise InputError(f"{field} = {part}: must be FIRST..LAST in this order")
    return range(start, stop + 1)
