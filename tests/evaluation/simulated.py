"""Logs of simulated allocators, with the rewards of all channels, which only a simulator knows."""

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Report
from idleband.allocator.settings import Settings
from idleband.arrays import Floats
from idleband.evaluation.decision_log import DecisionLog, LogCollector
from idleband.scenario.build import scenario
from idleband.simulation.run import ReferenceRun


class Simulated(NamedTuple):
    log: DecisionLog
    rewards: Floats  # (T, K) of all channels, played or not


def simulated(
    what: Any, policy: str, slots: int, seed: int, *, reported: float = 1.0, delay: int = 0, **more: Any
) -> Simulated:
    """Let a policy decide along a sample path.

    A play is reported with the probability `reported`, `delay` slots later.
    """
    world, rng = scenario(what), np.random.default_rng(seed)
    core = AllocatorCore(Settings.checked({"policy": policy, "scenario": world, "seed": seed, **more}))
    run = ReferenceRun.start(world, slots, seed, 0)
    collector = LogCollector(core.settings)
    rewards, waiting = np.empty((slots, world.K)), deque[Report]()
    for t in range(1, slots + 1):
        run.to(t)
        path = run.path
        rewards[t - 1] = path.rewards
        available = path.available[(t - 1) % len(path.available)]
        request = core.parse_decide(path.x, available=available, states=path.s if world.sensing == "all" else None)
        decision = core.decide(request)
        collector.decide(request, decision, core.record(t).allowed, core.propensities)
        channels = list(decision.channels)
        kept = rng.random(len(channels)) < reported
        found, states = (
            [value if keep else None for value, keep in zip(values[channels].tolist(), kept, strict=True)]
            for values in (path.rewards, path.s)
        )
        report = core.parse_report(t, found, states)
        waiting.append(report)
        if len(waiting) > delay:
            core.learn(waiting[0])
            collector.report(waiting.popleft())
    return Simulated(collector.log(f"log of {policy}"), rewards)
