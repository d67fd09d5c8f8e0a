"""A simulated base station that plays a scenario against a service; some of its reports are lost, late or repeated."""

import heapq
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from idleband.allocator.events import Decision
from idleband.allocator.settings import Settings
from idleband.arrays import Flags, Floats
from idleband.errors import IdlebandError, InputError
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.reward import ADDITIVE, HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.service.client import Client, ServiceError
from idleband.simulation.environment import SamplePath
from idleband.simulation.loop import TIE
from idleband.simulation.path import path_parameters
from idleband.simulation.run import ReferenceRun
from idleband.trace.parquet import TraceFile
from idleband.trace.trace import Trace

log = logging.getLogger("idleband.service")

ENDLESS = 10**10  # slots
RECONNECT_DELAY = 0.1  # seconds


class Faults(NamedTuple):
    """Probabilities of the faults of a report, and the maximum delay of a late one in slots."""

    lost: float = 0.02
    late: float = 0.05
    repeated: float = 0.05
    max_delay: int = 20


class SimulatedStation:
    """A base station that takes states, contexts and rewards from a scenario, or states from a replayed trace.

    With sensing errors it sends observed states, and the rewards that belong to them, as in a simulation. Its reports
    contain the rewards of the static and the contextual reference, which only a simulator knows.
    """

    def __init__(self, client: Client, scenario: Any, *, seed: int = 0, faults: Faults | None = None) -> None:
        self._client, self._faults = client, faults or Faults()
        self._scenario = make_scenario(scenario)
        self._run = ReferenceRun.start(self._scenario, ENDLESS, seed, 0)
        self._means = path_parameters(self._scenario, seed, 0)[1]
        self._static_thresholds = [
            _smallest_of_best(self._means, row, self._scenario.users) for row in self._scenario.available
        ]
        self._random = random.Random(seed)  # for faults; the scenario has its own random streams
        self._queue: list[tuple[int, int, Callable[[], object]]] = []  # (slot in which to send, number, send)
        self._queued = 0
        self._status: dict[str, Any] = {}  # of the allocator at the first request
        self.slot = 0
        self.counts = dict.fromkeys(("sent", "lost", "late", "repeated"), 0)
        # The station may be started again while the allocator continues; request_ids must be new.
        self._prefix = uuid.uuid4().hex[:8]

    def step(self) -> Decision:
        """Play one slot: request channels, use them, report."""
        self.slot += 1
        before = self._run.references.now.copy()
        self._run.to(self.slot)
        path, sensing = self._run.path, self._scenario.sensing
        row = (self.slot - 1) % len(path.available)
        available = path.available[row]
        status = self._status = self._status or self._client.status()
        observed = path.observed if path.errors else path.s
        decision = self._client.decide(
            path.x if status["dimension"] > 0 else None,
            available=available,
            states=observed if sensing == "all" else None,
            request_id=f"{self._prefix}-{self.slot}",
        )
        channels = list(decision.channels)
        rewards, states = self._observed_rewards(path)[channels].tolist(), observed[channels].tolist()
        perturbations = path.n[channels].tolist() if status["feedback"] == "perturbation" else None
        threshold = _smallest_of_best(path.expected, available, self._scenario.users)
        static, contextual = (self._run.references.now - before)[:2].tolist()
        reference = {
            "static": static,
            "contextual": contextual,
            "suboptimal_static": int((self._means[channels] < self._static_thresholds[row] - TIE).sum()),
            "suboptimal_contextual": int((path.expected[channels] < threshold - TIE).sum()),
        }
        request_id = str(decision.request_id)
        self._send(lambda: self._client.report(request_id, rewards, states, perturbations, reference=reference))
        self.flush(self.slot)
        return decision

    def use_client(self, client: Client) -> None:
        """Continue with another client, for example after the service has moved to another port."""
        self._client = client

    def _observed_rewards(self, path: SamplePath) -> Floats:
        """Return the reward of every channel that belongs to its observed state."""
        if not path.errors or self._scenario.recorded_rewards:
            return path.rewards
        every = np.arange(path.s.size)
        if path.reward == ADDITIVE:
            return path.h[every, path.observed] - path.n
        level: npt.NDArray[np.float64] = path.good[every, path.observed].astype(np.float64)
        return np.where(level - path.n > 0.0, HIGH, LOW)

    def _send(self, report: Callable[[], object]) -> None:
        """Queue a report for this slot, or lose, delay or repeat it."""
        faults, chosen = self._faults, self._random
        if chosen.random() < faults.lost:
            self.counts["lost"] += 1
            return
        slot = self.slot
        if chosen.random() < faults.late:
            self.counts["late"] += 1
            slot += chosen.randint(1, faults.max_delay)
        self._enqueue(slot, report)
        if chosen.random() < faults.repeated:
            self.counts["repeated"] += 1
            self._enqueue(slot + chosen.randint(0, faults.max_delay), report)

    def _enqueue(self, slot: int, report: Callable[[], object]) -> None:
        self._queued += 1
        heapq.heappush(self._queue, (slot, self._queued, report))

    def flush(self, slot: int = ENDLESS) -> None:
        """Send the reports that are due up to a slot; all of them by default."""
        while self._queue and self._queue[0][0] <= slot:
            try:
                self._queue[0][2]()
            except ServiceError:  # it stays in the queue and is sent again later
                raise
            except IdlebandError:  # it was refused and would be refused again
                heapq.heappop(self._queue)
                raise
            heapq.heappop(self._queue)
            self.counts["sent"] += 1

    def run(self, pace: float, stop: threading.Event) -> None:
        """Play `pace` slots per second until `stop` is set."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                self.step()
            except ServiceError:  # the service is starting or ending
                stop.wait(RECONNECT_DELAY)
                continue
            except IdlebandError as error:  # for example above the rate limit; the slot is lost
                log.warning("station request refused", extra={"slot": self.slot, "reason": str(error)})
            due = max(due + 1.0 / pace, time.monotonic() - 1.0)
            stop.wait(max(0.0, due - time.monotonic()))


def _smallest_of_best(values: Floats, available: Flags, users: int) -> float:
    """Return the smallest of the `users` largest values of available channels."""
    best = np.sort(values[available])[::-1][:users]
    return float(best[-1]) if best.size else 0.0


def station_scenario(source: Any, settings: Settings) -> Scenario:
    """Return the scenario of a station for an allocator; refuse one with other sizes or with rewards out of range.

    A trace has no number of users; it gets that of the allocator. An allocator without contexts fits every dimension.
    """
    is_trace = isinstance(source, Trace) or str(source).endswith(".parquet")
    if is_trace:
        K = source.K if isinstance(source, Trace) else TraceFile(Path(source)).metadata.K
        if settings.channels != K:
            raise InputError(f"channels = {settings.channels}: trace {_name_of(source)} has {K}")
    built = make_scenario(source, users=settings.users) if is_trace else make_scenario(source)
    if built.uncoordinated is not None:
        raise InputError(f'scenario {built.name}: users have coordination = "none"; a base station is simulated here')
    for field, expected, found in (
        ("channels", built.K, settings.channels),
        ("users", built.users, settings.users),
        ("dimension", built.dimension, settings.dimension or built.dimension),
    ):
        if expected != found:
            raise InputError(f"{field} = {found}: scenario {built.name} has {expected}")
    low, high = built.reward_range()
    if low < settings.rewards[0] or high > settings.rewards[1]:
        raise InputError(
            f"rewards = {list(settings.rewards)}: scenario {built.name} has rewards from {low:g} to {high:g}"
        )
    return built


def _name_of(source: Any) -> str:
    return "in memory" if isinstance(source, Trace) else str(source)
