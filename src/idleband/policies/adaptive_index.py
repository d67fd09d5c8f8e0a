"""Index of a channel from an adaptive mixture of predictors of P(idle), for mp-adaptive and mp-adaptive-lucb.

P(idle) is a compromise, in logits, between the mixture of `idle_predictors.py` and the belief of a two-state chain: the
chain has the weight `trust` (`mixture.py`). So a channel that behaves like a two-state chain is ranked as mp-belief
ranks it: with drawn transition probabilities (Thompson sampling) and look-ahead (Whittle index).

Where the chain is not trusted there is no model to look ahead with. Instead, with the weight 1 - trust, a channel that
was not observed in the last slot gets EXPLORE standard deviations of its offset added to its logit, and a channel that
was idle in the last slot gets STAY: exploration should replace busy channels rather than idle ones. A channel that is
expected to become busy gets less: all of STAY at P(idle) = 1/2 and above, nothing at a logit of -1 and below. Without
this limit, channels that alternate were kept too long: in S4 with Weibull dwell times it cost 5% of the reward.

With a switching cost c, a channel that was played in the slot before gets c (p01 + p10) added to its index: the cost
is paid once, and the difference between two channels lasts for about 1 / (p01 + p10) slots. At most
MAX_STAYING of the range of rewards is added, so that a lasting difference leads to a switch even where c is large.
"""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.logistic import probability
from idleband.kernels.two_state_chain import with_errors
from idleband.kernels.whittle import whittle
from idleband.policies import belief_state, idle_predictors, mixture, pooled_chain
from idleband.policies.belief_state import Chains
from idleband.policies.idle_predictors import CHAIN, HISTORY, IDLE, MEMORY, SHARE, UNSEEN, Predictors, log_odds
from idleband.policies.last_observation import NEVER, age_of, is_news
from idleband.policies.mixture import Mixture
from idleband.policies.pooled_chain import PooledChain
from idleband.policies.protocol import Setup, Slot
from idleband.policies.sensing_errors import idle_given, observed_idle, sensing_of, truly_idle

# Chosen on parts, thinned versions and other thresholds of two recordings, on noise cut into channels, and on simulated
# semi-Markov and changing channels. EXPLORE from 2 to 3 and STAY from 4.5 to 6 earn the same there, within 0.0005.
EXPLORE = 2.0  # standard deviations added to the logit of a channel that is not observed now
STAY = 4.5  # added to the logit of a channel that was idle in the last slot, if it probably still is
MAX_STAYING = 0.3  # of the range of rewards, added to the index of a channel because switching has a cost


class AdaptiveIndex(NamedTuple):
    pool: PooledChain
    predictors: Predictors
    mixture: Mixture
    played: Ints  # (K,) last slot in which a channel was selected
    slots: Ints  # (2,) this slot and the one before in which channels were selected


def new_adaptive_index(setup: Setup, levels: int) -> AdaptiveIndex:
    """Return the state before the first slot; `levels` is that of `Chains.pairs`."""
    prior = np.zeros((idle_predictors.GROUPS, idle_predictors.FEATURES))
    prior[:, CHAIN], prior[:, HISTORY], prior[:, SHARE] = 0.4, 0.4, 0.2
    return AdaptiveIndex(
        pool=pooled_chain.new_pooled_chain(levels),
        predictors=idle_predictors.new_predictors(setup),
        mixture=mixture.new_mixture(setup.K, prior, MEMORY),
        played=np.full(setup.K, -1, np.int64),
        slots=np.full(2, -1, np.int64),
    )


@jit
def begin_slot(setup: Setup, index: AdaptiveIndex, chains: Chains, slot: Slot) -> None:
    """Propagate beliefs to this slot and predict the state of every channel."""
    belief_state.carry(setup, chains, slot)
    predictors = index.predictors
    idle_predictors.predict(setup, predictors, chains, index.pool, slot)
    for k in range(setup.K):
        index.mixture.logit[k] = mixture.mix(index.mixture, predictors.group[k], predictors.x, k)
    if slot.t != index.slots[0]:
        index.slots[1], index.slots[0] = index.slots[0], slot.t


@jit
def idle_probability(setup: Setup, index: AdaptiveIndex, k: int) -> float:
    """Return P(idle) of channel k in the slot of the last `begin_slot`."""
    mixed = index.mixture.logit[k]
    observed = probability(mixed + index.mixture.trust[0] * (index.predictors.x[k, CHAIN] - mixed))
    return truly_idle(setup, k, observed)


@jit
def play_index(setup: Setup, index: AdaptiveIndex, chains: Chains, slot: Slot, k: int, pays: Floats) -> float:
    """Return the index of channel k if its states pay pays[k]."""
    sensed = slot.sensed[k]
    if sensed >= 0 and not (setup.states[k] == 2 and with_errors(sensing_of(setup, k))):
        return pays[k, sensed] + staying_value(setup, index, k)
    predictors, trust = index.predictors, index.mixture.trust[0]
    drawn = log_odds(observed_idle(setup, k, belief_state.good_probability(setup, chains, k)))
    logit = index.mixture.logit[k]
    logit += trust * (drawn - logit)
    if predictors.group[k] == IDLE:
        logit += (1.0 - trust) * STAY * min(1.0, max(0.0, 1.0 + logit))
    elif predictors.group[k] == UNSEEN:
        logit += (1.0 - trust) * EXPLORE * idle_predictors.uncertainty(setup, predictors, chains, k, slot.t)
    idle = truly_idle(setup, k, probability(logit))
    if sensed >= 0:
        idle = idle_given(setup, k, idle, sensed)
    # Expected reward of idle and of busy states: with more than two, those of a kind in proportion to the belief.
    total_idle, weight_idle, total_busy, weight_busy = 0.0, 0.0, 0.0, 0.0
    for s in range(setup.states[k]):
        weight = chains.belief[k, s] + 1e-9
        if setup.good[k, s]:
            total_idle += weight * pays[k, s]
            weight_idle += weight
        else:
            total_busy += weight * pays[k, s]
            weight_busy += weight
    if weight_idle == 0.0 or weight_busy == 0.0:
        return (total_idle + total_busy) / (weight_idle + weight_busy) + staying_value(setup, index, k)
    low = total_busy / weight_busy
    span = total_idle / weight_idle - low
    if sensed < 0 and setup.states[k] == 2 and setup.params.look_ahead and span > 0.0:
        good = 1 if setup.good[k, 1] else 0
        idle += trust * (whittle(chains.P[k, 1 - good, good], chains.P[k, good, 1 - good], idle) - idle)
    return low + span * idle + staying_value(setup, index, k)


@jit
def staying_value(setup: Setup, index: AdaptiveIndex, k: int) -> float:
    """Return what is added to the index of a channel that was played in the slot before."""
    if setup.switching_cost == 0.0 or index.slots[1] < 0 or index.played[k] != index.slots[1]:
        return 0.0
    value = setup.switching_cost * (index.predictors.p01[k] + index.predictors.p10[k])
    return min(value, MAX_STAYING * (setup.high - setup.low))


@jit
def remember(setup: Setup, index: AdaptiveIndex, slot: Slot, picks: Ints, count: int) -> None:
    """Keep what was predicted for the selected channels."""
    for i in range(count):
        k = picks[i]
        index.played[k] = slot.t
        row = idle_predictors.remember(index.predictors, k, slot.t)
        index.mixture.past_logit[row, k] = index.mixture.logit[k]


@jit
def observe(setup: Setup, index: AdaptiveIndex, chains: Chains, k: int, s: int, t: int) -> None:
    """Learn that channel k was in state s in slot t."""
    last, predictors = chains.last_observation, index.predictors
    if not is_news(last, k, t):
        return
    good = setup.good[k, s]
    y = 1.0 if good else 0.0
    if setup.states[k] == 2 and last.state[k] != NEVER:
        before = belief_state.last_belief(setup, chains, k)
        before = before if setup.good[k, 1] else 1.0 - before
        pooled_chain.add_pair(setup, index.pool, chains.ages, k, age_of(last, k, t), before, good)
    idle_predictors.learn_state(setup, predictors, chains, k, y, t)
    belief_state.observe_with_prior(setup, chains, k, s, t, pooled_chain.prior_of(setup, index.pool, k))
    if setup.states[k] == 2:
        idle_predictors.learn_chain(setup, predictors, chains, k, t)
    row = t % MEMORY
    if predictors.past_slot[row, k] != t:  # feedback later than MEMORY slots, or for a channel that was not selected
        return
    mixed, x = index.mixture.past_logit[row, k], predictors.past_x[row]
    idle_predictors.learn_prediction(predictors, row, k, y, probability(mixed))
    mixture.learn_trust(index.mixture, mixed, x[k, CHAIN], y, setup.M)
    mixture.learn(index.mixture, predictors.past_group[row, k], x, k, y)
