"""Errors of predicted perturbations as a text table and as JSON."""

from collections.abc import Sequence
from typing import Any

from idleband.errors import counted
from idleband.reporting.text import paragraph, table
from idleband.simulation.prediction_error import Learned, root_mean_square

NOTE = (
    "Root mean square error of the predicted perturbation, as a share of the standard deviation of the perturbation"
    " (100%: no better than a constant). played: on the channels played in the last tenth of the slots. fresh contexts:"
    " on new contexts of all channels, at the end. In brackets: the worst replication."
)
NOISE_NOTE = " The perturbation is measured with noise {:g}; errors and standard deviation are those without it."


def learned_rows(found: Sequence[Learned]) -> list[dict[str, Any]]:
    """Return one record of errors per policy."""
    return [
        {
            "policy": one.label,
            "error_played": root_mean_square(one.played_last),
            "error_played_worst": float(one.played_last.max()),
            "error_fresh": root_mean_square(one.fresh_last),
            "error_fresh_worst": float(one.fresh_last.max()),
        }
        for one in found
    ]


def learned_text(found: Sequence[Learned]) -> str:
    """Return the errors as a table that fits 80 columns."""
    first = found[0]
    model = f"perturbation model {first.scenario.perturbation.kind}"
    cells = [["policy", "played", "fresh contexts"]]
    for row in learned_rows(found):
        errors = [(row[f"error_{where}"], row[f"error_{where}_worst"]) for where in ("played", "fresh")]
        cells.append([row["policy"], *(f"{mean:.1%} ({worst:.1%})" for mean, worst in errors)])
    size = f"{counted(first.horizon, 'slot')} x {counted(first.replications, 'replication')}"
    head = f"{first.scenario.name}, {model}: {size}"
    noise = first.scenario.perturbation.noise
    note = NOTE + (NOISE_NOTE.format(noise) if noise else "")
    return f"{head}\n\n{table(cells)}\n\n{paragraph(note)}"
