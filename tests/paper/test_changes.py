"""Verdicts that differ from an earlier report, from constructed judgements."""

import csv
from collections.abc import Sequence

import numpy as np

from idleband.paper.changes import changes
from idleband.paper.claims import Comparison, Judgement
from idleband.paper.plan import Size, TunedParameters
from idleband.paper.readings import MAIN, NOISE, READINGS, Reading, find, map_reading
from idleband.paper.summary import COLUMNS
from tests.conftest import ROOT
from tests.paper.stored import MAP, POLICIES

AGREES, OPEN = [1.0, 1.1, 0.9, 1.0], [1.0, -1.0, 0.5, -0.4]
REVERSED = [-x for x in AGREES]
C1, C4 = ("static or contextual regret", "tuned"), ("static or contextual regret", "")
CHOICES = {("slot-played", "S1"): TunedParameters(1.0, {}, 0.5), ("rca-sensed", "S1"): TunedParameters(1.0, {}, 1.0)}


def judged(claim: str, reading: Reading, role: str, differences: Sequence[float], effect: bool = True) -> Judgement:
    named = C4 if claim == "C4" else ("static regret", "M = 1 to 9") if claim == "C3" else C1
    comparison = Comparison("in S1", np.array(differences))
    return Judgement(
        claim, reading, role, *named, (comparison,), "per slot", "beta changes nothing" * (not effect), effect
    )


def row(one: Judgement, verdict: str, replications: int) -> dict[str, str]:
    """Return the row of an earlier report on the same question."""
    key = {"claim": one.claim, "reading": one.reading.key, "policy": one.policy}
    return {
        **key, "reference": one.reference, "against": one.against, "verdict": verdict, "replications": str(replications)
    }  # fmt: skip


def causes(one: Judgement, verdict: str, replications: int) -> list[str]:
    return [change.why for change in changes([row(one, verdict, replications)], [one], CHOICES, Size())]


def test_equal_verdicts_are_not_listed() -> None:
    one = judged("C1", MAIN, "MP-LUCB", AGREES)
    assert causes(one, "holds", 4) == []
    other = one._replace(reference="table regret")  # not in the summary
    assert changes([row(one, "holds", 4)], [one, other], CHOICES, Size()) == []


def test_replications_are_the_cause_where_the_first_ones_give_the_earlier_verdict() -> None:
    one = judged("C1", MAIN, "MP-LUCB", [1.0, -0.9, *[1.0] * 8])
    assert one.verdict == "holds"
    assert causes(one, "undecided", 3) == ["3 to 10 replications"]
    assert causes(one, "fails", 3) == ["tuning over 2 replications"]
    assert causes(one, "fails", 20) == ["20 to 10 replications"]


def test_other_causes() -> None:
    neural = judged("C1", MAIN, "MP-NUCB", AGREES)
    assert causes(neural, "fails", 4) == ["tuning: gamma = 0.5; the diagonal of the matrix"]
    sensed = judged("C1", find("rca-sensed"), "MP-NUCB", AGREES)  # gamma = 1 is chosen, as before
    assert causes(sensed, "fails", 5) == ["5 to 4 replications"]
    assert causes(judged("C3", MAIN, "MP-LUCB", AGREES), "fails", 4) == ["steps of two users instead of one"]
    none = judged("C4", find("printed-reward"), "MP-LUCB", [0.0] * 4, effect=False)
    assert causes(none, "undecided", 4) == ["rule: beta changes nothing"]


def test_new_readings_are_compared_with_the_first_and_noise_with_its_absence() -> None:
    additive, loud, louder = find("additive"), map_reading(0.7, NOISE[0]), map_reading(0.5, NOISE[1])
    claims = [
        judged("C1", MAIN, "MP-LUCB", AGREES),
        judged("C1", additive, "MP-LUCB", OPEN),
        judged("C1", loud, "MP-LUCB", AGREES),
        judged("C1", loud, "MP-NUCB", OPEN),  # the first reading has no such verdict
        judged("C1", map_reading(0.5), "MP-LUCB", AGREES),
        judged("C1", louder, "MP-LUCB", REVERSED),
    ]
    before = [row(claims[0], "holds", 4), row(claims[4], "holds", 4)]
    found = [(c.before, c.judgement.outcome, c.why) for c in changes(before, claims, CHOICES, Size())]
    assert found == [
        ("holds in the first reading", "undecided, 1 of 1 open", additive.title),
        ("holds without noise", "fails, 1 of 1 reversed", louder.title),
    ]


def test_earlier_verdicts_are_of_questions_that_are_still_asked() -> None:
    with (ROOT / "studies/claims-before.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {(c.claim, c.reference, c.against) for c in COLUMNS}
    assert all((r["claim"], r["reference"], r["against"]) in columns for r in rows)
    assert {r["reading"] for r in rows} <= {*POLICIES, *MAP.values()}
    assert len({r.key for r in READINGS} - {r["reading"] for r in rows}) == 4  # additive, per channel, two with noise
    assert {r["verdict"] for r in rows} == {"holds", "fails", "undecided"}
