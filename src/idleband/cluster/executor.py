"""Run tasks on the workers of a Dask cluster.

The client, which is this process, sends batches of tasks that take about a second and passes on their results; it
alone writes results folders. For each worker thread two batches are under way, however many tasks there are. The code
of a loop is compiled by one worker before the others get tasks for it, so that they find it where they share a cache.

Batches of a worker that is lost are repeated by others, by Dask at first; a batch that Dask gives up, because several
workers were lost while they had it, is sent again. If the scheduler is lost the run ends, and the results that have
arrived are kept.
"""

import contextlib
import math
import pickle
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from idleband.binding import Kernel, check_compiled
from idleband.cluster.batch import Batch, CancelledError, Outcome, Part
from idleband.cluster.connect import without_interrupts
from idleband.cluster.installation import installation
from idleband.cluster.packing import Packable, Packed, pack
from idleband.errors import ClusterError
from idleband.progress import Progress
from idleband.simulation.scheduler import ScheduledTask, TaskResult, name_of, replications_of, tasks_by_loop

if TYPE_CHECKING:
    from distributed import Client, Future

BATCH_SECONDS = 1.0
MAX_TASKS = 2000  # of a batch; their results are sent together
AHEAD = 2  # batches under way for each thread of a worker
POLL = 0.1  # seconds between two looks at the connection
LOOK = 2.0  # seconds between two looks at the workers
LOST_TIMEOUT = 600.0  # seconds without any worker after which a run ends
MAX_LOST = 100  # workers that may be lost with the same task
START = "start one with: dask worker ADDRESS"
INSTALL = 'install there what is installed here: pip install "idleband[cluster]"'
AGAIN = "finished work is kept, and the same command continues from there"


class DaskExecutor:
    """Runs tasks on the workers that the scheduler of a Dask client has."""

    def __init__(self, client: "Client") -> None:
        self.client = client

    def run(self, tasks: Sequence[ScheduledTask], progress: Progress) -> None:
        """Run tasks on the workers."""
        if tasks:
            run = _Run(self.client, tasks, progress)
            with run.cleaned_up():
                run.run()


class _Item(NamedTuple):
    """A task with its position among all tasks."""

    number: int
    scheduled: ScheduledTask


class _Loop:
    """Tasks that share machine code and are not under way."""

    def __init__(self, items: list[_Item]) -> None:
        self.first = items[0].scheduled
        self.left = deque(items)
        self.compiling = self.compiled = False
        self.slots = 0.0  # run so far, and in how many seconds
        self.seconds = 0.0
        self.lost = 0  # workers that were lost while they compiled it

    def take(self, threads: int) -> list[_Item]:
        """Return the next tasks, as many as take BATCH_SECONDS; fewer near the end, so that no thread waits long."""
        slots = BATCH_SECONDS * self.slots / self.seconds if self.seconds > 0.0 else 0.0
        most = min(MAX_TASKS, math.ceil(len(self.left) / (AHEAD * threads)))
        taken = [self.left.popleft()]
        slots -= taken[0].scheduled.horizon
        while self.left and len(taken) < most and slots >= self.left[0].scheduled.horizon:
            taken.append(self.left.popleft())
            slots -= taken[-1].scheduled.horizon
        return taken


class _Sent(NamedTuple):
    """A batch that is under way."""

    loop: _Loop
    items: list[_Item]  # none: the loop is only compiled
    future: "Future"


class _Run:
    """The tasks of one call."""

    def __init__(self, client: "Client", tasks: Sequence[ScheduledTask], progress: Progress) -> None:
        self.client, self.progress = client, progress
        numbers = {id(scheduled): number for number, scheduled in enumerate(tasks)}
        self.loops = [
            _Loop([_Item(numbers[id(scheduled)], scheduled) for scheduled in same]) for same in tasks_by_loop(tasks)
        ]
        self.replications = replications_of(tasks)
        self.topic = f"idleband-{uuid.uuid4().hex}"
        self.arrived: SimpleQueue[str] = SimpleQueue()  # keys of batches
        self.sent: dict[str, _Sent] = {}  # by key
        self.packed: dict[int, Packed] = {}  # scenarios and policies, by identity
        self.by_digest: dict[str, Packed] = {}
        self.scenarios: dict[str, Future] = {}  # on the cluster, by digest
        self.counted = [0] * len(tasks)  # slots of each task that were passed to its observer
        self.lost = [0] * len(tasks)  # workers that were lost while they had it
        self.counting = Lock()
        self.threads = 0
        self.looked = self.seen = time.monotonic()  # when workers were looked for, and when there were any

    # --- the life of a run -------------------------------------------------------------------------------------------

    def run(self) -> None:
        for loop in self.loops:  # what cannot be sent is reported before anything is run
            for _, scheduled in loop.left:
                self._pack(scheduled.scenario)
                if scheduled.task.configured is not None:
                    self._pack(scheduled.task.configured)
        self._wait_for_workers()
        self.client.subscribe_topic(self.topic, self._report)
        while self._unfinished() or self.sent:
            self._submit()
            with contextlib.suppress(Empty):
                self._receive(self.arrived.get(timeout=POLL))
            self._look()

    @contextlib.contextmanager
    def cleaned_up(self) -> Iterator[None]:
        """Cancel what is under way at the end, and report the loss of the scheduler in one line."""
        from distributed import CancelledError as LostFuture
        from distributed.comm import CommClosedError

        try:
            yield
        except (LostFuture, CommClosedError) as error:
            raise self._scheduler_lost() from error
        except (OSError, TimeoutError) as error:
            if self.client.status != "running":
                raise self._scheduler_lost() from error
            raise
        finally:
            futures = [*(sent.future for sent in self.sent.values()), *self.scenarios.values()]
            with without_interrupts(), contextlib.suppress(Exception):  # the scheduler may be lost
                if self.client.status == "running":
                    self.client.unsubscribe_topic(self.topic)
                    self.client.cancel(futures, force=True)
            self.sent.clear()
            self.scenarios.clear()

    def _scheduler_lost(self) -> ClusterError:
        return ClusterError(f"the connection to the Dask scheduler was lost; {AGAIN}")

    def _unfinished(self) -> bool:
        return any(loop.left for loop in self.loops)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _wait_for_workers(self) -> None:
        """Wait for the first worker as long as Dask waits for a connection."""
        import dask

        seconds = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
        until = time.monotonic() + seconds
        if not self._look(now=True):
            self.progress.message("waiting for workers")
        while not self._look(now=True):
            if time.monotonic() > until:
                address = self.client.scheduler_info()["address"]
                raise ClusterError(f"no worker has joined the Dask scheduler {address} within {seconds:g} s; {START}")
            time.sleep(POLL)

    def _look(self, *, now: bool = False) -> int:
        """Return the number of threads of all workers, which is looked up now and then."""
        if self.client.status != "running":
            raise self._scheduler_lost()
        at = time.monotonic()
        if now or at - self.looked > LOOK:
            self.threads = sum(self.client.nthreads().values())
            self.looked = at
            if self.threads:
                self.seen = at
            elif at - self.seen > LOST_TIMEOUT:
                raise ClusterError(f"there was no Dask worker for {LOST_TIMEOUT:.0f} s; {AGAIN}")
        return self.threads

    # --- sending -----------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Keep AHEAD batches for each thread under way, and loops being compiled, so that all threads have work."""
        threads = max(1, self.threads)
        while len(self.sent) < AHEAD * threads:
            ready = [loop for loop in self.loops if loop.compiled and loop.left]
            compiling = sum(loop.compiling for loop in self.loops)
            following = next((loop for loop in self.loops if not (loop.compiled or loop.compiling)), None)
            if following is not None and len(ready) + compiling < max(AHEAD, threads):
                following.compiling = True
                self.progress.compiling(name_of(following.first))
                self._send(following, [])
            elif ready:
                self._send(ready[0], ready[0].take(threads))
            else:
                return

    def _send(self, loop: _Loop, items: list[_Item]) -> None:
        groups = groupby((item.scheduled for item in items), _experiment_of)
        parts = [self._part(list(group)) for _, group in groups] or [self._part([loop.first])._replace(replications=())]
        batch = pickle.dumps(Batch(self.topic, parts))
        needed = [self._on_cluster(digest) for digest in dict.fromkeys(part.scenario for part in parts)]
        key = f"{name_of(loop.first)}-{uuid.uuid4().hex}"
        future = self.client.submit(_on_worker(), dict(installation()), batch, *needed, key=key, pure=False)
        self.sent[key] = _Sent(loop, items, future)
        future.add_done_callback(lambda done: self.arrived.put(done.key))

    def _part(self, same: list[ScheduledTask]) -> Part:
        """Return tasks of one policy in one experiment as part of a batch."""
        scenario, task, horizon, seed, _, _ = same[0]
        policy = None if task.configured is None else self._pack(task.configured)
        replications = [one.task.replication for one in same]
        return Part(self._pack(scenario).digest, policy, horizon, seed, replications, self.replications[id(scenario)])

    def _pack(self, value: Packable) -> Packed:
        if id(value) not in self.packed:
            self.packed[id(value)] = packed = pack(value)
            self.by_digest[packed.digest] = packed
        return self.packed[id(value)]

    def _on_cluster(self, digest: str) -> "Future":
        """Return a scenario on the cluster, where workers get it from each other."""
        import dask

        if digest not in self.scenarios:
            key = f"scenario-{uuid.uuid4().hex}"
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
                self.scenarios[digest] = self.client.submit(tuple, [*self.by_digest[digest]], key=key, pure=False)
        return self.scenarios[digest]

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _report(self, event: tuple[float, Any]) -> None:
        """Count the slots that a running task has reported; called on the thread of the client."""
        key, number, slots = event[1]
        sent = self.sent.get(key)
        if sent is not None and number < len(sent.items):
            self._count(sent.items[number], slots)

    def _count(self, item: _Item, slots: int) -> None:
        """Pass the slots of a task to its observer, each once, although a task may be repeated."""
        with self.counting:
            more = slots - self.counted[item.number]
            self.counted[item.number] += max(0, more)
        if more > 0:
            item.scheduled.progress.advance(more)

    def _receive(self, key: str) -> None:
        from distributed.scheduler import KilledWorker

        loop, items, future = self.sent[key]
        try:
            outcome: Outcome | str = future.result()
        except KilledWorker as error:
            del self.sent[key]
            self._repeat(loop, items, error)
            return
        del self.sent[key]
        if isinstance(outcome, str):
            raise ClusterError(f"{outcome}; {INSTALL}")
        loop.compiling, loop.compiled = False, True
        for item, found in zip(items, outcome.results, strict=False):
            scheduled = item.scheduled
            configured = scheduled.task.configured
            loop.slots += scheduled.horizon
            if found.note and configured is not None:
                check_compiled(configured.policy, Kernel(_on_worker, False, found.note))
            scheduled.done(scheduled.task, TaskResult(found.curves, found.plays, None, found.note, found.seconds))
            self._count(item, scheduled.horizon)
        loop.seconds += outcome.elapsed if outcome.results else 0.0
        if isinstance(outcome.error, CancelledError):  # Dask had moved the batch and has moved it back
            loop.left.extendleft(reversed(items[len(outcome.results) :]))
        elif outcome.error is not None:
            raise outcome.error

    def _repeat(self, loop: _Loop, items: list[_Item], error: Any) -> None:
        """Send tasks again whose workers were lost, unless they seem to be the cause."""
        lost = error.allowed_failures + 1
        if not items:
            loop.compiling = False
            loop.lost += lost
        for item in items:
            self.lost[item.number] += lost
        if max(loop.lost, *(self.lost[item.number] for item in items), 0) > MAX_LOST:
            raise ClusterError(
                f"more than {MAX_LOST} workers were lost while they ran {name_of(loop.first)}, the last was"
                f" {error.last_worker.address}; do they have enough memory? {AGAIN}"
            )
        loop.left.extendleft(reversed(items))


def _on_worker() -> Callable[..., Any]:
    """Return the function of a batch. As a local function it travels by value: not even the scheduler needs idleband.

    A worker that could not read the message would end itself.
    """

    def run(*arguments: Any) -> Any:
        try:
            from idleband.cluster.batch import run_batch
        except ImportError as error:
            from distributed import get_worker

            return f"Dask worker {get_worker().address} cannot import idleband ({error})"
        return run_batch(*arguments)

    return run


def _experiment_of(scheduled: ScheduledTask) -> tuple[int, int, int, int]:
    """Return what tasks of one part have in common."""
    return id(scheduled.scenario), id(scheduled.task.configured), scheduled.horizon, scheduled.seed
