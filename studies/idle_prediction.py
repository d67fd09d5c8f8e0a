"""Log-loss of P(idle) on played channels, while a policy is replayed on recorded states; for studies/recordings.py.

A recording is replayed as a whole from a starting slot, circularly (the slot after the last one is the first), without
contexts. The log-loss is that of the belief that `explain` gives for the channels that are played; policies that have
no belief get nan.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import compile
from idleband.kernels.rng import POLICY, stream
from idleband.policies.protocol import BELIEF, Feedback, Policy, Setup, Slot
from idleband.policies.registry import policy

LOW, HIGH = 0.1, 1.0
EDGE = 1e-4  # beliefs are limited to EDGE and 1 - EDGE

# Placeholders: `compile.specialise` binds the functions of a policy to these names.
select: Callable[..., int] = NotImplemented
update: Callable[..., None] = NotImplemented
explain: Callable[..., None] = NotImplemented


def run(
    setup: Setup, state: Any, slot: Slot, states: Ints, start: int, picks: Ints, terms: Floats, loss: Floats
) -> None:
    """Replay all slots once from slot `start`; writes the log-loss of every slot."""
    T = states.shape[0]
    for t in range(1, T + 1):
        row = (start + t - 1) % T
        now = Slot(
            t, slot.contexts, slot.available, slot.sensed, slot.perturbations, slot.indices, slot.scratch, slot.rng
        )
        count = select(setup, state, now, picks)
        explain(setup, state, now, terms)
        for i in range(count):
            k = picks[i]
            s = states[row, k]
            belief = min(max(terms[k, BELIEF], EDGE), 1.0 - EDGE)
            loss[row] -= np.log(belief if s == 1 else 1.0 - belief)
            update(setup, state, now, Feedback(k, s, HIGH if s == 1 else LOW, np.nan))


def no_belief(setup: Setup, state: Any, slot: Slot, terms: Floats) -> None:
    terms[:, BELIEF] = np.nan


def kernel(found: Policy) -> Any:
    functions = {"select": found.select, "update": found.update, "explain": found.explain or compile.jit(no_belief)}
    return compile.specialise(run, f"idle_prediction_{found.select.__module__.replace('.', '_')}", functions)


def log_loss(name: str, states: Ints, users: int, start: int = 0, seed: int = 0) -> float:
    """Replay states (T, K), 1 = idle, with a policy; return the mean log-loss over plays, in nats."""
    configured = policy(name)
    T, K = states.shape
    setup = Setup(
        K=K, M=users, d=1, low=LOW, high=HIGH, span=1.0, h_span=1.0, h=np.tile([LOW, HIGH], (K, 1)),
        states=np.full(K, 2), good=np.tile([False, True], (K, 1)), threshold=True, measured=False, missed=np.zeros(K),
        false_alarm=np.zeros(K), switching_cost=0.0, params=configured.params,
    )  # fmt: skip
    slot = Slot(
        0, np.zeros((K, 1)), np.ones(K, np.bool_), np.full(K, -1), np.full(K, np.nan), np.zeros(K), np.zeros(2 * K),
        stream(seed, 0, POLICY),
    )  # fmt: skip
    loss = np.zeros(T)
    terms = np.full((K, 3), np.nan)
    arguments = setup, configured.policy.init(setup), slot, states, start, np.zeros(K, np.int64), terms, loss
    compile.call(kernel(configured.policy), *arguments)
    return float(loss.sum()) / (T * users)
