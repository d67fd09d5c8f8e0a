"""A simulated base station: a scenario's channels and contexts, and a radio whose reports get lost, late or doubled."""

import heapq
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from idleband.allocator.events import Decision
from idleband.errors import IdlebandError, InputError
from idleband.scenario.build import scenario as make_scenario
from idleband.service.client import Client, ServiceError
from idleband.simulation.loop import TIE
from idleband.simulation.path import path_parameters
from idleband.simulation.run import ReferenceRun

log = logging.getLogger("idleband.service")

ENDLESS = 10**10  # slots


class Faults(NamedTuple):
    """What may happen to a report: chances, and by how many slots one may be late."""

    lost: float = 0.02
    late: float = 0.05
    doubled: float = 0.05
    longest: int = 20


class Station:
    """Plays a scenario slot by slot against an allocator.

    It says what a simulator knows, too: what the best fixed channels and the best channels given the contexts earn.
    """

    def __init__(self, client: Client, scenario: Any, *, seed: int = 0, faults: Faults | None = None) -> None:
        self._client, self._faults = client, faults or Faults()
        self._scenario = make_scenario(scenario)
        self._walk = ReferenceRun.start(self._scenario, ENDLESS, seed, 0)
        means = path_parameters(self._scenario, seed, 0)[1]
        # In each row of availability: the mean of the last channel of the best fixed ones.
        self._bars = [_bar(means, row, self._scenario.users) for row in self._scenario.available]
        self._means = means
        self._fate = random.Random(seed)  # of reports; the channels have streams of their own
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []  # (slot it is sent in, number, sending it)
        self._sent = 0
        self._feedback: str | None = None
        self.slot = 0
        self.counts = dict.fromkeys(("sent", "lost", "late", "doubled"), 0)
        # Decisions are named by the station's own slots, and by its life: it may begin anew while the service goes on.
        self._life = uuid.uuid4().hex[:8]

    def step(self) -> Decision:
        """One slot: ask, use the channels, report."""
        self.slot += 1
        before = self._walk.references.now.copy()
        self._walk.to(self.slot)
        world = self._walk.path
        row = (self.slot - 1) % len(world.available)
        available = world.available[row]
        sensed = world.s.tolist() if self._scenario.sensing == "all" else None
        decision = self._client.decide(
            world.x, available=available.tolist(), states=sensed, request=f"{self._life}-{self.slot}"
        )
        rewards = {k: float(world.rewards[k]) for k in decision.channels}
        states = {k: int(world.s[k]) for k in decision.channels}
        measured = {k: float(world.n[k]) for k in decision.channels} if self._measures() else None
        bar = _bar(world.expected, available, self._scenario.users)
        static, contextual = (self._walk.references.now - before)[:2].tolist()
        reference = {
            "static": static,
            "contextual": contextual,
            "suboptimal_static": int(sum(self._means[k] < self._bars[row] - TIE for k in decision.channels)),
            "suboptimal_contextual": int(sum(world.expected[k] < bar - TIE for k in decision.channels)),
        }
        self._send(
            lambda: self._client.report(str(decision.request_id), rewards, states, measured, reference=reference)
        )
        self.flush(self.slot)
        return decision

    def move(self, client: Client) -> None:
        """Go on with a service that is somewhere else now."""
        self._client = client

    def _measures(self) -> bool:
        """Whether the allocator learns from measured perturbations."""
        if self._feedback is None:
            self._feedback = str(self._client.snapshot()["feedback"])
        return self._feedback == "perturbation"

    def _send(self, report: Callable[[], object]) -> None:
        """A report is on its way; perhaps it never comes, or later, or twice."""
        faults, fate = self._faults, self._fate
        if fate.random() < faults.lost:
            self.counts["lost"] += 1
            return
        when = self.slot
        if fate.random() < faults.late:
            self.counts["late"] += 1
            when += fate.randint(1, faults.longest)
        self._queue(when, report)
        if fate.random() < faults.doubled:
            self.counts["doubled"] += 1
            self._queue(when + fate.randint(0, faults.longest), report)

    def _queue(self, when: int, report: Callable[[], object]) -> None:
        self._sent += 1
        heapq.heappush(self._waiting, (when, self._sent, report))

    def flush(self, until: int = ENDLESS) -> None:
        """Send what is due in a slot; or all that there is."""
        while self._waiting and self._waiting[0][0] <= until:
            try:
                self._waiting[0][2]()  # if the service cannot be reached it is still there, for the next time
            except IdlebandError:  # what is refused once is refused again
                heapq.heappop(self._waiting)
                raise
            heapq.heappop(self._waiting)
            self.counts["sent"] += 1

    def run(self, rate: float, stop: threading.Event) -> None:
        """Slot after slot, so many a second, until it is told to stop."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                self.step()
            except ServiceError:  # it is starting, or ending
                stop.wait(0.1)
                continue
            except IdlebandError as error:  # a rate that is too low for this pace, say: the slot is lost
                log.warning("station", extra={"slot": self.slot, "reason": str(error)})
            due = max(due + 1.0 / rate, time.monotonic() - 1.0)
            stop.wait(max(0.0, due - time.monotonic()))


def _bar(values: Any, available: Any, users: int) -> float:
    """The smallest of the `users` largest values that are available."""
    usable = np.sort(values[available])[::-1][:users]
    return float(usable[-1]) if usable.size else 0.0


def check_fits(scenario: Any, settings: Any) -> None:
    """A station and an allocator must agree on their sizes."""
    world = make_scenario(scenario)
    for field, mine, theirs in (
        ("channels", world.K, settings.channels),
        ("users", world.users, settings.users),
        ("dimension", world.dimension, settings.dimension),
    ):
        if mine != theirs:
            raise InputError(f"{field} = {theirs}: scenario {world.name} has {mine}")
