"""Verdicts in tables and sentences, from constructed judgements."""

from itertools import product

import numpy as np
import pytest

from idleband.paper.claims import CLAIMS, Comparison, Counts, Judgement
from idleband.paper.readings import MAIN, MAP, NOISE, READINGS, SENSED, Reading
from idleband.paper.summary import (
    COLUMNS,
    MARKS,
    PER_READING,
    SummaryCell,
    SummaryRow,
    claims_csv,
    in_short,
    map_in_short,
    summary,
    summary_markdown,
    summary_text,
)
from tests.paper.stored import SIZE

DIFFERENCES = {
    "holds": [1.0, 1.1, 0.9], "fails": [-1.0, -1.1, -0.9], "undecided": [1.0, -1.0, 0.5], "no effect": [0.0, 0.0, 0.0]
}  # fmt: skip
COUNTS = {"holds": (1, 0, 0), "fails": (0, 1, 0), "undecided": (0, 0, 1), "no effect": (0, 0, 1)}
REFERENCES = {
    "C1": "static or contextual regret",
    "C4": "static or contextual regret",
    "C2": "static set",
    "C5b": "cost of a play",
}


def judged(
    claim: str, reading: Reading, role: str, verdict: str, against: str = "tuned", reference: str = ""
) -> Judgement:
    comparison = Comparison("in S1", np.array(DIFFERENCES[verdict]))
    named = reference or REFERENCES[claim]
    one = Judgement(claim, reading, role, named, against, (comparison,), "per slot", "", verdict != "no effect")
    assert (one.verdict, one.counts) == (verdict, COUNTS[verdict])
    return one


def both(claim: str, reading: Reading, role: str, tuned: str, textbook: str = "") -> list[Judgement]:
    """Return verdicts with tuned and textbook baselines, and one by another quantity, which is not shown."""
    shown = [judged(claim, reading, role, tuned), judged(claim, reading, role, textbook or tuned, "textbook")]
    other = "holds" if tuned == "fails" else "fails"
    return [*(judged(claim, reading, role, other, a, "another") for a in ("tuned", "textbook")), *shown]


def cell(role: str, verdict: str, textbook: str = "") -> SummaryCell:
    return SummaryCell(role, verdict, Counts(*COUNTS[verdict]), textbook)


def shown(row: SummaryRow) -> dict[str, list[SummaryCell]]:
    """Return the cells of a row by their titles in a terminal, without empty ones."""
    return {column.short: cells for column, cells in row.items() if cells}


def test_summary_has_every_claim_but_the_worked_example() -> None:
    assert [column.short for column in COLUMNS] == ["C1", "C2s", "C2c", "C3", "C3b", "C4", "C5b"]
    assert PER_READING == ("C1", "C2", "C3", "C3b", "C4", "C5b")
    assert set(PER_READING) | {"C5"} == set(CLAIMS)
    assert set(MARKS) == set(DIFFERENCES)
    assert len(set(MARKS.values())) == 4


def test_summary_uses_the_regret_of_the_paper_and_tuned_baselines() -> None:
    claims = [*both("C1", SENSED, "MP-NUCB", "holds", "undecided"), *both("C5b", SENSED, "MP-LUCB", "fails")]
    ((reading, row),) = summary(claims)
    assert reading is SENSED
    assert shown(row) == {"C1": [cell("MP-NUCB", "holds", "undecided")], "C5b": [cell("MP-LUCB", "fails")]}
    assert [str(cell) for cells in row.values() for cell in cells] == ["holds*, 1 of 1", "fails, 1 of 1 reversed"]


def test_summary_has_both_counts_of_c2_and_no_count_without_effect() -> None:
    claims = [
        *both("C2", MAIN, "MP-LUCB", "fails"),
        judged("C2", MAIN, "MP-LUCB", "holds", "tuned", "contextual values"),
        judged("C4", MAIN, "MP-LUCB", "no effect", ""),
    ]
    ((_, row),) = summary(claims)
    found = {"C2s": cell("MP-LUCB", "fails"), "C2c": cell("MP-LUCB", "holds"), "C4": cell("MP-LUCB", "no effect")}
    assert shown(row) == {title: [one] for title, one in found.items()}
    assert str(found["C4"]) == "no effect"
    assert in_short(claims)["C2"] == (
        "By the static set: MP-LUCB: fails in 1 of 1 reading."
        " By the contextual values: MP-LUCB: holds in 1 of 1 reading."
    )


def test_summary_of_c3_uses_all_numbers_of_users() -> None:
    """C3 and C3b: a regret that rises up to M = 5 and falls then does not rise with M."""
    words = {("static regret", "M = 1 to 9", "C3"): "fails", ("static regret", "M = 1 to 9", "C3b"): "undecided"}
    claims = [
        judged(claim, MAIN, role, words.get((reference, against, claim), "holds"), against, reference)
        for role, against, reference, claim in product(
            ("MP-LUCB", "MP-NUCB"), ("M = 1 to 5", "M = 1 to 9"), ("static regret", "table regret"), ("C3", "C3b")
        )
    ]
    ((_, row),) = summary(claims)
    assert shown(row) == {
        "C3": [cell("MP-LUCB", "fails"), cell("MP-NUCB", "fails")],
        "C3b": [cell("MP-LUCB", "undecided"), cell("MP-NUCB", "undecided")],
    }


def test_readings_have_a_fixed_order() -> None:
    claims = [judged("C4", reading, "MP-LUCB", "holds", "") for reading in READINGS[::-1]]
    assert [reading for reading, _ in summary(claims)] == list(READINGS)


def test_sentences_count_the_verdicts() -> None:
    claims = [
        *(one for reading in READINGS[:3] for one in both("C1", reading, "MP-LUCB", "holds", "fails")),
        *both("C1", READINGS[3], "MP-LUCB", "fails"),
        *both("C1", MAIN, "MP-NUCB", "undecided"),
        judged("C4", MAIN, "MP-LUCB", "undecided", ""),
        *both("C1", MAP[0], "MP-LUCB", "undecided"),  # other values of the map are not readings
    ]
    short = in_short(claims)
    assert set(short) == set(CLAIMS)
    assert short["C1"] == "MP-LUCB: holds in 3, fails in 1 of 4 readings; MP-NUCB: undecided in 1 of 1 reading."
    assert short["C4"] == "MP-LUCB: undecided in 1 of 1 reading."
    assert short["C2"] == short["C3"] == short["C3b"] == short["C5b"] == ""
    assert short["C5"].startswith("Holds: with 5 and 5 sub-optimal plays the two policies lose 0.324 and 0.295;")
    assert in_short([]) == {**dict.fromkeys(PER_READING, ""), "C5": short["C5"]}


def test_map_is_summarised_in_one_sentence() -> None:
    words = ("holds", "holds", "undecided", "fails", "fails", "fails", *["holds"] * (len(MAP) - 6))
    claims = [one for reading, word in zip(MAP, words, strict=True) for one in both("C1", reading, "MP-LUCB", word)]
    claims += [*both("C1", MAIN, "MP-NUCB", "holds"), *both("C1", SENSED, "MP-LUCB", "holds")]
    noisy = "".join(
        f"; with sigma = {noise:g}: 0.5 holds (1 of 1), 0.7 holds (1 of 1), 0.9 holds (1 of 1)" for noise in NOISE
    )
    start = "C1 for MP-LUCB, ranked every slot, played states, from P(n<1) = 0.5 holds (1 of 1), 0.6 holds (1 of 1),"
    least = "0.7 undecided (1 of 1 open), 0.8 fails (1 of 1 reversed), 0.9 fails (1 of 1 reversed),"
    assert map_in_short(claims) == f"{start} {least} 0.97 fails (1 of 1 reversed){noisy}."
    starred = [*both("C1", MAP[5], "MP-LUCB", "fails", "holds"), *(one for one in claims if one.reading is not MAP[5])]
    assert map_in_short(starred) == f"{start} {least} 0.97 fails* (1 of 1 reversed){noisy}."


@pytest.mark.parametrize("missing", [0, 2, 5])
def test_no_map_sentence_where_a_reading_is_missing(missing: int) -> None:
    claims = [one for i, r in enumerate(MAP) if i != missing for one in both("C1", r, "MP-LUCB", "holds")]
    assert map_in_short(claims) == ""
    assert "\n\n\n" not in summary_markdown(claims, SIZE)


def test_summary_without_verdicts_contains_the_worked_example() -> None:
    assert summary([]) == []
    assert map_in_short([]) == ""
    _, worked = claims_csv([]).splitlines()
    assert worked.startswith("C5,,,,,worked example,,holds,,,,,,with 5 and 5 ")
    assert "| C5b (our reading) |" in summary_markdown([], SIZE)
    assert "C5: Holds: with 5 and 5" in summary_text([])
