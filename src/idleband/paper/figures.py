"""The paper's figures and ours: for each a table from the stored runs, what to say of it, and how to draw it.

A drawing is made from the table alone (draw.py), so what it shows can be downloaded beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idleband.paper.claims import per_slot
from idleband.paper.draw import (
    AGAINST,
    COUNTS,
    GENIE,
    REFERENCES,
    draw_betas,
    draw_curves,
    draw_map,
    draw_picks,
    draw_users,
)
from idleband.paper.plan import FIGURE_3, FIGURE_3_USERS, FIGURE_4, FIGURES_1_2
from idleband.paper.readings import (
    BASELINES,
    GRID,
    LINEAR,
    MAP,
    MAP_CLEAR,
    SCENARIOS,
    SENSED,
    TUNED,
    Reading,
)
from idleband.paper.run import Evidence, final
from idleband.reporting.plots import REFERENCE_NAMES
from idleband.simulation.result import Result
from idleband.simulation.statistics import Interval, interval, paired_difference, student_t

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A figure of the report: its table, how to draw it, and what to say of it."""

    name: str  # of its files
    title: str
    caption: str  # what to see
    alternative: str  # for those who cannot see it
    table: "pandas.DataFrame"
    draw: Callable[["pandas.DataFrame", bool], "Figure"]  # table, narrow


def _frame(rows: Iterable[dict[str, Any]]) -> "pandas.DataFrame":
    import pandas

    return pandas.DataFrame(list(rows))


# --- figure 1, and the same for the other readings -------------------------------------------------------------------


def curves(evidence: Evidence, readings: Sequence[Reading]) -> "pandas.DataFrame":
    """R(t) / (M ln t) from t = 10 on: one row per reading, scenario, policy and checkpoint."""
    rows = []
    for reading in readings:
        for preset in SCENARIOS:
            results = evidence.everyone(reading, preset)
            linear = results[LINEAR].regret("static")
            for role, result in results.items():
                # A line over fewer sample paths would lie where those paths are, not where the policy is. It is moved
                # by what they do to MP-LUCB.
                paths = linear.mean(axis=0) - linear[: result.replications].mean(axis=0)
                rows += _curve(reading, preset, role, result.label, result, result.regret("static") + paths)
            if reading is SENSED:
                any_ = results[LINEAR]  # the genie's regret is the same on whichever policy's paths it is computed
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
            "case": label,
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
    """The final values of a reading's curves, as a sentence for each scenario."""
    end = _at_end(table[table.reading == reading.key])
    return "; ".join(
        f"{preset}: " + ", ".join(f"{row.policy} {row.regret:.0f}" for row in end[end.scenario == preset].itertuples())
        for preset in SCENARIOS
    )


def figure1(evidence: Evidence) -> Drawing:
    table = curves(evidence, FIGURES_1_2)
    T = evidence.size.horizon
    ends = ". ".join(f"{reading.title}: {_in_words(table, reading)}" for reading in FIGURES_1_2)
    return Drawing(
        "figure1",
        "Figure 1. Regret over time",
        f"R(t) / (M ln t) against {REFERENCE_NAMES['static']}, mean and 95% band over replications; the axis is linear"
        " from -10 to 10 and logarithmic beyond. Below zero a policy earns more than the best fixed channels. Above,"
        " the two policies see only what they play; below, they see every channel before they choose, and"
        " then they come close to the genie, the most that anybody could earn. The baselines are the same above"
        " and below: they never see more than they play. MP-NUCB has fewer replications: to stand on the same"
        " paths as the others its line is moved by MP-LUCB's mean over all of them less its mean over those; verdicts"
        " use the paired differences as they are.",
        f"Eight panels, two readings by four scenarios. Final values at slot {T:,}. {ends}.",
        table,
        draw_curves,
    )


def smaller(evidence: Evidence, reading: Reading) -> Drawing:
    table = curves(evidence, [reading])
    end = _at_end(table)
    lowest = ", ".join(
        f"{row.policy} in {row.scenario}" for row in end.loc[end.groupby("scenario").regret.idxmin()].itertuples()
    )
    return Drawing(
        f"reading-{reading.key}",
        f"Reading: {reading.title}",
        f"MP-LUCB and MP-NUCB {reading.knows}. Lowest at the end: {lowest}.",
        f"Four panels like figure 1. Final values: {_in_words(table, reading)}.",
        table,
        draw_curves,
    )


def figure2(evidence: Evidence) -> Drawing:
    rows = []
    for reading in FIGURES_1_2:
        for preset in SCENARIOS:
            for role, result in evidence.everyone(reading, preset).items():
                for count in COUNTS:
                    found = interval(final(result, f"suboptimal_{count}"))
                    rows.append(
                        {
                            "reading": reading.key,
                            "scenario": preset,
                            "policy": role,
                            "case": result.label,
                            "counted": count,
                        }
                        | _measured("picks", found)
                    )
    table = _frame(rows)
    ends = ". ".join(
        f"{reading.title}, {preset}: "
        + ", ".join(
            f"{role} {part.picks['static']:,.0f} ({part.picks['contextual']:,.0f})"
            for role, part in table[(table.reading == reading.key) & (table.scenario == preset)]
            .set_index("counted")
            .groupby("policy", sort=False)
        )
        for reading in FIGURES_1_2
        for preset in SCENARIOS
    )
    return Drawing(
        "figure2",
        "Figure 2. How often sub-optimal channels are picked",
        f"Picks in {evidence.size.horizon:,} slots x 5 users. Bars: channels outside the best fixed set, as the paper"
        " counts; where context pays, earning more means leaving that set. Circles: picks for which M channels were"
        " better given the contexts of that slot, whatever is known of states: a policy that senses or follows states"
        " may have many and earn more.",
        f"Eight panels of bars. Picks outside the best fixed set (given the contexts): {ends}.",
        table,
        draw_picks,
    )


def _measured(name: str, found: Interval) -> dict[str, Any]:
    return {"replications": found.replications, name: found.mean, "low": found.low, "high": found.high}


def figure3(evidence: Evidence) -> Drawing:
    rows = []
    for reading, role in FIGURE_3:
        for M in FIGURE_3_USERS:
            result = evidence.with_users(reading, role, M)
            for reference in REFERENCES:
                regret = final(result, f"regret_{reference}") / np.log(result.horizon)
                for average, value in ((False, regret), (True, regret / M)):
                    rows.append(
                        {"reading": reading.key, "policy": role, "case": result.label, "M": M}
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
    return Drawing(
        "figure3",
        "Figure 3. Regret against the number of users M, scenario S1",
        f"R(T) / ln T at T = {evidence.size.horizon:,}, in all (above) and divided by M (below), mean and 95% interval;"
        " MP-NUCB with the diagonal of its matrix. The claim is that every line rises from left to right. With ten"
        " channels there is less and less to choose as M grows, and at M = 10 nothing.",
        f"Six panels. Total regret against the best fixed channels, divided by ln T. {ends}.",
        table,
        draw_users,
    )


# --- figure 4 --------------------------------------------------------------------------------------------------------


def figure4(evidence: Evidence) -> Drawing:
    rows = []
    for reading in FIGURE_4:
        results = evidence.with_beta(reading)
        for reference in REFERENCES:
            regrets = np.array([final(result, f"regret_{reference}") for result in results])  # (betas, R)
            regrets /= results[0].scenario.users * np.log(results[0].horizon)
            # Replications differ by far more than betas do. What a replication adds to all betas alike is taken out,
            # so that the intervals say whether betas differ.
            regrets += regrets.mean() - regrets.mean(axis=0)
            # That takes some of the noise out, too; this puts it back (Morey 2008).
            centre = regrets.mean(axis=1, keepdims=True)
            regrets = centre + (regrets - centre) * np.sqrt(len(GRID) / (len(GRID) - 1))
            for beta, result, regret in zip(GRID, results, regrets, strict=True):
                rows.append(
                    {"reading": reading.key, "case": result.label, "beta": beta, "reference": reference}
                    | _measured("regret", interval(regret))
                )
    table = _frame(rows)
    shown = table[table.reference == "static"]
    ends = ". ".join(
        f"{reading.title}: "
        + ", ".join(f"beta {row.beta:g} {row.regret:.4g}" for row in shown[shown.reading == reading.key].itertuples())
        for reading in FIGURE_4
    )
    return Drawing(
        "figure4",
        "Figure 4. Regret of MP-LUCB against beta, scenario S1",
        f"R(T) / (M ln T) at T = {evidence.size.horizon:,} against {REFERENCE_NAMES['static']}, mean and 95%"
        " interval of what differs between betas (what a replication adds to all alike is taken out); each reading"
        " has a scale of its own. The claim is that the lowest point lies between the ends. Where beta"
        " cannot change a choice the line is flat.",
        f"{len(FIGURE_4)} panels, one for each reading with the linear model. {ends}.",
        table,
        draw_betas,
    )


def the_map(evidence: Evidence) -> Drawing:
    reward = per_slot("reward")
    rows = []
    for clear, reading in zip(MAP_CLEAR, MAP, strict=True):
        for preset in SCENARIOS:
            own = evidence.proposed(reading, preset, LINEAR)
            for against in AGAINST:
                others = [evidence.baseline(reading, preset, name, tuned=against == TUNED) for name in BASELINES]
                best = max(others, key=lambda result: float(reward(result).mean()))
                rows.append(
                    {"scenario": preset, "clear": clear, "against": against, "case": own.label, "best": best.label}
                    | _measured("margin", paired_difference(reward(own), reward(best)))
                )
    table = _frame(rows)
    tuned = table[table.against == TUNED]
    ends = ". ".join(
        f"{preset}: "
        + ", ".join(f"{row.clear:g} {row.margin:+.3f}" for row in tuned[tuned.scenario == preset].itertuples())
        for preset in SCENARIOS
    )
    return Drawing(
        "map",
        "The map. Where does context pay?",
        "The reward a slot of MP-LUCB (ranked every slot, played states) over that of the best baseline, against"
        " P(n<1), the chance that a perturbation does no harm; paired 95% intervals, hollow marks where they hold zero;"
        " the best baseline is the best of these runs. To the left perturbations are common and knowing them pays; to"
        " the right they are rare, and MP-LUCB loses. In S1 and S4, where channels have a memory, most of what it lacks"
        " there it lacks without any perturbation, too (the last reading): a wide MP-UCB earns more than the best fixed"
        " channels, and MP-LUCB, which ranks by long-run means, does not.",
        f"Four panels. Margin over the best tuned baseline, for each P(n<1). {ends}.",
        table,
        draw_map,
    )
