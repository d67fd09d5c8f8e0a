"""The verdicts as tables: for a program, for a page, for a terminal."""

import csv
import io
from collections.abc import Iterable
from typing import Any, NamedTuple

from idleband.paper.claims import (
    CLAIMS,
    FAILS,
    HOLDS,
    SAME_FOR_BOTH,
    UNDECIDED,
    Example,
    Judgement,
    up_to,
    worked_example,
)
from idleband.paper.plan import FIGURE_3_USERS, Size
from idleband.paper.readings import BASELINES, LINEAR, MAP, PROPOSED, READINGS, TEXTBOOK, TUNED, Reading
from idleband.reporting.text import table as text_table

MARKS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~"}  # beside the word, for those who look rather than read

# What the summary shows of each claim, reference and other side: the paper's own, and the harder baselines.
ALL_USERS = up_to(FIGURE_3_USERS[-1])
HEADLINE = {
    "C1": (SAME_FOR_BOTH, TUNED),
    "C2": ("static set", TUNED),
    "C3": ("static regret", ALL_USERS),
    "C3b": ("static regret", ALL_USERS),
    "C4": (SAME_FOR_BOTH, ""),
    "C5b": ("cost of a pick", TUNED),
}
PER_READING = tuple(HEADLINE)  # C5, the worked example, is the same under every reading


def claim_row(one: Judgement) -> dict[str, Any]:
    """A verdict as a row of a table."""
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
    """All verdicts as rows, that on the worked example among them."""
    rows = [claim_row(one) for one in claims]
    example = Example(tuple(worked_example()))
    row = {"claim": "C5", "reference": "worked example", "verdict": example.verdict, "why": example.why}
    names = ("claim", "reading", "clear", "policy", "reference", "against", "verdict", "of_five", "replications", "why")
    rows.append({name: row.get(name, "") for name in names})
    return sorted(rows, key=lambda row: str(row["claim"]))


def claims_csv(claims: Iterable[Judgement]) -> str:
    rows = claim_rows(claims)
    buffer = io.StringIO()
    table = csv.DictWriter(buffer, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return buffer.getvalue()


def _clear(reading: Reading) -> float:
    return 1.0 if reading.world.model == "none" else reading.world.clear


class Cell(NamedTuple):
    """One verdict of the summary; `textbook` where baselines with their textbook L would give another one."""

    policy: str
    verdict: str
    textbook: str = ""

    def __str__(self) -> str:
        return self.verdict + "*" * bool(self.textbook)


def summary(claims: list[Judgement]) -> list[tuple[Reading, dict[str, list[Cell]]]]:
    """For each reading the verdicts that the paper's own words ask for: its own references, every baseline tuned."""
    rows = []
    for reading in READINGS:
        own = [one for one in claims if one.reading.key == reading.key]
        if not own:
            continue
        rows.append((reading, {claim: _cells(own, claim) for claim in PER_READING}))
    return rows


def _cells(judgements: list[Judgement], claim: str) -> list[Cell]:
    """The verdicts of a reading on a claim, policy by policy."""
    reference, against = HEADLINE[claim]
    found = {
        (one.policy, one.against): one.verdict for one in judgements if (one.claim, one.reference) == (claim, reference)
    }
    cells = []
    for role in PROPOSED:
        if (role, against) in found:
            verdict, textbook = found[role, against], found.get((role, TEXTBOOK), "")
            cells.append(Cell(role, verdict, textbook if textbook != verdict else ""))
    return cells


def in_short(claims: list[Judgement]) -> dict[str, str]:
    """For each claim one sentence: under how many readings it holds, fails, and is undecided, policy by policy."""
    rows = summary(claims)
    found = {}
    for claim in PER_READING:
        sentences = []
        for role in PROPOSED:
            verdicts = [cell.verdict for _, row in rows for cell in row[claim] if cell.policy == role]
            if verdicts:
                counts = ", ".join(f"{word} in {verdicts.count(word)}" for word in MARKS if word in verdicts)
                sentences.append(f"{role}: {counts} of {len(verdicts)} reading{'s' * (len(verdicts) > 1)}")
        found[claim] = "; ".join(sentences) + "." * bool(sentences)
    example = Example(tuple(worked_example()))
    return found | {"C5": f"{example.verdict.capitalize()}: {example.why}"}


def map_in_short(claims: list[Judgement]) -> str:
    """C1 for MP-LUCB from world to world, in one sentence; empty where the map has not been run."""
    cells = []
    for reading in MAP:
        own = [one for one in claims if one.reading.key == reading.key and one.policy == LINEAR]
        if not _cells(own, "C1"):
            return ""
        cells.append(f"{reading.world.clear:g} {_cells(own, 'C1')[0]}")
    return f"C1 for {LINEAR}, {MAP[0].title.partition(', P(')[0]}, from P(n<1) = {', '.join(cells)}."


def summary_markdown(claims: list[Judgement], size: Size) -> str:
    """The summary as a Markdown page."""
    head = ["reading, MP-LUCB / MP-NUCB", *PER_READING]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for reading, row in summary(claims):
        cells = [" / ".join(map(str, row[claim])) or "-" for claim in PER_READING]
        lines.append("| " + " | ".join([reading.title, *cells]) + " |")
    short = in_short(claims)
    words = "\n".join(f"- **{claim}** {text}. {short[claim]}".rstrip() for claim, text in CLAIMS.items())
    made = (
        f"Made by `idleband reproduce`: {size.horizon:,} slots, {size.replications} replications of the fast policies,"
        f" {size.neural} and {size.neural_fewer} of MP-NUCB, seed {size.seed}."
    )
    parts = ("# The paper's claims, reading by reading", made, words, "\n".join(lines), map_in_short(claims), NOTES)
    return "\n\n".join(filter(None, parts)) + "\n"


NOTES = f"""\
Against {", ".join(BASELINES)}. L of mp-ucb and rca-m is tuned as beta is; * marks where their textbook
L gives another verdict. C1 by the regret of equation 2, C2 by channels outside the best fixed set, C3 from M = 1
to 9, C5b by what a sub-optimal pick costs. Holds: every comparison agrees at the 5% level; fails: at least
one is reversed after Holm's correction; else undecided."""


def summary_text(claims: list[Judgement]) -> str:
    """The summary for a terminal."""
    rows = [["reading", "policy", *PER_READING]]
    for reading, row in summary(claims):
        for i, role in enumerate(PROPOSED):
            cells = [next((str(cell) for cell in row[claim] if cell.policy == role), "-") for claim in PER_READING]
            if any(cell != "-" for cell in cells):
                rows.append([reading.title if i == 0 else "", role, *cells])
    words = "\n".join(f"{claim:3}  {text}" for claim, text in CLAIMS.items())
    return f"{words}\n\n{text_table(rows, left=2)}\n\n{map_in_short(claims)}\n{NOTES}\nC5: {in_short(claims)['C5']}"
