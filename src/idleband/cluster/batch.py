"""What runs on a worker: a batch of tasks that share machine code.

A batch contains as many tasks as take about a second. Without tasks it only compiles. Its errors are returned with the
results of the tasks before, so that these are kept. While it runs it reports the slots that it has run, and it ends
within a segment when it is cancelled, because Dask itself does not stop a running thread.
"""

import logging
import pickle
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import NamedTuple

from idleband.arrays import Floats, Ints
from idleband.cluster.installation import difference, installation
from idleband.cluster.packing import Packed, unpack
from idleband.errors import ClusterError, CompilationWarning
from idleband.simulation.path import draw_ahead, prepare_drawing
from idleband.simulation.scheduler import ScheduledTask, Segments, Task, TaskResult, compile_loop, run_task

REPORT_SECONDS = 0.5  # between two reports of progress
CANCELLED = "cancelled"  # state, on a worker, of a task that runs while its result is not wanted any more


class Part(NamedTuple):
    """Tasks of one policy, or of the references, in one scenario."""

    scenario: str  # digest
    policy: Packed | None
    horizon: int
    seed: int
    replications: Sequence[int]
    of: int  # number of replications in the experiment


class Batch(NamedTuple):
    """Tasks that share machine code. The first part is compiled; without replications that is all."""

    topic: str  # of reports of progress
    parts: Sequence[Part]


class Computed(NamedTuple):
    """A finished task, without the state of the policy."""

    curves: Floats
    plays: Ints
    note: str
    seconds: float


class Outcome(NamedTuple):
    """What a batch has computed."""

    results: list[Computed]  # in the order of the tasks
    error: Exception | None
    elapsed: float  # seconds, without compiling


class CancelledError(Exception):
    """The client does not wait for this batch any more."""


_preparing = Lock()


def run_batch(client: Mapping[str, str], pickled: bytes, *scenarios: tuple[str, bytes]) -> Outcome:
    """Run the tasks of a pickled batch one after another.

    `client` is the installation of the client, and `scenarios` are those of the parts.
    """
    here = _Here()
    results: list[Computed] = []
    began = time.perf_counter()
    try:
        if different := difference(client, installation()):
            raise ClusterError(f"worker {here.address}: results would not be those of this machine: {different}")
        batch: Batch = pickle.loads(pickled)
        found = {digest: unpack(Packed(digest, data)) for digest, data in scenarios}
        policies = [None if part.policy is None else unpack(part.policy) for part in batch.parts]
        first = batch.parts[0]
        begin = ScheduledTask(found[first.scenario], Task(policies[0], 0), first.horizon, first.seed, _ignore)
        _compile(begin, first.of)
        began = time.perf_counter()
        segments: Segments = {}
        for part, configured in zip(batch.parts, policies, strict=True):
            scenario = found[part.scenario]
            for replication in part.replications:
                draw_ahead(scenario, part.seed, replication, max(part.replications) + 1)
                task = Task(configured, replication)
                observer = here.observer(batch.topic, len(results))
                result = run_task(ScheduledTask(scenario, task, part.horizon, part.seed, _ignore), observer, segments)
                results.append(Computed(result.curves, result.plays, result.note, result.seconds))
    except Exception as error:
        return Outcome(results, _sendable(error), time.perf_counter() - began)
    return Outcome(results, None, time.perf_counter() - began)


def _ignore(task: Task, result: TaskResult) -> None:
    """Results are returned with the batch."""


def _compile(scheduled: ScheduledTask, replications: int) -> None:
    with _preparing:
        prepare_drawing(scheduled.scenario, replications)
    compile_loop(scheduled)


def _sendable(error: Exception) -> Exception:
    """Return an error that can be sent to the client."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class _Here:
    """The worker of Dask, and the batch as Dask knows it, of this thread."""

    def __init__(self) -> None:
        from distributed import get_worker

        self.worker = get_worker()
        self.key = self.worker.get_current_task()
        if self.worker.nanny is not None:
            _announce_in_log()

    @property
    def address(self) -> str:
        return str(self.worker.address)

    def observer(self, topic: str, number: int) -> Callable[[int], None]:
        """Return a function that reports the slots of a task that were run, and raises if the batch was cancelled."""
        slots, reported = 0, time.monotonic()

        def advance(more: int) -> None:
            nonlocal slots, reported
            state = self.worker.state.tasks.get(self.key)
            if state is None or state.state == CANCELLED:
                raise CancelledError
            slots += more
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                self.worker.log_event(topic, [self.key, number, slots])

        return advance


@cache
def _announce_in_log() -> None:
    """Announce compilations in the log of this worker instead of on its terminal; the client warns, not the worker."""
    log = logging.getLogger("idleband")
    log.setLevel(logging.INFO)
    log.addHandler(logging.NullHandler())
    warnings.simplefilter("ignore", CompilationWarning)
