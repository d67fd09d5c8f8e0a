"""What the page shows of an allocator beside its state: the last slots, and how the reward has gone since the start.

For watching only: nothing here is kept when the process ends, and no decision depends on it.
"""

import time
from collections import deque
from typing import Any

from idleband.allocator.events import Decision, Receipt
from idleband.service.messages import Feedback, Reference

STRIP = 120  # slots in the history strip
POINTS = 240  # of the curves, at most; then every other one goes
SECONDS = 5.0  # over which decisions a second are counted

# What became of a channel that was handed out.
WAITING, FREE, BUSY, SPOILT = range(4)


class Feed:
    """Told of every decision and every report of one allocator."""

    def __init__(self, good: Any, high: float) -> None:
        self._good, self._high = good, high
        self.changes = 0
        self._slots: deque[tuple[str, int, dict[int, int]]] = deque(maxlen=STRIP)
        self._of: dict[str, dict[int, int]] = {}  # outcomes of the slots in the strip, by request
        self._parts: dict[str, float] = {}  # what slots in the strip have earned of which a part is reported
        self._when: deque[float] = deque()
        self._stride = 1
        self._points: list[list[float]] = []
        self._sums = [0.0, 0.0, 0.0, 0.0, 0.0]  # reward, static, contextual, sub-optimal picks by either
        self._counted, self._picks = 0, 0  # slots that were reported whole, and channels in them
        self._known = True  # whether whoever reports says what was possible: a simulator

    def decided(self, decision: Decision) -> None:
        self.changes += 1
        outcomes = dict.fromkeys(decision.channels, WAITING)
        if len(self._slots) == STRIP:
            self._of.pop(self._slots[0][0], None)
            self._parts.pop(self._slots[0][0], None)
        request = str(decision.id)
        self._slots.append((request, decision.slot, outcomes))
        self._of[request] = outcomes
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
        news = [one for one in said.outcomes if one.channel in receipt.learned]
        earned = self._parts.pop(said.request, 0.0) + sum(one.reward for one in news)
        outcomes = self._of.get(said.request)
        if outcomes is None:  # the slot has left the strip
            self._add(earned, len(news), said.reference)
            return
        outcomes.update((one.channel, self._outcome(one.channel, one.state, one.reward)) for one in news)
        if WAITING in outcomes.values():
            self._parts[said.request] = earned
        else:
            self._add(earned, len(outcomes), said.reference)

    def _add(self, earned: float, picks: int, reference: Reference | None) -> None:
        self._counted += 1
        self._picks += picks
        self._sums[0] += earned
        self._known &= reference is not None
        if reference is not None:
            self._sums[1] += reference.static
            self._sums[2] += reference.contextual
            self._sums[3] += reference.suboptimal_static
            self._sums[4] += reference.suboptimal_contextual
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
