"""Which users are present along a run: in a scenario without a base station they may arrive and leave."""

from collections.abc import Iterator

import numpy as np

from idleband.scenario.scenario import Scenario
from idleband.scenario.uncoordinated import Change


class Presence:
    """The users present in the current slot of a run, and who arrives and leaves later."""

    def __init__(self, scenario: Scenario, seed: int, replication: int, horizon: int) -> None:
        given, N = scenario.uncoordinated, scenario.users
        self.changes = () if given is None else tuple(given.changes(N, seed, replication, horizon))
        self.present = np.full(N, given is None)
        self._next = 0

    def stretches(self, at: int, slot: int) -> Iterator[tuple[list[Change], int]]:
        """Divide the slots at+1 to `slot` where users arrive or leave.

        Yield the changes that take effect with the next slot, already applied to `present`, and the slot up to which
        no more follow.
        """
        while at < slot:
            found = []
            while self._next < len(self.changes) and self.changes[self._next].slot <= at + 1:
                change = self.changes[self._next]
                self.present[change.user] = change.arrives
                found.append(change)
                self._next += 1
            later = self._next < len(self.changes)
            at = min(slot, self.changes[self._next].slot - 1) if later else slot
            yield found, at
