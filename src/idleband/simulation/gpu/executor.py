"""Run tasks on a GPU: all replications of a policy on a scenario together."""

import time
from collections.abc import Sequence

from idleband.kernels.interrupt import interruptible
from idleband.progress import Progress
from idleband.simulation.gpu.device import check_usable
from idleband.simulation.gpu.replications import Simulation
from idleband.simulation.scheduler import ScheduledTask, TaskResult, name_of
from idleband.simulation.users_run import check_coordination


class CudaExecutor:
    """Runs tasks on a GPU; `narrow` keeps numbers that are not sums over many slots in 32 bits."""

    def __init__(self, *, narrow: bool = False) -> None:
        check_usable()
        self.narrow = narrow

    def run(self, tasks: Sequence[ScheduledTask], progress: Progress) -> None:
        """Run tasks on the GPU."""
        together: dict[tuple[int, int, int, int, int], list[ScheduledTask]] = {}
        for scheduled in tasks:
            if scheduled.task.configured is not None:
                check_coordination(scheduled.scenario, scheduled.task.configured.policy)
            same = scheduled.scenario, scheduled.task.configured, scheduled.progress
            key = (id(same[0]), id(same[1]), id(same[2]), scheduled.horizon, scheduled.seed)
            together.setdefault(key, []).append(scheduled)
        for group in together.values():
            self._run_group(group, progress)

    def _run_group(self, group: list[ScheduledTask], progress: Progress) -> None:
        first = group[0]
        progress.compiling(name_of(first))
        by_replication: dict[int, list[ScheduledTask]] = {}
        for scheduled in group:
            by_replication.setdefault(scheduled.task.replication, []).append(scheduled)
        with interruptible():
            simulation = Simulation(
                first.scenario, first.task.configured, first.horizon, first.seed, narrow=self.narrow
            )
            simulation.prepare(len(by_replication))
        began = time.perf_counter()
        for replications, batch in simulation.run(sorted(by_replication), first.progress.advance):
            seconds = (time.perf_counter() - began) / len(replications)
            for i, replication in enumerate(replications):
                result = TaskResult(batch.curves[i], batch.plays[i], None, "", seconds)
                for scheduled in by_replication[replication]:
                    scheduled.done(scheduled.task, result)
            began = time.perf_counter()
