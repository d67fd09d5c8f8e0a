"""Replay recorded channels with policies: share of the genie, and log-loss of P(idle) on played channels.

    python studies/idle_prediction.py TRACE.parquet [--users 5,10,20] [--starts 8] [--policies mp-adaptive,mp-belief]

A trace is replayed as a whole from several starting slots, circularly (the slot after the last one is the first). The
reward is 1 in an idle and 0.1 in a busy channel, without contexts. The genie plays min(M, idle channels) idle channels
in every slot. The log-loss is that of the belief that `explain` gives for the channels that are played; policies that
have no belief get nan. `replay` does the same for an array of states.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import idleband as ib
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


class Replay(NamedTuple):
    share: float  # idle plays, as a share of the genie's
    log_loss: float  # mean over plays, in nats; nan if the policy has no belief
    idle: Ints  # (T,) idle plays in each slot of the recording


def run(
    setup: Setup, state: Any, slot: Slot, states: Ints, start: int, picks: Ints, terms: Floats, idle: Ints, loss: Floats
) -> None:
    """Replay all slots once from slot `start`; writes idle plays and the log-loss of every slot."""
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
            idle[row] += s
            update(setup, state, now, Feedback(k, s, HIGH if s == 1 else LOW, np.nan))


def no_belief(setup: Setup, state: Any, slot: Slot, terms: Floats) -> None:
    terms[:, BELIEF] = np.nan


def kernel(found: Policy) -> Any:
    functions = {"select": found.select, "update": found.update, "explain": found.explain or compile.jit(no_belief)}
    return compile.specialise(run, f"idle_prediction_{found.select.__module__.replace('.', '_')}", functions)


def replay(name: str, states: Ints, users: int, start: int = 0, seed: int = 0, **parameters: Any) -> Replay:
    """Replay states (T, K), 1 = idle, with a policy that plays `users` channels."""
    configured = policy(name, **parameters)
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
    idle, loss = np.zeros(T, np.int64), np.zeros(T)
    terms = np.full((K, 3), np.nan)
    arguments = setup, configured.policy.init(setup), slot, states, start, np.zeros(K, np.int64), terms, idle, loss
    compile.call(kernel(configured.policy), *arguments)
    return Replay(idle.sum() / np.minimum(users, states.sum(axis=1)).sum(), loss.sum() / (T * users), idle)


def best_fixed_set(states: Ints, users: int) -> float:
    """Return the share of the genie of the best fixed set of channels in hindsight."""
    return float(np.sort(states.sum(axis=0))[-users:].sum() / np.minimum(users, states.sum(axis=1)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--users", default="5,10,20")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--policies", default="mp-stay,mp-lbt,mp-klucb,mp-swucb,mp-ts-episodes,mp-belief,mp-adaptive")
    options = parser.parse_args()
    states = np.ascontiguousarray((~ib.Trace.load(options.trace).busy).astype(np.int64))
    print("users,policy,share,standard_error,log_loss")
    for users in map(int, options.users.split(",")):
        print(f"{users},best fixed set,{best_fixed_set(states, users):.4f},,")
        for name in options.policies.split(","):
            starts = [i * len(states) // options.starts for i in range(options.starts)]
            found = [replay(name, states, users, start, seed) for seed, start in enumerate(starts)]
            shares = np.array([one.share for one in found])
            error = shares.std(ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else np.nan
            loss = np.mean([one.log_loss for one in found])
            print(f"{users},{name},{shares.mean():.4f},{error:.4f},{loss:.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
