"""Drawing of the figures of the report from their tables: wide, and narrow for a phone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from idleband.paper.plan import FIGURE_3, FIGURE_3_USERS
from idleband.paper.readings import (
    GRID,
    LINEAR,
    NEURAL,
    NOISE,
    PROPOSED,
    SCENARIOS,
    SENSED,
    TEXTBOOK,
    TUNED,
    find,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GENIE = "genie"


INK, GRID_LINE, PAPER = "#1b1b1b", "#dcdcdc", "#ffffff"


# Colour, dash and marker: any two lines differ in at least two of them. Colours are darker than those of Okabe and Ito
# where these are too pale for a thin line on white.
STYLES: dict[str, tuple[str, Any, str]] = {
    "mp-random": ("#777777", (0, (1, 1.6)), "x"),
    "mp-ucb": ("#b8860b", (0, (5, 1.5)), "s"),
    "mp-klucb": ("#00805f", (0, (6, 1.5, 1, 1.5)), "^"),
    "rca-m": ("#a64d86", (0, (3, 1.2)), "D"),
    LINEAR: ("#0067a5", "-", "o"),
    NEURAL: ("#c84e00", "-", "v"),
    GENIE: (INK, (0, (8, 3)), ""),
}


# Replacement of the colours on screens of readers who prefer dark pages; printed and converted figures stay light.
DARK = {
    INK: "#e9e9e9",
    GRID_LINE: "#3c4048",
    PAPER: "#17191e",
    "#777777": "#a3a3a3",
    "#b8860b": "#e3b341",
    "#00805f": "#35c9a0",
    "#a64d86": "#e08cc4",
    "#0067a5": "#5fb2f0",
    "#c84e00": "#ff9350",
}


def _new(
    width: float,
    panel: float,
    rows: int,
    columns: int,
    *,
    left: float = 0.8,
    top: float = 0.7,
    gap: tuple[float, float] = (0.5, 0.45),
    **options: Any,
) -> tuple["Figure", Any]:
    """Return a figure of a width with panels of a height, in inches; `top` and `left` are kept for legend and labels.

    The margins are set here, because the automatic layout of matplotlib takes longer than the drawing.
    """
    from matplotlib.figure import Figure

    across, down = gap
    right, bottom = 0.12, 0.45
    height = top + bottom + rows * panel + (rows - 1) * down
    figure = Figure(figsize=(width, height), dpi=110, facecolor=PAPER)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    figure.subplots_adjust(
        left=left / width,
        right=1 - right / width,
        bottom=bottom / height,
        top=1 - top / height,
        wspace=across * columns / (width - left - right - (columns - 1) * across),
        hspace=down / panel,
    )
    return figure, axes


def _dress(axes: "Axes") -> None:
    axes.set_facecolor(PAPER)
    axes.grid(True, color=GRID_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(INK)
    axes.tick_params(colors=INK, labelsize=8)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)


def _legend(figure: "Figure", entries: tuple[Any, Any], columns: int) -> None:
    handles, labels = entries
    # Above all panels, where it covers nothing.
    figure.legend(
        handles, labels, loc="upper center", ncols=columns, frameon=False, fontsize=8.5, labelcolor=INK,
        handlelength=3,
    )  # fmt: skip


def draw_curves(table: "pandas.DataFrame", narrow: bool) -> "Figure":
    """Draw regret over time, one panel per reading and scenario."""
    from matplotlib.ticker import NullLocator

    readings = list(dict.fromkeys(table.reading))
    across = 2 if narrow else 4
    down = len(readings) * 4 // across
    several = len(readings) > 1
    figure, grid = _new(
        4.6 if narrow else 11.5, 1.7, down, across,
        top=0.55 + 0.3 * several + 0.2 * narrow, gap=(0.6, (0.72 if narrow else 0.92) if several else 0.45),
    )  # fmt: skip
    for i, key in enumerate(readings):
        for j, preset in enumerate(SCENARIOS):
            place = i * 4 + j
            axes = grid[place // across, place % across]
            part = table[(table.reading == key) & (table.scenario == preset)]
            for role, (colour, dash, marker) in STYLES.items():
                line = part[part.policy == role].iloc[::-2][::-1]  # every other checkpoint
                if not len(line):
                    continue
                width = 2.0 if role in PROPOSED else 1.4
                axes.plot(
                    line.t, line.regret, color=colour, linestyle=dash, marker=marker, markersize=4, linewidth=width,
                    markevery=(2 * list(STYLES).index(role) % 10, 10), label=role,
                )  # fmt: skip
                axes.fill_between(line.t, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
            axes.set_xscale("log")
            axes.set_yscale("symlog", linthresh=10)
            axes.axhline(0, color=INK, linewidth=0.7, zorder=1)
            axes.set_title(preset)
            axes.title.set_size(9)
            if place % across == 0:
                axes.set_ylabel("R(t) / (M ln t)", fontsize=8.5)
            if place // across == down - 1 or (several and not narrow):
                axes.set_xlabel("slot t", fontsize=8.5)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
            _dress(axes)
    if several:
        _name_rows(grid, readings)
    _legend(figure, grid[-1 if several else 0, 0].get_legend_handles_labels(), 3 if narrow else 7)
    return figure


def _name_rows(grid: Any, readings: Sequence[str]) -> None:
    """Write the title of each reading above its first row of panels."""
    rows_each = len(grid) // len(readings)
    for i, key in enumerate(readings):
        grid[i * rows_each][0].annotate(
            find(key).title, xy=(0, 1), xytext=(-30, 20), xycoords="axes fraction", textcoords="offset points",
            fontsize=10, fontweight="bold", color=INK, annotation_clip=False,
        )  # fmt: skip


COUNTS = {"static": "outside the best fixed set", "contextual": "M channels were better, given the contexts"}


def draw_plays(table: "pandas.DataFrame", narrow: bool) -> "Figure":
    """Draw the numbers of sub-optimal plays as bars and circles."""
    readings = list(dict.fromkeys(table.reading))
    across = 2 if narrow else 4
    down = len(readings) * 4 // across
    figure, grid = _new(
        4.6 if narrow else 11.5, 1.5, down, across,
        left=0.85, top=0.85 + 0.15 * narrow, gap=(0.15, 0.55 if not narrow else 0.5), sharex=True,
    )  # fmt: skip
    roles = list(dict.fromkeys(table.policy))
    for place in range(4 * len(readings)):
        axes = grid[place // across, place % across]
        key, preset = readings[place // 4], SCENARIOS[place % 4]
        part = table[(table.reading == key) & (table.scenario == preset)].set_index(["policy", "counted"])
        for y, role in enumerate(roles):
            colour = STYLES[role][0]
            fixed, given = part.loc[(role, "static")], part.loc[(role, "contextual")]
            axes.barh(
                y, fixed.plays / 1000, color=colour, alpha=0.75, height=0.62,
                label=COUNTS["static"] if y == 0 else None,
            )  # fmt: skip
            for row, shape in ((fixed, ""), (given, "o")):
                axes.errorbar(
                    row.plays / 1000, y, xerr=[[(row.plays - row.low) / 1000], [(row.high - row.plays) / 1000]],
                    color=INK, marker=shape, markersize=5, markerfacecolor=PAPER, linewidth=1.1, capsize=2,
                    linestyle="none", label=COUNTS["contextual"] if shape and y == 0 else None,
                )  # fmt: skip
        axes.set_yticks(range(len(roles)), roles if place % across == 0 else [""] * len(roles))
        axes.invert_yaxis()
        axes.set_title(preset, fontsize=9)
        if place // across == down - 1:
            axes.set_xlabel("plays, thousands", fontsize=8.5)
        _dress(axes)
    _name_rows(grid, readings)
    _legend(figure, grid[0, 0].get_legend_handles_labels(), 1 if narrow else 2)
    return figure


REFERENCES: dict[str, tuple[Any, str]] = {
    "static": ("-", "o"),
    "contextual": ((0, (5, 1.5)), "s"),
    "table": ((0, (1, 1.4)), "^"),
}


def draw_users(table: "pandas.DataFrame", narrow: bool) -> "Figure":
    """Draw regret against the number of users."""
    from matplotlib.lines import Line2D

    # Wide: a row each for the total and its share per user; narrow: a column each.
    size = (4.6, 1.8, 3, 2) if narrow else (11, 2.1, 2, 3)
    figure, grid = _new(*size, top=0.6 + 0.3 * narrow, gap=(0.8, 0.45) if narrow else (0.6, 0.3), sharex=True)
    for i, average in enumerate((False, True)):
        for j, (reading, role) in enumerate(FIGURE_3):
            axes = grid[j, i] if narrow else grid[i, j]
            for reference, (dash, marker) in REFERENCES.items():
                line = table[
                    (table.reading == reading.key) & (table.policy == role)
                    & (table.reference == reference) & (table.divided_by_M == average)
                ]  # fmt: skip
                axes.errorbar(
                    line.M, line.regret, yerr=[line.regret - line.low, line.high - line.regret],
                    color=STYLES[role][0], linestyle=dash, marker=marker, markersize=4.5, linewidth=1.5, capsize=2.5,
                    markerfacecolor=STYLES[role][0] if reference == "static" else PAPER,
                )  # fmt: skip
            axes.axhline(0, color=INK, linewidth=0.7, zorder=1)
            axes.set_xticks(FIGURE_3_USERS)
            if i == 0 or narrow:
                axes.set_title(f"{role}, {'sensed' if reading is SENSED else 'played'}", fontsize=9.5)
            if axes in grid[-1]:
                axes.set_xlabel("users M", fontsize=8.5)
            if j == 0 or narrow:
                axes.set_ylabel("R(T) / (M ln T)" if average else "R(T) / ln T", fontsize=8.5)
            _dress(axes)
    lines = [
        Line2D([], [], color=INK, linestyle=dash, marker=marker, markerfacecolor=INK if name == "static" else PAPER)
        for name, (dash, marker) in REFERENCES.items()
    ]
    _legend(figure, (lines, [f"{name} reference" for name in REFERENCES]), 1 if narrow else 3)
    return figure


def draw_betas(table: "pandas.DataFrame", narrow: bool) -> "Figure":
    """Draw regret against beta, one panel per reading."""
    readings = list(dict.fromkeys(table.reading))
    across = 1 if narrow else 3
    down = -(-len(readings) // across)
    figure, grid = _new(4.6 if narrow else 11, 1.7, down, across, left=0.85, top=0.3, gap=(0.8, 0.75))
    for place, axes in enumerate(grid.flat):
        if place >= len(readings):
            axes.set_visible(False)
            continue
        line = table[(table.reading == readings[place]) & (table.reference == "static")]
        colour, dash, marker = STYLES[LINEAR]
        axes.errorbar(
            line.beta, line.regret, yerr=[line.regret - line.low, line.high - line.regret], color=colour,
            linestyle=dash, marker=marker, markersize=5, linewidth=1.7, capsize=3,
        )  # fmt: skip
        best = line.loc[line.regret.idxmin()]
        if line.regret.max() > line.regret.min():
            axes.plot(best.beta, best.regret, marker="o", markersize=12, fillstyle="none", color=INK, linestyle="none")
        else:
            margin = 0.1 * abs(best.regret)
            axes.set_ylim(best.regret - margin, best.regret + margin)
        axes.set_xscale("log")
        axes.set_xticks(GRID, [f"{beta:g}" for beta in GRID])
        axes.minorticks_off()
        axes.set_title(find(readings[place]).title, fontsize=9)
        axes.set_xlabel("beta (ringed: the lowest)", fontsize=8.5)
        if place % across == 0:
            axes.set_ylabel("R(T) / (M ln T)", fontsize=8.5)
        axes.ticklabel_format(axis="y", useOffset=False)
        _dress(axes)
    return figure


class MapLine(NamedTuple):
    """A line of the map: noise, baselines, and its looks."""

    noise: float
    against: str
    colour: str
    dash: Any
    marker: str


# Without noise against tuned and textbook baselines, with noise against tuned ones.
MAP_LINES = (
    MapLine(0.0, TUNED, "#0067a5", "-", "o"),
    MapLine(0.0, TEXTBOOK, "#a64d86", (0, (5, 1.5)), "s"),
    *(
        MapLine(noise, TUNED, *looks)
        for noise, looks in zip(
            NOISE, (("#00805f", (0, (6, 1.5, 1, 1.5)), "^"), ("#c84e00", (0, (1, 1.4)), "v")), strict=True
        )
    ),
)


def draw_map(table: "pandas.DataFrame", narrow: bool) -> "Figure":
    """Draw the margin of MP-LUCB against P(n < 1), one panel per scenario."""
    across = 2 if narrow else 4
    down = 4 // across
    figure, grid = _new(
        4.6 if narrow else 11.5, 1.9, down, across, top=0.6 + 0.45 * narrow, gap=(0.2, 0.4), sharex=True, sharey=True
    )
    for place, preset in enumerate(SCENARIOS):
        axes = grid[place // across, place % across]
        for noise, against, colour, dash, marker in MAP_LINES:
            line = table[(table.scenario == preset) & (table.noise == noise) & (table.against == against)]
            axes.plot(
                line.clear, line.margin, color=colour, linestyle=dash, linewidth=1.6, marker=marker, markersize=5,
                label=f"over the best baseline, {against}" + f", sigma = {noise:g}" * bool(noise),
            )  # fmt: skip
            axes.fill_between(line.clear, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
            level = line[(line.low <= 0) & (line.high >= 0)]
            axes.plot(
                level.clear, level.margin, color=colour, linestyle="none", marker=marker, markersize=5,
                markerfacecolor=PAPER,
            )  # fmt: skip
        axes.axhline(0, color=INK, linewidth=0.9, zorder=1)
        axes.set_title(preset, fontsize=9)
        axes.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9])
        if place // across == down - 1:
            axes.set_xlabel("P(n < 1)", fontsize=8.5)
        if place % across == 0:
            axes.set_ylabel("margin, reward per slot", fontsize=8.5)
        _dress(axes)
    _legend(figure, grid[0, 0].get_legend_handles_labels(), 1 if narrow else 2)
    return figure
