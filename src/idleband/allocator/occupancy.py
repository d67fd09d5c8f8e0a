"""What an allocator knows of its channels whatever the policy is: who was seen on them, and what they paid.

A channel is free or has a primary user on it. How it changes is learned from every two looks at it, however far apart
(`two_state_chain.py`), and gives the chance that it is free now. The page shows it, explanations name it, and the collision
limit goes by it: so it is the most likely value, no draw as a policy makes that explores.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.allocator.slot_kernels import AVAILABLE, BELIEVED, STATUS, UNAVAILABLE, VACATED, WITHHELD
from idleband.arrays import Flags, Floats, Ints
from idleband.kernels import logistic, two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_sum
from idleband.policies.last_observation import NEVER, LastObservation, age_of, is_news, new_last_observation, saw
from idleband.policies.protocol import Setup

LARGEST = 1e6  # of a context's entries: squares and products of such numbers are far from any limit
# The chances are found anew when there are so many times the observations they were found from: more often costs time
# and changes them by less than they are uncertain.
FRESH = 1.5

# Rows of what is kept of a decision's feedback, one column a channel; nan where nothing was reported.
REWARD, STATE, PERTURBATION = range(3)

# What is counted.
COUNTS = ("reported", "reward", "collisions", "withheld", "withheld_cost")
REPORTED, EARNED, COLLISIONS, HELD_BACK, COST = range(5)


class Occupancy(NamedTuple):
    last_observation: LastObservation  # 1: free, 0: not
    pairs: Floats  # (K, BINS, 2, 2) how often one was followed, so long after, by the other
    seen: Floats  # (K,) pairs in all
    due: Floats  # (K,) of them at which the chances are found anew
    mode: Floats  # (K, 2) logits of the chances to become free, and not free, from one slot to the next
    spread: Floats  # (K, 3) their uncertainty
    p01: Floats  # (K,) those chances
    p10: Floats  # (K,)
    belief: Floats  # (K,) chance that the channel is free
    at: Ints  # (K,) in this slot
    earned: Floats  # (K, 2) rewards while not free and while free
    plays: Floats  # (K, 2)
    ages: Floats  # (BINS,) of the bins in `pairs`
    counts: Floats  # as in COUNTS; the cost is what slots may have earned less because channels were withheld
    value: Floats  # (K,) working array: what a play may earn now
    usable: Flags  # (K,) working array: available, and not to be left
    scratch: Floats  # (2K,)


def new_occupancy(K: int) -> Occupancy:
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
def believe(watch: Occupancy, k: int, t: int) -> None:
    """The belief of channel k in slot t, from what was seen last."""
    p, q = watch.p01[k], watch.p10[k]
    settled = p / (p + q)
    watch.belief[k] = settled
    if watch.last_observation.state[k] != NEVER:
        passed = two_state_chain.power(1.0 - p - q, float(age_of(watch.last_observation, k, t)), True)
        watch.belief[k] += passed * (watch.last_observation.state[k] - settled)
    watch.at[k] = t


@jit
def see(known: Setup, watch: Occupancy, k: int, s: int, t: int) -> None:
    """Channel k was in state s in slot t; of what is older than what is known nothing is learned."""
    side = 1 if known.good[k, s] else 0
    if not is_news(watch.last_observation, k, t):
        return
    if watch.last_observation.state[k] != NEVER:
        watch.pairs[
            k, two_state_chain.bin_of(age_of(watch.last_observation, k, t)), watch.last_observation.state[k], side
        ] += 1.0
        watch.seen[k] += 1.0
    saw(watch.last_observation, k, side, t)
    if watch.seen[k] >= watch.due[k]:
        watch.due[k] = FRESH * watch.seen[k] + 8.0
        two_state_chain.fit(watch.pairs, watch.ages, k, watch.mode, watch.spread)
        watch.p01[k], watch.p10[k] = logistic.probability(watch.mode[k, 0]), logistic.probability(watch.mode[k, 1])
    watch.belief[k] = side
    watch.at[k] = t


@jit
def expected(known: Setup, watch: Occupancy, k: int) -> float:
    """What a play of channel k may earn now, by what it earned, free and not; one imagined play of each included."""
    busy = (known.low + watch.earned[k, 0]) / (1.0 + watch.plays[k, 0])
    free = (known.high + watch.earned[k, 1]) / (1.0 + watch.plays[k, 1])
    return busy + watch.belief[k] * (free - busy)


@jit
def state_for(known: Setup, k: int, r: float) -> int:
    """The state that channel k is taken to have been in, if it paid r and nobody said: of the threshold reward a good
    one if it paid more than half, else the one whose reward is nearest."""
    best, nearest = 0, np.inf
    for s in range(known.states[k]):
        if known.threshold:
            paid = known.high if known.good[k, s] else known.low
        else:
            paid = known.h[k, s]
        if abs(paid - r) < nearest:
            best, nearest = s, abs(paid - r)
    return best


# --- kernels that Python calls; `unpack` is bound ----------------------------------------------------------------------

unpack: Callable[[Any], Any] = NotImplemented


def look(
    block: Any, t: int, users: int, limit: float, x: Floats, available: Flags, vacated: Flags, sensed: Ints,
    allowed: Flags, terms: Floats,
) -> int:  # fmt: skip
    """Slot t begins: beliefs move on, `allowed` says which channels may be handed out and `terms` why. -1, or where in
    `x` the first number stands that is none, or too large; then nothing has changed."""
    known, watch = unpack(block)
    for k in range(known.K):
        for i in range(known.d):
            if not abs(x[k, i]) <= LARGEST:
                return k * known.d + i
    withheld = 0
    for k in range(known.K):
        if sensed[k] >= 0:
            see(known, watch, k, sensed[k], t)
        elif t == watch.at[k] + 1:
            watch.belief[k] = watch.p01[k] + (1.0 - watch.p01[k] - watch.p10[k]) * watch.belief[k]
            watch.at[k] = t
        else:
            believe(watch, k, t)
        status = AVAILABLE
        if not available[k]:
            status = UNAVAILABLE
        elif vacated[k]:
            status = VACATED
        elif 1.0 - watch.belief[k] > limit:
            status = WITHHELD
            withheld += 1
        allowed[k] = status == AVAILABLE
        watch.usable[k] = status in (AVAILABLE, WITHHELD)
        for i in range(BELIEVED):  # what a policy has to say, if it is asked and answers
            terms[k, i] = np.nan
        terms[k, BELIEVED] = watch.belief[k]
        terms[k, STATUS] = status
    if withheld > 0:
        watch.counts[HELD_BACK] += withheld
        for k in range(known.K):
            watch.value[k] = expected(known, watch, k)
        with_all = top_sum(watch.value, watch.usable, users, watch.scratch)
        without = top_sum(watch.value, allowed, users, watch.scratch)
        watch.counts[COST] += max(0.0, with_all - without)  # where rewards are below 0, fewer channels may earn more
    return -1


# What `receive` finds wrong.
BAD_REWARD, BAD_STATE, BAD_PERTURBATION, ALONE, CONFLICT = -1, -2, -3, -4, -5


def receive(
    block: Any, t: int, channels: Ints, rewards: Floats, states: Floats, perturbations: Floats, kept: Floats,
    news: Flags, place: Ints,
) -> int:  # fmt: skip
    """Feedback of slot t, nan where there is none. What is the first for its channel is marked as `news` and kept, with
    a state if none was reported; how many there are. Or what is wrong, at which of the channels; then nothing has
    changed."""
    known, watch = unpack(block)
    count = 0
    for i in range(channels.size):
        k, r, s, n = channels[i], rewards[i], states[i], perturbations[i]
        place[0] = i
        news[i] = False
        if np.isnan(r):
            if not (np.isnan(s) and np.isnan(n)):
                return ALONE
        elif not np.isnan(kept[REWARD, i]):
            said_else = (s != kept[STATE, i] and not np.isnan(s)) or (n != kept[PERTURBATION, i] and not np.isnan(n))
            if r != kept[REWARD, i] or said_else:
                return CONFLICT
        else:
            if not abs(r) <= LARGEST or (known.threshold and not known.low <= r <= known.high):
                return BAD_REWARD
            if not np.isnan(s) and not (0.0 <= s < known.states[k] and s == np.floor(s)):
                return BAD_STATE
            if abs(n) > LARGEST:
                return BAD_PERTURBATION
            news[i] = True
            count += 1
    for i in range(channels.size):
        if news[i]:
            k, r = channels[i], rewards[i]
            s = state_for(known, k, r) if np.isnan(states[i]) else int(states[i])
            kept[REWARD, i], kept[STATE, i], kept[PERTURBATION, i] = r, s, perturbations[i]
            side = 1 if known.good[k, s] else 0
            watch.earned[k, side] += r
            watch.plays[k, side] += 1.0
            watch.counts[REPORTED] += 1.0
            watch.counts[EARNED] += r
            watch.counts[COLLISIONS] += 1 - side
            now = watch.at[k]
            see(known, watch, k, s, t)
            if now > t:  # what was then is not what is now
                believe(watch, k, now)
    return count
