"""Figures of results: rewards, regret, and predicted perturbations."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.durable import write_durably
from idleband.errors import counted, unknown
from idleband.policies.registry import POLICIES
from idleband.scenario.scenario import Scenario
from idleband.simulation.blocks import block_samples
from idleband.simulation.path import checkpoints
from idleband.simulation.prediction_error import Learned
from idleband.simulation.result import Result
from idleband.simulation.statistics import student_t

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, safe for colour-blind readers; brown replaces its yellow, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D46")
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 1, 1, 1)), (0, (6, 1, 1, 1, 1, 1)),
)  # type: ignore[assignment]  # fmt: skip

PACKAGE = tuple(name for name, policy in POLICIES.items() if policy.source is None)

REFERENCE_NAMES = {
    "static": "the best fixed channels (eq. 2)",
    "contextual": "the best channels given the contexts",
    "genie": "the best channels in hindsight",
    "table": "the best fixed channels, in means without perturbation",
    "bound": "the upper bound for policies that observe played channels only",
}


def reward_figure(scenario: Scenario, results: Sequence[Result], reference: str | None = None) -> "Figure":
    """Draw the reward per slot over time, and below it paired differences to one of the policies.

    Lines are means over replications, bands 95% intervals: Student t over replications or, where a trace is replayed, a
    bootstrap over its blocks. Differences are taken on the same sample paths, so that their bands are narrower.

    Parameters
    ----------
    scenario
        Scenario of the results.
    results
        Results on the same sample paths.
    reference
        Label of the policy that the others are compared with; by default that with the highest reward at the end.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.

    Raises
    ------
    InputError
        If no result has the label `reference`.
    """
    from matplotlib.figure import Figure

    ranked = sorted(results, key=lambda result: -float(result.reward[:, -1].mean()))
    chosen = ranked[0] if reference is None else next((r for r in results if r.label == reference), None)
    if chosen is None:
        raise unknown("policy", reference, [result.label for result in results])
    count = len(results)
    figure = Figure(figsize=(9.6, max(6.6, 1.0 + 0.19 * (count + 2))), dpi=150, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2) if count > 1 else (1, 0.001))
    styles = _styles([result.label for result in results])
    ranges: list[Floats] = []
    alpha = 0.15 if count <= 8 else 0.05  # bands of many policies overlap
    for result in ranked:
        style = styles[result.label]
        _draw_band(top, result, result.reward, result.t, style, label=result.label, alpha=alpha)
        if result is not chosen:
            R = min(result.replications, chosen.replications)
            difference = result.reward[:R] - chosen.reward[:R]
            _draw_band(bottom, result, difference, result.t, style, alpha=alpha)
            ranges.append((difference / result.t).mean(axis=0)[_settled(result.t)])
    levels = _draw_references(top, chosen)
    means = [(result.reward / result.t).mean(axis=0)[_settled(result.t)] for result in results]
    _set_range(top, [*means, np.array(levels)])
    top.set_ylabel("reward per slot, up to slot t")
    bottom.axhline(0, color=styles[chosen.label][0], linewidth=1.2)
    bottom.set_ylabel(f"difference to {chosen.label}" if len(chosen.label) < 24 else "paired difference")
    bottom.set_xlabel("slot t")
    if count > 1:
        _set_range(bottom, [*ranges, np.zeros(1)])
    else:
        bottom.set_visible(False)
        top.set_xlabel("slot t")
        top.tick_params(labelbottom=True)
    for axes in (top, bottom):
        if chosen.horizon > 1:
            axes.set_xscale("log")
            axes.set_xlim(min(10, max(1, chosen.horizon / 10)), chosen.horizon)
        axes.grid(True, color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
    top.set_title(
        f"{scenario.name}: K = {counted(scenario.K, 'channel')}, M = {counted(scenario.users, 'user')},"
        f" {_averages(results)}",
        fontsize=11,
    )
    handles, labels = top.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8.5)
    return figure


def _averages(results: Sequence[Result]) -> str:
    """Describe lines and bands in words."""
    R = min(result.replications for result in results)
    found = min(results, key=lambda result: result.replications).samples().interval()
    text = f"mean of {counted(R, 'replication')}"
    if not np.isfinite(found.low):
        return text
    return f"{text} with 95% bands" + (f"\n{found.basis}" if found.blocks else "")


def _draw_band(
    axes: "Axes",
    result: Result,
    curve: Floats,
    divisor: Floats | Ints,
    style: tuple[str, Any],
    label: str | None = None,
    alpha: float = 0.15,
) -> Floats:
    """Draw a cumulative value, divided by a function of t, and its 95% band, if any; return the line.

    `divisor` belongs to the last checkpoints; the line begins with them.
    """
    t, recording = result.t, result.scenario.recording
    shown = (t >= t[-len(divisor)]) & np.isin(t, checkpoints(result.horizon))
    scale = (np.arange(len(t)) - len(t) + len(divisor))[shown]
    mean, half = student_t(curve[:, shown] / divisor[scale])
    low, high = mean - half, mean + half
    if recording is not None:
        found = [block_samples(recording, t[: c + 1], curve[:, : c + 1]).interval() for c in np.flatnonzero(shown)]
        low, high = (np.array([getattr(one, name) for one in found]) for name in ("low", "high"))
        low, high = (np.where(np.isfinite(end), end * t[shown] / divisor[scale], mean) for end in (low, high))
    colour, dash = style
    axes.plot(t[shown], mean, color=colour, linestyle=dash, linewidth=1.8, label=label)
    if recording is not None or len(curve) > 1:
        axes.fill_between(t[shown], low, high, color=colour, alpha=alpha, linewidth=0)
    return np.asarray(mean)


def _draw_references(axes: "Axes", result: Result) -> list[float]:
    """Draw the long-run levels of the static reference and of the upper bound as grey lines; return them."""
    levels = []
    for name, dash, label in (("static", (0, (4, 3)), "static reference"), ("bound", (0, (1, 2)), "upper bound")):
        level = float(((result.regret(name) + result.reward)[:, -1] / result.horizon).mean())
        if np.isfinite(level):
            axes.axhline(level, color="0.45", linewidth=1.1, linestyle=dash, zorder=0, label=label)
            levels.append(level)
    return levels


def _settled(t: Ints) -> Flags:
    """Return the checkpoints whose means set the range of an axis: earlier ones vary too much."""
    return t >= t[-1] / 100


def _set_range(axes: "Axes", values: Sequence[Floats]) -> None:
    """Set the vertical range of axes to that of the values, with a margin."""
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)


def regret_figure(scenario: Scenario, results: Sequence[Result], reference: str = "static") -> "Figure":
    """Draw the regret on the scale of the paper's figure 1: R(t) / (M ln t) from t = 2, mean and 95% band.

    Parameters
    ----------
    scenario
        Scenario of the results.
    results
        Results on the same sample paths.
    reference
        What the regret is measured against: `static`, `contextual`, `genie`, `table` or `bound`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Nothing is written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    M = scenario.users
    ends = []
    styles = _styles([result.label for result in results])
    for result in results:
        t = result.t[result.t >= 2]
        if not len(t):
            continue
        line = _draw_band(
            axes, result, result.regret(reference), M * np.log(t), styles[result.label], label=result.label
        )
        ends.append(float(line[-1]))
    axes.set_ylabel("regret  R(t) / (M ln t)")
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    if max(result.horizon for result in results) >= 2:
        axes.set_xscale("log")
    # Policies that never learn lie far above the others. A scale that is logarithmic beyond 10 shows all of them.
    if max(map(abs, axes.get_ylim())) > 100:
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("regret  R(t) / (M ln t)    (linear from -10 to 10, logarithmic beyond)")
    axes.set_xlabel("slot t")
    axes.set_title(
        f"{scenario.name}: regret against {REFERENCE_NAMES[reference]}\n"
        f"K = {counted(scenario.K, 'channel')}, M = {counted(M, 'user')}, {_averages(results)}",
        fontsize=11,
    )
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    # The legend is in the order in which the lines end, so that a line is found by its height.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(handles)), key=lambda i: -ends[i])
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def _styles(labels: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Return a colour and a dash for each label. A policy of the package has the same in every figure."""
    own = {name: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS)]) for i, name in enumerate(PACKAGE)}
    others = [label for label in labels if label not in own]
    free = [style for dash in DASHES[1:] for colour in COLOURS if (style := (colour, dash)) not in own.values()]
    return {**own, **{label: free[i % len(free)] for i, label in enumerate(others)}}


def learned_figure(found: Sequence[Learned]) -> "Figure":
    """Draw predicted against true perturbations at the end of a run, and the error over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(9.6, 3.4 * len(found)), 8.2), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2, len(found))
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(found))]
    axes = figure.add_subplot(grid[1, :])
    low = min(float(one.pairs_fresh[1].min()) for one in found)
    high = max(float(one.pairs_fresh[1].max()) for one in found)
    margin = 0.15 * (high - low)
    for i, (one, panel) in enumerate(zip(found, panels, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        # Points beyond the frame are drawn at its edge, so that one prediction far off does not compress the others.
        for (predicted, true), dot, tone, name in (
            (one.pairs_fresh, 4, "0.72", "fresh contexts"),
            (one.pairs_played, 3, colour, "played, last tenth"),
        ):
            some = np.linspace(0, len(true) - 1, min(len(true), 2500)).astype(int) if len(true) else slice(0)
            at = np.clip(predicted[some], low - 0.9 * margin, high + 0.9 * margin)
            panel.scatter(true[some], at, s=dot, color=tone, alpha=0.5, linewidths=0, label=name, rasterized=True)
        panel.plot([low, high], [low, high], color="black", linewidth=0.9, label="exact")
        panel.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), aspect="equal")
        panel.set_title(one.label, fontsize=10)
        panel.set_xlabel("true perturbation" + (" without noise" if one.scenario.perturbation.noise else ""))
        panel.spines[["top", "right"]].set_visible(False)
        for name, errors, line, width in (("played", one.played, "-", 1.9), ("fresh", one.fresh, ":", 1.6)):
            level = np.sqrt(np.mean(np.square(errors), axis=0))
            axes.plot(one.t, level, color=colour, linestyle=line, linewidth=width, label=f"{one.label}, {name}")
    panels[0].set_ylabel("predicted")
    panels[0].legend(loc="lower right", fontsize=8, framealpha=0.8, edgecolor="none", markerscale=3)
    axes.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    axes.axhline(0.1, color="0.6", linewidth=0.8, zorder=0, linestyle=(0, (5, 4)))
    axes.set(xscale="log", yscale="log", xlabel="slot t", ylabel="error / standard deviation of the perturbation")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    first = found[0]
    R, model = first.replications, first.scenario.perturbation.kind
    figure.suptitle(
        f"{first.scenario.name}, perturbation model {model}: predictions after {counted(first.horizon, 'slot')}\n"
        f"root mean square error over {counted(R, 'replication')}; 1 is no better than a constant",
        fontsize=11,
    )
    return figure


FIGURES = (".png", ".svg", ".pdf")  # endings of files


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG; return the paths."""
    paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    for path in paths:
        write_figure(figure, path)
    return paths


def write_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the ending of the path names, one of FIGURES."""
    buffer = io.BytesIO()
    kind = path.suffix[1:]
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_durably(path, buffer.getvalue())
