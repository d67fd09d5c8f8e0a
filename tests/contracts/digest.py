"""Prints, as JSON, the picks of every slot and the rewards of cases; run in a process of its own, compiled, interpreted
or in a simulated CUDA kernel.

    python -m tests.contracts.digest slots SLOTS           every case, as this process runs it
    python -m tests.contracts.digest cuda SLOTS LABEL...    inside a CUDA kernel, simulated if the environment says so

Of cases that take long interpreted fewer slots are run, or on other scenarios: `slots_interpreted` and
`places_interpreted`.
"""

import json
import sys
from typing import Any

from idleband.simulation.run import PolicyRun
from tests.contracts.cases import CASES, SCENARIOS, places_interpreted, slots_interpreted


def slot_by_slot(label: str, where: str, slots: int) -> dict[str, Any]:
    run = PolicyRun.start(SCENARIOS[where], CASES[label], slots, seed=5, replication=1)
    picks = []
    for t in range(1, slots + 1):
        run.to(t)
        picks.append([int(k) for k in run.tally.picks[: run.tally.picked[0]]])
    return {"picks": picks, "curves": run.tally.curves.tolist()}


def in_cuda(label: str, where: str, slots: int) -> dict[str, Any]:
    from idleband.simulation.cuda import run_on_gpu

    tally, _ = run_on_gpu(SCENARIOS[where], CASES[label], slots, seed=5, replications=2)
    return {"plays": tally.plays.T.tolist(), "curves": tally.curves.transpose(2, 0, 1).tolist()}


if __name__ == "__main__":
    how, slots, *labels = sys.argv[1:]
    digest = {"slots": slot_by_slot, "cuda": in_cuda}[how]
    found = {
        f"{label} on {where}": digest(label, where, slots_interpreted(label, int(slots)))
        for label in labels or CASES
        for where in places_interpreted(label)
    }
    print(json.dumps(found))
