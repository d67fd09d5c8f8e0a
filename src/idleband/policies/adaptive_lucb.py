"""MP-Adaptive-LUCB: P(idle) of MP-Adaptive (`adaptive_index.py`), and rewards with or without the context.

Two models predict the reward of a state: the linear perturbation model of MP-Belief-LUCB, given the context, and the
mean reward of MP-Adaptive (`state_rewards.py`), which ignores contexts. Channels are ranked by a weighted mean of both.
The weight follows from how well each predicted past rewards, by the fixed-share algorithm on the logarithmic loss, as
`trust` does in `mixture.py`. Where the perturbation is far from linear in the context, the linear model misjudges
channels, plays them in few contexts only, and does not find out; the weight then moves to the mean reward.
"""

import math
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import adaptive_index, belief_lucb, belief_state, perturbation_aware, state_rewards
from idleband.policies.adaptive_index import AdaptiveIndex
from idleband.policies.protocol import BELIEF, Feedback, Setup, Slot, to_unit
from idleband.policies.state_rewards import StateRewards

RATE, SHARE = 0.5, 0.001  # of the weight: learning rate, share per slot
EDGE = 0.01  # distance of predicted rewards, on [0, 1], from 0 and 1


class Params(NamedTuple):
    lambda_: perturbation_aware.Lambda = 0.01
    shared: perturbation_aware.Shared = False
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    adaptive: AdaptiveIndex
    lucb: belief_lucb.State
    rewards: StateRewards
    linear_weight: Floats  # (1,) of the linear model
    pays: Floats  # (K, S) expected reward of each state in this slot
    newest: Ints  # (1,) slot of the last selection


def init(setup: Setup) -> State:
    lucb = belief_lucb.init(setup)
    return State(
        adaptive=adaptive_index.new_adaptive_index(setup, lucb.chains.pairs.shape[2]),
        lucb=lucb,
        rewards=state_rewards.new_state_rewards(setup),
        linear_weight=np.full(1, 0.5),
        pays=np.zeros(setup.h.shape),
        newest=np.full(1, -1, np.int64),
    )


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    belief_lucb.predict(setup, state.lucb, contexts, n_hat)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    adaptive, lucb = state.adaptive, state.lucb
    state.newest[0] = slot.t
    adaptive_index.begin_slot(setup, adaptive, lucb.chains, slot)
    for k in range(setup.K):
        belief_lucb.expect_rewards(setup, lucb, slot, k)
        if belief_state.redrawn(setup, lucb.chains, k, slot.t):
            state_rewards.draw_rewards(setup, state.rewards, slot.rng, k)
        for s in range(setup.states[k]):
            mean = state.rewards.pays[k, s]
            state.pays[k, s] = mean + state.linear_weight[0] * (lucb.success.pays[k, s] - mean)
        slot.indices[k] = adaptive_index.play_index(setup, adaptive, lucb.chains, slot, k, state.pays)
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    adaptive_index.remember(setup, adaptive, slot, picks, count)
    return count


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    if state.newest[0] == slot.t:  # the predictions of earlier slots are not kept
        learn_weight(setup, state, feedback)
    adaptive_index.observe(setup, state.adaptive, state.lucb.chains, feedback.channel, feedback.state, slot.t)
    belief_lucb.learn_perturbation(setup, state.lucb, slot, feedback)
    state_rewards.learn_reward(setup, state.rewards, feedback)


@jit
def learn_weight(setup: Setup, state: State, feedback: Feedback) -> None:
    """Update the weight of the linear model with the reward of a played channel."""
    k, s = feedback.channel, feedback.state
    y = to_unit(setup, feedback.reward)
    weight = state.linear_weight[0]
    evidence = loss(setup, state.rewards.pays[k, s], y) - loss(setup, state.lucb.success.pays[k, s], y)
    weight = logistic.probability(math.log(weight / (1.0 - weight)) + RATE * evidence)
    share = SHARE / setup.M
    state.linear_weight[0] = (1.0 - share) * weight + 0.5 * share


@jit
def loss(setup: Setup, predicted: float, y: float) -> float:
    """Return the logarithmic loss of a predicted reward; y is the reward on [0, 1]. Its minimum is the mean of y."""
    p = min(max(to_unit(setup, predicted), EDGE), 1.0 - EDGE)
    return -y * math.log(p) - (1.0 - y) * math.log(1.0 - p)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        belief_lucb.explain_perturbation(setup, state.lucb, k, terms)
        terms[k, BELIEF] = adaptive_index.idle_probability(setup, state.adaptive, k)


terms = belief_lucb.terms
