"""Rankings of policies as text, CSV, JSON and a figure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from idleband.errors import counted
from idleband.experiments.ranking import ORACLES, Row
from idleband.reporting.text import definitions, digits_for, table, with_half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Regrets that the text shows; the CSV file has all of them.
SHOWN_REGRETS = ("static", "genie", "bound")
KNOWLEDGE_LETTERS = {
    "contexts": "C",
    "parameters": "P",
    "all states": "S",
    "number of users": "N",
    "horizon": "T",
    "control bits": "B",
}
ONLY_OF_USERS = ("user_collisions", "switches", "messages")  # columns that only exist without a base station
KNOWLEDGE_COLOURS = {
    "played states": "#0072B2",
    "contexts": "#009E73",
    "parameters": "#E69F00",
    "all states": "#999999",
}


def ranking_text(rows: Sequence[Row]) -> str:
    """Return the ranking of one scenario as two tables that fit 80 columns."""
    first = rows[0]
    replayed = _replayed(first)
    digits = digits_for([row.reward for row in rows])
    rewards = [["policy", "reward", "behind", "gap closed", "of genie" if replayed else "of bound", "knows"]]
    regrets = [name for name in SHOWN_REGRETS if math.isfinite(getattr(first, f"regret_{name}"))]
    details = [["policy", *(f"to {name}" for name in regrets), "collisions", "sub-optimal", "µs/slot"]]
    for row in rows:
        rewards.append(
            [
                row.label,
                with_half_width(row.reward, row.reward_pm, digits),
                with_half_width(row.behind, row.behind_pm, digits),
                with_half_width(100 * row.gap_closed, 100 * row.gap_closed_pm, 1, "%"),
                with_half_width(100 * (row.share_of_genie if replayed else row.share_of_bound), math.nan, 1, "%"),
                "".join(letter for word, letter in KNOWLEDGE_LETTERS.items() if word in row.knows) or "-",
            ]
        )
        details.append(
            [
                row.label,
                *(f"{getattr(row, f'regret_{name}'):.{digits}f}" for name in regrets),
                f"{row.collisions:.3f}",
                f"{row.suboptimal_static:.3f}",
                with_half_width(row.microseconds, math.nan, 2),
            ]
        )
    if replayed and not any(math.isfinite(row.gap_closed) for row in rows):
        rewards = [[*cells[:3], *cells[4:]] for cells in rewards]
    size = f"{counted(first.replications, 'replication')} of {counted(first.horizon, 'slot')}"
    head = f"{first.scenario}, perturbation {first.perturbation}: {size}; means per slot"
    parts = [head]
    if replayed:
        blocks = f"{counted(first.blocks, 'block')} of one recording"
        method = f"{first.interval} over {blocks}" if math.isfinite(first.reward_pm) else f"none, {blocks}"
        parts[0] += f"\nintervals: {method}"
    parts.append(table(rewards))
    if replayed:
        references = {
            "genie": first.reward + first.regret_genie,
            "best fixed set per block": first.block_reference,
            "best fixed set in hindsight": first.reward + first.regret_static,
        }
        parts.append(references_text(references, digits))
    if any(math.isfinite(row.messages) for row in rows):
        parts.append(_users_text(rows))
    return "\n\n".join([*parts, f"regret, collisions and sub-optimal plays per slot\n{table(details)}"])


def _users_text(rows: Sequence[Row]) -> str:
    """Return what only exists without a base station."""
    cells = [["policy of users", "colliding users", "switches", "messages"]]
    for row in rows:
        if math.isfinite(row.messages):
            cells.append([row.label, f"{row.user_collisions:.4f}", f"{row.switches:.4f}", f"{row.messages:.4f}"])
    return f"without a base station, per slot; the other policies select for all users\n{table(cells)}"


def _replayed(row: Row) -> bool:
    return math.isfinite(row.block_reference)


def references_text(references: Mapping[str, float], digits: int) -> str:
    """Return a table of the references of a replayed trace; the first is the genie."""
    genie = next(iter(references.values()))
    rows = [["reference", "reward", "of genie"]]
    for name, value in references.items():
        rows.append([name, f"{value:.{digits}f}", f"{value / genie:.1%}" if genie > 0.0 else "-"])
    return table(rows)


def legend(rows: Sequence[Row]) -> str:
    """Return the explanations of the columns of rankings."""
    replays, others = any(_replayed(row) for row in rows), any(not _replayed(row) for row in rows)
    gap = any(math.isfinite(row.gap_closed) for row in rows)
    terms = dict(LEGEND)
    if any(math.isfinite(row.messages) for row in rows):
        terms["knows"] += "; of single users: N number of users, T horizon, B control bits"
        terms["colliding users"] = "users who played the same channel as another one"
    if not others:
        for unused in ("of bound", *(() if gap else ("gap closed",))):
            del terms[unused]
    if replays:
        terms |= {
            "of genie": "reward as a share of that of the genie, which knows the states before it selects",
            "fixed sets": "chosen in hindsight, for the whole recording (static) or anew for each block",
            "±": "half width of a 95% interval, paired for differences: bootstrap over the blocks of the recording,"
            " which is only one; another recording may differ by more",
        }
        if any(row.policy in ORACLES for row in rows):
            terms["oracles"] = (
                "know the long-run p01 and p10 of the recording, not how it departs from a Markov chain; other policies"
                " may exceed them"
            )
    return definitions(list(terms.items()))


LEGEND = (
    (
        "behind",
        "reward of the best learning policy minus reward of this one, on the same sample paths; policies that know"
        " the parameters may be below 0",
    ),
    (
        "gap closed",
        "(reward - rca-m) / (oracle - rca-m), where oracle is the better of oracle-belief and oracle-whittle;"
        ' "-" where these are not compared or the oracle is ahead of rca-m by less than 0.5%',
    ),
    ("of bound", "reward as a share of the upper bound for policies that observe played channels only"),
    ("knows", "beside played states: C contexts, P parameters of the scenario, S states of all channels"),
    ("to ...", "regret to the best fixed channels (static), to the genie, to the upper bound (bound)"),
    ("collisions", "plays of a channel with a primary user"),
    ("sub-optimal", "plays outside the best fixed set"),
    ("µs/slot", "processor time, simulation of the channels included"),
    (
        "±",
        "half width of a 95% interval, Student t over replications; paired intervals for differences",
    ),
)


def ranking_csv(rows: Sequence[Row]) -> str:
    """Return all columns as CSV, one row per policy and scenario; cells without a value are empty."""
    text = io.StringIO()
    names = [field.name for field in fields(Row)]
    if not any(math.isfinite(row.messages) for row in rows):
        names = [name for name in names if name not in ONLY_OF_USERS]
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value != value else value for name, value in asdict(row).items()})
    return text.getvalue()


def ranking_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return all columns as records; None where there is no value."""
    return [{name: None if value != value else value for name, value in asdict(row).items()} for row in rows]


def ranking_figure(rankings: Sequence[Sequence[Row]]) -> "Figure":
    """Draw rewards with 95% intervals, one panel per scenario, and the references as dotted lines.

    Policies are ordered by their mean reward over the scenarios.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    everything = [row for rows in rankings for row in rows]
    labels = list(dict.fromkeys(row.label for row in everything))
    means = {label: float(np.mean([row.reward for row in everything if row.label == label])) for label in labels}
    order = {label: i for i, label in enumerate(sorted(labels, key=lambda label: means[label]))}
    width, height = 2.6 + 2.6 * len(rankings), 1.6 + 0.23 * len(labels)
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    for i, rows in enumerate(rankings):
        axes = figure.add_subplot(1, len(rankings), i + 1)
        first = rows[0]
        for row in rows:
            # The colour is that of the last kind of knowledge, which is the most.
            colour = next(tone for word, tone in reversed(KNOWLEDGE_COLOURS.items()) if word in row.knows)
            half = row.reward_pm if np.isfinite(row.reward_pm) else 0.0
            axes.errorbar(row.reward, order[row.label], xerr=half, fmt="o", color=colour, markersize=5, elinewidth=1.2)
        for j, name in enumerate(SHOWN_REGRETS):
            value = first.reward + getattr(first, f"regret_{name}")
            if np.isfinite(value):
                axes.axvline(value, color="0.55", linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=0)
                axes.text(
                    value, len(labels) - 0.3 + 0.9 * (j % 2), name, fontsize=7, color="0.35", ha="center", va="bottom"
                )
        axes.set_ylim(-0.7, len(labels) + 1.4)
        axes.set_yticks(range(len(labels)), list(order) if i == 0 else [], fontsize=8)
        axes.set_title(f"{first.scenario.removesuffix(f'-{first.perturbation}')}, {first.perturbation}", fontsize=10)
        axes.set_xlabel("reward per slot", fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(True, color="0.93")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Line2D([], [], marker="o", linestyle="", color=tone, label=w) for w, tone in KNOWLEDGE_COLOURS.items()]
    figure.legend(handles=handles, title="knows", loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure
