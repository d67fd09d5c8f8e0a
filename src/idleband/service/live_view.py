"""What the watch page shows of an allocator beside its state: the latest slots, and the mean reward since the start.

This data is for display only. It is not stored, and no decision depends on it.
"""

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from idleband.allocator.events import Decision, Receipt, Report
from idleband.arrays import Flags
from idleband.service.messages import Reference

STRIP_SLOTS = 120  # slots in the strip of recent slots
MAX_POINTS = 240  # points of a curve; when they are reached, every other one is dropped
RATE_WINDOW = 5.0  # seconds over which decisions per second are counted

# Outcome of one assigned channel, as the page counts them.
PENDING, PAID, BUSY, PERTURBED = range(4)


@dataclass
class _OpenSlot:
    """A slot of which some channels have not been reported yet."""

    slot: int
    outcomes: dict[int, int]  # by channel
    reward: float = 0.0
    reference: Reference | None = None


class LiveView:
    """Recent slots and reward curves of one allocator, fed with its decisions and reports."""

    def __init__(self, good: Flags, high: float, patience: int, slot: int = 0) -> None:
        self._good, self._high = good, high
        self.patience = patience  # of the allocator
        self.slot = slot  # of the last decision
        self.changes = 0  # increases with every change of what the page shows
        self._slots: deque[tuple[str, int, dict[int, int]]] = deque(maxlen=STRIP_SLOTS)
        self._open: dict[str, _OpenSlot] = {}  # slots that may still be reported, by request_id
        self._decided_at: deque[float] = deque()
        self._stride = 1
        self._points: list[list[float]] = []
        self._sums = [0.0] * 5  # rewards: policy, static, contextual; sub-optimal plays: static, contextual
        self._complete, self._plays = 0, 0  # slots reported completely, and plays in them
        self._has_references = False  # only a simulated base station reports references

    def decided(self, decision: Decision) -> None:
        """Add a decision."""
        self.changes += 1
        self.slot = decision.slot
        request_id, outcomes = str(decision.request_id), dict.fromkeys(decision.channels, PENDING)
        self._slots.append((request_id, decision.slot, outcomes))
        self._open[request_id] = _OpenSlot(decision.slot, outcomes)
        while next(iter(self._open.values())).slot <= decision.slot - self.patience:  # a report would be late now
            del self._open[next(iter(self._open))]
        now = time.monotonic()
        self._decided_at.append(now)
        while self._decided_at[0] < now - RATE_WINDOW:
            self._decided_at.popleft()

    def steered(self) -> None:
        """Note that channels were vacated or restored, that the policy was reset, or that settings changed."""
        self.changes += 1

    def reported(self, report: Report, receipt: Receipt, reference: Reference | None) -> None:
        """Add a report; only the channels that the allocator learned from count."""
        if not receipt.learned:
            return
        self.changes += 1
        request_id = str(report.request_id)
        slot = self._open.get(request_id)
        if slot is None:  # decided before this process was started
            return
        # A report has one value per channel of the decision, in its order.
        for k, reward, state in zip(tuple(slot.outcomes), report.rewards.tolist(), report.states.tolist(), strict=True):
            if k in receipt.learned:
                slot.outcomes[k] = self._outcome(k, None if math.isnan(state) else int(state), reward)
                slot.reward += reward
        slot.reference = reference or slot.reference
        if PENDING not in slot.outcomes.values():
            del self._open[request_id]
            self._add(slot.reward, len(slot.outcomes), slot.reference)

    def _add(self, reward: float, plays: int, reference: Reference | None) -> None:
        """Add a complete slot to the curves.

        As soon as one slot has references, only slots with references count, so that the curves can be compared.
        """
        if reference is None and self._has_references:
            return
        if reference is not None:
            if not self._has_references:
                self._has_references, self._points, self._stride = True, [], 1
                self._sums, self._complete, self._plays = [0.0] * 5, 0, 0
            self._sums[1] += reference.static
            self._sums[2] += reference.contextual
            self._sums[3] += reference.suboptimal_static
            self._sums[4] += reference.suboptimal_contextual
        self._complete += 1
        self._plays += plays
        self._sums[0] += reward
        if self._complete % self._stride == 0:
            self._points.append([self._complete, *(total / self._complete for total in self._sums[:3])])
            if len(self._points) == MAX_POINTS:
                self._points = self._points[1::2]
                self._stride *= 2

    def _outcome(self, k: int, state: int | None, reward: float) -> int:
        if reward >= self._high:
            return PAID
        return PERTURBED if state is not None and self._good[k, state] else BUSY

    def view(self) -> dict[str, Any]:
        """Return the view as JSON data."""
        now = time.monotonic()
        recent = sum(1 for when in self._decided_at if when > now - RATE_WINDOW)
        return {
            "rate": recent / RATE_WINDOW,
            "strip": [
                {"request_id": request_id, "slot": slot, "outcomes": [[k, outcome] for k, outcome in outcomes.items()]}
                for request_id, slot, outcomes in self._slots
            ],
            # Number of slots, then mean rewards per slot: of the policy and, if known, of the static and the
            # contextual reference.
            "curves": self._points if self._has_references else [point[:2] for point in self._points],
            "plays": self._plays,
            "suboptimal": self._sums[3:] if self._has_references and self._complete else None,
        }
