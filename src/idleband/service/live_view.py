"""What the page shows of an allocator beside its state: the last slots, and how the reward has gone since the start.

For watching only: nothing here is kept when the process ends, and no decision depends on it.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from idleband.allocator.events import Decision, Receipt
from idleband.service.messages import Feedback, Reference

STRIP = 120  # slots in the history strip
POINTS = 240  # of the curves, at most; then every other one goes
SECONDS = 5.0  # over which decisions a second are counted

# What became of a channel that was handed out.
WAITING, FREE, BUSY, SPOILT = range(4)


@dataclass
class _Open:
    """A slot that is not reported whole yet."""

    slot: int
    outcomes: dict[int, int]  # what became of each channel
    earned: float = 0.0
    reference: Reference | None = None


class LiveView:
    """Told of every decision and every report of one allocator."""

    def __init__(self, good: Any, high: float, patience: int) -> None:
        self._good, self._high, self._patience = good, high, patience
        self.changes = 0
        self._slots: deque[tuple[str, int, dict[int, int]]] = deque(maxlen=STRIP)
        self._open: dict[str, _Open] = {}  # slots of which something may still be reported
        self._when: deque[float] = deque()
        self._stride = 1
        self._points: list[list[float]] = []
        self._sums = [0.0, 0.0, 0.0, 0.0, 0.0]  # reward, static, contextual, sub-optimal picks by either
        self._counted, self._picks = 0, 0  # slots that were reported whole, and channels in them
        self._known = False  # whether whoever reports says what was possible: a simulator

    def decided(self, decision: Decision) -> None:
        self.changes += 1
        request, outcomes = str(decision.request_id), dict.fromkeys(decision.channels, WAITING)
        self._slots.append((request, decision.slot, outcomes))
        self._open[request] = _Open(decision.slot, outcomes)
        while next(iter(self._open.values())).slot <= decision.slot - self._patience:  # it would be late now
            del self._open[next(iter(self._open))]
        now = time.monotonic()
        self._when.append(now)
        while self._when[0] < now - SECONDS:
            self._when.popleft()

    def steered(self) -> None:
        """Channels were vacated or restored, or the policy began anew."""
        self.changes += 1

    def reported(self, said: Feedback, receipt: Receipt) -> None:
        if not receipt.learned:
            return
        self.changes += 1
        slot = self._open.get(said.request)
        if slot is None:  # of the time before this process
            return
        for one in said.outcomes:
            if one.channel in receipt.learned:
                slot.outcomes[one.channel] = self._outcome(one.channel, one.state, one.reward)
                slot.earned += one.reward
        slot.reference = said.reference or slot.reference
        if WAITING not in slot.outcomes.values():
            del self._open[said.request]
            self._add(slot.earned, len(slot.outcomes), slot.reference)

    def _add(self, earned: float, picks: int, reference: Reference | None) -> None:
        """A slot is whole. Once it is known of some what was possible, only those count: the curves are compared."""
        if reference is None and self._known:
            return
        if reference is not None:
            if not self._known:
                self._known, self._points, self._stride = True, [], 1
                self._sums, self._counted, self._picks = [0.0] * 5, 0, 0
            self._sums[1] += reference.static
            self._sums[2] += reference.contextual
            self._sums[3] += reference.suboptimal_static
            self._sums[4] += reference.suboptimal_contextual
        self._counted += 1
        self._picks += picks
        self._sums[0] += earned
        if self._counted % self._stride == 0:
            self._points.append([self._counted, *(total / self._counted for total in self._sums[:3])])
            if len(self._points) == POINTS:
                self._points = self._points[1::2]
                self._stride *= 2

    def _outcome(self, k: int, state: int | None, reward: float) -> int:
        if reward >= self._high:
            return FREE
        return SPOILT if state is not None and self._good[k, state] else BUSY

    def view(self) -> dict[str, Any]:
        """As plain data."""
        now = time.monotonic()
        recent = sum(1 for when in self._when if when > now - SECONDS)
        return {
            "rate": recent / SECONDS,
            "strip": [
                {"request": request, "slot": slot, "outcomes": [[k, what] for k, what in outcomes.items()]}
                for request, slot, outcomes in self._slots
            ],
            # Slots, then mean rewards a slot: earned, and, if they are known, possible with the best fixed channels and
            # with the best channels given the contexts.
            "curves": self._points if self._known else [point[:2] for point in self._points],
            "picks": self._picks,
            "suboptimal": self._sums[3:] if self._known and self._counted else None,
        }
