"""Speed on this machine: microseconds a slot on one core, each policy beside the bare loop.

The bare loop is the same scenario and the same bookkeeping with a fixed choice instead of a policy: what is left of a
policy's time above it is the policy's own. Rounds go over all of them in turn and the best time of each counts,
because other work on the machine can only make a loop slower.
"""

from time import perf_counter
from typing import Any

from idleband.arrays import Ints
from idleband.kernels.compile import jit
from idleband.policies import random
from idleband.policies.protocol import Policy, Setup, Slot
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.scenario.build import scenario
from idleband.scenario.scenario import Scenario
from idleband.simulation.run import PolicyRun


@jit
def select(setup: Setup, state: random.State, slot: Slot, picks: Ints) -> int:
    for m in range(setup.M):
        picks[m] = m
    return setup.M


ROUND = 0.5  # seconds that one round of one loop takes, at most

BARE = Policy("bare loop", "the first M channels, always", "", random.Params, random.init, select, random.update)


def microseconds(
    world: Scenario, cases: dict[str, ConfiguredPolicy], slots: int = 100_000, rounds: int = 5
) -> dict[str, float]:
    """The best time per slot of each case, in microseconds, on this thread. Of a slow one fewer slots are run."""
    best = dict.fromkeys(cases, float("inf"))
    for i in range(rounds):
        for name, case in cases.items():
            run = PolicyRun.start(world, case, slots, seed=0, replication=i)
            began = perf_counter()
            run.to(slots // 10)
            pace = (perf_counter() - began) / (slots // 10)
            count = min(slots - run.at, max(1, int(ROUND / pace)))
            began = perf_counter()
            run.to(run.at + count)
            best[name] = min(best[name], (perf_counter() - began) / count * 1e6)
    return best


def bench(slots: int = 100_000, rounds: int = 5) -> dict[str, Any]:
    """All policies of the package on S1: K = 10, M = 5, d = 8."""
    world = scenario("S1")
    own = {name: policy(name) for name, p in POLICIES.items() if p.source is None}
    times = microseconds(world, {BARE.name: ConfiguredPolicy(BARE, {}), **own}, slots, rounds)
    bare = times[BARE.name]
    return {
        "scenario": {"name": "S1", "K": world.K, "M": world.users, "d": world.dimension},
        "slots": slots,
        "rounds": rounds,
        "loops": [
            {"loop": name, "microseconds": t, "ratio_to_bare": t / bare, "slots_per_second": 1e6 / t}
            for name, t in times.items()
        ],
    }
