"""MP-Adaptive-LUCB: P(idle) of MP-Adaptive (`adaptive_index.py`) and the linear perturbation model of MP-Belief-LUCB.

Channels are ranked by the value of a play given P(idle) and the context. The expected reward of a state given the
context is that of `belief_lucb.py`.
"""

from typing import NamedTuple

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.selection import top_m
from idleband.policies import adaptive_index, belief_lucb, belief_state, perturbation_aware
from idleband.policies.adaptive_index import AdaptiveIndex
from idleband.policies.protocol import BELIEF, Feedback, Setup, Slot


class Params(NamedTuple):
    lambda_: perturbation_aware.Lambda = 0.01
    shared: perturbation_aware.Shared = False
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0


class State(NamedTuple):
    adaptive: AdaptiveIndex
    lucb: belief_lucb.State


def init(setup: Setup) -> State:
    lucb = belief_lucb.init(setup)
    return State(adaptive_index.new_adaptive_index(setup, lucb.chains.pairs.shape[2]), lucb)


@jit
def predict(setup: Setup, state: State, contexts: Floats, n_hat: Floats) -> None:
    """Predict the perturbation of every channel; contexts (K, d), n_hat (K,)."""
    belief_lucb.predict(setup, state.lucb, contexts, n_hat)


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    adaptive, lucb = state.adaptive, state.lucb
    adaptive_index.begin_slot(setup, adaptive, lucb.chains, slot)
    for k in range(setup.K):
        belief_lucb.expect_rewards(setup, lucb, slot, k)
        slot.indices[k] = adaptive_index.play_index(setup, adaptive, lucb.chains, slot, k, lucb.success.pays)
    count = top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
    adaptive_index.remember(setup, adaptive, slot, picks, count)
    return count


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    adaptive_index.observe(setup, state.adaptive, state.lucb.chains, feedback.channel, feedback.state, slot.t)
    belief_lucb.learn_perturbation(setup, state.lucb, slot, feedback)


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        belief_lucb.explain_perturbation(setup, state.lucb, k, terms)
        terms[k, BELIEF] = adaptive_index.idle_probability(setup, state.adaptive, k)


terms = belief_lucb.terms
