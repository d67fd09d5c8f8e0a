"""Learned chains of the channels, and the belief over their present states.

p01 and p10 of a two-state channel are learned from every pair of consecutive observations, however far apart
(`two_state_chain.py`). For a channel with more states, rows of transition probabilities are learned from consecutive
slots as Dirichlet counts. Every `redraw` slots the probabilities of a channel are drawn from their posterior and held
until the next draw (Thompson sampling). The belief is propagated with the drawn probabilities from the last observed
state; with more than two states it is propagated from the previous belief.

The index of a channel follows from its belief and the reward of each state. With `look_ahead` the probability w of the
better state is replaced by the Whittle index at w, which includes the value of observing the state; for two states
only. With contexts this is not exactly the index of the channel (`whittle_lagrangian.py` computes that), but with all
parameters known it earns the same in S1 to S4, within 0.001 per slot.

With sensing errors (`setup.missed`, `setup.false_alarm`), what is observed of a two-state channel changes its belief by
Bayes' rule instead of replacing it. The filter uses expected, not drawn, probabilities, and its belief after the last
observation takes the place of the last state. Channels with more states are treated as if there were no errors.

With `forget`, observations of that many slots ago have weight 1/e, for channels whose statistics change.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic, two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, gamma, normal
from idleband.kernels.two_state_chain import UNIFORM, Prior
from idleband.kernels.whittle import whittle
from idleband.policies.last_observation import NEVER, LastObservation, age_of, is_news, new_last_observation, saw
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import Setup, Slot
from idleband.policies.sensing_errors import sensing_of

Redraw = Annotated[int, AtLeast(1, 10**9), "slots between two draws of a channel's transition probabilities"]
LookAhead = Annotated[bool, "rank by the Whittle index, which includes the value of observing the state (two states)"]
Forget = Annotated[float, AtLeast(0.0), "slots after which an observation has weight 1/e; 0: no forgetting"]

UNIFORM_SPREAD = (math.sqrt(2.0), 0.0, math.sqrt(2.0))  # of two uniform priors, in logits
FRESH = 1.02  # factor by which observations grow before a posterior is recomputed
STALE = 0.125  # fraction of `forget` after which a posterior is recomputed
MAX_BELIEF_STEPS = (
    1000  # steps by which a belief over more than two states is propagated at once; it has converged by then
)


class Chains(NamedTuple):
    last_observation: LastObservation
    # (K, BINS, 2, 2) counts of state i followed by state j, by age; two-state channels. With sensing errors
    # (K, BINS, LEVELS, 2), by level of the belief after the first observation.
    pairs: Floats
    # (K, S, S) counts of transitions between consecutive slots; channels with more states. Of a two-state channel
    # with sensing errors, rows[k, 1, 1] is the belief after the last observation.
    rows: Floats
    seen: Floats  # (K,) number of observations
    due: Floats  # (K,) number at which the posterior is recomputed
    since: Floats  # (K,) slot to which the weights of observations refer
    mode: Floats  # (K, 2) posterior of a two-state channel: logits of p01 and p10
    spread: Floats  # (K, 3) root of their covariance
    P: Floats  # (K, S, S) drawn transition probabilities
    belief: Floats  # (K, S)
    at: Ints  # (K,) slot of the belief
    begun: Ints  # (1,) first slot, in which the probabilities of every channel are drawn
    ages: Floats  # (BINS,) of the bins in `pairs`
    room: Floats  # (S,) working array


def new_chains(setup: Setup) -> Chains:
    K, S = setup.h.shape
    levels = two_state_chain.LEVELS.size if setup.missed.any() or setup.false_alarm.any() else 2
    belief = (np.arange(S) < setup.states[:, None]) / setup.states[:, None]
    return Chains(
        last_observation=new_last_observation(K),
        pairs=np.zeros((K, two_state_chain.BINS, levels, 2)),
        rows=np.zeros((K, S, S)),
        seen=np.zeros(K),
        due=np.zeros(K),
        since=np.zeros(K),
        mode=np.zeros((K, 2)),
        spread=np.tile(UNIFORM_SPREAD, (K, 1)),
        P=np.repeat(belief[:, None, :], S, axis=1),
        belief=belief.copy(),
        at=np.zeros(K, np.int64),
        begun=np.full(1, -1, np.int64),
        ages=two_state_chain.AGES.copy(),
        room=np.zeros(S),
    )


@jit
def reset_chains(setup: Setup, chains: Chains) -> None:
    """Return to what `new_chains` returns."""
    chains.last_observation.state[:] = NEVER
    chains.last_observation.slot[:] = 0
    chains.pairs[:] = 0.0
    chains.rows[:] = 0.0
    chains.seen[:] = 0.0
    chains.due[:] = 0.0
    chains.since[:] = 0.0
    chains.mode[:] = 0.0
    chains.at[:] = 0
    chains.begun[:] = -1
    for k in range(setup.K):
        chains.spread[k, 0], chains.spread[k, 1], chains.spread[k, 2] = UNIFORM_SPREAD
        for i in range(setup.h.shape[1]):
            share = 1.0 / setup.states[k] if i < setup.states[k] else 0.0
            chains.belief[k, i] = share
            for j in range(setup.h.shape[1]):
                chains.P[k, j, i] = share


@jit
def carry(setup: Setup, chains: Chains, slot: Slot) -> None:
    carry_with_prior(setup, chains, slot, UNIFORM)


@jit
def carry_with_prior(setup: Setup, chains: Chains, slot: Slot, prior: Prior) -> None:
    """Propagate beliefs to this slot and redraw the probabilities of some channels.

    Beliefs move by one step, or by more if slots were skipped or feedback was late.
    """
    if chains.begun[0] < 0:
        chains.begun[0] = slot.t
        for k in range(setup.K):
            chains.at[k] = slot.t - 1
    P, belief = chains.P, chains.belief
    for k in range(setup.K):
        if setup.states[k] == 1:
            continue
        steps = slot.t - chains.at[k]
        chains.at[k] = slot.t
        fresh = redrawn(setup, chains, k, slot.t)
        if fresh:
            draw(setup, chains, slot.rng, k, slot.t, prior)
        if setup.states[k] > 2:
            for _ in range(min(steps, MAX_BELIEF_STEPS)):
                for j in range(setup.states[k]):
                    chains.room[j] = 0.0
                    for i in range(setup.states[k]):
                        chains.room[j] += belief[k, i] * P[k, i, j]
                for j in range(setup.states[k]):
                    belief[k, j] = chains.room[j]
            continue
        rho = P[k, 1, 1] - P[k, 0, 1]
        good = belief[k, 1]
        if fresh:  # from the last observation, with the new draw
            good = P[k, 0, 1] / (1.0 - rho)
            if chains.last_observation.state[k] != NEVER:
                passed = two_state_chain.power(rho, float(age_of(chains.last_observation, k, slot.t)), True)
                good += passed * (last_belief(setup, chains, k) - good)
        elif steps == 1:
            good = P[k, 0, 1] + rho * good
        elif steps > 1:
            settled = P[k, 0, 1] / (1.0 - rho)
            good = settled + two_state_chain.power(rho, float(steps), True) * (good - settled)
        belief[k, 0] = 1.0 - good
        belief[k, 1] = good


@jit
def redrawn(setup: Setup, chains: Chains, k: int, t: int) -> bool:
    """Whether channel k gets a new draw in slot t: one after the other, so that no slot has much to do."""
    return (t + k) % setup.params.redraw == 0 or t == chains.begun[0]


@jit
def draw(setup: Setup, chains: Chains, rng: Rng, k: int, t: int, prior: Prior) -> None:
    """New transition probabilities of channel k from their posterior."""
    if setup.params.forget > 0.0 and t - chains.since[k] > STALE * setup.params.forget:
        make_posterior(setup, chains, k, t, prior)
    P = chains.P
    if setup.states[k] <= 2:
        first, second = normal(rng), normal(rng)
        spread = chains.spread
        p01 = logistic.probability(chains.mode[k, 0] + spread[k, 0] * first)
        p10 = logistic.probability(chains.mode[k, 1] + spread[k, 1] * first + spread[k, 2] * second)
        P[k, 0, 0], P[k, 0, 1] = 1.0 - p01, p01
        P[k, 1, 0], P[k, 1, 1] = p10, 1.0 - p10
        return
    for i in range(setup.states[k]):
        total = 0.0
        for j in range(setup.states[k]):
            P[k, i, j] = gamma(rng, 1.0 + chains.rows[k, i, j])
            total += P[k, i, j]
        for j in range(setup.states[k]):
            P[k, i, j] /= total


@jit
def make_posterior(setup: Setup, chains: Chains, k: int, t: int, prior: Prior) -> None:
    """Recompute the posterior of channel k and discount old observations."""
    if setup.params.forget > 0.0:
        t = max(t, int(chains.since[k]))  # feedback may be late
        keep = math.exp((chains.since[k] - t) / setup.params.forget)
        for b in range(chains.pairs.shape[1]):
            for i in range(chains.pairs.shape[2]):
                for j in range(2):
                    chains.pairs[k, b, i, j] *= keep
        if not filters(setup, chains, k):
            for i in range(setup.states[k]):
                for j in range(setup.states[k]):
                    chains.rows[k, i, j] *= keep
        chains.seen[k] *= keep
    chains.since[k] = t
    chains.due[k] = FRESH * chains.seen[k] + 1.0
    if setup.states[k] <= 2:
        sensing = sensing_of(setup, k)
        two_state_chain.fit_posterior(chains.pairs, chains.ages, k, chains.mode, chains.spread, prior, sensing)


@jit
def observe(setup: Setup, chains: Chains, k: int, s: int, t: int) -> None:
    """Record that channel k was in state s in slot t."""
    observe_with_prior(setup, chains, k, s, t, UNIFORM)


@jit
def observe_with_prior(setup: Setup, chains: Chains, k: int, s: int, t: int, prior: Prior) -> None:
    """Record that channel k was in state s in slot t, with a prior of its chain."""
    if not is_news(chains.last_observation, k, t):
        return
    before = chains.last_observation.state[k]
    if before != NEVER:
        age = age_of(chains.last_observation, k, t)
        # Otherwise the weight would overflow eventually.
        if setup.params.forget > 0.0 and t - chains.since[k] > setup.params.forget:
            make_posterior(setup, chains, k, t, prior)
        # New observations get a larger weight instead of discounting old ones, until the posterior is recomputed.
        weight = math.exp((t - chains.since[k]) / setup.params.forget) if setup.params.forget > 0.0 else 1.0
        if filters(setup, chains, k):
            two_state_chain.add_pair(chains.pairs, k, age, last_belief(setup, chains, k), s, weight)
        elif setup.states[k] <= 2:
            chains.pairs[k, two_state_chain.bin_of(age), before, s] += weight
        elif age == 1:
            chains.rows[k, before, s] += weight
        chains.seen[k] += weight
        if chains.seen[k] >= chains.due[k]:
            make_posterior(setup, chains, k, t, prior)
    w = filtered(setup, chains, k, s, t) if filters(setup, chains, k) else 0.0
    saw(chains.last_observation, k, s, t)
    chains.at[k] = t
    if filters(setup, chains, k):
        chains.belief[k, 0], chains.belief[k, 1] = 1.0 - w, w
        chains.rows[k, 1, 1] = w
        return
    for j in range(setup.states[k]):
        chains.belief[k, j] = 1.0 if j == s else 0.0


@jit
def filters(setup: Setup, chains: Chains, k: int) -> bool:
    """Return whether observations of channel k change its belief by Bayes' rule: it has two states and errors.

    If one channel has errors, pairs of all two-state channels are counted by level.
    """
    return setup.states[k] == 2 and chains.pairs.shape[2] > 2


@jit
def last_belief(setup: Setup, chains: Chains, k: int) -> float:
    """Return P(state 1) of a two-state channel after its last observation."""
    return chains.rows[k, 1, 1] if filters(setup, chains, k) else float(chains.last_observation.state[k])


@jit
def filtered(setup: Setup, chains: Chains, k: int, s: int, t: int) -> float:
    """Return P(state 1) of a two-state channel after the observation s in slot t, which is not recorded yet."""
    p01, p10 = logistic.probability(chains.mode[k, 0]), logistic.probability(chains.mode[k, 1])
    before = p01 / (p01 + p10)
    if chains.last_observation.state[k] != NEVER:
        age = age_of(chains.last_observation, k, t)
        before = two_state_chain.later(p01, p10, last_belief(setup, chains, k), age)
    return two_state_chain.given(before, sensing_of(setup, k), s)


@jit
def play_index(setup: Setup, chains: Chains, k: int, sensed: int, pays: Floats) -> float:
    """Return the index of channel k if its states pay pays[k]; `sensed` is its observed state, or -1."""
    belief, P = chains.belief, chains.P
    if sensed >= 0:
        sensing = sensing_of(setup, k)
        if setup.states[k] != 2 or not two_state_chain.with_errors(sensing):
            return pays[k, sensed]
        return pays[k, 0] + two_state_chain.given(belief[k, 1], sensing, sensed) * (pays[k, 1] - pays[k, 0])
    if setup.states[k] != 2:
        total = 0.0
        for j in range(setup.states[k]):
            total += belief[k, j] * pays[k, j]
        return total
    if pays[k, 1] >= pays[k, 0]:
        good, low, span = belief[k, 1], pays[k, 0], pays[k, 1] - pays[k, 0]
        p01, p10 = P[k, 0, 1], P[k, 1, 0]
    else:
        good, low, span = belief[k, 0], pays[k, 1], pays[k, 0] - pays[k, 1]
        p01, p10 = P[k, 1, 0], P[k, 0, 1]
    return low + span * (whittle(p01, p10, good) if setup.params.look_ahead else good)


@jit
def good_probability(setup: Setup, chains: Chains, k: int) -> float:
    """Return the probability that channel k is good in the slot of the last `carry`."""
    total = 0.0
    for j in range(setup.states[k]):
        total += chains.belief[k, j] if setup.good[k, j] else 0.0
    return total
