"""An evaluation as text for a terminal of 80 columns."""

from idleband.errors import counted
from idleband.evaluation.estimates import Estimate
from idleband.evaluation.evaluate import Evaluation, PolicyValue
from idleband.reporting.text import definitions, paragraph, table, with_half_width

LEGEND = definitions(
    [
        ("IPS", "mean reward per slot by inverse propensities, with its 95% interval"),
        ("DR", "the same, doubly robust: with predictions from earlier slots"),
        ("minus log", "DR minus the same for the policy that made the log, with its 95% interval"),
        ("plays", "number of plays of equal weight that would determine the estimate as well"),
    ]
)
MEANING = (
    "These are estimates of what the selections of a policy would have earned in these slots. The intervals cover the"
    " random choices of the logging policy, not how other days differ."
)
LEARNING = (
    "A policy that learns did so from the logged feedback. In service it would see the feedback of its own selections,"
    " so its reward may differ."
)


def evaluation_text(found: Evaluation) -> str:
    """Return the table of an evaluation, with what it means."""
    size = f"{counted(found.slots, 'slot')}, {counted(found.channels, 'channel')}, {found.users} per slot"
    unreported = f"{found.unreported:,} of {found.plays:,} plays without feedback"
    facts = [
        ("log", f"{found.log}: {size}"),
        ("decided by", found.logging_policy),
        ("earned", f"{found.reward:.4f} per slot; {unreported}"),
    ]
    if found.excluded:
        facts.append(("excluded", f"{counted(found.excluded, 'slot')} without propensities"))
    if found.unreported:
        facts.append(("assumed", "that feedback is missing at random, with a probability for each channel"))
    if found.clip is not None:
        facts.append(("clipped", f"weights at {found.clip:g}; the intervals do not cover the bias of that"))
    rows = [["policy", "IPS", "DR", "minus log", "plays"], *(_row(one) for one in found.policies)]
    parts = [definitions(facts), table(rows), LEGEND]
    parts += [paragraph(_unsupported(one)) for one in found.policies if one.dr is None]
    return "\n\n".join([*parts, paragraph(MEANING), paragraph(LEARNING)])


def _row(one: PolicyValue) -> list[str]:
    shown = [_shown(estimate) for estimate in (one.ips, one.dr, one.difference)]
    if one.difference is not None and one.difference.value > 0.0:
        shown[2] = "+" + shown[2]
    return [one.policy, *shown, f"{one.effective_plays:,.0f}"]


def _shown(estimate: Estimate | None) -> str:
    return "-" if estimate is None else with_half_width(estimate.value, estimate.half_width, 4)


def _unsupported(one: PolicyValue) -> str:
    text = (
        f"{one.policy}: no estimate, because {one.unsupported:.1%} of its selections have propensity 0 in the log;"
        " their rewards cannot be estimated."
    )
    if one.bounds is None:
        return text
    return f"{text} Its mean reward per slot lies between {one.bounds[0]:.4f} and {one.bounds[1]:.4f}."
