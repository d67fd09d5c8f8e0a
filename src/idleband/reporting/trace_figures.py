"""The figure of a trace: waterfall, occupancy, dwell times and correlation."""

from typing import TYPE_CHECKING, Any

import numpy as np

from idleband.errors import counted
from idleband.reporting.plots import COLOURS
from idleband.trace.metadata import Metadata
from idleband.trace.statistics import DwellTimes, TraceStatistics
from idleband.trace.waterfall import Waterfall

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUSY, IDLE = COLOURS[1], COLOURS[0]
MAX_NAMES = 12  # channel names on an axis
UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def trace_figure(title: str, about: Metadata, found: TraceStatistics, image: Waterfall) -> "Figure":
    """Draw a trace.

    Parameters
    ----------
    title
        Name of the trace.
    about
        Its metadata.
    found
        Its statistics.
    image
        Busy share or power over time and channels.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 9.0), dpi=150, layout="constrained")
    (top, right), (left, bottom) = figure.subplots(2, 2, width_ratios=(3, 2), height_ratios=(3, 2))
    _draw_waterfall(top, about, image)
    _draw_occupancy(left, about, found)
    _draw_dwell_times(right, found)
    _draw_correlation(bottom, about, found)
    size = f"{counted(found.slots, 'slot')} of {about.slot_s:g} s, {counted(about.K, 'channel')}"
    figure.suptitle(f"{title}: {size}\n{about.threshold_rule}", fontsize=11)
    return figure


def _draw_waterfall(axes: "Axes", about: Metadata, image: Waterfall) -> None:
    """Draw power or reward where one is known, otherwise the busy share; time goes downwards."""
    seconds = image.slots * about.slot_s
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= 3 * size), ("s", 1.0))
    values = image.busy if image.level is None else image.level
    low, high = (0.0, 1.0) if image.kind == "busy" else (float(q) for q in np.quantile(values, [0.01, 0.995]))
    shown = axes.imshow(
        values, aspect="auto", interpolation="nearest", cmap="Greys" if image.kind == "busy" else "viridis",
        extent=(-0.5, image.channels - 0.5, seconds / size, 0), vmin=low, vmax=high if high > low else low + 1,
    )  # fmt: skip
    label = {"busy": "share of time busy", "power": f"power, {about.power_unit}", "reward": "reward"}[image.kind]
    axes.figure.colorbar(shown, ax=axes, label=label, shrink=0.9)
    axes.set_ylabel(f"time, {unit}")
    reduced = f" (means of {image.slots_per_row} slots)" if image.slots_per_row > 1 else ""
    axes.set_title(f"Waterfall{reduced}", fontsize=10)
    _label_channels(axes, about)


def _draw_occupancy(axes: "Axes", about: Metadata, found: TraceStatistics) -> None:
    occupancy = np.array([channel.occupancy for channel in found.channels])
    axes.bar(np.arange(about.K), occupancy, width=0.9 if about.K <= 100 else 1.0, color=BUSY)
    axes.axhline(float(np.median(occupancy)), color="0.3", linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set(ylim=(0, min(1.0, 1.15 * float(occupancy.max())) or 1.0), ylabel="share of slots busy")
    axes.set_title(f"Occupancy (median {np.median(occupancy):.3f}, dashed)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(-0.5, about.K - 0.5)
    _label_channels(axes, about)


def _draw_dwell_times(axes: "Axes", found: TraceStatistics) -> None:
    """Draw the share of periods that last at least n slots, beside geometric ones with the same mean per channel."""
    longest = 1.0
    lowest = 1.0
    for name, colour in (("idle", IDLE), ("busy", BUSY)):
        times: DwellTimes = getattr(found, name)
        if times.runs < 2:
            continue
        n, share = times.survival()
        axes.plot(n, share, color=colour, linewidth=1.8, label=f"{name}: {times.runs:,}, CV² {times.cv2:.1f}")
        parts: list[DwellTimes] = [getattr(channel, name) for channel in found.channels]
        grid = np.unique(np.geomspace(1, max(2, n[-1]), 200).round())
        axes.plot(
            grid,
            _geometric(parts, grid),
            color=colour,
            linewidth=1.2,
            linestyle=(0, (4, 3)),
            label=f"{name}, geometric",
        )
        longest, lowest = max(longest, float(n[-1])), min(lowest, float(share.min()))
    axes.set(xscale="log", yscale="log", xlabel="dwell time n, slots", ylabel="share of periods of n slots or more")
    axes.set_xlim(1, 1.2 * longest + 1)
    axes.set_ylim(0.7 * lowest, 1.3)
    axes.set_title("Dwell times of all channels", fontsize=10)
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    if max(found.idle.runs, found.busy.runs) < 2:
        _say(axes, "fewer than two complete periods")
    else:
        axes.legend(frameon=False, fontsize=8, loc="lower left")


def _geometric(parts: list[DwellTimes], n: Any) -> Any:
    """Return the mixture over channels of geometric survival functions with the mean of each channel."""
    total = np.zeros(len(n))
    runs = 0
    for part in parts:
        if part.runs:
            total += part.runs * (1 - 1 / part.mean) ** (n - 1)
            runs += part.runs
    return total / runs


def _draw_correlation(axes: "Axes", about: Metadata, found: TraceStatistics) -> None:
    if found.correlation is None or about.K < 2:
        _say(axes, "one channel" if about.K < 2 else "too many channels")
        return
    if np.isnan(found.mean_correlation):
        _say(axes, "no two channels change")
        return
    shown = axes.imshow(found.correlation, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_facecolor("0.85")  # channels that never change have no correlation
    axes.figure.colorbar(shown, ax=axes, shrink=0.9)
    parts = (("mean", found.mean_correlation), ("neighbours", found.adjacent_correlation))
    between = ", ".join(f"{name} {value:.2f}" for name, value in parts if np.isfinite(value))
    axes.set_title(f"Correlation of busy{f' ({between})' if between else ''}", fontsize=10)
    _label_channels(axes, about)
    axes.set_yticks(axes.get_xticks())
    axes.set_yticklabels([label.get_text() for label in axes.get_xticklabels()], fontsize=7)


def _say(axes: "Axes", text: str) -> None:
    """Write why a part of the figure is empty."""
    axes.text(0.5, 0.5, text, ha="center", transform=axes.transAxes)
    axes.set_axis_off()


def _label_channels(axes: "Axes", about: Metadata) -> None:
    """Put channel names, or indices, below the axis."""
    step = -(-about.K // MAX_NAMES)
    ticks = np.arange(0, about.K, step)
    axes.set_xticks(ticks)
    labels = [about.channel_names[k] if about.channel_names else str(k) for k in ticks]
    long = max(map(len, labels)) > 3
    axes.set_xticklabels(labels, fontsize=7, rotation=45 if long else 0, ha="right" if long else "center")
    axes.set_xlabel("channel")
