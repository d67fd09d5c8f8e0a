"""Evaluate policies on the log of another one."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.channels import channel_indices, channel_label
from idleband.errors import InputError, shown
from idleband.evaluation.decision_log import DecisionLog, logging_policy
from idleband.evaluation.estimates import Estimate, Plays, effective_plays, estimate, predict_rewards
from idleband.evaluation.log_file import read_log
from idleband.evaluation.replay import fixed_selections, policy_selections
from idleband.policies.registry import policy
from idleband.validation import choice

MISSING = ("refuse", "random")
MIN_CLIP, MAX_CLIP = 1.0, 1e9


@dataclass(frozen=True)
class PolicyValue:
    """What a policy would have earned in the slots of a log, given the logged feedback.

    Attributes
    ----------
    policy : str
        The policy, or the fixed set of channels.
    ips, dr : Estimate or None
        Mean reward per slot, by inverse propensities and doubly robust, with 95% intervals. None if the policy selects
        channels whose propensity is 0.
    difference : Estimate or None
        Mean reward per slot minus that of the logging policy, doubly robust.
    bounds : tuple of float or None
        Where `dr` is None: limits of the mean reward per slot, if rewards of channels with propensity 0 are only known
        to lie between the smallest and the largest reward.
    unsupported : float
        Share of the policy's selections whose propensity is 0.
    played : float
        Share of the policy's selections that were played.
    effective_plays : float
        Number of plays of equal weight that would determine the estimate as well.
    largest_weight : float
        The largest inverse propensity that was used.
    """

    policy: str
    ips: Estimate | None
    dr: Estimate | None
    difference: Estimate | None
    bounds: tuple[float, float] | None
    unsupported: float
    played: float
    effective_plays: float
    largest_weight: float


@dataclass(frozen=True)
class Evaluation:
    """Policies evaluated on a log; `print` shows a table.

    Attributes
    ----------
    log : str
        File of the log.
    logging_policy : str
        The policy that decided, with its parameters.
    slots : int
        Number of slots with known propensities, which are evaluated.
    excluded : int
        Number of slots without propensities, in which something else decided. Policies learn from them.
    channels, users : int
        Number of channels, and of channels per slot.
    plays, unreported : int
        Number of plays in the evaluated slots, and of those without feedback.
    reward : float
        Mean reward per slot that was earned in the evaluated slots.
    missing : str
        What was assumed of plays without feedback: "refuse" or "random".
    clip : float or None
        Largest weight, if weights are clipped.
    policies : list of PolicyValue
        One for each policy.
    """

    log: str
    logging_policy: str
    slots: int
    excluded: int
    channels: int
    users: int
    plays: int
    unreported: int
    reward: float
    missing: str
    clip: float | None
    policies: list[PolicyValue]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; limits of intervals that do not exist are None."""
        found = asdict(self)
        for one in found["policies"]:
            for name in ("ips", "dr", "difference"):
                if one[name] is not None:
                    value, *limits = one[name]
                    one[name] = {"value": value, "interval": limits if math.isfinite(limits[0]) else None}
        return found

    def __str__(self) -> str:
        from idleband.evaluation.text import evaluation_text

        return evaluation_text(self)


def evaluate(
    log: str | PathLike[str] | DecisionLog,
    policies: Sequence[Any] = (),
    *,
    channels: Sequence[Sequence[Any]] = (),
    missing: str = "refuse",
    clip: float | None = None,
    seed: int = 0,
) -> Evaluation:
    """Estimate what policies would have earned in the slots of a logged allocator.

    Each policy selects in every slot and learns from the feedback of the channels that were really played. The estimate
    is of the mean reward per slot of these selections, in these slots. A policy that learns would have seen other
    feedback if its selections had been played, so its reward in service may differ.

    Parameters
    ----------
    log : path
        File that ``idleband journal export`` wrote.
    policies : list
        Policies, as `idleband.policy` accepts them.
    channels : list of lists
        Fixed sets of channels, by index or name, which are evaluated like policies.
    missing : {"refuse", "random"}
        What to do if feedback of plays is missing: refuse the log, or assume that it is missing at random, with a
        probability that depends on the channel only.
    clip : float, optional
        Largest inverse propensity; larger ones are replaced by it, which biases the estimates. By default none are.
    seed : int
        Seed of the policies' random streams.

    Returns
    -------
    Evaluation
        Estimates with intervals for each policy.

    Raises
    ------
    InputError
        If the file is not a log, if it has no propensities or the logging policy made no random choices, if feedback is
        missing, or if an argument is not valid.
    """
    choice(missing, "missing", MISSING)
    if clip is not None:
        clip = validation.number(clip, "clip", MIN_CLIP, MAX_CLIP)
    seed = validation.whole(seed, "seed", 0, 2**63 - 1)
    if isinstance(policies, str) or not isinstance(policies, Sequence):
        raise InputError(f"policies = {shown(policies)}: must be a list")
    if not policies and not channels:
        raise InputError("policies: must contain at least one policy, or channels a set of channels")
    found = log if isinstance(log, DecisionLog) else read_log(Path(log))
    known, plays, unreported = usable_plays(found, missing)
    targets = selections(found, policies, channels, seed)
    return Evaluation(
        log=found.place,
        logging_policy=logging_policy(found),
        slots=int(known.sum()),
        excluded=int((~known).sum()),
        channels=found.problem.channels,
        users=found.problem.users,
        plays=int(found.selected[known].sum()),
        unreported=unreported,
        reward=estimate(found.propensity[known], plays).ips.value,
        missing=missing,
        clip=clip,
        policies=[policy_value(label, c[known], plays, found, clip) for label, c in targets.items()],
    )


def selections(
    log: DecisionLog, policies: Sequence[Any], channels: Sequence[Sequence[Any]] = (), seed: int = 0
) -> dict[str, Floats]:
    """Return the probability with which each policy or fixed set selects each channel in each slot, by its label."""
    labels = [policy(one).label for one in policies]
    found = {label: policy_selections(log, one, seed) for label, one in zip(labels, policies, strict=True)}
    names = log.problem.channel_names
    for members in channels:
        indices = channel_indices(members, log.problem.channels, names, "channels")
        found["channels " + ",".join(channel_label(k, names) for k in indices)] = fixed_selections(log, indices)
    return found


def usable_plays(log: DecisionLog, missing: str = "refuse") -> tuple[Flags, Plays, int]:
    """Return which slots have propensities, the plays in these, and how many of them have no feedback.

    Refuses a log from which nothing can be estimated.
    """
    known = log.known
    decided = f"{log.place}: policy {logging_policy(log)}"
    how = "a policy that randomises and knows its probabilities, such as mp-random, exp3-m or whittle-q"
    if not known.any():
        raise InputError(f"{decided}: the log has no propensities; must be the log of {how}")
    p = log.propensity[known]
    if ((p <= 0.0) | (p >= 1.0)).all():
        raise InputError(f"{decided}: all propensities are 0 or 1, so that nothing can be estimated; must be {how}")
    selected, reported = log.selected[known], log.reported_after[known] > 0
    unreported = int(selected.sum() - reported.sum())
    if unreported:
        if missing == "refuse":
            raise InputError(
                f"{log.place}: {unreported:,} of {int(selected.sum()):,} plays have no feedback; missing = 'random'"
                " assumes that it is missing at random"
            )
        p = p * (reported.sum(axis=0) / np.maximum(selected.sum(axis=0), 1))
    reward = np.where(reported, log.reward[known], 0.0)
    return known, Plays(reported, p, reward, predict_rewards(log)[known]), unreported


def policy_value(label: str, c: Floats, plays: Plays, log: DecisionLog, clip: float | None = None) -> PolicyValue:
    """Return the estimates for selections `c` in the slots with known propensities."""
    total = max(float(c.sum()), 1e-300)
    outside = c * (plays.p <= 0.0)
    inside = c - outside
    found = estimate(inside, plays, clip)
    common: dict[str, Any] = {
        "policy": label,
        "unsupported": float(outside.sum()) / total,
        "played": float((c * plays.played).sum()) / total,
        "effective_plays": effective_plays(inside, plays, clip),
        "largest_weight": float(plays.weights(clip)[inside > 0.0].max(initial=0.0)),
    }
    if not outside.any():
        difference = estimate(c - log.propensity[log.known], plays, clip).dr
        return PolicyValue(ips=found.ips, dr=found.dr, difference=difference, bounds=None, **common)
    setup, share = log.problem.setup, float(outside.sum()) / len(c)
    bounds = found.dr.low + share * setup.low, found.dr.high + share * setup.high
    return PolicyValue(
        ips=None, dr=None, difference=None, bounds=bounds if math.isfinite(bounds[0]) else None, **common
    )
