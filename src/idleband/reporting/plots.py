"""Figures, from results alone."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idleband.durable import write_durably
from idleband.policies.registry import POLICIES
from idleband.scenario.scenario import Scenario
from idleband.simulation.prediction_error import Learned
from idleband.simulation.simulate import Result
from idleband.simulation.statistics import student_t

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by colour-blind readers too; a brown instead of its yellow, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D46")
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 1, 1, 1)))  # type: ignore[assignment]

PACKAGE = tuple(name for name, policy in POLICIES.items() if policy.source is None)

REFERENCE_NAMES = {
    "static": "the best fixed channels (eq. 2)",
    "contextual": "the best channels given the contexts",
    "genie": "the best channels in hindsight",
    "table": "the best fixed channels, in means without perturbation",
    "bound": "the most that can be earned by who sees only what is played",
}


def regret_figure(scenario: Scenario, results: Sequence[Result], reference: str = "static") -> "Figure":
    """The paper's figure 1 for one scenario: R(t) / (M ln t) from t = 2, mean and 95% band over replications."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    M = scenario.users
    ends = []
    styles = _styles([result.label for result in results])
    for result in results:
        shown = result.t >= 2
        t = result.t[shown]
        mean, half = student_t(result.regret(reference)[:, shown] / (M * np.log(t)))
        colour, dash = styles[result.label]
        axes.plot(t, mean, color=colour, linestyle=dash, linewidth=1.8, label=result.label)
        if result.replications > 1:
            axes.fill_between(t, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        ends.append(mean[-1] if len(mean) else np.nan)
    axes.set_ylabel("regret  R(t) / (M ln t)")
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    if max(result.horizon for result in results) >= 2:
        axes.set_xscale("log")
    # Policies that never learn lie far above the others: then the axis is logarithmic beyond +-10, and all can be seen.
    if max(map(abs, axes.get_ylim())) > 100:
        axes.set_yscale("symlog", linthresh=10)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("regret  R(t) / (M ln t)    (linear from -10 to 10, logarithmic beyond)")
    axes.set_xlabel("slot t")
    R = min(result.replications for result in results)
    axes.set_title(
        f"{scenario.name}: regret against {REFERENCE_NAMES[reference]}\n"
        f"K = {scenario.K} channels, M = {M} users, mean of {R} replication{'s' * (R > 1)}"
        f"{' with 95% bands' * (R > 1)}",
        fontsize=11,
    )
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    # The legend stands beside the curves in the order in which they end, so that a line is found by its height.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(handles)), key=lambda i: -ends[i])
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order],
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def _styles(labels: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """A colour and a dash for each label: a policy of the package keeps its own, whatever it is drawn beside."""
    own = {name: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS)]) for i, name in enumerate(PACKAGE)}
    others = [label for label in labels if label not in own]
    free = [style for dash in DASHES[1:] for colour in COLOURS if (style := (colour, dash)) not in own.values()]
    return {**own, **{label: free[i % len(free)] for i, label in enumerate(others)}}


def learned_figure(found: Sequence[Learned]) -> "Figure":
    """What policies have learned of the perturbation: predicted against true at the end, and the error over time."""
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
        # Points beyond the frame are drawn at its edge: a prediction that is far off must not hide the others.
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
        panel.set_xlabel("true perturbation")
        panel.spines[["top", "right"]].set_visible(False)
        for name, errors, line, width in (("played", one.played, "-", 1.9), ("fresh", one.fresh, ":", 1.6)):
            level = np.sqrt(np.mean(np.square(errors), axis=0))
            axes.plot(one.t, level, color=colour, linestyle=line, linewidth=width, label=f"{one.label}, {name}")
    panels[0].set_ylabel("predicted")
    panels[0].legend(loc="lower right", fontsize=8, framealpha=0.8, edgecolor="none", markerscale=3)
    axes.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    axes.axhline(0.1, color="0.6", linewidth=0.8, zorder=0, linestyle=(0, (5, 4)))
    axes.set(xscale="log", yscale="log", xlabel="slot t", ylabel="error / spread of the perturbation")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    first = found[0]
    R, model = first.replications, first.scenario.perturbation.kind
    figure.suptitle(
        f"{first.scenario.name}, {model} model: what was learned after {first.horizon:,} slots\n"
        f"root mean square error over {R} replication{'s' * (R > 1)}; 1 is no better than a constant",
        fontsize=11,
    )
    return figure


class Standing(NamedTuple):
    """A policy in a ranking, as it is drawn."""

    label: str
    knows: str
    reward: float
    half: float  # of its interval; nan: none


KNOWN_COLOURS = {
    "played states": "#0072B2",
    "contexts": "#009E73",
    "parameters": "#E69F00",
    "all states": "#999999",
}


def ranking_figure(panels: Mapping[str, tuple[Sequence[Standing], Mapping[str, float]]]) -> "Figure":
    """Rewards of policies side by side, one panel a scenario, best first on average; references are dotted lines."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    labels = list(dict.fromkeys(one.label for standings, _ in panels.values() for one in standings))
    means = {
        label: float(np.mean([s.reward for standings, _ in panels.values() for s in standings if s.label == label]))
        for label in labels
    }
    order = {label: i for i, label in enumerate(sorted(labels, key=lambda label: means[label]))}
    width, height = 2.6 + 2.6 * len(panels), 1.6 + 0.23 * len(labels)
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    for i, (title, (standings, references)) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), i + 1)
        for one in standings:
            # The most that is known gives the colour.
            colour = next(tone for word, tone in reversed(KNOWN_COLOURS.items()) if word in one.knows)
            half = one.half if np.isfinite(one.half) else 0.0
            axes.errorbar(one.reward, order[one.label], xerr=half, fmt="o", color=colour, markersize=5, elinewidth=1.2)
        for j, (name, value) in enumerate(references.items()):
            if np.isfinite(value):
                axes.axvline(value, color="0.55", linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
                axes.text(
                    value, len(labels) - 0.3 + 0.9 * (j % 2), name, fontsize=7, color="0.35", ha="center", va="bottom"
                )
        axes.set_ylim(-0.7, len(labels) + 1.4)
        axes.set_yticks(range(len(labels)), list(order) if i == 0 else [], fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("reward a slot", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(True, color="0.93")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], marker="o", linestyle="", color=tone, label=w) for w, tone in KNOWN_COLOURS.items()]
    figure.legend(handles=handles, title="knows", loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def save_figures(scenario: Scenario, results: Sequence[Result], folder: Path) -> list[Path]:
    """The regret figure as PNG and SVG in a folder; the paths."""
    return save_figure(regret_figure(scenario, results), folder / "regret")


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """A figure as PNG and SVG; the paths."""
    paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
    for path in paths:
        buffer = io.BytesIO()
        kind = path.suffix[1:]
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
        write_durably(path, buffer.getvalue())
    return paths
