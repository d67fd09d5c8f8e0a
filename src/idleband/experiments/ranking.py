"""Rank the policies of a study by reward, with what each knows and the share of the gap to an oracle that it closes.

**Gap closed** = (policy - rca-m) / (oracle - rca-m): 0 is the regenerative cycle algorithm, 1 the better of
oracle-belief and oracle-whittle, which know all parameters and observe only the channels that they play. It is the
ratio of two means over the same replications or, where a trace is replayed, over the same blocks; its interval is that
of the mean of (policy - rca-m) - gap * (oracle - rca-m), divided by the mean of the denominator (the delta method for
paired data). Where the oracle is not clearly ahead of rca-m, or by less than 0.5%, the gap closed is not defined.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields

import numpy as np

from idleband.experiments.study import Study
from idleband.policies.protocol import KNOWLEDGE, PARAMETERS, STATES_SEEN
from idleband.policies.registry import all_policies
from idleband.simulation.result import Result
from idleband.simulation.statistics import Samples

BASELINE = "rca-m"
ORACLES = ("oracle-belief", "oracle-whittle")
NEEDED = (BASELINE, *ORACLES)
LEVEL = 0.005  # smallest gap, as a share of the baseline's reward


@dataclass(frozen=True)
class Row:
    """One policy in one scenario: means per slot over replications at the horizon.

    Fields `NAME_pm` are half widths of 95% intervals, nan with a single replication.
    """

    scenario: str
    perturbation: str
    policy: str
    label: str
    knows: str  # contexts, parameters, all states, besides what was played
    replications: int
    horizon: int
    reward: float
    reward_pm: float
    behind: float  # reward of the best learner minus that of this policy, paired
    behind_pm: float
    gap_closed: float  # nan if not defined
    gap_closed_pm: float
    share_of_bound: float  # nan without an upper bound above 0
    share_of_genie: float  # nan without a genie's reward above 0
    regret_static: float
    regret_contextual: float
    regret_genie: float
    regret_bound: float
    regret_table: float
    suboptimal_static: float
    suboptimal_contextual: float
    collisions: float
    microseconds: float  # processor time per slot, the simulated environment included
    block_reference: float  # reward of the best fixed set per block of the replayed trace; nan without one
    interval: str  # method of the intervals
    blocks: int  # of the replayed recording, over which intervals are; 0: they are over replications
    user_collisions: float = math.nan  # nan with a base station
    switches: float = math.nan
    messages: float = math.nan


def knows(result: Result, sensing: str) -> str:
    """Return what a policy knows, in words; users' policies are assumed to use contexts."""
    policy = all_policies().get(result.policy)
    by_user = policy is not None and policy.decentralised  # a user's own says itself what it knows
    known = {KNOWLEDGE[0]} if policy is None or (policy.source and not by_user) else set(policy.knows)
    if sensing == "all":
        known.add(STATES_SEEN)
    return ", ".join(["played states", *(word for word in KNOWLEDGE if word in known)])


def ranking(study: Study, labels: Collection[str] | None = None) -> list[Row]:
    """Return the rows of all policies of a study, or of those with the given labels, best first.

    The gap is measured with default parameters of the baseline and the oracles.
    """
    results = [result for result in study.results if labels is None or result.label in labels]
    rewards = {result.label: result.samples("reward", per_slot=True) for result in results}
    known = {result.label: knows(result, study.scenario.sensing) for result in results}
    learners = [label for label in rewards if PARAMETERS not in known[label]]
    best = max(learners, key=lambda label: rewards[label].mean, default=None)
    oracles = [rewards[name] for name in ORACLES if name in rewards]
    oracle = max(oracles, key=lambda reward: reward.mean, default=None)
    replayed = study.scenario.recording is not None and bool(results)
    per_block = results[0].block_reference() if replayed else math.nan
    rows = []
    for result in results:
        reward = rewards[result.label]
        last = {name: curve[:, -1] / result.horizon for name, curve in result.curves.items()}
        behind, behind_pm = math.nan, math.nan
        if best is not None:
            difference = (rewards[best] - reward).interval()
            behind, behind_pm = difference.mean, _finite(difference.half_width)
        mean = reward.interval()
        gap, gap_pm = gap_closed(reward, rewards.get(BASELINE), oracle)
        genie = float((last["regret_genie"] + last["reward"]).mean())
        bound = float((last["regret_bound"] + last["reward"]).mean())
        rows.append(
            Row(
                scenario=study.scenario.name,
                perturbation=study.scenario.perturbation.kind,
                policy=result.policy,
                label=result.label,
                knows=known[result.label],
                replications=result.replications,
                horizon=result.horizon,
                reward=mean.mean,
                reward_pm=_finite(mean.half_width),
                behind=behind,
                behind_pm=behind_pm,
                gap_closed=gap,
                gap_closed_pm=gap_pm,
                share_of_bound=mean.mean / bound if bound > 0.0 else math.nan,
                microseconds=1e6 * float(np.mean(result.seconds)) / result.horizon
                if result.seconds is not None
                else math.nan,
                share_of_genie=mean.mean / genie if genie > 0.0 else math.nan,
                block_reference=per_block,
                interval=mean.method,
                blocks=mean.blocks,
                **{
                    name: float(last[name].mean())
                    for name in (field.name for field in fields(Row))
                    if name in last and name != "reward"
                },
            )
        )
    return sorted(rows, key=lambda row: -row.reward)


def gap_closed(reward: Samples, base: Samples | None, oracle: Samples | None) -> tuple[float, float]:
    """Return the gap closed and half its 95% interval, from paired rewards; nan where there is no gap.

    >>> gap_closed(*(Samples(np.array(values), 2) for values in ([2.0, 3.0], [1.0, 2.0], [3.0, 4.0])))
    (0.5, 0.0)
    """
    if base is None or oracle is None:
        return math.nan, math.nan
    whole = (oracle - base).interval()
    if (math.isfinite(whole.low) and whole.low <= 0.0) or whole.mean <= LEVEL * abs(base.mean):
        return math.nan, math.nan
    gap = (reward - base).mean / whole.mean
    left = ((reward - base) - (oracle - base) * gap).interval()
    return gap, _finite(left.half_width) / whole.mean


def _finite(half: float) -> float:
    """Return a half width; nan where there is no interval."""
    return half if math.isfinite(half) else math.nan
