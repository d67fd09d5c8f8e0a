"""Results of a study as a text table and as JSON."""

import math
from typing import Any

from idleband.experiments.study import Study
from idleband.reporting.ranking import references_text
from idleband.reporting.text import digits_for, paragraph, table, with_half_width
from idleband.simulation.result import USER_COLUMNS

NOTE = (
    "Means per slot, best first, ± half width of the 95% interval. to best: paired difference to the first policy,"
    " on the same sample paths. regret: to the best fixed channels (static reference); below 0 is better than them."
    " sub-opt.: plays outside the best fixed set. collis.: plays of a channel with a primary user."
)


REPLAYED = (
    "Means per slot, best first, ± half width of the 95% interval ({}). to best: paired difference to the first policy."
    " regret: to the best fixed channels of the whole recording (static reference); below 0 is better. of genie: share"
    " of the reward of the genie. collis.: plays of a channel with a primary user."
)


WITHOUT_STATION = (
    "Means per slot, best first, ± half width of the 95% interval. to best: paired difference to the first policy."
    " primary: plays of a channel with a primary user. users: users who played the same channel as another one; switch:"
    " plays of another channel than in the play before; messages: control minislots used; none of policies that select"
    " for all users."
)


def study_text(study: Study) -> str:
    """Return the results of a study as a table that fits 80 columns."""
    if study.scenario.uncoordinated is not None:
        return _users_text(study)
    results, replayed = study.table(full=True), study.scenario.recording is not None
    best = str(results.index[0])
    digits = digits_for([*results.reward, *results.regret_static])
    rows = [["policy", "reward", "to best", "regret", "of genie" if replayed else "sub-opt.", "collis."]]
    for label, row in results.iterrows():
        difference = study.difference(str(label), best, per_slot=True)
        to_best = "" if label == best else with_half_width(difference.mean, difference.half_width, digits)
        genie = row.reward + row.regret_genie
        share = f"{row.reward / genie:.1%}" if genie > 0.0 else "-"
        rows.append(
            [
                str(label),
                with_half_width(row.reward, row.reward_pm, digits),
                to_best,
                f"{row.regret_static:.{digits}f}",
                share if replayed else f"{row.suboptimal_static:.3f}",
                f"{row.collisions:.3f}",
            ]
        )
    if not replayed:
        return f"{table(rows)}\n\n{paragraph(NOTE)}"
    first = results.iloc[0]
    references = {
        "genie": float(first.reward + first.regret_genie),
        "best fixed set per block": study[best].block_reference(),
        "best fixed set in hindsight": float(first.reward + first.regret_static),
    }
    note = REPLAYED.format(study.interval(best).basis)
    return f"{table(rows)}\n\n{references_text(references, digits)}\n\n{paragraph(note)}"


def _users_text(study: Study) -> str:
    """Return the results of users without a base station, beside those of policies that select for all of them."""
    results = study.table(full=True)
    best, digits = str(results.index[0]), digits_for([*results.reward])
    rows = [["policy", "reward", "to best", "primary", "users", "switch", "messages"]]
    for label, row in results.iterrows():
        difference = study.difference(str(label), best, per_slot=True)
        rows.append(
            [
                str(label),
                with_half_width(row.reward, row.reward_pm, digits),
                "" if label == best else with_half_width(difference.mean, difference.half_width, digits),
                *(with_half_width(row[name], math.nan, 4) for name in ("collisions", *USER_COLUMNS[:3])),
            ]
        )
    return f"{table(rows)}\n\n{paragraph(WITHOUT_STATION)}"


def study_json(study: Study) -> list[dict[str, Any]]:
    """Return one record per policy; None where there is no value, such as the interval of one replication."""
    rows = study.table(full=True).reset_index().to_dict("records")
    return [
        {str(name): value if isinstance(value, str) or math.isfinite(value) else None for name, value in row.items()}
        | {"interval": study.interval(row["label"]).method}
        for row in rows
    ]
