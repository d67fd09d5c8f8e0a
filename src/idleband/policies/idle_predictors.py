"""Predictors of P(idle) of each channel in the next slot, as logits, which `mixture.py` combines.

For every channel k, the row x[k] of features contains:

- CHAIN: the belief of a two-state chain (`belief_state.py`) with expected instead of drawn transition probabilities;
- HISTORY: how often channels were idle after the same last state, age of the last observation and length of the run of
  equal observations (dwell times need not be geometric), counted over all channels, plus an offset of this channel;
- SHARE: the recent share of idle slots of this channel;
- NEIGHBOURS: how often a channel was idle when k - 1 and k + 1 had been observed as they were in the last slot;
- ONE: a constant;
- SURPRISE: how much more often than predicted all channels were idle in the last slots;
- NEARBY: the same for the channels up to two positions away, in the last slot.

All of them fade. Counts are limited, so that old outcomes lose weight with each new one; and what is known of one
channel loses weight with the slots in which it was not observed: by TIME / (TIME + age). Evidence from a shock
(many channels busy at once) is therefore forgotten even for channels that were not visited since.

The offset of a channel is the mode of a logistic model with a normal prior and a random walk, a Kalman filter with one
Newton step per observation. Its standard deviation says how uncertain the prediction for this channel is.

With sensing errors, all of them predict whether a channel is observed as idle.

Features are kept for the last slots in which a channel was played, so that late feedback is compared with what was
predicted then.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.logistic import probability
from idleband.policies import belief_state
from idleband.policies.belief_state import Chains, good_probability
from idleband.policies.last_observation import NEVER, age_of
from idleband.policies.pooled_chain import PooledChain, prior_of
from idleband.policies.protocol import Setup, Slot
from idleband.policies.sensing_errors import observed_idle

FEATURES = 7
CHAIN, HISTORY, SHARE, NEIGHBOURS, ONE, SURPRISE, NEARBY = range(FEATURES)

# Groups of channels, by their observation in the newest slot with feedback.
GROUPS = 3
IDLE, BUSY, UNSEEN = range(GROUPS)

AGES, RUNS = 14, 10  # bins that double: 1, 2 to 3, 4 to 7, ...
TIME = 300.0  # slots after which what is known of a channel has half its weight
MAX_COUNT = 300.0  # observations that a frequency over all channels averages, approximately
MAX_SHARE = 50.0  # observations that the share of a channel averages
MAX_VISITS = 20.0  # visits to channels that were not observed before, in the share of all of them
PARENT = 4.0  # weight of a frequency by state and age in those by state, age and run, in observations
VARIANCE = 3.0  # of the offsets of channels
WALK = 0.003  # variance that an offset gains with each observation
EDGE = 0.001  # distance of probabilities from 0 and 1
RECENT = 8  # slots without any feedback after which no channel counts as observed in the last slot
MEMORY = 8  # slots whose features are kept for late feedback

MEAN, COUNT = range(2)


class Predictors(NamedTuple):
    p01: Floats  # (K,) expected probabilities of two-state channels
    p10: Floats  # (K,)
    belief: Floats  # (K,) P(state 1) with these, without observations since slot `at`
    at: Ints  # (K,)
    newest: Ints  # (1,) newest slot with feedback
    run: Ints  # (K,) length of the run of equal observations in consecutive slots
    by_age: Floats  # (2, AGES, 2) frequency of idle by last state and age; mean and count
    by_run: Floats  # (2, AGES, RUNS, 2) and by run
    offset: Floats  # (K, GROUPS)
    variance: Floats  # (K, GROUPS)
    share: Floats  # (K, 2)
    visits: Floats  # (2,) share of idle among channels in UNSEEN
    neighbours: Floats  # (GROUPS, 3, 3, 2) by number of idle and of busy neighbours
    residual: Floats  # (K,) outcome minus prediction in the last observation
    surprise: Floats  # (3,) faded mean of residuals; their sum and number since
    x: Floats  # (K, FEATURES)
    group: Ints  # (K,)
    around: Ints  # (K,) cell in `neighbours`
    past_slot: Ints  # (MEMORY, K) slot to which the following refer
    past_x: Floats  # (MEMORY, K, FEATURES)
    past_group: Ints  # (MEMORY, K)
    past_around: Ints  # (MEMORY, K)


def new_predictors(setup: Setup) -> Predictors:
    K = setup.K
    prior_by_age = np.zeros((2, AGES, 2))
    prior_by_age[:, :, MEAN], prior_by_age[:, :, COUNT] = np.array([[0.3], [0.7]]), 1.0
    prior_neighbours = np.zeros((GROUPS, 3, 3, 2))
    prior_neighbours[..., MEAN] = np.array([0.8, 0.2, 0.5])[:, None, None]
    prior_neighbours[..., COUNT] = 1.0
    return Predictors(
        p01=np.full(K, 0.5),
        p10=np.full(K, 0.5),
        belief=np.full(K, 0.5),
        at=np.full(K, -1, np.int64),
        newest=np.full(1, -1, np.int64),
        run=np.zeros(K, np.int64),
        by_age=prior_by_age,
        by_run=np.zeros((2, AGES, RUNS, 2)),
        offset=np.zeros((K, GROUPS)),
        variance=np.full((K, GROUPS), VARIANCE),
        share=np.tile([0.5, 0.0], (K, 1)),
        visits=np.array([0.5, 1.0]),
        neighbours=prior_neighbours,
        residual=np.zeros(K),
        surprise=np.zeros(3),
        x=np.ones((K, FEATURES)),
        group=np.full(K, UNSEEN, np.int64),
        around=np.zeros(K, np.int64),
        past_slot=np.full((MEMORY, K), -1, np.int64),
        past_x=np.zeros((MEMORY, K, FEATURES)),
        past_group=np.zeros((MEMORY, K), np.int64),
        past_around=np.zeros((MEMORY, K), np.int64),
    )


@jit
def log_odds(p: float) -> float:
    """Return the logit of p, limited to that of EDGE."""
    p = min(max(p, EDGE), 1.0 - EDGE)
    return math.log(p / (1.0 - p))


@jit
def doubling_bin(n: int, bins: int) -> int:
    """Return the bin of n >= 1 among 1, 2 to 3, 4 to 7, ...

    >>> doubling_bin(1, 5), doubling_bin(3, 5), doubling_bin(4, 5), doubling_bin(1000, 5)
    (0, 1, 2, 4)
    """
    found = 0
    while n > 1 and found < bins - 1:
        n >>= 1
        found += 1
    return found


@jit
def fading(age: int) -> float:
    """Return the weight of what is known of a channel whose last observation was `age` slots ago."""
    return TIME / (TIME + max(age - 1, 0))


@jit
def uncertainty(setup: Setup, predictors: Predictors, chains: Chains, k: int, t: int) -> float:
    """Return the standard deviation of the offset of channel k, which is not observed now."""
    if chains.last_observation.state[k] == NEVER:
        return math.sqrt(VARIANCE)
    known = VARIANCE - predictors.variance[k, UNSEEN]
    return math.sqrt(VARIANCE - fading(age_of(chains.last_observation, k, t)) * known)


@jit
def predict(setup: Setup, predictors: Predictors, chains: Chains, pool: PooledChain, slot: Slot) -> None:
    """Write the features and the group of every channel in this slot; call `belief_state.carry` before."""
    x, last, t = predictors.x, chains.last_observation, slot.t
    surprise = predictors.surprise
    if surprise[2] > 0.0:
        surprise[0] = 0.5 * surprise[0] + surprise[1] / surprise[2]
        surprise[1], surprise[2] = 0.0, 0.0
    visits = predictors.visits[MEAN]
    visits_logit = log_odds(visits)
    newest = predictors.newest[0]
    if t - newest > RECENT:
        newest = -1
    for k in range(setup.K):
        seen = last.state[k] != NEVER
        idle = seen and setup.good[k, last.state[k]]
        group = UNSEEN
        if seen and last.slot[k] == newest:
            group = IDLE if idle else BUSY
        predictors.group[k] = group
        age = age_of(last, k, t) if seen else 0
        weight = fading(age)

        x[k, CHAIN] = log_odds(observed_idle(setup, k, chain_probability(setup, predictors, chains, pool, k, t)))

        history = visits_logit
        if seen:
            s, a = 1 if idle else 0, doubling_bin(age, AGES)
            r = doubling_bin(predictors.run[k], RUNS)
            count = predictors.by_run[s, a, r, COUNT]
            total = count * predictors.by_run[s, a, r, MEAN] + PARENT * predictors.by_age[s, a, MEAN]
            history = log_odds(total / (count + PARENT))
        x[k, HISTORY] = history + weight * predictors.offset[k, group]

        count = weight * predictors.share[k, COUNT]
        x[k, SHARE] = log_odds((count * predictors.share[k, MEAN] + 2.0 * visits) / (count + 2.0))

        idle_around, busy_around, nearby = 0, 0, 0.0
        for j in range(max(0, k - 2), min(setup.K, k + 3)):
            if j != k and last.state[j] != NEVER and last.slot[j] == newest:
                near = j == k - 1 or j == k + 1
                nearby += (1.0 if near else 0.5) * predictors.residual[j]
                if near and setup.good[j, last.state[j]]:
                    idle_around += 1
                elif near:
                    busy_around += 1
        predictors.around[k] = 3 * idle_around + busy_around
        x[k, NEIGHBOURS] = log_odds(predictors.neighbours[group, idle_around, busy_around, MEAN])
        x[k, SURPRISE] = surprise[0]
        x[k, NEARBY] = nearby


@jit
def chain_probability(setup: Setup, predictors: Predictors, chains: Chains, pool: PooledChain, k: int, t: int) -> float:
    """Return P(idle) of channel k with expected transition probabilities.

    With more than two states it is that of the drawn probabilities, because rows are learned as Dirichlet counts.
    """
    if setup.states[k] != 2:
        return good_probability(setup, chains, k)
    if chains.last_observation.state[k] == NEVER:
        prior = prior_of(setup, pool, k)
        p01, p10 = probability(prior[0]), probability(prior[1])
        predictors.p01[k], predictors.p10[k] = p01, p10
        belief = p01 / (p01 + p10)
    else:
        p01, p10 = predictors.p01[k], predictors.p10[k]
        belief = two_state_chain.later(p01, p10, predictors.belief[k], t - predictors.at[k])
    predictors.belief[k] = belief
    predictors.at[k] = t
    return (belief if setup.good[k, 1] else 0.0) + (1.0 - belief if setup.good[k, 0] else 0.0)


@jit
def remember(predictors: Predictors, k: int, t: int) -> int:
    """Keep the features of channel k, which is played in slot t; return the row of the memory."""
    row = t % MEMORY
    predictors.past_slot[row, k] = t
    predictors.past_group[row, k] = predictors.group[k]
    predictors.past_around[row, k] = predictors.around[k]
    for i in range(FEATURES):
        predictors.past_x[row, k, i] = predictors.x[k, i]
    return row


@jit
def average(cell: Floats, y: float, most: float) -> None:
    """Add an outcome to a mean that counts at most `most` outcomes."""
    cell[COUNT] = min(most, cell[COUNT] + 1.0)
    cell[MEAN] += (y - cell[MEAN]) / cell[COUNT]


@jit
def learn_state(setup: Setup, predictors: Predictors, chains: Chains, k: int, y: float, t: int) -> None:
    """Learn that channel k was idle (y = 1) or busy (y = 0) in slot t, before `chains` do."""
    last = chains.last_observation
    predictors.newest[0] = max(predictors.newest[0], t)
    run = 1
    if last.state[k] != NEVER:
        before, age = setup.good[k, last.state[k]], age_of(last, k, t)
        s, a, r = 1 if before else 0, doubling_bin(age, AGES), doubling_bin(predictors.run[k], RUNS)
        average(predictors.by_age[s, a], y, MAX_COUNT)
        average(predictors.by_run[s, a, r], y, MAX_COUNT)
        weight = fading(age)
        predictors.share[k, COUNT] *= weight
        for group in range(GROUPS):
            predictors.offset[k, group] *= weight
            predictors.variance[k, group] = VARIANCE + weight * (predictors.variance[k, group] - VARIANCE)
        if before == (y > 0.5) and age <= 2:
            run = predictors.run[k] + 1
    predictors.run[k] = run
    average(predictors.share[k], y, MAX_SHARE)


@jit
def learn_prediction(predictors: Predictors, row: int, k: int, y: float, predicted: float) -> None:
    """Learn the outcome of a play whose features are in this row of the memory, and the mixture's prediction then."""
    group, around = predictors.past_group[row, k], predictors.past_around[row, k]
    predictors.residual[k] = y - predicted
    predictors.surprise[1] += y - predicted
    predictors.surprise[2] += 1.0
    by_history = probability(predictors.past_x[row, k, HISTORY])
    variance = predictors.variance[k, group]
    variance /= 1.0 + variance * by_history * (1.0 - by_history)
    predictors.offset[k, group] += variance * (y - by_history)
    predictors.variance[k, group] = min(VARIANCE, variance + WALK)
    average(predictors.neighbours[group, around // 3, around % 3], y, MAX_COUNT)
    if group == UNSEEN:
        average(predictors.visits, y, MAX_VISITS)


@jit
def learn_chain(setup: Setup, predictors: Predictors, chains: Chains, k: int, t: int) -> None:
    """Take over the fitted chain of a two-state channel and its belief, after `chains` have observed it."""
    predictors.belief[k], predictors.at[k] = belief_state.last_belief(setup, chains, k), t
    predictors.p01[k], predictors.p10[k] = probability(chains.mode[k, 0]), probability(chains.mode[k, 1])
