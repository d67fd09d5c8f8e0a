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
    NO_EFFECT,
    SAME_FOR_BOTH,
    UNDECIDED,
    Counts,
    Judgement,
    WorkedExample,
    up_to,
    worked_example,
)
from idleband.paper.plan import FIGURE_3_USERS, Size
from idleband.paper.readings import BASELINES, LINEAR, MAIN, MAP, PROPOSED, READINGS, TEXTBOOK, TUNED, Reading
from idleband.reporting.text import definitions, paragraph, table

MARKS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NO_EFFECT: "="}  # shown with the word

ALL_USERS = up_to(FIGURE_3_USERS[-1])


class SummaryColumn(NamedTuple):
    """A column of the summary: a claim with the quantity and the baselines by which it is judged there."""

    title: str
    short: str  # title in a terminal
    claim: str
    reference: str
    against: str


# The quantities of the paper, with tuned baselines. C5, the worked example, is the same under every reading.
COLUMNS = (
    SummaryColumn("C1", "C1", "C1", SAME_FOR_BOTH, TUNED),
    SummaryColumn("C2, static", "C2s", "C2", "static set", TUNED),
    SummaryColumn("C2, contextual", "C2c", "C2", "contextual values", TUNED),
    SummaryColumn("C3", "C3", "C3", "static regret", ALL_USERS),
    SummaryColumn("C3b", "C3b", "C3b", "static regret", ALL_USERS),
    SummaryColumn("C4", "C4", "C4", SAME_FOR_BOTH, ""),
    SummaryColumn("C5b (our reading)", "C5b", "C5b", "cost of a play", TUNED),
)
C1_COLUMN = COLUMNS[0]
PER_READING = tuple(dict.fromkeys(column.claim for column in COLUMNS))


def claim_row(one: Judgement) -> dict[str, Any]:
    """Return a verdict as a row of a table."""
    return {
        "claim": one.claim,
        "reading": one.reading.key,
        "clear": _clear(one.reading),
        "noise": one.reading.settings.noise,
        "policy": one.policy,
        "reference": one.reference,
        "against": one.against,
        "verdict": one.verdict,
        **one.counts._asdict(),
        "of_five": one.verdict_of_five,
        "replications": one.replications,
        "why": one.why,
    }


ROW = (
    *("claim", "reading", "clear", "noise", "policy", "reference", "against"),
    *("verdict", "agree", "reversed", "open", "of_five", "replications", "why"),
)


def claim_rows(claims: Iterable[Judgement]) -> list[dict[str, Any]]:
    """Return all verdicts as rows, including that on the worked example."""
    rows = [claim_row(one) for one in claims]
    example = WorkedExample(tuple(worked_example()))
    row = {"claim": "C5", "reference": "worked example", "verdict": example.verdict, "why": example.why}
    rows.append({name: row.get(name, "") for name in ROW})
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
    counts: Counts
    textbook: str = ""

    @property
    def word(self) -> str:
        return self.verdict + "*" * bool(self.textbook)

    def __str__(self) -> str:
        return self.word if self.verdict == NO_EFFECT else f"{self.word}, {self.counts}"


SummaryRow = dict[SummaryColumn, list[SummaryCell]]  # one cell per policy that is judged


def summary(claims: list[Judgement]) -> list[tuple[Reading, SummaryRow]]:
    """Return the verdicts of each reading with the quantities of the paper and tuned baselines."""
    rows = []
    for reading in READINGS:
        own = [one for one in claims if one.reading.key == reading.key]
        if not own:
            continue
        rows.append((reading, {column: _cells(own, column) for column in COLUMNS}))
    return rows


def _cells(judgements: list[Judgement], column: SummaryColumn) -> list[SummaryCell]:
    """Return the verdicts of a reading in a column, one per policy."""
    found = {
        (one.policy, one.against): one
        for one in judgements
        if (one.claim, one.reference) == (column.claim, column.reference)
    }
    cells = []
    for role in PROPOSED:
        if (role, column.against) in found:
            one = found[role, column.against]
            textbook = found.get((role, TEXTBOOK), one).verdict
            cells.append(SummaryCell(role, one.verdict, one.counts, textbook if textbook != one.verdict else ""))
    return cells


def in_short(claims: list[Judgement]) -> dict[str, str]:
    """Return one sentence per claim: the number of readings in which it holds, fails and is undecided, per policy."""
    rows = summary(claims)
    found = dict.fromkeys(PER_READING, "")
    for column in COLUMNS:
        sentences = []
        for role in PROPOSED:
            verdicts = [cell.verdict for _, row in rows for cell in row[column] if cell.policy == role]
            if verdicts:
                counts = ", ".join(f"{word} in {verdicts.count(word)}" for word in MARKS if word in verdicts)
                sentences.append(f"{role}: {counts} of {counted(len(verdicts), 'reading')}")
        if sentences:
            several = [other for other in COLUMNS if other.claim == column.claim][1:]
            reference = f"By the {column.reference}: " * bool(several)
            found[column.claim] += " " * bool(found[column.claim]) + reference + "; ".join(sentences) + "."
    example = WorkedExample(tuple(worked_example()))
    return found | {"C5": f"{example.verdict.capitalize()}: {example.why}"}


def map_in_short(claims: list[Judgement]) -> str:
    """Return the verdicts on C1 for MP-LUCB at each point of the map; empty without the studies of the map."""
    cells: dict[float, list[str]] = {}  # by noise
    for reading in MAP:
        own = _cells([one for one in claims if one.reading.key == reading.key and one.policy == LINEAR], C1_COLUMN)
        if not own:
            return ""
        text = f"{reading.settings.clear:g} {own[0].word} ({own[0].counts})"
        cells.setdefault(reading.settings.noise, []).append(text)
    lines = (f"with sigma = {noise:g}: " * bool(noise) + ", ".join(texts) for noise, texts in cells.items())
    return f"C1 for {LINEAR}, {MAIN.title}, from P(n<1) = {'; '.join(lines)}."


def summary_markdown(claims: list[Judgement], size: Size) -> str:
    """Return the summary as a Markdown page."""
    head = ["reading", "policy", *(column.title for column in COLUMNS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        "| " + " | ".join([reading.title, role, *(str(cell or "-") for cell in cells)]) + " |"
        for reading, role, cells in _by_policy(claims)
    ]
    short = in_short(claims)
    words = "\n".join(f"- **{claim}** {text}. {short[claim]}".rstrip() for claim, text in CLAIMS.items())
    made = (
        f"Written by `idleband reproduce`: {size.horizon:,} slots, {size.replications} and {size.fewer} replications of"
        f" the fast policies, {size.neural} and {size.neural_fewer} of MP-NUCB, seed {size.seed}."
    )
    parts = ("# The paper's claims, reading by reading", made, words, "\n".join(lines), map_in_short(claims), NOTES)
    return "\n\n".join(filter(None, parts)) + "\n"


def _by_policy(claims: list[Judgement]) -> list[tuple[Reading, str, list[SummaryCell | None]]]:
    """Return the rows of the summary, one per reading and policy; None where a claim is not judged."""
    rows = []
    for reading, row in summary(claims):
        for role in PROPOSED:
            cells = [next((cell for cell in row[column] if cell.policy == role), None) for column in COLUMNS]
            if any(cells):
                rows.append((reading, role, cells))
    return rows


NOTES = paragraph(
    f"Baselines: {', '.join(BASELINES)}. L of mp-ucb and rca-m and gamma of MP-NUCB are tuned like beta; * marks"
    " verdicts that differ with the textbook L. C1 uses the regret of equation 2, C3 M = 1 to 9, C5b the cost of a"
    ' sub-optimal play; C5b is our own reading of "a more reasonable way". C2 counts plays outside the best fixed set'
    " (static) and plays for which M channels were better given the contexts (contextual). A claim holds if every"
    " comparison agrees at the 5% level, fails if at least one is reversed after Holm's correction, and is undecided"
    " otherwise; comparisons that show neither are open. No effect: all values of the parameter give the same results."
)


def summary_text(claims: list[Judgement]) -> str:
    """Return the summary for a terminal of 80 columns."""
    found = _by_policy(claims)
    rows = [["policy", *(column.short for column in COLUMNS)]]
    rows += [[f"  {role}", *map(_letter, cells)] for _, role, cells in found]
    head, *lines = table(rows).splitlines()
    shown, last = [head], None
    for (reading, *_), line in zip(found, lines, strict=True):
        shown += [line] if reading is last else [reading.title, line]
        last = reading
    words = definitions(list(CLAIMS.items()))
    short = paragraph(map_in_short(claims))
    example = paragraph(f"C5: {in_short(claims)['C5']}")
    return "\n\n".join(filter(None, [words, "\n".join(shown), LETTERS, short, NOTES, example]))


LETTERS = paragraph(
    "+ holds, x fails, ~ undecided, = no effect, - not judged, * another verdict with textbook L; with the comparisons"
    " that agree, are reversed or are open, of all; C2s, C2c: static and contextual count"
)


def _letter(cell: SummaryCell | None) -> str:
    """Return the verdict of a cell as one character, a star where the textbook L gives another one, and the count."""
    if cell is None:
        return "-"
    letter = {HOLDS: "+", FAILS: "x", UNDECIDED: "~", NO_EFFECT: "="}[cell.verdict] + "*" * bool(cell.textbook)
    if cell.verdict == NO_EFFECT:
        return letter
    counts = cell.counts
    deciding = {HOLDS: counts.agree, FAILS: counts.reversed, UNDECIDED: counts.open}[cell.verdict]
    return f"{letter} {deciding}/{sum(counts)}"
