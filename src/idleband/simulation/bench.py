"""Measure the speed of policies on this machine: microseconds per slot on one core, beside the bare loop.

The bare loop is the same scenario and the same bookkeeping with a fixed selection; the difference to it is the time of
a policy. Every round runs all loops, and the best time of each counts, because other work on the machine can only make
a loop slower.
"""

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.policies import random
from idleband.policies.protocol import Policy, Setup, Slot
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.run import PolicyRun


@jit
def select(setup: Setup, state: random.State, slot: Slot, picks: Ints) -> int:
    for m in range(setup.M):
        picks[m] = m
    return setup.M


ROUND = 0.5  # longest time of one round of one loop, in seconds

BARE = Policy("bare loop", "the first M channels", "", random.Params, random.init, select, random.update)


def microseconds(
    scenario: Scenario, policies: dict[str, ConfiguredPolicy], slots: int = 100_000, rounds: int = 5
) -> dict[str, float]:
    """Return the best time per slot of each policy in microseconds, on this thread; slow policies run fewer slots."""
    best = dict.fromkeys(policies, float("inf"))
    for i in range(rounds):
        for name, configured in policies.items():
            run = PolicyRun.start(scenario, configured, slots, seed=0, replication=i)
            began = perf_counter()
            run.to(slots // 10)
            pace = (perf_counter() - began) / (slots // 10)
            count = min(slots - run.at, max(1, int(ROUND / pace)))
            began = perf_counter()
            run.to(run.at + count)
            best[name] = min(best[name], (perf_counter() - began) / count * 1e6)
    return best


def bench(policies: Iterable[ConfiguredPolicy], slots: int = 100_000, rounds: int = 5) -> dict[str, Any]:
    """Measure policies on S1: K = 10, M = 5, d = 8."""
    S1 = build_scenario("S1")
    labelled = {configured.label: configured for configured in policies}
    times = microseconds(S1, {BARE.name: ConfiguredPolicy(BARE, {}), **labelled}, slots, rounds)
    bare = times[BARE.name]
    return {
        "scenario": {"name": "S1", "K": S1.K, "M": S1.users, "d": S1.dimension},
        "slots": slots,
        "rounds": rounds,
        "loops": [
            {"loop": name, "microseconds": t, "ratio_to_bare": t / bare, "slots_per_second": 1e6 / t}
            for name, t in times.items()
        ],
    }
