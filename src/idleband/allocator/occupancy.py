"""Occupancy of the channels as the allocator estimates it, independently of the policy.

A channel is idle or busy. The transition probabilities of each channel are estimated from every pair of consecutive
observations, however far apart (`two_state_chain.py`), and give the probability that the channel is idle now. The
collision limit, the status and explanations use this probability. It is a point estimate, not a random draw as in
policies that explore.

With sensing errors a state is observed, but not certain. The belief is then corrected by Bayes' rule, with the long-run
share of idle slots as the prior at the last observation. The transition probabilities remain those of observed states.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.allocator.slot_kernels import AVAILABLE, OCCUPANCY_BELIEF, STATUS, UNAVAILABLE, VACATED, WITHHELD
from idleband.arrays import Flags, Floats, Ints
from idleband.kernels import logistic, two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_sum
from idleband.policies.last_observation import NEVER, LastObservation, age_of, is_news, new_last_observation, saw
from idleband.policies.protocol import Setup

MAX_NUMBER = 1e6  # size of contexts and feedback; squares and products of such numbers cannot overflow
# The transition probabilities are estimated again when the number of observations has grown by this factor. More often
# costs time and changes them by less than their uncertainty.
REFIT_FACTOR = 1.5

# Rows of the feedback of a decision, one column per channel; nan where nothing was reported.
REWARD, STATE, PERTURBATION = range(3)

# Sums over all slots; the cost is the reward that slots may have lost because channels were withheld.
COUNTS = ("reported", "reward", "collisions", "withheld", "withheld_cost")
REPORTED, EARNED, COLLISIONS, HELD_BACK, COST = range(5)


class Occupancy(NamedTuple):
    """State of the estimate. The order of the fields is part of snapshot format 1."""

    last_observation: LastObservation  # 1: idle, 0: busy
    pairs: Floats  # (K, BINS, 2, 2) number of pairs of observations, by the time between them and by both states
    seen: Floats  # (K,) number of pairs
    due: Floats  # (K,) number of pairs at which the transition probabilities are estimated again
    mode: Floats  # (K, 2) logits of the probabilities to become idle and to become busy from one slot to the next
    spread: Floats  # (K, 3) their uncertainty
    p01: Floats  # (K,) the same probabilities
    p10: Floats  # (K,)
    belief: Floats  # (K,) probability that the channel is idle
    at: Ints  # (K,) slot of the belief
    earned: Floats  # (K, 2) sum of rewards while busy and while idle
    plays: Floats  # (K, 2) number of plays while busy and while idle
    ages: Floats  # (BINS,) time between observations in each bin of `pairs`
    counts: Floats  # as in COUNTS
    value: Floats  # (K,) working array: expected reward of a play in this slot
    usable: Flags  # (K,) working array: available and not vacated
    scratch: Floats  # (2K,) working array


def new_occupancy(K: int) -> Occupancy:
    """Return the state before the first observation."""
    return Occupancy(
        last_observation=new_last_observation(K),
        pairs=np.zeros((K, two_state_chain.BINS, 2, 2)),
        seen=np.zeros(K),
        due=np.ones(K),
        mode=np.zeros((K, 2)),
        spread=np.zeros((K, 3)),
        p01=np.full(K, 0.5),
        p10=np.full(K, 0.5),
        belief=np.full(K, 0.5),
        at=np.zeros(K, np.int64),
        earned=np.zeros((K, 2)),
        plays=np.zeros((K, 2)),
        ages=two_state_chain.AGES.copy(),
        counts=np.zeros(len(COUNTS)),
        value=np.zeros(K),
        usable=np.zeros(K, np.bool_),
        scratch=np.zeros(2 * K),
    )


@jit
def update_belief(setup: Setup, occupancy: Occupancy, k: int, t: int) -> None:
    """Compute the belief of channel k in slot t from the last observation."""
    p, q = occupancy.p01[k], occupancy.p10[k]
    stationary = p / (p + q)
    if has_errors(setup, k):
        stationary = idle_share(setup, k, stationary)
    occupancy.belief[k] = stationary
    if occupancy.last_observation.state[k] != NEVER:
        decay = two_state_chain.power(1.0 - p - q, float(age_of(occupancy.last_observation, k, t)), True)
        observed = probability_idle(setup, k, occupancy.last_observation.state[k], stationary)
        occupancy.belief[k] += decay * (observed - stationary)
    occupancy.at[k] = t


@jit
def has_errors(setup: Setup, k: int) -> bool:
    """Return whether the observed state of channel k may be wrong."""
    return setup.missed[k] > 0.0 or setup.false_alarm[k] > 0.0


@jit
def idle_share(setup: Setup, k: int, observed: float) -> float:
    """Return the share of idle slots, given the share of slots in which channel k is observed as idle."""
    share = (observed - setup.missed[k]) / (1.0 - setup.missed[k] - setup.false_alarm[k])
    return min(1.0, max(0.0, share))


@jit
def probability_idle(setup: Setup, k: int, observed: int, prior: float) -> float:
    """Return the probability that channel k is idle, given its observed state and the probability before."""
    if not has_errors(setup, k):
        return float(observed)
    if_idle = 1.0 - setup.false_alarm[k] if observed == 1 else setup.false_alarm[k]
    if_busy = setup.missed[k] if observed == 1 else 1.0 - setup.missed[k]
    total = prior * if_idle + (1.0 - prior) * if_busy
    return prior * if_idle / total if total > 0.0 else float(observed)


@jit
def observe(setup: Setup, occupancy: Occupancy, k: int, s: int, t: int) -> None:
    """Learn that channel k was in state s in slot t. An observation older than the last one is ignored."""
    side = 1 if setup.good[k, s] else 0
    if not is_news(occupancy.last_observation, k, t):
        return
    if occupancy.last_observation.state[k] != NEVER:
        age_bin = two_state_chain.bin_of(age_of(occupancy.last_observation, k, t))
        occupancy.pairs[k, age_bin, occupancy.last_observation.state[k], side] += 1.0
        occupancy.seen[k] += 1.0
    saw(occupancy.last_observation, k, side, t)
    if occupancy.seen[k] >= occupancy.due[k]:
        occupancy.due[k] = REFIT_FACTOR * occupancy.seen[k] + 8.0
        two_state_chain.fit(occupancy.pairs, occupancy.ages, k, occupancy.mode, occupancy.spread)
        occupancy.p01[k] = logistic.probability(occupancy.mode[k, 0])
        occupancy.p10[k] = logistic.probability(occupancy.mode[k, 1])
    occupancy.belief[k] = side
    occupancy.at[k] = t
    if has_errors(setup, k):
        update_belief(setup, occupancy, k, t)


@jit
def expected_reward(setup: Setup, occupancy: Occupancy, k: int) -> float:
    """Return the expected reward of a play of channel k, from its mean rewards while busy and while idle.

    One play of each kind with the smallest and the largest reward is added as a prior.
    """
    busy = (setup.low + occupancy.earned[k, 0]) / (1.0 + occupancy.plays[k, 0])
    idle = (setup.high + occupancy.earned[k, 1]) / (1.0 + occupancy.plays[k, 1])
    return busy + occupancy.belief[k] * (idle - busy)


@jit
def inferred_state(setup: Setup, k: int, r: float) -> int:
    """Return the state of channel k whose reward is nearest to r.

    With the threshold reward that is a good state if r is above the middle of the reward range.
    """
    best, nearest = 0, np.inf
    for s in range(setup.states[k]):
        if setup.threshold:
            paid = setup.high if setup.good[k, s] else setup.low
        else:
            paid = setup.h[k, s]
        if abs(paid - r) < nearest:
            best, nearest = s, abs(paid - r)
    return best


# --- kernels that are called from Python; `unpack` is bound by the core -----------------------------------------------

unpack: Callable[[Any], Any] = NotImplemented


def begin_slot(
    block: Any, t: int, users: int, limit: float, contexts: Floats, available: Flags, vacated: Flags, sensed: Ints,
    allowed: Flags, terms: Floats,
) -> int:  # fmt: skip
    """Update the beliefs for slot t, and write which channels are `allowed` and their status and belief in `terms`.

    Return -1, or the position in `contexts` of the first number that is not finite or too large. Nothing has changed
    then.
    """
    setup, occupancy = unpack(block)
    for k in range(setup.K):
        for i in range(setup.d):
            if not abs(contexts[k, i]) <= MAX_NUMBER:
                return k * setup.d + i
    withheld = 0
    for k in range(setup.K):
        if sensed[k] >= 0:
            observe(setup, occupancy, k, sensed[k], t)
        elif t == occupancy.at[k] + 1 and not has_errors(setup, k):
            occupancy.belief[k] = occupancy.p01[k] + (1.0 - occupancy.p01[k] - occupancy.p10[k]) * occupancy.belief[k]
            occupancy.at[k] = t
        else:
            update_belief(setup, occupancy, k, t)
        status = AVAILABLE
        if not available[k]:
            status = UNAVAILABLE
        elif vacated[k]:
            status = VACATED
        elif 1.0 - occupancy.belief[k] > limit:
            status = WITHHELD
            withheld += 1
        allowed[k] = status == AVAILABLE
        occupancy.usable[k] = status in (AVAILABLE, WITHHELD)
        for i in range(OCCUPANCY_BELIEF):  # filled by a policy, if it answers
            terms[k, i] = np.nan
        terms[k, OCCUPANCY_BELIEF] = occupancy.belief[k]
        terms[k, STATUS] = status
    if withheld > 0:
        occupancy.counts[HELD_BACK] += withheld
        for k in range(setup.K):
            occupancy.value[k] = expected_reward(setup, occupancy, k)
        with_all = top_sum(occupancy.value, occupancy.usable, users, occupancy.scratch)
        without = top_sum(occupancy.value, allowed, users, occupancy.scratch)
        occupancy.counts[COST] += max(0.0, with_all - without)  # with negative rewards, fewer channels may earn more
    return -1


# Errors that `take_feedback` returns.
BAD_REWARD, BAD_STATE, BAD_PERTURBATION, NO_REWARD, CONFLICT = -1, -2, -3, -4, -5


def take_feedback(
    block: Any, t: int, channels: Ints, rewards: Floats, states: Floats, perturbations: Floats, feedback: Floats,
    new: Flags, place: Ints,
) -> int:  # fmt: skip
    """Check the feedback for slot t, and learn what is new.

    Entries are nan where there is no feedback. The first feedback for a channel is marked in `new` and stored in
    `feedback`, with an inferred state if none was reported. Return the number of new entries; or an error, with its
    position in `place[0]`. Nothing has changed then.
    """
    setup, occupancy = unpack(block)
    count = 0
    for i in range(channels.size):
        k, r, s, n = channels[i], rewards[i], states[i], perturbations[i]
        place[0] = i
        new[i] = False
        if np.isnan(r):
            if not (np.isnan(s) and np.isnan(n)):
                return NO_REWARD
        elif not np.isnan(feedback[REWARD, i]):
            other_state = s != feedback[STATE, i] and not np.isnan(s)
            other_perturbation = n != feedback[PERTURBATION, i] and not np.isnan(n)
            if r != feedback[REWARD, i] or other_state or other_perturbation:
                return CONFLICT
        else:
            if not abs(r) <= MAX_NUMBER or (setup.threshold and not setup.low <= r <= setup.high):
                return BAD_REWARD
            if not np.isnan(s) and not (0.0 <= s < setup.states[k] and s == np.floor(s)):
                return BAD_STATE
            if abs(n) > MAX_NUMBER:
                return BAD_PERTURBATION
            new[i] = True
            count += 1
    for i in range(channels.size):
        if new[i]:
            k, r = channels[i], rewards[i]
            s = inferred_state(setup, k, r) if np.isnan(states[i]) else int(states[i])
            feedback[REWARD, i], feedback[STATE, i], feedback[PERTURBATION, i] = r, s, perturbations[i]
            side = 1 if setup.good[k, s] else 0
            occupancy.earned[k, side] += r
            occupancy.plays[k, side] += 1.0
            occupancy.counts[REPORTED] += 1.0
            occupancy.counts[EARNED] += r
            occupancy.counts[COLLISIONS] += 1 - side
            at = occupancy.at[k]
            observe(setup, occupancy, k, s, t)
            if at > t:  # the state may have changed since
                update_belief(setup, occupancy, k, at)
    return count
