"""The figure of a fit: hazards, occupancy over time with change points, log-loss, transitions and correlation."""

from typing import TYPE_CHECKING

import numpy as np

from idleband.errors import counted
from idleband.reporting.plots import COLOURS
from idleband.reporting.trace_fit import model_name
from idleband.trace.fit.fit import TraceFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUSY, IDLE = COLOURS[1], COLOURS[0]
DASHED = (0, (4, 3))
UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def fit_figure(title: str, fit: TraceFit) -> "Figure":
    """Draw a fit.

    Parameters
    ----------
    title
        Name of the trace.
    fit
        Its fit.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 8.4), dpi=150, layout="constrained")
    axes = figure.subplots(2, 3)
    _draw_hazard(axes[0, 0], fit, "idle", IDLE)
    _draw_hazard(axes[0, 1], fit, "busy", BUSY)
    _draw_models(axes[0, 2], fit)
    _draw_occupancy(axes[1, 0], fit)
    _draw_transitions(axes[1, 1], fit)
    _draw_correlation(axes[1, 2], fit)
    K = len(fit.channels)
    size = f"{counted(fit.slots, 'slot')} of {fit.metadata.slot_s:g} s, {counted(K, 'channel')}"
    figure.suptitle(f"{title}: {size}\n{model_name(fit)}; trust {fit.verdict.trust}", fontsize=11)
    return figure


def _draw_hazard(axes: "Axes", fit: TraceFit, state: str, colour: str) -> None:
    """Draw the pooled hazard with its intervals beside that of geometric dwell times."""
    part = fit.hazard(state)
    known = part.slots > 0
    age = part.first_age[known]
    if not known.any() or not part.transitions.any():
        axes.text(0.5, 0.5, f"no complete {state} period", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    p, low, high = part.probability[known], part.low[known], part.high[known]
    positive = p[p > 0]
    floor = float(min(positive.min(), part.geometric[known].min())) / 4 if len(positive) else 1e-4
    low = np.maximum(low, floor)
    axes.errorbar(
        age, np.maximum(p, floor), yerr=[np.maximum(0, p - low), np.maximum(0, high - p)], fmt="o", markersize=4,
        color=colour, linewidth=1.2, label="all channels, 95%",
    )  # fmt: skip
    axes.plot(age, part.geometric[known], color="0.35", linestyle=DASHED, linewidth=1.3, label="geometric")
    axes.set(xscale="log", yscale="log", xlabel=f"slots in state {state}", ylabel="probability of leaving")
    axes.xaxis.set_major_formatter("{x:g}")
    _label_logarithmic(axes)
    test = fit.geometric[0 if state == "idle" else 1]
    rejected = f"geometric rejected in {test.rejected} of {test.tested} channels" if test.tested else "not tested"
    axes.set_title(f"Hazard of {state} periods\n({rejected})", fontsize=10)
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _label_logarithmic(axes: "Axes") -> None:
    """Label the vertical axis at 1, 2 and 5 times powers of ten, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200 * low else (1.0,)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_models(axes: "Axes", fit: TraceFit) -> None:
    candidates = fit.choice.candidates
    axes.set_title("Held-out log-loss", fontsize=10)
    if not candidates:
        axes.text(0.5, 0.5, "too short to compare models", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    place = np.arange(len(candidates))
    joint = np.array([candidate.log_loss for candidate in candidates])
    single = np.array([candidate.single_log_loss for candidate in candidates])
    colours = [COLOURS[2] if candidate is fit.choice.chosen else "0.7" for candidate in candidates]
    axes.barh(place, joint, color=colours, height=0.6, label="all channels jointly")
    axes.plot(single, place, "|", color="0.15", markersize=18, markeredgewidth=1.6, label="single channels")
    for y, candidate in zip(place, candidates, strict=True):
        error = f" ±{candidate.excess_error:.2g}" if candidate.excess else ""
        axes.text(0.02 * float(joint.max()), float(y), f"{candidate.log_loss:.4f}{error}", va="center", fontsize=8)
    axes.set_yticks(place)
    axes.set_yticklabels([candidate.label for candidate in candidates], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("nats per channel and slot (± standard error of the excess)", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_ylim(len(candidates) + 0.4, -0.6)


def _draw_occupancy(axes: "Axes", fit: TraceFit) -> None:
    """Draw the mean occupancy over time, common change points as lines, and those of channels as marks below."""
    seconds = fit.slots * fit.metadata.slot_s
    unit, size = next(((unit, size) for unit, size in UNITS if seconds >= 3 * size), ("s", 1.0))
    scale = fit.metadata.slot_s / size
    blocks = len(fit.level)
    time = (np.arange(blocks) + 0.5) * fit.slots / blocks * scale
    axes.plot(time, fit.level, color="0.6", linewidth=0.8)
    single = len(fit.channels) == 1
    common = fit.channels[0].change_points if single else fit.changes.common
    ends = [0, *(point.slot for point in common), fit.slots]
    levels = [common[0].before, *(point.after for point in common)] if common else [float(np.mean(fit.level))]
    for begin, end, level in zip(ends[:-1], ends[1:], levels, strict=True):
        axes.plot([begin * scale, end * scale], [level, level], color=BUSY, linewidth=2.0)
    for point in () if single else common:
        axes.axvline(point.slot * scale, color=BUSY, linewidth=1.0, linestyle=DASHED)
    top = max(1.15 * float(np.max(fit.level)), 0.02)
    slots = [point.slot for channel in fit.channels for point in channel.change_points]
    if slots:
        axes.plot(np.array(slots) * scale, np.full(len(slots), -0.05 * top), "|", color="black", markersize=9)
    axes.set(
        xlabel=f"time, {unit}", ylabel="share of channels busy", ylim=(-0.1 * top, top), xlim=(0, fit.slots * scale)
    )
    changes = fit.changes
    found = str(len(common)) if changes.block_slots else "not tested"
    title = f"Occupancy; common change points: {found}\n(marks below: those of {changes.changed} single channels)"
    axes.set_title(f"Occupancy; change points: {len(common)}" if single else title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_transitions(axes: "Axes", fit: TraceFit) -> None:
    for name, colour, shift in (("p01", IDLE, -0.15), ("p10", BUSY, 0.15)):
        estimates = [getattr(channel, name) for channel in fit.channels]
        p = np.array([one.probability for one in estimates])
        known = np.flatnonzero(np.isfinite(p) & (p > 0))
        low = np.array([estimates[k].low for k in known])
        high = np.array([estimates[k].high for k in known])
        word = {"p01": "p01, busy to idle", "p10": "p10, idle to busy"}[name]
        axes.errorbar(
            known + shift, p[known], yerr=[np.maximum(0, p[known] - low), np.maximum(0, high - p[known])], fmt=".",
            color=colour, linewidth=0.9, markersize=4, label=word,
        )  # fmt: skip
    axes.set(yscale="log", xlabel="channel", ylabel="probability per slot", xlim=(-0.6, len(fit.channels) - 0.4))
    _label_logarithmic(axes)
    axes.set_title("Transitions with 95% intervals", fontsize=10)
    axes.grid(True, axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(frameon=False, fontsize=8)


def _draw_correlation(axes: "Axes", fit: TraceFit) -> None:
    """Draw the correlation of the trace above the diagonal and of simulated traces below it."""
    observed, simulated = fit.correlation.matrix, fit.checks.correlation
    if observed is None or simulated is None or len(fit.channels) < 2:
        text = "one channel" if len(fit.channels) < 2 else "too many channels"
        axes.text(0.5, 0.5, text, ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    both = np.triu(observed, 1) + np.tril(simulated, -1)
    np.fill_diagonal(both, np.nan)
    image = axes.imshow(both, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_facecolor("0.85")
    axes.figure.colorbar(image, ax=axes, shrink=0.85)
    lower = simulated[np.tril_indices(len(simulated), -1)]
    lower = lower[np.isfinite(lower)]
    mean = float(lower.mean()) if len(lower) else float("nan")
    axes.set_title(
        f"Correlation: trace above the diagonal (mean {fit.correlation.mean:.2f}),\nsimulated below (mean {mean:.2f})",
        fontsize=10,
    )
    axes.set(xlabel="channel", ylabel="channel")
