"""Verdicts as tables: CSV and JSON rows, Markdown, and text for a terminal."""

import csv
import io
from collections.abc import Iterable
from typing import Any, NamedTuple

from idleband.errors import counted
from idleband.paper.claims import (
    CLAIMS,
    FAILS,
    HOLDS,
    SAME_FOR_BOTH,
    UNDECIDED,
    Judgement,
    WorkedExample,
    up_to,
    worked_example,
)
from idleband.paper.plan import FIGURE_3_USERS, Size
from idleband.paper.readings import BASELINES, LINEAR, MAP, PROPOSED, READINGS, TEXTBOOK, TUNED, Reading
from idleband.reporting.text import definitions, paragraph, table

MARKS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~"}  # shown with the word

# The quantity and the baselines that the summary shows for each claim: those of the paper, with tuned baselines.
ALL_USERS = up_to(FIGURE_3_USERS[-1])
HEADLINE = {
    "C1": (SAME_FOR_BOTH, TUNED),
    "C2": ("static set", TUNED),
    "C3": ("static regret", ALL_USERS),
    "C3b": ("static regret", ALL_USERS),
    "C4": (SAME_FOR_BOTH, ""),
    "C5b": ("cost of a play", TUNED),
}
PER_READING = tuple(HEADLINE)  # C5, the worked example, is the same under every reading


def claim_row(one: Judgement) -> dict[str, Any]:
    """Return a verdict as a row of a table."""
    return {
        "claim": one.claim,
        "reading": one.reading.key,
        "clear": _clear(one.reading),
        "policy": one.policy,
        "reference": one.reference,
        "against": one.against,
        "verdict": one.verdict,
        "of_five": one.verdict_of_five,
        "replications": one.replications,
        "why": one.why,
    }


def claim_rows(claims: Iterable[Judgement]) -> list[dict[str, Any]]:
    """Return all verdicts as rows, including that on the worked example."""
    rows = [claim_row(one) for one in claims]
    example = WorkedExample(tuple(worked_example()))
    row = {"claim": "C5", "reference": "worked example", "verdict": example.verdict, "why": example.why}
    names = ("claim", "reading", "clear", "policy", "reference", "against", "verdict", "of_five", "replications", "why")
    rows.append({name: row.get(name, "") for name in names})
    return sorted(rows, key=lambda row: str(row["claim"]))


def claims_csv(claims: Iterable[Judgement]) -> str:
    """Return all verdicts as CSV."""
    rows = claim_rows(claims)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _clear(reading: Reading) -> float:
    return 1.0 if reading.settings.model == "none" else reading.settings.clear


class SummaryCell(NamedTuple):
    """One verdict of the summary; `textbook` is the verdict with the textbook L of the baselines, where it differs."""

    policy: str
    verdict: str
    textbook: str = ""

    def __str__(self) -> str:
        return self.verdict + "*" * bool(self.textbook)


def summary(claims: list[Judgement]) -> list[tuple[Reading, dict[str, list[SummaryCell]]]]:
    """Return the verdicts of each reading with the quantities of the paper and tuned baselines."""
    rows = []
    for reading in READINGS:
        own = [one for one in claims if one.reading.key == reading.key]
        if not own:
            continue
        rows.append((reading, {claim: _cells(own, claim) for claim in PER_READING}))
    return rows


def _cells(judgements: list[Judgement], claim: str) -> list[SummaryCell]:
    """Return the verdicts of a reading on a claim, one per policy."""
    reference, against = HEADLINE[claim]
    found = {
        (one.policy, one.against): one.verdict for one in judgements if (one.claim, one.reference) == (claim, reference)
    }
    cells = []
    for role in PROPOSED:
        if (role, against) in found:
            verdict, textbook = found[role, against], found.get((role, TEXTBOOK), "")
            cells.append(SummaryCell(role, verdict, textbook if textbook != verdict else ""))
    return cells


def in_short(claims: list[Judgement]) -> dict[str, str]:
    """Return one sentence per claim: the number of readings in which it holds, fails and is undecided, per policy."""
    rows = summary(claims)
    found = {}
    for claim in PER_READING:
        sentences = []
        for role in PROPOSED:
            verdicts = [cell.verdict for _, row in rows for cell in row[claim] if cell.policy == role]
            if verdicts:
                counts = ", ".join(f"{word} in {verdicts.count(word)}" for word in MARKS if word in verdicts)
                sentences.append(f"{role}: {counts} of {counted(len(verdicts), 'reading')}")
        found[claim] = "; ".join(sentences) + "." * bool(sentences)
    example = WorkedExample(tuple(worked_example()))
    return found | {"C5": f"{example.verdict.capitalize()}: {example.why}"}


def map_in_short(claims: list[Judgement]) -> str:
    """Return the verdicts on C1 for MP-LUCB for each P(n < 1) in one sentence; empty without the studies of the map."""
    cells = []
    for reading in MAP:
        own = [one for one in claims if one.reading.key == reading.key and one.policy == LINEAR]
        if not _cells(own, "C1"):
            return ""
        cells.append(f"{reading.settings.clear:g} {_cells(own, 'C1')[0]}")
    return f"C1 for {LINEAR}, {MAP[0].title.partition(', P(')[0]}, from P(n<1) = {', '.join(cells)}."


def summary_markdown(claims: list[Judgement], size: Size) -> str:
    """Return the summary as a Markdown page."""
    head = ["reading, MP-LUCB / MP-NUCB", *PER_READING]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for reading, row in summary(claims):
        cells = [" / ".join(map(str, row[claim])) or "-" for claim in PER_READING]
        lines.append("| " + " | ".join([reading.title, *cells]) + " |")
    short = in_short(claims)
    words = "\n".join(f"- **{claim}** {text}. {short[claim]}".rstrip() for claim, text in CLAIMS.items())
    made = (
        f"Written by `idleband reproduce`: {size.horizon:,} slots, {size.replications} replications of the fast"
        f" policies, {size.neural} and {size.neural_fewer} of MP-NUCB, seed {size.seed}."
    )
    parts = ("# The paper's claims, reading by reading", made, words, "\n".join(lines), map_in_short(claims), NOTES)
    return "\n\n".join(filter(None, parts)) + "\n"


NOTES = paragraph(
    f"Baselines: {', '.join(BASELINES)}. L of mp-ucb and rca-m is tuned like beta; * marks verdicts that differ with"
    " their textbook L. C1 uses the regret of equation 2, C2 plays outside the best fixed set, C3 M = 1 to 9, C5b the"
    " cost of a sub-optimal play. A claim holds if every comparison agrees at the 5% level, fails if at least one is"
    " reversed after Holm's correction, and is undecided otherwise."
)


def summary_text(claims: list[Judgement]) -> str:
    """Return the summary for a terminal of 80 columns."""
    rows = [["reading", *PER_READING]]
    for reading, row in summary(claims):
        for role in PROPOSED:
            cells = [next((_letter(cell) for cell in row[claim] if cell.policy == role), "-") for claim in PER_READING]
            if any(cell != "-" for cell in cells):
                rows.append([f"{reading.title}: {role}", *cells])
    words = definitions(list(CLAIMS.items()))
    short = paragraph(map_in_short(claims))
    example = paragraph(f"C5: {in_short(claims)['C5']}")
    return "\n\n".join(filter(None, [words, table(rows), LETTERS, short, NOTES, example]))


LETTERS = "+ holds, x fails, ~ undecided, - not judged, * another verdict with textbook L"


def _letter(cell: SummaryCell) -> str:
    """Return the verdict of a cell as one character, with a star where the textbook L gives another one."""
    return {HOLDS: "+", FAILS: "x", UNDECIDED: "~"}[cell.verdict] + "*" * bool(cell.textbook)
