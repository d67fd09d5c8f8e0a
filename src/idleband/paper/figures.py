"""Figures of the report: for each a table from the stored studies, a caption, and the function that draws it.

A figure is drawn from its table only (drawing.py), so that the data it shows can be downloaded with it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idleband.paper.claims import per_slot
from idleband.paper.drawing import (
    COUNTS,
    GENIE,
    REFERENCES,
    draw_betas,
    draw_curves,
    draw_map,
    draw_plays,
    draw_users,
)
from idleband.paper.plan import FIGURE_3, FIGURE_3_USERS, FIGURE_4, FIGURES_1_2
from idleband.paper.readings import (
    BASELINES,
    GRID,
    LINEAR,
    MAP,
    NOISE,
    SCENARIOS,
    SENSED,
    TEXTBOOK,
    TUNED,
    Reading,
)
from idleband.paper.stored import StoredStudies, final
from idleband.reporting.plots import REFERENCE_NAMES
from idleband.simulation.result import Result
from idleband.simulation.statistics import Interval, interval, paired_difference, student_t

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class ReportFigure(NamedTuple):
    """A figure of the report with its table and caption."""

    name: str  # of its files
    title: str
    caption: str
    alternative: str  # the same content as text
    table: "pandas.DataFrame"
    draw: Callable[["pandas.DataFrame", bool], "Figure"]  # table, narrow


def _frame(rows: Iterable[dict[str, Any]]) -> "pandas.DataFrame":
    import pandas

    return pandas.DataFrame(list(rows))


# --- figure 1, and the same for the other readings -------------------------------------------------------------------


def curves(stored: StoredStudies, readings: Sequence[Reading]) -> "pandas.DataFrame":
    """Return R(t) / (M ln t) from t = 10: one row per reading, scenario, policy and checkpoint."""
    rows = []
    for reading in readings:
        for preset in SCENARIOS:
            results = stored.all_policies(reading, preset)
            linear = results[LINEAR].regret("static")
            for role, result in results.items():
                # A mean over fewer sample paths would also show how these paths differ from all of them. The line is
                # moved by the same difference for MP-LUCB.
                paths = linear.mean(axis=0) - linear[: result.replications].mean(axis=0)
                rows += _curve(reading, preset, role, result.label, result, result.regret("static") + paths)
            if reading is SENSED:
                any_ = results[LINEAR]  # the regret of the genie does not depend on the policy it is computed from
                rows += _curve(reading, preset, GENIE, GENIE, any_, any_.regret("static") - any_.regret("genie"))
    return _frame(rows)


def _curve(reading: Reading, preset: str, role: str, label: str, result: Result, regret: Any) -> list[dict[str, Any]]:
    shown = result.t >= 10
    t = result.t[shown]
    mean, half = student_t(regret[:, shown] / (result.scenario.users * np.log(t)))
    return [
        {
            "reading": reading.key,
            "scenario": preset,
            "policy": role,
            "label": label,
            "replications": result.replications,
            "t": int(at),
            "regret": float(m),
            "low": float(m - h),
            "high": float(m + h),
        }
        for at, m, h in zip(t, mean, half, strict=True)
    ]


def _at_end(table: "pandas.DataFrame") -> "pandas.DataFrame":
    return table[table.t == table.t.max()]


def _in_words(table: "pandas.DataFrame", reading: Reading) -> str:
    """Return the final values of the curves of a reading as text."""
    end = _at_end(table[table.reading == reading.key])
    return "; ".join(
        f"{preset}: " + ", ".join(f"{row.policy} {row.regret:.0f}" for row in end[end.scenario == preset].itertuples())
        for preset in SCENARIOS
    )


def figure1(stored: StoredStudies) -> ReportFigure:
    """Return figure 1: regret over time."""
    table = curves(stored, FIGURES_1_2)
    T = stored.size.horizon
    ends = ". ".join(f"{reading.title}: {_in_words(table, reading)}" for reading in FIGURES_1_2)
    return ReportFigure(
        "figure1",
        "Figure 1. Regret over time",
        f"R(t) / (M ln t) against {REFERENCE_NAMES['static']}, mean and 95% band over replications; the axis is linear"
        " from -10 to 10 and logarithmic beyond. Below zero a policy earns more than the best fixed channels. In the"
        " upper row the two policies observe played channels only; in the lower row they observe every channel before"
        " they select, and come close to the genie, which no policy can exceed. The baselines are the same in both"
        " rows: they observe played channels only. MP-NUCB has fewer replications: its line is moved by the mean of"
        " MP-LUCB over all replications minus its mean over these; verdicts use the paired differences without this"
        " correction.",
        f"Eight panels, two readings by four scenarios. Final values at slot {T:,}. {ends}.",
        table,
        draw_curves,
    )


def smaller(stored: StoredStudies, reading: Reading) -> ReportFigure:
    """Return the figure of one of the other readings."""
    table = curves(stored, [reading])
    end = _at_end(table)
    lowest = ", ".join(
        f"{row.policy} in {row.scenario}" for row in end.loc[end.groupby("scenario").regret.idxmin()].itertuples()
    )
    return ReportFigure(
        f"reading-{reading.key}",
        f"Reading: {reading.title}",
        f"MP-LUCB and MP-NUCB {reading.knows}. Lowest at the end: {lowest}.",
        f"Four panels like figure 1. Final values: {_in_words(table, reading)}.",
        table,
        draw_curves,
    )


def figure2(stored: StoredStudies) -> ReportFigure:
    """Return figure 2: sub-optimal plays."""
    rows = []
    for reading in FIGURES_1_2:
        for preset in SCENARIOS:
            for role, result in stored.all_policies(reading, preset).items():
                for count in COUNTS:
                    found = interval(final(result, f"suboptimal_{count}"))
                    rows.append(
                        {
                            "reading": reading.key,
                            "scenario": preset,
                            "policy": role,
                            "label": result.label,
                            "counted": count,
                        }
                        | _measured("plays", found)
                    )
    table = _frame(rows)
    ends = ". ".join(
        f"{reading.title}, {preset}: "
        + ", ".join(
            f"{role} {part.plays['static']:,.0f} ({part.plays['contextual']:,.0f})"
            for role, part in table[(table.reading == reading.key) & (table.scenario == preset)]
            .set_index("counted")
            .groupby("policy", sort=False)
        )
        for reading in FIGURES_1_2
        for preset in SCENARIOS
    )
    return ReportFigure(
        "figure2",
        "Figure 2. How often sub-optimal channels are played",
        f"Plays in {stored.size.horizon:,} slots x 5 users. Bars: plays outside the best fixed set, as in the paper;"
        " where contexts are useful, a higher reward requires leaving that set. Circles: plays for which M"
        " channels were better given the contexts of the slot, whatever the states: a policy that observes or predicts"
        " states may have many of them and earn more.",
        f"Eight panels of bars. Plays outside the best fixed set (given the contexts): {ends}.",
        table,
        draw_plays,
    )


def _measured(name: str, found: Interval) -> dict[str, Any]:
    return {"replications": found.replications, name: found.mean, "low": found.low, "high": found.high}


def figure3(stored: StoredStudies) -> ReportFigure:
    """Return figure 3: regret against the number of users."""
    rows = []
    for reading, role in FIGURE_3:
        for M in FIGURE_3_USERS:
            result = stored.with_users(reading, role, M)
            for reference in REFERENCES:
                regret = final(result, f"regret_{reference}") / np.log(result.horizon)
                for average, value in ((False, regret), (True, regret / M)):
                    rows.append(
                        {"reading": reading.key, "policy": role, "label": result.label, "M": M}
                        | {"reference": reference, "divided_by_M": average}
                        | _measured("regret", interval(value))
                    )
    table = _frame(rows)
    total = table[(table.reference == "static") & ~table.divided_by_M]
    ends = ". ".join(
        f"{role}, {reading.title}: "
        + ", ".join(
            f"M = {row.M} {row.regret:.0f}"
            for row in total[(total.policy == role) & (total.reading == reading.key)].itertuples()
        )
        for reading, role in FIGURE_3
    )
    return ReportFigure(
        "figure3",
        "Figure 3. Regret against the number of users M, scenario S1",
        f"R(T) / ln T at T = {stored.size.horizon:,}, total (upper row) and divided by M (lower row), mean and 95%"
        " interval. The claim is that every line rises from left to right."
        " With ten channels there is less choice as M grows, and none at M = 10.",
        f"Six panels. Total regret against the best fixed channels, divided by ln T. {ends}.",
        table,
        draw_users,
    )


# --- figure 4 --------------------------------------------------------------------------------------------------------


def figure4(stored: StoredStudies) -> ReportFigure:
    """Return figure 4: regret against beta."""
    rows = []
    for reading in FIGURE_4:
        results = stored.with_beta(reading)
        for reference in REFERENCES:
            regrets = np.array([final(result, f"regret_{reference}") for result in results])  # (betas, R)
            regrets /= results[0].scenario.users * np.log(results[0].horizon)
            # Replications differ far more than betas do. The mean of a replication over all betas is removed, so that
            # the intervals show whether betas differ.
            regrets += regrets.mean() - regrets.mean(axis=0)
            # This also removes some of the noise; the factor corrects for it (Morey 2008).
            centre = regrets.mean(axis=1, keepdims=True)
            regrets = centre + (regrets - centre) * np.sqrt(len(GRID) / (len(GRID) - 1))
            for beta, result, regret in zip(GRID, results, regrets, strict=True):
                rows.append(
                    {"reading": reading.key, "label": result.label, "beta": beta, "reference": reference}
                    | _measured("regret", interval(regret))
                )
    table = _frame(rows)
    shown = table[table.reference == "static"]
    ends = ". ".join(
        f"{reading.title}: "
        + ", ".join(f"beta {row.beta:g} {row.regret:.4g}" for row in shown[shown.reading == reading.key].itertuples())
        for reading in FIGURE_4
    )
    return ReportFigure(
        "figure4",
        "Figure 4. Regret of MP-LUCB against beta, scenario S1",
        f"R(T) / (M ln T) at T = {stored.size.horizon:,} against {REFERENCE_NAMES['static']}, mean and 95%"
        " interval of the differences between betas (the mean of each replication over all betas is removed); each"
        " reading has its own scale. The claim is that the lowest point lies between the ends. Where beta does not"
        " change the selection, the line is flat.",
        f"{len(FIGURE_4)} panels, one for each reading with the linear perturbation model. {ends}.",
        table,
        draw_betas,
    )


def the_map(stored: StoredStudies) -> ReportFigure:
    """Return the map: the margin of MP-LUCB against P(n < 1)."""
    reward = per_slot("reward")
    rows = []
    for reading in MAP:
        point = {"clear": reading.settings.clear, "noise": reading.settings.noise}
        for preset in SCENARIOS:
            own = stored.proposed(reading, preset, LINEAR)
            for against in (TUNED, TEXTBOOK):
                others = [stored.baseline(reading, preset, name, tuned=against == TUNED) for name in BASELINES]
                best = max(others, key=lambda result: float(reward(result).mean()))
                rows.append(
                    {"scenario": preset, **point, "against": against, "label": own.label, "best": best.label}
                    | _measured("margin", paired_difference(reward(own), reward(best)))
                )
    table = _frame(rows)
    tuned = table[table.against == TUNED]
    ends = ". ".join(
        f"{preset}{f', sigma = {noise:g}' * bool(noise)}: "
        + ", ".join(f"{row.clear:g} {row.margin:+.3f}" for row in line.itertuples())
        for (preset, noise), line in tuned.groupby(["scenario", "noise"])
    )
    return ReportFigure(
        "map",
        "The map. Where are contexts useful?",
        "Reward per slot of MP-LUCB (ranked every slot, played states) minus that of the best baseline in the same"
        " study, against P(n<1), the probability that a perturbation leaves a good channel good; paired 95% intervals,"
        " hollow marks where they contain zero. On the left, perturbations are common and predicting them is useful; on"
        " the right they are rare, and MP-LUCB earns less. In S1 and S4, whose states are correlated over time, most of"
        " the difference is there without any perturbation as well (the last reading): MP-UCB with a wide confidence"
        " interval earns more than the best fixed channels, and MP-LUCB, which ranks by long-run means, does not."
        + " Lines with sigma: the perturbation has a standard deviation of sigma around theta . x."
        * bool(NOISE),
        f"Four panels. Margin over the best tuned baseline, at each P(n<1). {ends}.",
        table,
        draw_map,
    )
