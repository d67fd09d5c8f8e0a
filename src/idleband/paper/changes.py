"""Verdicts that differ from those of an earlier report, with the cause."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from idleband.paper.claims import Judgement, verdict
from idleband.paper.plan import Choices, Size
from idleband.paper.readings import MAIN, NEURAL, SCENARIOS, map_reading
from idleband.paper.summary import COLUMNS, SummaryColumn


class Change(NamedTuple):
    """A verdict of the summary that has changed, or one under a new reading that its new setting changes."""

    column: SummaryColumn
    judgement: Judgement
    before: str
    why: str


class _Key(NamedTuple):
    """What a verdict is on."""

    claim: str
    reading: str
    policy: str
    reference: str
    against: str


def changes(
    before: Sequence[Mapping[str, str]], claims: Iterable[Judgement], choices: Choices, size: Size
) -> list[Change]:
    """Compare the verdicts of the summary with those of an earlier report.

    Parameters
    ----------
    before
        Rows of the earlier report with the columns claim, reading, policy, reference, against, verdict and
        replications of claims.csv.
    claims
        The present verdicts.
    choices
        The tuned parameters.
    size
        The size of the reproduction.
    """
    earlier = {_Key(*(row[name] for name in _Key._fields)): row for row in before}
    judged_before = {row["reading"] for row in before}
    present = {_Key(one.claim, one.reading.key, one.policy, one.reference, one.against): one for one in claims}
    columns = {(column.claim, column.reference, column.against): column for column in COLUMNS}
    found = []
    for key, one in present.items():
        column = columns.get((one.claim, one.reference, one.against))
        if column is None:
            continue
        if key in earlier:
            if earlier[key]["verdict"] != one.verdict:
                found.append(Change(column, one, earlier[key]["verdict"], _cause(earlier[key], one, choices, size)))
        elif one.reading.key not in judged_before:
            noise = one.reading.settings.noise
            plain = map_reading(one.reading.settings.clear) if noise else MAIN
            other = present.get(key._replace(reading=plain.key))
            if other is not None and other.verdict != one.verdict:
                words = "without noise" if noise else "in the first reading"
                found.append(Change(column, one, f"{other.verdict} {words}", one.reading.title))
    return sorted(found, key=lambda change: COLUMNS.index(change.column))


def _cause(row: Mapping[str, str], one: Judgement, choices: Choices, size: Size) -> str:
    """Return why a verdict has changed.

    Replications, if the first ones, as many as before, give the verdict of before. Otherwise what is tuned, as gamma of
    MP-NUCB was 1 before and L and beta were chosen from three runs.
    """
    R = int(row["replications"])
    more = f"{R} to {one.replications} replications"
    if not one.effect:
        return f"rule: {one.note}"
    if one.replications > R and verdict([c.first(R) for c in one.comparisons]) == row["verdict"]:
        return more
    causes = []
    if one.claim in ("C3", "C3b"):
        causes.append("steps of two users instead of one")
    if one.policy == NEURAL:
        scenarios = [name for name in SCENARIOS if (one.reading.key, name) in choices]
        gammas = [choices[one.reading.key, name].gamma for name in scenarios]
        if any(gamma != 1.0 for gamma in gammas):
            causes.append("tuning: gamma = " + ", ".join(f"{gamma:g}" for gamma in gammas if gamma is not None))
        if one.reading is MAIN and one.claim not in ("C3", "C3b"):
            causes.append("the diagonal of the matrix")
    if one.replications < R:
        causes.append(more)
    return "; ".join(causes) or f"tuning over {size.tuning} replications"
