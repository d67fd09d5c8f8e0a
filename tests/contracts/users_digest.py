"""Print, as JSON, the picks of every slot and the curves of configured decentralised policies.

It runs in a process of its own, compiled or interpreted, as the environment determines.

    python -m tests.contracts.users_digest
"""

import json
from typing import Any

from idleband.simulation.users_run import UsersRun, start_run
from tests.contracts.users_configurations import USERS, band

SLOTS = 250
WHERE = ("independent", "users arrive and leave")


def slot_by_slot(label: str, where: str) -> dict[str, Any]:
    """Return the picks and curves of a run, slot by slot."""
    run = start_run(band(label, where), USERS[label], SLOTS, seed=5, replication=1)
    assert isinstance(run, UsersRun)
    picks = []
    for t in range(1, SLOTS + 1):
        run.to(t)
        picks.append(run.tally.picks.tolist())
    return {"picks": picks, "curves": run.tally.curves.tolist()}


if __name__ == "__main__":
    print(json.dumps({label: {where: slot_by_slot(label, where) for where in WHERE} for label in USERS}))
