"""Print, as JSON, the picks of every slot and the rewards of configured policies.

It runs in a process of its own: compiled, interpreted, or in a simulated CUDA kernel, as the environment determines.

    python -m tests.contracts.digest slots            every configured policy
    python -m tests.contracts.digest cuda LABEL...    these, inside a CUDA kernel
"""

import json
import sys
from typing import Any

from idleband.simulation.run import PolicyRun
from tests.contracts.configurations import CONFIGURED, EVERY, scenario_interpreted, slots_interpreted

CUDA_SLOTS = 30


def slot_by_slot(label: str) -> dict[str, Any]:
    """Return the picks and curves of a run, slot by slot."""
    slots = slots_interpreted(label)
    run = PolicyRun.start(EVERY[scenario_interpreted(label)], CONFIGURED[label], slots, seed=5, replication=1)
    picks = []
    for t in range(1, slots + 1):
        run.to(t)
        picks.append([int(k) for k in run.tally.picks[: run.tally.picked[0]]])
    return {"picks": picks, "curves": run.tally.curves.tolist()}


def in_cuda(label: str) -> dict[str, Any]:
    """Return the plays and curves of a replication in a CUDA kernel."""
    from idleband.simulation.gpu.replications import Simulation

    slots = min(CUDA_SLOTS, slots_interpreted(label))
    simulation = Simulation(EVERY[scenario_interpreted(label)], CONFIGURED[label], slots, seed=5)
    ((_, batch),) = simulation.run([1], lambda slots: None)
    return {"plays": batch.plays[0].tolist(), "curves": batch.curves[0].tolist()}


if __name__ == "__main__":
    how, *labels = sys.argv[1:]
    digest = {"slots": slot_by_slot, "cuda": in_cuda}[how]
    print(json.dumps({label: digest(label) for label in labels or CONFIGURED}))
