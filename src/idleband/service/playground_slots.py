"""Single slots of users without a base station for the page: who plays which channel, and what each user earns."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound
from idleband.simulation.path import path_parameters
from idleband.simulation.run import PolicyRun
from idleband.simulation.users_loop import MESSAGES, REWARD, SWITCHES, USER_CURVES
from idleband.simulation.users_run import UsersRun

MAX_SLOTS = 20_000  # first slots of a run, which are recorded
MAX_ENTRIES = 600_000  # entries of users and channels over all recorded slots
SLOTS_PER_MESSAGE = 100
ENTRIES_PER_MESSAGE = 20_000

AnyRun = PolicyRun | UsersRun


class SlotRecorder:
    """Runs policies of the same replication slot by slot over the first slots, and returns what happens in each.

    The policies of users are recorded with the channel and the reward of each user, those of a base station, which
    stand beside them for comparison, with the reward of the slot.
    """

    def __init__(self, scenario: Scenario, runs: Mapping[str, AnyRun], horizon: int) -> None:
        given = scenario.uncoordinated
        assert given is not None
        self._scenario, self._runs = scenario, runs
        self._always_present = given.always_present
        per_slot = scenario.users * len(runs) + scenario.K
        self.slots = min(horizon, MAX_SLOTS, max(1, MAX_ENTRIES // per_slot))
        self._step = max(1, min(SLOTS_PER_MESSAGE, ENTRIES_PER_MESSAGE // per_slot))
        self.at = 0

    def begin(self) -> dict[str, Any]:
        """Return what the page needs to know before the first slot."""
        scenario = self._scenario
        return {
            "kind": "users",
            "users": scenario.users,
            "channels": list(scenario.channel_names or map(str, range(scenario.K))),
            "slots": self.slots,
            "policies": [label for label, run in self._runs.items() if isinstance(run, UsersRun)],
            "references": [label for label, run in self._runs.items() if isinstance(run, PolicyRun)],
        }

    def to(self, slot: int) -> Iterator[dict[str, Any]]:
        """Run to a slot, or to the last one that is recorded, and yield messages with a part of the slots each."""
        end = min(slot, self.slots)
        while self.at < end:
            last = min(self.at + self._step, end)
            yield self._record(last)
            self.at = last

    def _record(self, last: int) -> dict[str, Any]:
        N = self._scenario.users
        message: dict[str, Any] = {
            "kind": "slots",
            "first": self.at + 1,
            "last": last,
            "policies": {},
            "references": {},
        }
        for label, run in self._runs.items():
            users = isinstance(run, UsersRun)
            kept: dict[str, list[Any]] = {"picks": [], "rewards": [], "switches": [], "messages": []}
            first = "busy" not in message
            busy, present = message.setdefault("busy", []), message.setdefault("present", [])
            for t in range(self.at + 1, last + 1):
                before = run.tally.now.copy()
                run.to(t)
                change = (run.tally.now - before).round(9)
                if first:  # the same for all policies
                    good = run.path.good[np.arange(self._scenario.K), run.path.s]
                    busy.append(_bits(~good))
                    if not self._always_present:
                        present.append(_bits(run.presence.present))
                if not users:
                    kept["rewards"].append(float(change[REWARD]))
                    continue
                kept["picks"].append(run.tally.picks.tolist())
                kept["rewards"].append(change[len(USER_CURVES) :][:N].tolist())
                kept["switches"].append(int(change[SWITCHES]))
                kept["messages"].append(int(change[MESSAGES]))
            message["policies" if users else "references"][label] = kept if users else kept["rewards"]
        if self._always_present:
            del message["present"]
        return message


def _bits(flags: Any) -> str:
    return "".join("1" if flag else "0" for flag in flags.tolist())


def upper_bound(scenario: Scenario, seed: int) -> float | None:
    """Return the upper bound of the recorded replication, if there is one."""
    given = scenario.uncoordinated
    if given is not None and not given.alike:
        return None  # the bound is for users alike who are always present
    return bound(scenario, path_parameters(scenario, seed, 0)[0])
