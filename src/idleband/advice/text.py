"""A recommendation as text for a terminal of 80 columns."""

from idleband.advice.advise import Advice, PolicyReplay
from idleband.errors import counted
from idleband.reporting.text import definitions, paragraph, table

LEGEND = definitions(
    [
        ("of genie", "reward as a share of the genie's, which knows in advance which channels are idle"),
        (
            "behind",
            "reward per slot of the best policy minus that of this one, with its 95% interval (block bootstrap)",
        ),
        ("collisions", "share of plays on a channel with a primary user"),
    ]
)
ONE_RECORDING = (
    "This is one recording. The intervals say how much the differences vary along it, not how other bands or other days"
    " differ from it."
)


def advice_text(advice: Advice) -> str:
    """Return the recommendation with the table that it is based on."""
    rows = [["policy", "of genie", "behind", "interval", "collisions"]]
    rows += [_row(one, one.label == advice.recommended) for one in advice.replays]
    trace = advice.trace
    low, high = float(trace.occupancy.min()), float(trace.occupancy.max())
    size = f"{counted(trace.T, 'slot')} of {trace.slot_s:g} s, {counted(trace.K, 'channel')}"
    facts = [
        ("trace", f"{size}, busy {low:.0%} to {high:.0%}"),
        ("busy", trace.threshold_rule),
        *(("note", note) for note in trace.notes),
        *((name, f"{share:.2%} of the genie's reward") for name, share in advice.references.items()),
    ]
    parts = [
        definitions(facts),
        f"{advice.users} of {counted(trace.K, 'channel')} per slot, replayed from"
        f" {counted(advice.study.results[0].replications, 'starting point')}:",
        table(rows),
        LEGEND,
        paragraph(ONE_RECORDING),
    ]
    if advice.fit is not None:
        parts.append(paragraph(f"Fitted scenario: {advice.fit.verdict.headline}"))
    parts += [
        paragraph(f"Recommended: {advice.recommended}. {advice.reason}"),
        "  " + advice.command,
    ]
    return "\n\n".join(parts)


def _row(one: PolicyReplay, recommended: bool) -> list[str]:
    behind = "-" if one.behind is None else f"{one.behind.mean:.4f}"
    interval = "-" if one.interval is None else "{:.4f} to {:.4f}".format(*one.interval)
    return [one.label + " *" * recommended, f"{one.share_of_genie:.2%}", behind, interval, f"{one.collisions:.2%}"]
