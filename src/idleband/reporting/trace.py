"""Descriptions of a trace as text for a terminal of 80 columns and as JSON."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import counted
from idleband.reporting.text import definitions, paragraph, table
from idleband.trace.metadata import Metadata
from idleband.trace.statistics import ChannelStatistics, TraceStatistics

MAX_LISTED = 20  # channels in the table; with more, the table has quantiles only

LEGEND = (
    "occupancy: share of slots in which a primary user is present. p01, p10: probabilities from busy to idle and from"
    " idle to busy, per slot. idle, busy: mean dwell time in slots, of complete periods. CV²: squared coefficient of"
    " variation of dwell times, and in brackets that of geometric ones with the same mean; a two-state Markov channel"
    " has geometric dwell times."
)


def trace_text(about: Metadata, found: TraceStatistics, layers: Sequence[str], path: Path) -> str:
    """Return the description of a trace."""
    names = f", {about.channel_names[0]} to {about.channel_names[-1]}" if about.channel_names else ""
    seconds = found.slots * about.slot_s
    slots = f"{counted(found.slots, 'slot')} of {about.slot_s:g} s"
    threshold = ""
    if about.threshold:
        low, high = min(about.threshold), max(about.threshold)
        level = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        threshold = f"; threshold {level} {about.power_unit}"
    entries = [
        ("trace", f"{path}: {slots} ({duration(seconds)}), {counted(about.K, 'channel')}{names}"),
        ("contains", ", ".join(_layer(layer, about) for layer in layers)),
        ("busy", f"{about.threshold_rule}{threshold}"),
        ("missing", f"{counted(about.filled, 'value')}; {about.fill_rule}" if about.filled else "no value was missing"),
        ("start", about.start or ""),
        ("source", about.source),
        ("license", about.license or "not recorded"),
        *(("note", note) for note in about.notes),
        ("correlation", _correlation(found)),
    ]  # fmt: skip
    lines = definitions([(term, text) for term, text in entries if text])
    return f"{lines}\n\n{table(_rows(found))}\n\n{paragraph(LEGEND)}"


def trace_json(about: Metadata, found: TraceStatistics, layers: Sequence[str], path: Path) -> dict[str, Any]:
    """Return the metadata and the statistics of a trace."""
    return {"trace": str(path), "layers": list(layers), "metadata": json.loads(about.to_json()), **found.to_dict()}


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that it fills.

    >>> duration(1800), duration(0.8)
    ('30 min', '0.8 s')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _layer(layer: str, about: Metadata) -> str:
    return {"busy": "busy (true: a primary user is present)", "power": f"power in {about.power_unit}"}.get(layer, layer)


def _correlation(found: TraceStatistics) -> str:
    if math.isnan(found.adjacent_correlation):
        return ""
    between = (
        "" if math.isnan(found.mean_correlation) else f"{found.mean_correlation:.2f} between channels in the mean, "
    )
    return f"{between}{found.adjacent_correlation:.2f} between neighbours"


HEADER = ("channel", "occupancy", "p01", "p10", "idle", "CV²", "busy", "CV²")


def _rows(found: TraceStatistics) -> list[tuple[str, ...]]:
    listed = [_row(channel) for channel in found.channels] if len(found.channels) <= MAX_LISTED else []
    if len(found.channels) == 1:
        return [HEADER, *listed]
    columns = [
        [getattr(channel, name) for channel in found.channels] for name in ("occupancy", "p01", "p10")
    ] + [
        [getattr(getattr(channel, state), name) for channel in found.channels]
        for state in ("idle", "busy") for name in ("mean", "cv2", "geometric_cv2")
    ]  # fmt: skip
    summary = []
    for label, share in (("minimum", 0.0), ("median", 0.5), ("maximum", 1.0)):
        summary.append((label, *_cells([_quantile(values, share) for values in columns])))
    return [HEADER, *listed, *summary]


def _row(channel: ChannelStatistics) -> tuple[str, ...]:
    idle, busy = channel.idle, channel.busy
    values = [channel.occupancy, channel.p01, channel.p10, idle.mean, idle.cv2, idle.geometric_cv2]
    return (channel.name, *_cells([*values, busy.mean, busy.cv2, busy.geometric_cv2]))


def _cells(values: Sequence[float]) -> list[str]:
    share, p01, p10, idle, idle_cv2, idle_geometric, busy, busy_cv2, busy_geometric = values
    return [
        _number(share, ".3f"), _number(p01, ".3f"), _number(p10, ".4f"),
        _number(idle, ".1f"), f"{_number(idle_cv2, '.2f')} ({_number(idle_geometric, '.2f')})",
        _number(busy, ".1f"), f"{_number(busy_cv2, '.2f')} ({_number(busy_geometric, '.2f')})",
    ]  # fmt: skip


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _quantile(values: Sequence[float], share: float) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.quantile(known, share)) if known else math.nan
