"""Results of a study as a text table and as JSON."""

import math
from typing import Any

from idleband.experiments.study import Study
from idleband.reporting.text import digits_for, paragraph, table, with_half_width

NOTE = (
    "Means per slot, best first, ± half width of the 95% interval. to best: paired difference to the first policy,"
    " on the same sample paths. regret: to the best fixed channels (static reference); below 0 is better than them."
    " sub-opt.: plays outside the best fixed set. collis.: plays of a channel with a primary user."
)


def study_text(study: Study) -> str:
    """Return the results of a study as a table that fits 80 columns."""
    results = study.table(full=True)
    best = str(results.index[0])
    digits = digits_for([*results.reward, *results.regret_static])
    rows = [["policy", "reward", "to best", "regret", "sub-opt.", "collis."]]
    for label, row in results.iterrows():
        difference = study.difference(str(label), best, per_slot=True)
        to_best = "" if label == best else with_half_width(difference.mean, difference.high - difference.mean, digits)
        rows.append(
            [
                str(label),
                with_half_width(row.reward, row.reward_pm, digits),
                to_best,
                f"{row.regret_static:.{digits}f}",
                f"{row.suboptimal_static:.3f}",
                f"{row.collisions:.3f}",
            ]
        )
    found = study.interval(best)
    note = f"{NOTE} Intervals: {found.basis}." if found.blocks else NOTE
    return f"{table(rows)}\n\n{paragraph(note)}"


def study_json(study: Study) -> list[dict[str, Any]]:
    """Return one record per policy; None where there is no value, such as the interval of one replication."""
    rows = study.table(full=True).reset_index().to_dict("records")
    return [
        {str(name): value if isinstance(value, str) or math.isfinite(value) else None for name, value in row.items()}
        | {"interval": study.interval(row["label"]).method}
        for row in rows
    ]
