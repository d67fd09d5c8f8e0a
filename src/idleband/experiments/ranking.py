"""Policies ranked: what each earns, what that is a share of, and what it was allowed to know.

**Gap closed** = (policy - rca-m) / (oracle - rca-m): 0 is the regenerative cycle algorithm, 1 the better of
oracle-belief and oracle-whittle, which know all parameters and, as everybody else, see only what they play. It is the
ratio of two means over the same replications; its interval is that of the mean of (policy - rca-m) - gap * (oracle -
rca-m), divided by the mean of the denominator (the delta method for paired data). Where the oracle is not clearly ahead
of rca-m, or by less than half a per cent, there is no gap to close.
"""

import csv
import io
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.experiments.study import Study
from idleband.policies.protocol import KNOWLEDGE, PARAMETERS, STATES_SEEN
from idleband.policies.registry import POLICIES
from idleband.reporting.plots import Standing
from idleband.reporting.text import aligned
from idleband.simulation.simulate import Result
from idleband.simulation.statistics import interval, paired_difference

BASELINE = "rca-m"
ORACLES = ("oracle-belief", "oracle-whittle")
NEEDED = (BASELINE, *ORACLES)
LEVEL = 0.005  # of the baseline's reward: a gap that is no wider is none
REFERENCES = ("static", "contextual", "genie", "bound", "table")


@dataclass(frozen=True)
class Row:
    """One policy in one scenario: means a slot over replications, at the horizon; half widths are of 95% intervals, nan
    where one replication gives none."""

    scenario: str
    perturbation: str
    policy: str
    label: str
    knows: str  # contexts, parameters, all states; what was played is known to all
    replications: int
    horizon: int
    reward: float
    reward_pm: float
    behind: float  # the best learner's reward minus this one's, on the same paths
    behind_pm: float
    gap_closed: float  # nan: there is no gap
    gap_closed_pm: float
    share_of_bound: float  # nan: there is no bound, or none above 0
    regret_static: float
    regret_contextual: float
    regret_genie: float
    regret_bound: float
    regret_table: float
    suboptimal_static: float
    suboptimal_contextual: float
    collisions: float
    microseconds: float  # of processor time a slot, the simulated world included


def knows(result: Result, sensing: str) -> str:
    """What a policy may know, in words; a user's own may look at contexts."""
    policy = POLICIES.get(result.policy)
    known = {KNOWLEDGE[0]} if policy is None or policy.source is not None else set(policy.knows)
    if sensing == "all":
        known.add(STATES_SEEN)
    return ", ".join(["played states", *(word for word in KNOWLEDGE if word in known)])


def ranking(study: Study, labels: Collection[str] | None = None) -> list[Row]:
    """The policies of a study, or those with these labels, best first. Baseline and oracles have default parameters."""
    results = [result for result in study.results if labels is None or result.label in labels]
    rewards = {result.label: result.reward[:, -1] / result.horizon for result in results}
    told = {result.label: knows(result, study.scenario.sensing) for result in results}
    learners = [label for label in rewards if PARAMETERS not in told[label]]
    best = max(learners, key=lambda label: float(rewards[label].mean()), default=None)
    oracles = [rewards[name] for name in ORACLES if name in rewards]
    oracle = max(oracles, key=lambda reward: float(reward.mean()), default=None)
    rows = []
    for result in results:
        reward = rewards[result.label]
        last = {name: curve[:, -1] / result.horizon for name, curve in result.curves.items()}
        behind, behind_pm = math.nan, math.nan
        if best is not None:
            difference = paired_difference(rewards[best], reward)
            behind, behind_pm = difference.mean, _half(difference.mean, difference.high)
        mean = interval(reward)
        gap, gap_pm = gap_closed(reward, rewards.get(BASELINE), oracle)
        bound = float((last["regret_bound"] + reward).mean())
        rows.append(
            Row(
                scenario=study.scenario.name,
                perturbation=study.scenario.perturbation.kind,
                policy=result.policy,
                label=result.label,
                knows=told[result.label],
                replications=result.replications,
                horizon=result.horizon,
                reward=mean.mean,
                reward_pm=_half(mean.mean, mean.high),
                behind=behind,
                behind_pm=behind_pm,
                gap_closed=gap,
                gap_closed_pm=gap_pm,
                share_of_bound=mean.mean / bound if bound > 0.0 else math.nan,
                microseconds=1e6 * float(np.mean(result.seconds)) / result.horizon
                if result.seconds is not None
                else math.nan,
                **{
                    name: float(last[name].mean())
                    for name in (field.name for field in fields(Row))
                    if name.startswith(("regret", "suboptimal", "collisions"))
                },
            )
        )
    return sorted(rows, key=lambda row: -row.reward)


def gap_closed(reward: Floats, base: Floats | None, oracle: Floats | None) -> tuple[float, float]:
    """The gap closed and half its 95% interval, from rewards on the same replications; nan where there is no gap.

    >>> gap_closed(np.array([2.0, 3.0]), np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    (0.5, 0.0)
    """
    if base is None or oracle is None:
        return math.nan, math.nan
    whole = paired_difference(oracle, base)
    if (whole.replications > 1 and whole.low <= 0.0) or whole.mean <= LEVEL * abs(float(base.mean())):
        return math.nan, math.nan
    gap = float((reward - base).mean()) / whole.mean
    left = interval((reward - base) - gap * (oracle - base))
    return gap, _half(left.mean, left.high) / whole.mean


def _half(mean: float, high: float) -> float:
    return high - mean if math.isfinite(high) else math.nan


# --- for readers -----------------------------------------------------------------------------------------------------


def ranking_text(rows: Sequence[Row]) -> str:
    """The ranking of one scenario for a terminal: what is earned, and below what it is made of."""
    first = rows[0]
    earned = [["policy", "reward", "behind", "gap closed", "of bound", "knows, beside what it played"]]
    regrets = [f"regret_{name}" for name in REFERENCES if math.isfinite(getattr(first, f"regret_{name}"))]
    made = [
        [
            "policy", *(f"to {name.removeprefix('regret_')}" for name in regrets), "collisions", "sub-opt. static",
            "sub-opt. context", "us a slot",
        ]
    ]  # fmt: skip
    for row in rows:
        earned.append(
            [
                row.label,
                _with(row.reward, row.reward_pm, ".4f"),
                _with(row.behind, row.behind_pm, ".4f"),
                _with(100 * row.gap_closed, 100 * row.gap_closed_pm, ".1f", "%"),
                _with(100 * row.share_of_bound, math.nan, ".1f", "%"),
                row.knows.removeprefix("played states").removeprefix(", ") or "-",
            ]
        )
        made.append(
            [
                row.label,
                *(f"{getattr(row, name):.4f}" for name in regrets),
                f"{row.collisions:.3f}",
                f"{row.suboptimal_static:.3f}",
                f"{row.suboptimal_contextual:.3f}",
                _with(row.microseconds, math.nan, ".2f"),
            ]
        )
    count = f"{first.replications} replication{'s' * (first.replications > 1)}"
    return "\n".join(
        [
            f"{first.scenario}, perturbation {first.perturbation}: {count} of {first.horizon:,} slots; means a slot",
            "",
            aligned(earned),
            "",
            aligned(made),
        ]
    )


LEGEND = """\
behind       the best learner's reward minus this one's, on the same paths; a learner is who does not know the
             parameters, and who does may be ahead of it: below 0
gap closed   (reward - rca-m) / (oracle - rca-m), the oracle being the better of oracle-belief and oracle-whittle;
             - where the oracle is not clearly ahead of rca-m, by half a per cent
of bound     reward as a share of the most that can be earned in the long run without seeing more than what is played
to ...       regret: what is missing to the best fixed channels (static), to the best given the contexts (contextual),
             in hindsight (genie), to the bound, and to the best fixed channels in means without perturbation (table)
collisions   picks of a channel with a primary user on it; sub-optimal: picks that M other channels beat
us a slot    microseconds of processor time, set-up and the simulated world included
+-           half a 95% interval; of differences on the same paths, much narrower than those of the rewards"""


def _with(value: float, half: float, form: str, unit: str = "") -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:{form}}{unit}" + (f" +-{half:{form}}" if math.isfinite(half) else "")


def panels(tables: Sequence[Sequence[Row]]) -> dict[str, tuple[list[Standing], dict[str, float]]]:
    """Rankings of scenarios as `ranking_figure` draws them."""
    drawn = {}
    for table in tables:
        first = table[0]
        references = {name: first.reward + getattr(first, f"regret_{name}") for name in ("static", "bound", "genie")}
        standings = [Standing(row.label, row.knows, row.reward, row.reward_pm) for row in table]
        name = first.scenario.removesuffix(f"-{first.perturbation}")
        drawn[f"{name}, {first.perturbation}"] = (standings, references)
    return drawn


def ranking_csv(rows: Sequence[Row]) -> str:
    """All columns, one row a policy and scenario; empty where there is no value."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value != value else value for name, value in asdict(row).items()})
    return text.getvalue()


def ranking_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for programs: None where there is no value."""
    return [{name: None if value != value else value for name, value in asdict(row).items()} for row in rows]
