"""Verdicts, compared with another implementation and with numbers read by pandas."""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from idleband.paper.claims import (
    CLAIMS,
    Comparison,
    Judgement,
    WorkedExample,
    c1,
    c2,
    c3,
    c4,
    c5b,
    reversals,
    verdict,
    worked_example,
)
from idleband.paper.readings import MAIN, SENSED, Reading, find
from idleband.paper.stored import StoredStudies
from tests.paper import stored
from tests.paper.stored import BASELINES, GRID, SCENARIOS, SIZE

ROLES = ("MP-LUCB", "MP-NUCB")

# --- independent implementation --------------------------------------------------------------------------------------


def p_values(differences: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the two-sided p-value: 0 for equal differences other than zero, 1 for one replication."""
    rows = np.array(differences, float)
    p = np.ones(len(rows))
    if rows.shape[1] > 1:
        spread = np.ptp(rows, axis=1) > 1e-12 * abs(rows[:, 0])  # otherwise equal except for rounding
        p[~spread & (rows[:, 0] != 0)] = 0
        p[spread] = stats.ttest_1samp(rows[spread], 0, axis=1).pvalue if spread.any() else 1
    return p


def reversed_by_holm(differences: Sequence[Sequence[float]]) -> list[int]:
    """Apply Holm's method by adjusted p-values: the running maximum of (m - i) p_(i)."""
    p = np.where(np.mean(differences, axis=1) < 0, p_values(differences), 1.0)
    found, adjusted = [], 0.0
    for i, place in enumerate(np.argsort(p, kind="stable")):
        adjusted = max(adjusted, (len(p) - i) * p[place])
        if adjusted < 0.05:
            found.append(int(place))
    return sorted(found)


def ruled(differences: Sequence[Sequence[float]]) -> str:
    if np.all((np.mean(differences, axis=1) > 0) & (p_values(differences) < 0.05)):
        return "holds"
    return "fails" if reversed_by_holm(differences) else "undecided"


def comparisons(differences: Sequence[Sequence[float]]) -> list[Comparison]:
    return [Comparison(f"number {i}", np.array(d, float)) for i, d in enumerate(differences)]


def with_p(p: float, R: int = 4) -> list[float]:
    """Return differences whose two-sided p-value is |p|, with the sign of p."""
    spread = np.linspace(-1, 1, R)
    t = stats.t.isf(abs(p) / 2, R - 1)
    return list(spread / spread.std(ddof=1) + np.sign(p) * t / np.sqrt(R))


EIGHTHS = st.integers(-40, 40).map(lambda n: n / 8)  # exact in binary


@given(st.integers(1, 7).flatmap(lambda R: st.lists(st.lists(EIGHTHS, min_size=R, max_size=R), min_size=1, max_size=8)))
@example([with_p(0.04), with_p(0.001)])
@example([with_p(-0.024), with_p(0.9)])
@example([with_p(-0.026), with_p(0.9)])
@example([[1.0], [2.0]])
def test_verdicts_agree_with_another_implementation(differences: list[list[float]]) -> None:
    assert verdict(comparisons(differences)) == ruled(differences)
    found = [int(c.what.split()[1]) for c in reversals(comparisons(differences))]
    assert sorted(found) == reversed_by_holm(differences)
    agree = int(np.sum((np.mean(differences, axis=1) > 0) & (p_values(differences) < 0.05)))
    contrary = len(reversed_by_holm(differences))
    assert judgement(*differences).counts == (agree, contrary, len(differences) - agree - contrary)


@pytest.mark.parametrize("shift", [-3.0, -1.0, 1.0, 3.0])
def test_verdicts_where_all_comparisons_agree(shift: float) -> None:
    """Draw differences of several sizes around a common shift, so that every verdict occurs often."""
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in range(60):
        m, R = rng.integers(1, 6), rng.integers(2, 8)
        differences = rng.normal(shift, 1.0, (m, R)).tolist()
        verdicts.append(ruled(differences))
        assert verdict(comparisons(differences)) == verdicts[-1]
    assert len(set(verdicts)) == 2
    assert ("holds" in verdicts, "fails" in verdicts) == (shift > 0, shift < 0)


@pytest.mark.parametrize(
    ("ps", "expected"),
    [
        ([0.04], "holds"),
        ([0.06], "undecided"),
        ([-0.04], "fails"),
        ([-0.06], "undecided"),
        ([0.04, 0.04, 0.04], "holds"),  # no correction is needed where all must hold
        ([0.04, 0.04, 0.06], "undecided"),
        ([-0.04, 0.001], "undecided"),  # 0.04 > 0.05 / 2, though it is reversed at 5% alone
        ([-0.02, 0.001], "fails"),
        ([-0.01, 0.9, 0.9, 0.9], "fails"),  # 0.01 < 0.05 / 4
        ([-0.015, 0.9, 0.9, 0.9], "undecided"),
    ],
)
def test_verdicts_computed_by_hand(ps: list[float], expected: str) -> None:
    assert verdict(comparisons([with_p(p) for p in ps])) == expected


@pytest.mark.parametrize(
    ("ps", "number"),
    [
        ([-0.001, -0.04], 2),  # the second at 0.05 / 1
        ([-0.001, -0.03, -0.03], 1),  # the second at 0.05 / 2, where the procedure stops
        ([-0.001, -0.02, -0.04], 3),
        ([-0.02, -0.02, -0.02], 0),  # the first at 0.05 / 3
        ([-0.04, 0.001], 0),  # comparisons that agree count in the correction
    ],
)
def test_holm_correction_stops_at_the_first_large_p_value(ps: list[float], number: int) -> None:
    assert len(reversals(comparisons([with_p(p) for p in ps]))) == number


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([[5.0]], "undecided"),  # one replication is not enough
        ([[-5.0]], "undecided"),
        ([[0.25, 0.25]], "holds"),  # no variance
        ([[-0.25, -0.25]], "fails"),
        ([[0.0, 0.0]], "undecided"),
        ([[0.0, 0.0], [1.0, 1.0]], "undecided"),
        ([[1.0, -1.0]], "undecided"),
    ],
)
def test_verdicts_of_few_replications(differences: list[list[float]], expected: str) -> None:
    assert verdict(comparisons(differences)) == expected


# --- a judgement -----------------------------------------------------------------------------------------------------


def judgement(*differences: Sequence[float], note: str = "") -> Judgement:
    return Judgement("C1", MAIN, "MP-LUCB", "a regret", "tuned", tuple(comparisons(differences)), "per slot", note)


def test_verdict_from_the_first_five_replications() -> None:
    """The first five replications agree with the claim, the next five contradict it."""
    one = judgement([1.0, 1.1, 0.9, 1.0, 1.2, -3.0, -4.0, 2.0, -9.0, 5.0])
    assert (one.replications, one.verdict, one.verdict_of_five) == (10, "undecided", "holds")
    five = judgement([1.0, 1.1, 0.9, 1.0, 1.2])
    assert (five.verdict, five.verdict_of_five) == ("holds", "")  # these are the first five
    assert judgement([1.0, 1.1, 0.9, 1.0]).verdict_of_five == ""
    fewer = judgement([1.0] * 8, [1.0] * 4)  # a comparison with fewer counts
    assert (fewer.replications, fewer.verdict_of_five) == (4, "")


@pytest.mark.parametrize(
    ("ps", "counts", "outcome"),
    [
        ([0.04, 0.04, 0.04], (3, 0, 0), "holds, 3 of 3"),
        ([0.04, 0.06, -0.06], (1, 0, 2), "undecided, 2 of 3 open"),
        ([-0.001, 0.04, 0.9, -0.04], (1, 1, 2), "fails, 1 of 4 reversed, 2 open"),
        ([-0.001, 0.04, 0.04], (2, 1, 0), "fails, 1 of 3 reversed"),
        ([-0.04, 0.001], (1, 0, 1), "undecided, 1 of 2 open"),  # reversed alone, but not after Holm's correction
    ],
)
def test_counts_stand_beside_the_verdict(ps: list[float], counts: tuple[int, int, int], outcome: str) -> None:
    one = judgement(*(with_p(p) for p in ps))
    assert one.counts == counts
    assert one.outcome == outcome


def test_verdict_on_a_parameter_without_effect() -> None:
    """It is no effect, whatever the comparisons show, also of the first five replications."""
    one = judgement([0.0] * 7, [0.0] * 7, note="nothing changes")._replace(effect=False)
    assert (one.verdict, one.verdict_of_five, one.outcome) == ("no effect",) * 3
    assert one.counts == (0, 0, 2)
    assert one.why == "nothing changes."


def interval_in_words(differences: Sequence[float]) -> str:
    mean, low, high = stored.mean_and_interval(np.array(differences))
    return f"{mean:+.3g} per slot [{low:+.3g}, {high:+.3g}]"


def test_reason_of_a_claim_that_holds() -> None:
    narrow, wide = [0.2, 0.25, 0.3], [5.0, 5.5, 6.0]
    why = judgement(wide, narrow).why
    assert why == f"all 2 comparisons agree; the narrowest margin is {interval_in_words(narrow)} number 1."
    assert judgement(narrow, wide, note="by the way").why.endswith(" number 0; by the way.")


def test_reason_of_a_claim_that_fails_names_a_reversal() -> None:
    """A comparison with a lower mean that is not significant is not named."""
    clear, clearer, noisy = [-0.5, -0.51, -0.49], [-1.0, -1.01, -0.99], [-9.0, 8.0, -9.0]
    why = judgement(noisy, clear, clearer, [1.0, 1.01, 1.02]).why
    assert why == f"2 of 4 comparisons are reversed; the widest margin is {interval_in_words(clearer)} number 2."
    one = judgement(noisy, clear).why
    assert one == f"1 of 2 comparisons is reversed; the widest margin is {interval_in_words(clear)} number 1."


def test_reason_of_an_undecided_claim_names_the_inconclusive_comparison() -> None:
    """A comparison with a small but significant margin is not named."""
    small, noisy, noisier = [0.1, 0.11, 0.12], [-2.0, 3.0, 2.0], [9.0, -4.0, 9.0]
    why = judgement(small, noisy, noisier).why
    assert why == f"2 of 3 comparisons do not show it; the least margin is {interval_in_words(noisy)} number 1."
    one = judgement(small, noisier).why
    assert one == f"1 of 2 comparisons does not show it; the least margin is {interval_in_words(noisier)} number 1."


def test_reason_hides_rounding_errors() -> None:
    """Sums in another order differ by rounding errors only."""
    assert "the least margin is 0 per slot [0, 0] number 0." in judgement([1e-16, -3e-16, 2e-16]).why


def test_reason_of_one_replication_has_no_interval() -> None:
    assert "the least margin is -2 per slot [no interval] number 0." in judgement([-2.0]).why


# --- the claims on stored runs ---------------------------------------------------------------------------------------


def test_every_claim_is_judged_under_every_reading_it_applies_to(judged: list[Judgement]) -> None:
    found = [(one.claim, one.reading.key, one.policy, one.reference, one.against) for one in judged]
    both = ("tuned", "textbook")
    expected = [
        (claim, reading, role, reference, against)
        for reading in stored.POLICIES
        for role in ROLES
        for against in both
        for claim, references in (
            ("C1", ("static or contextual regret", "table regret")),
            ("C2", ("static set", "contextual values")),
            ("C5b", ("cost of a play",)),
        )
        for reference in references
    ]
    expected += [
        ("C1", key, "MP-LUCB", reference, against)
        for key in stored.ONLY_IN_MAP
        for against in both
        for reference in ("static or contextual regret", "table regret")
    ]
    expected += [
        (claim, reading, role, f"{reference} regret", f"M = 1 to {last}")
        for reading, role in stored.FIGURE_3
        for reference in ("static", "contextual", "table")
        for claim in ("C3", "C3b")
        for last in (5, 9)
    ]
    expected += [
        ("C4", key, "MP-LUCB", reference, "")
        for key in stored.LINEAR_MODEL
        for reference in ("static or contextual regret", "table regret")
    ]
    assert sorted(found) == sorted(expected)
    assert [one.claim for one in judged] == sorted(one.claim for one in judged)


COLUMNS = {
    "static or contextual regret": ("regret_static", "regret_contextual"),
    "table regret": ("regret_table",),
    "static set": ("suboptimal_static",),
    "contextual values": ("suboptimal_contextual",),
}


def lower_by(
    folder: Path, one: Judgement, preset: str, name: str, value: Callable[[Callable[[str], np.ndarray]], np.ndarray]
) -> np.ndarray:
    """Return the differences between a baseline and the policy, per replication."""
    key, tuned = one.reading.key, one.against == "tuned"
    proposed = value(lambda column: stored.proposed(folder, key, preset, one.policy, column))
    other = value(lambda column: stored.baseline(folder, key, preset, name, column, tuned=tuned))
    R = min(len(proposed), len(other))
    return other[:R] - proposed[:R]


def cost_per_play(of: Callable[[str], np.ndarray]) -> np.ndarray:
    assert np.all(of("suboptimal_static") > 0)
    return of("regret_table") / of("suboptimal_static")


def test_differences_from_the_baselines_are_those_of_the_stored_tables(judged: list[Judgement], whole: Path) -> None:
    """C1, C2 and C5b: every difference, from the stored tables."""
    checked = 0
    for one in judged:
        if one.claim not in ("C1", "C2", "C5b"):
            continue
        expected: list[list[np.ndarray]] = []  # for each comparison the differences in each of its columns
        for preset in SCENARIOS:
            for name in BASELINES:
                if one.claim == "C5b":
                    differences = [lower_by(whole, one, preset, name, cost_per_play)]
                else:
                    differences = [
                        lower_by(whole, one, preset, name, lambda of, column=column: of(column) / SIZE.horizon)
                        for column in COLUMNS[one.reference]
                    ]
                expected.append(differences)
        assert [c.what for c in one.comparisons] == [f"in {s} against {b}" for s in SCENARIOS for b in BASELINES]
        for comparison, columns in zip(one.comparisons, expected, strict=True):
            for differences in columns:
                np.testing.assert_allclose(comparison.differences, differences, rtol=0, atol=1e-9)
        assert one.verdict == ruled([columns[0] for columns in expected])
        assert one.unit == {"C1": "per slot", "C2": "plays per slot", "C5b": "per play"}[one.claim]
        checked += 1
    assert checked == len(stored.POLICIES) * 2 * 2 * 5 + len(stored.ONLY_IN_MAP) * 2 * 2


def test_comparisons_use_replications_of_both_policies(judged: list[Judgement]) -> None:
    for one in judged:
        if one.policy == "MP-NUCB":
            expected = 4 if one.reading in (MAIN, SENSED) and one.claim not in ("C3", "C3b") else 2
        elif one.reading is MAIN or (one.reading is SENSED and one.claim in ("C1", "C2", "C5b")):
            expected = 6
        elif one.claim == "C4" or one.reading.key in stored.ONLY_IN_MAP:
            expected = 2
        else:
            expected = 3
        assert one.replications == expected, (one.claim, one.reading.key, one.policy)


def test_c3_compares_successive_numbers_of_users(judged: list[Judgement], whole: Path) -> None:
    """C3 and C3b: every step from one M to the next."""
    for one in judged:
        if one.claim not in ("C3", "C3b"):
            continue
        reference = one.reference.removesuffix(" regret")
        last = int(one.against.split()[-1])
        line = one.reading.key, one.policy
        steps = [M for M in stored.USERS if last >= M]
        regret = {M: stored.with_users(whole, *line, M, f"regret_{reference}") for M in steps}
        if one.claim == "C3b":
            regret = {M: values / M for M, values in regret.items()}
        assert [c.what for c in one.comparisons] == [f"from M = {M} to {M + 2}" for M in steps[:-1]]
        expected = [(regret[M + 2] - regret[M]) / SIZE.horizon for M in steps[:-1]]
        for differences, comparison in zip(expected, one.comparisons, strict=True):
            np.testing.assert_allclose(comparison.differences, differences, rtol=0, atol=1e-9)
        assert one.verdict == ruled(expected)


def test_inner_beta_is_compared_with_both_ends(judged: list[Judgement], whole: Path) -> None:
    """C4: the beta is chosen in the tuning study and compared in the reported one."""
    for one in (one for one in judged if one.claim == "C4"):
        policy, key = stored.linear_policy(one.reading.key), one.reading.key
        inner = stored.best(whole, key, "S1", policy, "beta", GRID[1:-1])
        assert [c.what for c in one.comparisons] == [f"of beta = {inner:g} over beta = {e}" for e in ("0.1", "1000")]
        for column in COLUMNS[one.reference]:
            regret = {b: stored.at_end(whole, f"S1-{key}-beta", column, policy, beta=b) for b in GRID}
            same = all(np.ptp(values) <= 1e-9 * SIZE.horizon for values in np.transpose(list(regret.values())))
            assert one.effect != same
            assert (one.verdict == "no effect") == (key in ("printed-reward", "printed-indicator"))
            means = [values.mean() / SIZE.horizon for values in regret.values()]
            within = f"the means of the 6 betas lie within {np.ptp(means):.2g} per slot"
            assert one.note == ("the 6 betas give the same regret in every replication" if same else within)
            for comparison, end in zip(one.comparisons, (0.1, 1000.0), strict=True):
                expected = (regret[end] - regret[inner]) / SIZE.horizon
                np.testing.assert_allclose(comparison.differences, expected, rtol=0, atol=1e-9)


def test_share_of_the_genie_is_noted_where_all_states_are_observed(judged: list[Judgement], whole: Path) -> None:
    for one in (one for one in judged if one.claim == "C1"):
        if one.reading.key not in ("rca-sensed", "printed-reward", "printed-indicator"):
            assert one.note == ""
            continue
        shares = []
        for preset in SCENARIOS:
            reward, lost = (
                stored.proposed(whole, one.reading.key, preset, one.policy, column).mean()
                for column in ("reward", "regret_genie")
            )
            shares.append(reward / (reward + lost))
        ends = dict.fromkeys(
            f"{share:.1%}" for share in (min(shares), max(shares))
        )  # one value where they are equal as text
        assert one.note == f"its reward is {' to '.join(ends)} of that of the genie"
        assert one.why.endswith(f"; {one.note}.")


def test_claims_csv_contains_the_verdicts(judged: list[Judgement], whole: Path) -> None:
    with (whole / "claims.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    (worked,) = (row for row in rows if row["claim"] == "C5")
    assert (worked["reference"], worked["verdict"], worked["agree"]) == ("worked example", "holds", "")
    assert worked["why"] == WorkedExample(tuple(worked_example())).why
    assert [row["claim"] for row in rows] == sorted(row["claim"] for row in rows)
    for row, one in zip((row for row in rows if row is not worked), judged, strict=True):
        clear = 1.0 if one.reading.key == "none" else one.reading.settings.clear
        assert row == {
            "claim": one.claim,
            "reading": one.reading.key,
            "clear": str(clear),
            "noise": str(one.reading.settings.noise),
            "policy": one.policy,
            "reference": one.reference,
            "against": one.against,
            "verdict": one.verdict,
            "agree": str(one.counts.agree),
            "reversed": str(one.counts.reversed),
            "open": str(one.counts.open),
            "of_five": one.verdict_of_five,  # of six replications in the first readings
            "replications": str(one.replications),
            "why": one.why,
        }


# --- signs of the claims ---------------------------------------------------------------------------------------------


def set_to(column: str, level: float) -> Callable[[pandas.DataFrame], pandas.DataFrame]:
    """Return a column that grows towards a level with small differences between replications."""

    def change(rows: pandas.DataFrame) -> pandas.DataFrame:
        values = (level + 1e-4 * rows.replication * (1 + rows.index % 2)) * rows.t
        return rows.assign(**{column: values.astype(rows[column].dtype)})

    return change


LOWER, HIGHER = (1.0, 1.0, 1.0), (2.0, 2.0, 6.0)  # regret, sub-optimal plays, their total cost: 1 or 3 each


@pytest.mark.parametrize("reading", [MAIN, SENSED], ids=lambda reading: reading.key)
@pytest.mark.parametrize(("proposed", "baselines", "expected"), [(LOWER, HIGHER, "holds"), (HIGHER, LOWER, "fails")])
def test_lower_values_agree_with_the_claims(
    whole: Path,
    tmp_path: Path,
    proposed: tuple[float, ...],
    baselines: tuple[float, ...],
    expected: str,
    reading: Reading,
) -> None:
    """C1, C2 and C5b: the lower value agrees with the claim; exchanged, it is reversed."""
    keys = dict.fromkeys(("slot-played", reading.key))  # of the baselines, and of the policies
    kinds = ("", "-neural", "-tuning", "-gamma")
    names = {f"{preset}-{key}{what}" for preset in SCENARIOS for key in keys for what in kinds}
    folder = stored.some_studies(whole, tmp_path / "out", names.__contains__)

    def change(rows: pandas.DataFrame) -> pandas.DataFrame:
        ours = rows.policy.str.startswith(("mp-lucb", "mp-nucb"))
        for column, *levels in zip(
            ("regret_static", "suboptimal_static", "regret_table"), proposed, baselines, strict=True
        ):
            low, high = (set_to(column, level)(rows)[column] for level in levels)
            rows = rows.assign(**{column: low.where(ours, high)})
        return rows

    for name in names:
        if not name.endswith(("-tuning", "-gamma")):
            stored.rewrite(folder, name, change)
    studies = StoredStudies(folder)
    headlines = {c1: "static or contextual regret", c2: "static set", c5b: "cost of a play"}
    for claim, reference in headlines.items():
        found = [one for one in claim(studies, reading) if one.reference == reference]
        assert [(one.policy, one.against) for one in found] == [(r, a) for a in ("tuned", "textbook") for r in ROLES]
        assert {one.verdict for one in found} == {expected}, claim


def with_levels(whole: Path, folder: Path, column: str, level: Callable[[int], float]) -> StoredStudies:
    """Return studies of figure 3 whose regret depends on M only."""
    stored.some_studies(whole, folder, stored.FIGURE_3_STUDIES.fullmatch)
    for line in stored.FIGURE_3:
        for M in stored.USERS:
            stored.rewrite(folder, stored.users_study(*line, M), set_to(column, level(M)))
    return StoredStudies(folder)


@pytest.mark.parametrize(("sign", "expected"), [(1.0, "holds"), (-1.0, "fails")])
def test_c3_holds_where_regret_rises_with_users(whole: Path, tmp_path: Path, sign: float, expected: str) -> None:
    studies = with_levels(whole, tmp_path / "out", "regret_static", lambda M: sign * M**2)
    found = [one for one in c3(studies) if one.reference == "static regret"]
    assert len(found) == 3 * 2 * 2
    assert {one.verdict for one in found} == {expected}


def test_c3_where_regret_rises_up_to_five_users_only(whole: Path, tmp_path: Path) -> None:
    """It rises more slowly than M: the total rises, and divided by M it falls."""
    studies = with_levels(whole, tmp_path / "out", "regret_table", lambda M: 1 + 0.5 * (M if M <= 5 else 10 - M))
    found = {
        (one.claim, one.against, one.reading.key, one.policy): one.verdict
        for one in c3(studies)
        if one.reference == "table regret"
    }
    expected = {
        ("C3", "M = 1 to 5"): "holds",
        ("C3", "M = 1 to 9"): "fails",
        ("C3b", "M = 1 to 5"): "fails",
        ("C3b", "M = 1 to 9"): "fails",
    }
    assert found == {(*how, *line): verdict for how, verdict in expected.items() for line in stored.FIGURE_3}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((1, 2, 3, 4, 2, 1), "holds"),
        ((5, 2, 3, 4, 2, 1), "fails"),  # a small beta is better
        ((1, 2, 3, 4, 2, 5), "fails"),  # a large beta is better
    ],
)
def test_c4_holds_where_an_inner_beta_is_best(
    whole: Path, tmp_path: Path, levels: tuple[float, ...], expected: str
) -> None:
    reading = find("rca-played")
    names = [f"S1-rca-played-{what}" for what in ("tuning", "beta")]
    folder = stored.some_studies(whole, tmp_path / "out", lambda name: name in names)

    def change(rows: pandas.DataFrame) -> pandas.DataFrame:
        level = rows.beta.map(dict(zip(GRID, levels, strict=True)))
        reward = (level + 0.01 * rows.replication * (rows.beta == 10)) * rows.t
        return rows.assign(reward=reward, regret_static=5 * rows.t - reward, regret_table=7 * rows.t - reward)

    for name in names:
        stored.rewrite(folder, name, change)
    found = c4(StoredStudies(folder), reading)
    assert [one.comparisons[0].what for one in found] == ["of beta = 10 over beta = 0.1"] * 2
    assert [one.verdict for one in found] == [expected] * 2


@pytest.mark.parametrize(("spread", "verdict"), [(0.0, "no effect"), (1e-12, "no effect"), (1e-6, "undecided")])
def test_c4_where_beta_changes_nothing(whole: Path, tmp_path: Path, spread: float, verdict: str) -> None:
    """Rounding errors are no effect; a small effect without a direction is one."""
    names = [f"S1-rca-played-{what}" for what in ("tuning", "beta")]
    folder = stored.some_studies(whole, tmp_path / "out", lambda name: name in names)

    def change(rows: pandas.DataFrame) -> pandas.DataFrame:
        reward = (2.0 + spread * (-1.0) ** rows.replication * (rows.beta == 10)) * rows.t
        return rows.assign(reward=reward, regret_static=5 * rows.t - reward, regret_table=7 * rows.t - reward)

    stored.rewrite(folder, names[1], change)
    for one in c4(StoredStudies(folder), find("rca-played")):
        assert (one.verdict, one.effect) == (verdict, spread > 1e-9)


def test_cost_per_play_without_sub_optimal_plays_is_zero(whole: Path, tmp_path: Path) -> None:
    """C5b: the cost is zero, without a warning about a division by zero."""
    kept = re.compile(r"S\d-slot-played(-tuning)?")
    folder = stored.some_studies(whole, tmp_path / "out", kept.fullmatch)

    def change(rows: pandas.DataFrame) -> pandas.DataFrame:
        rows.loc[rows.policy == "mp-lucb", "suboptimal_static"] = 0
        rows.loc[rows.policy == "mp-lucb", "regret_table"] = 0.0
        return rows

    for preset in SCENARIOS:
        stored.rewrite(folder, f"{preset}-slot-played", change)
    for one in c5b(StoredStudies(folder), MAIN, ["MP-LUCB"]):
        assert all(np.all(c.differences > 0) for c in one.comparisons)


# --- the worked example ----------------------------------------------------------------------------------------------


def test_worked_example_has_the_printed_costs() -> None:
    found = {row.selection.channels: row for row in worked_example()}
    printed = {
        ("ch1", "ch2", "ch3", "ch4", "ch5"): 0.155,
        ("ch6", "ch7", "ch8", "ch9", "ch10"): 0.169,
        ("ch1", "ch2", "ch3", "ch6", "ch9"): 0.260,
        ("ch2", "ch4", "ch5", "ch8", "ch10"): 0.035,
    }
    assert {channels: row.selection.printed for channels, row in found.items()} == printed
    for channels, row in found.items():
        assert row.cost == pytest.approx(printed[channels], abs=0.001)
        assert row.suboptimal == len(set(channels) & {"ch1", "ch3", "ch6", "ch9", "ch10"})


def test_verdict_on_the_worked_example() -> None:
    """Five sub-optimal plays each, but costs of 0.324 and 0.295."""
    whole = WorkedExample(tuple(worked_example()))
    (plays1, cost1), (plays2, cost2) = whole.total("policy 1"), whole.total("policy 2")
    assert plays1 == plays2 == 5
    assert (cost1, cost2) == pytest.approx((0.324, 0.295), abs=0.001)
    assert whole.verdict == "holds"
    assert whole.why.startswith(f"with 5 and 5 sub-optimal plays the two policies lose {cost1:.3f} and {cost2:.3f}; ")
    off = max(abs(row.cost - row.selection.printed) for row in whole.rows)
    assert whole.why.endswith(f"the four printed costs agree to {off:.4f}.")


def test_wrong_worked_example_fails() -> None:
    first, second, third, fourth = worked_example()
    wrong = first._replace(selection=first.selection._replace(printed=0.157))
    assert WorkedExample((wrong, second, third, fourth)).verdict == "fails"
    more = first._replace(suboptimal=3)  # another number of plays
    assert WorkedExample((more, second, third, fourth)).verdict == "fails"
    second_policy = third.selection.policy
    alike = [row._replace(selection=row.selection._replace(policy=second_policy)) for row in (first, second)]
    assert WorkedExample((first, second, *alike)).verdict == "fails"  # the same loss


def test_every_claim_has_a_description() -> None:
    assert list(CLAIMS) == ["C1", "C2", "C3", "C3b", "C4", "C5", "C5b"]
