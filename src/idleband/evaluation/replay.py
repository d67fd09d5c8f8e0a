"""What another policy would have selected in every slot of a log, given the logged feedback.

The policy runs in an allocator in which the logged selection is the incumbent's: it proposes, and learns from the
feedback of the channels that were really played, when that was reported.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import DecideRequest, Report
from idleband.arrays import Floats
from idleband.errors import InputError, counted
from idleband.evaluation.decision_log import DecisionLog
from idleband.kernels.rng import EVALUATION, stream
from idleband.policies.protocol import STATES_SEEN


def policy_selections(log: DecisionLog, given: Any, seed: int = 0) -> Floats:
    """Return the probability with which a policy selects each channel in each slot, shape (T, K).

    It is 0 or 1 unless the policy has propensities; the draws of Thompson sampling, for example, are taken as they
    come. `seed` is that of the policy's random stream.
    """
    settings = log.settings_for(given)
    policy = settings.configured.policy
    if STATES_SEEN in policy.knows and (log.sensed < 0).any():
        raise InputError(f"policy {policy.name}: observes all states before it selects; {log.place} does not have them")
    core = AllocatorCore(settings)
    learner = core.supervisor.learner
    learner.rng[...] = stream(seed, settings.replication, EVALUATION)
    reports = _reports(log)
    found = np.zeros(log.selected.shape)
    for i, slot in enumerate(log.slot.tolist()):
        played = tuple(np.flatnonzero(log.selected[i]).tolist())
        request = DecideRequest(slot, slot, int(log.users[i]), log.contexts[i], log.available[i], log.sensed[i], played)
        proposed = core.decide(request).proposed
        if proposed is None:
            raise InputError(f"policy {policy.name}: fails on {log.place}: {core.policy_failure}")
        found[i, list(proposed)] = 1.0
        if learner.propensities is not None:
            found[i] = learner.propensities
        for report in reports.get(slot, ()):
            core.learn(report)
    return found


def _reports(log: DecisionLog) -> dict[int, list[Report]]:
    """Return the logged reports by the slot after which they came; those after the last slot are left out."""
    found = defaultdict(list)
    numbers = {slot: i for i, slot in enumerate(log.slot.tolist())}
    for i, after in enumerate(log.reported_after):
        channels = np.flatnonzero(log.selected[i])
        for slot in np.unique(after[after > 0]).tolist():
            if slot not in numbers:
                raise InputError(f"{log.place}: slot {log.slot[i]}: reported_after must be a slot of the log")
            now = after[channels] == slot
            values = (log.reward[i], np.where(log.state[i] < 0, np.nan, log.state[i]), log.perturbation[i])
            found[slot].append(Report(int(log.slot[i]), *(np.where(now, one[channels], np.nan) for one in values)))
    return found


def fixed_selections(log: DecisionLog, channels: Sequence[int]) -> Floats:
    """Return the selections of a fixed set of channels: those of them that are available, at most one per user."""
    users = log.problem.users
    if len(channels) != users:
        raise InputError(f"channels: {counted(len(channels), 'channel')}; must be {users}, one per user")
    found = np.zeros(log.selected.shape)
    count = np.zeros(len(found), np.int64)
    for k in channels:
        found[:, k] = log.available[:, k] & (count < log.users)
        count += found[:, k] > 0.0
    return found
