"""Figures, from results alone."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from idleband.durable import write_durably
from idleband.policies.registry import POLICIES
from idleband.scenario.scenario import Scenario
from idleband.simulation.metrics import student_t
from idleband.simulation.simulate import Result

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
    own = {name: (COLOURS[i % len(COLOURS)], DASHES[0]) for i, name in enumerate(PACKAGE)}
    others = [label for label in labels if label not in own]
    free = [(colour, dash) for dash in DASHES[1:] for colour in COLOURS]
    return {**own, **{label: free[i % len(free)] for i, label in enumerate(others)}}


def save_figures(scenario: Scenario, results: Sequence[Result], folder: Path) -> list[Path]:
    """The regret figure as PNG and SVG in a folder; the paths."""
    figure = regret_figure(scenario, results)
    paths = [folder / "regret.png", folder / "regret.svg"]
    for path in paths:
        buffer = io.BytesIO()
        kind = path.suffix[1:]
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
        write_durably(path, buffer.getvalue())
    return paths
