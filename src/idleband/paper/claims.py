"""Verdicts on the claims of the paper, under every reading to which they apply, from the stored studies.

    C1  MP-LUCB and MP-NUCB have the lowest regret in S1 to S4
    C2  they play sub-optimal channels less often
    C3  the regret rises with M in S1
    C3b the same for the regret divided by M, as figure 1 shows it
    C4  neither a small nor a large beta is best in S1
    C5  the structure of sub-optimal plays matters, not only their number: the worked example of section V-C
    C5b our own reading of "select sub-optimal arms in a more reasonable way" (section V-C): each of their sub-optimal
        plays costs less

A claim is a list of comparisons, each a paired difference over replications on the same sample paths. A comparison
*agrees* with the claim if it is positive at the 5% level, it is *reversed* if it is negative at the 5% level after
Holm's correction over all comparisons of the claim, and otherwise it is *open*. A claim *holds* if every comparison
agrees: a conjunction needs no correction. It *fails* if at least one is reversed. Otherwise it is *undecided*. The
verdict on a claim about a parameter is *no effect* if the parameter changes nothing: between all of its values the
judged quantity differs in no replication by more than 1e-9 of the reward.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats
from idleband.paper.plan import FIGURE_3, FIGURE_3_4_SCENARIO, FIGURE_3_USERS, FIGURE_4, FIGURES_1_2, SMALLER
from idleband.paper.readings import (
    BASELINES,
    GRID,
    LINEAR,
    MAP,
    PROPOSED,
    SCENARIOS,
    TEXTBOOK,
    TUNED,
    USERS,
    Reading,
)
from idleband.paper.stored import StoredStudies, final
from idleband.scenario.build import scenario
from idleband.simulation.result import Result
from idleband.simulation.statistics import Interval, p_value, paired_difference

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED, NO_EFFECT = "holds", "fails", "undecided", "no effect"
SAME = 1e-9  # differences below this share of the reward are rounding errors
PAPERS_REPLICATIONS = 5

CLAIMS = {
    "C1": "MP-LUCB and MP-NUCB have the lowest regret in S1 to S4",
    "C2": "they play sub-optimal channels less often",
    "C3": "regret rises with the number of users M in S1",
    "C3b": "regret divided by M rises with M in S1",
    "C4": "neither a small nor a large beta is best in S1",
    "C5": "the structure of sub-optimal plays matters, not only their number (the worked example)",
    "C5b": 'each of their sub-optimal plays costs less (our own reading of "a more reasonable way")',
}


class Comparison(NamedTuple):
    """One paired difference. It is positive where it agrees with the claim."""

    what: str  # "in S1 against rca-m"
    differences: Floats  # (R,) one for each replication

    @property
    def interval(self) -> Interval:
        return paired_difference(self.differences, np.zeros(len(self.differences)))

    def first(self, replications: int) -> "Comparison":
        return Comparison(self.what, self.differences[:replications])


class Counts(NamedTuple):
    """How many comparisons of a claim agree with it, are reversed, or are open."""

    agree: int
    reversed: int
    open: int

    def __str__(self) -> str:
        """Return the counts in words; those that are not named agree.

        >>> [str(Counts(*numbers)) for numbers in ((16, 0, 0), (13, 0, 3), (13, 1, 2))]
        ['16 of 16', '3 of 16 open', '1 of 16 reversed, 2 open']
        """
        total = f"of {sum(self)}"
        if self.reversed:
            return f"{self.reversed} {total} reversed" + f", {self.open} open" * bool(self.open)
        return f"{self.open} {total} open" if self.open else f"{self.agree} {total}"


class Judgement(NamedTuple):
    """A verdict with the comparisons that lead to it."""

    claim: str  # a key of CLAIMS
    reading: Reading
    policy: str  # MP-LUCB, MP-NUCB, or "" where the claim is not about a policy
    reference: str  # the compared quantity: a regret, a count or a cost
    against: str  # "tuned" or "textbook" baselines, a range of M, or ""
    comparisons: tuple[Comparison, ...]
    unit: str  # of the differences
    note: str = ""
    effect: bool = True  # whether the parameter that the claim is about changes anything

    @property
    def verdict(self) -> str:
        return verdict(self.comparisons) if self.effect else NO_EFFECT

    @property
    def counts(self) -> Counts:
        agree, contrary = sum(map(_agrees, self.comparisons)), len(reversals(self.comparisons))
        return Counts(agree, contrary, len(self.comparisons) - agree - contrary)

    @property
    def outcome(self) -> str:
        """The verdict with its counts."""
        return f"{self.verdict}, {self.counts}" if self.effect else NO_EFFECT

    @property
    def verdict_of_five(self) -> str:
        """The verdict from the first five replications, as many as the paper has; empty where there are no more."""
        if self.replications <= PAPERS_REPLICATIONS:
            return ""
        return verdict([c.first(PAPERS_REPLICATIONS) for c in self.comparisons]) if self.effect else NO_EFFECT

    @property
    def replications(self) -> int:
        return min(len(c.differences) for c in self.comparisons)

    @property
    def why(self) -> str:
        """One sentence about the comparison that decides."""
        if not self.effect:
            return f"{self.note}."
        total, found = len(self.comparisons), verdict(self.comparisons)
        deciding: Sequence[Comparison] = self.comparisons
        if found == FAILS:
            deciding = reversals(self.comparisons)
        elif found == UNDECIDED:
            deciding = [c for c in self.comparisons if not _agrees(c)]
        worst = min(deciding, key=lambda c: c.interval.mean)
        margin = f"{_signed(worst.interval.mean)} {self.unit} {_range(worst.interval)} {worst.what}"
        count = f"{len(deciding)} of {total} comparisons"
        one = len(deciding) == 1
        if found == HOLDS:
            text = f"all {total} comparisons agree; the narrowest margin is {margin}"
        elif found == FAILS:
            text = f"{count} {'is' if one else 'are'} reversed; the widest margin is {margin}"
        else:
            text = f"{count} {'does' if one else 'do'} not show it; the least margin is {margin}"
        return f"{text}{'; ' if self.note else ''}{self.note}."


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Apply the rule in the docstring of this module."""
    if all(map(_agrees, comparisons)):
        return HOLDS
    return FAILS if reversals(comparisons) else UNDECIDED


def _agrees(comparison: Comparison) -> bool:
    return comparison.interval.mean > 0 and p_value(comparison.differences) < LEVEL


def reversals(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons that contradict the claim at the 5% level, by Holm's method over all of them."""
    # A comparison that agrees counts as a test that rejects nothing.
    p = [p_value(c.differences) if c.interval.mean < 0 else 1.0 for c in comparisons]
    found = []
    for step, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[i] >= LEVEL / (len(p) - step):
            break
        found.append(comparisons[i])
    return found


def _signed(x: float) -> str:
    return f"{x:+.3g}" if abs(x) > 1e-12 else "0"  # hide rounding errors of sums that should be equal


def _range(interval: Interval) -> str:
    return f"[{_signed(interval.low)}, {_signed(interval.high)}]" if math.isfinite(interval.low) else "[no interval]"


# --- C1, C2 and C5b: against the baselines in S1 to S4 ---------------------------------------------------------------


def against_baselines(
    stored: StoredStudies,
    claim: str,
    reading: Reading,
    role: str,
    reference: str,
    value: Callable[[Result], Floats],
    unit: str,
    *,
    tuned: bool,
) -> Judgement:
    """Judge the claim that `value` is lower for the policy than for each baseline in each scenario."""
    comparisons = []
    reached = []
    for preset in SCENARIOS:
        own = stored.proposed(reading, preset, role)
        reached.append(genie_share(own))
        for name in BASELINES:
            other = stored.baseline(reading, preset, name, tuned=tuned)
            R = min(own.replications, other.replications)
            difference = value(other)[:R] - value(own)[:R]
            comparisons.append(Comparison(f"in {preset} against {name}", difference))
    note = ""
    if claim == "C1" and reading.settings.sensing == "all":
        ends = dict.fromkeys(
            f"{share:.1%}" for share in (min(reached), max(reached))
        )  # one where both round to the same
        note = f"its reward is {' to '.join(ends)} of that of the genie"
    against = TUNED if tuned else TEXTBOOK
    return Judgement(claim, reading, role, reference, against, tuple(comparisons), unit, note)


def genie_share(result: Result) -> float:
    """Return the reward as a share of that of the genie."""
    reward = final(result, "reward")
    return float(reward.mean() / (reward + final(result, "regret_genie")).mean())


def per_slot(column: str) -> Callable[[Result], Floats]:
    """Return a function that gives the mean per slot of a column, one value per replication."""
    return lambda result: final(result, column) / result.horizon


def cost_per_play(result: Result) -> Floats:
    """Return (R,) the mean cost of a sub-optimal play in the means of table II: the structure meant in section V-C."""
    plays = final(result, "suboptimal_static")
    cost = final(result, "regret_table")
    return np.divide(cost, plays, out=np.zeros_like(cost), where=plays > 0)


# The difference of static and contextual regret does not depend on the policy, so comparisons of policies are the same.
SAME_FOR_BOTH = "static or contextual regret"
REGRETS = ((SAME_FOR_BOTH, "regret_static"), ("table regret", "regret_table"))


def c1(stored: StoredStudies, reading: Reading, roles: Iterable[str] = PROPOSED) -> list[Judgement]:
    """Judge C1: the policies have the lowest regret."""
    return [
        against_baselines(stored, "C1", reading, role, name, per_slot(column), "per slot", tuned=tuned)
        for tuned in (True, False)
        for name, column in REGRETS
        for role in roles
    ]


def c2(stored: StoredStudies, reading: Reading, roles: Iterable[str] = PROPOSED) -> list[Judgement]:
    """Judge C2: the policies play sub-optimal channels less often."""
    return [
        against_baselines(stored, "C2", reading, role, name, per_slot(column), "plays per slot", tuned=tuned)
        for tuned in (True, False)
        for name, column in (("static set", "suboptimal_static"), ("contextual values", "suboptimal_contextual"))
        for role in roles
    ]


def c5b(stored: StoredStudies, reading: Reading, roles: Iterable[str] = PROPOSED) -> list[Judgement]:
    """Judge C5b: a sub-optimal play of the policies costs less."""
    return [
        against_baselines(stored, "C5b", reading, role, "cost of a play", cost_per_play, "per play", tuned=tuned)
        for tuned in (True, False)
        for role in roles
    ]


# --- C3: against M ---------------------------------------------------------------------------------------------------


def up_to(M: int) -> str:
    return f"M = 1 to {M}"


def c3(stored: StoredStudies) -> list[Judgement]:
    """Judge each step from one M to the next: up to the five users of the paper, and up to M = K - 1."""
    return [
        Judgement(
            "C3" if total else "C3b", reading, role, f"{reference} regret", up_to(last),
            tuple(_steps(stored, reading, role, f"regret_{reference}", last, total=total)), "per slot",
        )
        for last in (USERS, FIGURE_3_USERS[-1])
        for total in (True, False)
        for reference in ("static", "contextual", "table")
        for reading, role in FIGURE_3
    ]  # fmt: skip


def _steps(
    stored: StoredStudies, reading: Reading, role: str, column: str, last: int, *, total: bool
) -> list[Comparison]:
    regret = {
        M: final(result := stored.with_users(reading, role, M), column) / result.horizon / (1 if total else M)
        for M in FIGURE_3_USERS
        if last >= M
    }
    R = min(map(len, regret.values()))
    regret = {M: values[:R] for M, values in regret.items()}
    return [Comparison(f"from M = {M} to {N}", regret[N] - regret[M]) for M, N in pairwise(regret)]


# --- C4: beta --------------------------------------------------------------------------------------------------------


def c4(stored: StoredStudies, reading: Reading) -> list[Judgement]:
    """Compare an inner beta, chosen in the tuning study, with both ends of the grid in the reported study."""
    inner = stored.inner_beta(reading, FIGURE_3_4_SCENARIO)
    results = dict(zip(GRID, stored.with_beta(reading), strict=True))
    reward = np.abs([per_slot("reward")(result) for result in results.values()]).max(axis=0)  # (R,)
    found = []
    for name, column in REGRETS:
        regret = {beta: per_slot(column)(result) for beta, result in results.items()}
        comparisons = tuple(
            Comparison(f"of beta = {inner:g} over beta = {end:g}", regret[end] - regret[inner])
            for end in (GRID[0], GRID[-1])
        )
        values = np.array(list(regret.values()))  # (betas, R)
        effect = bool(np.any(np.ptp(values, axis=0) > SAME * reward))
        if effect:
            note = f"the means of the {len(GRID)} betas lie within {np.ptp(values.mean(axis=1)):.2g} per slot"
        else:
            note = f"the {len(GRID)} betas give the same regret in every replication"
        found.append(Judgement("C4", reading, LINEAR, name, "", comparisons, "per slot", note, effect))
    return found


# --- C5: the worked example of section V-C ---------------------------------------------------------------------------


class ExampleSelection(NamedTuple):
    """A selection of the worked example, and the regret printed in the paper."""

    policy: str
    channels: tuple[str, ...]
    printed: float


def _named(*numbers: int) -> tuple[str, ...]:
    """Return channel names from the numbers of the paper, which start at 1."""
    return tuple(f"ch{number}" for number in numbers)


EXAMPLE_SCENARIO = "S4"
EXAMPLE = (
    ExampleSelection("policy 1", _named(1, 2, 3, 4, 5), 0.155),
    ExampleSelection("policy 1", _named(6, 7, 8, 9, 10), 0.169),
    ExampleSelection("policy 2", _named(1, 2, 3, 6, 9), 0.260),
    ExampleSelection("policy 2", _named(2, 4, 5, 8, 10), 0.035),
)


class ExampleCost(NamedTuple):
    """A selection of the worked example with its computed cost."""

    selection: ExampleSelection
    suboptimal: int  # how many of its channels are not in the best set
    cost: float


def worked_example() -> list[ExampleCost]:
    """Compute the example from tables I and II."""
    preset = scenario(EXAMPLE_SCENARIO)
    best = {preset.channel_label(k) for k in preset.best(preset.table_means)}
    return [ExampleCost(s, len(set(s.channels) - best), preset.cost(s.channels)) for s in EXAMPLE]


class WorkedExample(NamedTuple):
    """The verdict on the worked example, which involves no random numbers."""

    rows: tuple[ExampleCost, ...]

    def total(self, policy: str) -> tuple[int, float]:
        """Return the number of sub-optimal plays and the cost of the selections of one policy."""
        own = [row for row in self.rows if row.selection.policy == policy]
        return sum(row.suboptimal for row in own), sum(row.cost for row in own)

    @property
    def verdict(self) -> str:
        (plays1, cost1), (plays2, cost2) = self.total("policy 1"), self.total("policy 2")
        right = all(abs(row.cost - row.selection.printed) < 0.001 for row in self.rows)
        return HOLDS if right and plays1 == plays2 and abs(cost1 - cost2) > 0.001 else FAILS

    @property
    def why(self) -> str:
        (plays1, cost1), (plays2, cost2) = self.total("policy 1"), self.total("policy 2")
        off = max(abs(row.cost - row.selection.printed) for row in self.rows)
        return (
            f"with {plays1} and {plays2} sub-optimal plays the two policies lose {cost1:.3f} and {cost2:.3f};"
            f" the four printed costs agree to {off:.4f}."
        )


# --- all -------------------------------------------------------------------------------------------------------------


def judge(stored: StoredStudies) -> list[Judgement]:
    """Judge every claim under every reading whose studies are stored."""
    found: list[Judgement] = []
    parts = stored.parts
    full = [*(FIGURES_1_2 if "figure1" in parts else ()), *(SMALLER if "readings" in parts else ())]
    for reading in full:
        found += [*c1(stored, reading), *c2(stored, reading), *c5b(stored, reading)]
    if "map" in parts:
        found += [one for reading in MAP if reading not in full for one in c1(stored, reading, [LINEAR])]
    if "figure3" in parts:
        found += c3(stored)
    if "figure4" in parts:
        found += [one for reading in FIGURE_4 for one in c4(stored, reading)]
    return sorted(found, key=lambda one: one.claim)
