"""Running the planned studies of the reproduction into a folder."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from idleband.experiments.run import ON_ALL_CORES, StudyRequest, run_experiments
from idleband.experiments.study import Study
from idleband.paper.folder import STUDIES, claim_folder
from idleband.paper.parts import PARTS
from idleband.paper.plan import (
    Choices,
    PlannedStudy,
    Size,
    TunedParameters,
    choices_from,
    reported_of,
    tuning_of,
    tuning_studies,
)
from idleband.paper.readings import GAMMA_GRID, GRID, TUNED_BASELINES
from idleband.paper.stored import planned_part
from idleband.progress import SILENT, Progress
from idleband.simulation.precompile import compiled_ahead
from idleband.simulation.scheduler import Executor, ThreadExecutor

NEURAL_POLICY = "mp-nucb"  # its variants share its machine code


def reproduce(
    out: Path,
    size: Size,
    parts: Sequence[str] = tuple(PARTS),
    *,
    executor: Executor = ON_ALL_CORES,
    progress: Progress = SILENT,
) -> None:
    """Run the studies that the parts need and the folder does not contain yet.

    Progress is measured in slots of a fast policy. All work is announced at the start; stored work counts as done.
    """
    claim_folder(out, size)
    tuning = tuning_studies(size, parts)
    # The tuned values are not known yet, but the number of policies is, except for a textbook value that is chosen.
    guessed = _reported(size, parts, any_choices(parts))
    progress.expect(sum(_slots(planned) for planned in [*tuning, *guessed]))

    def run_all(planned: Sequence[PlannedStudy], compiling: Progress) -> list[Study]:
        requests = [
            StudyRequest(one.experiment, out / STUDIES / one.folder, _Weighted(one, progress)) for one in planned
        ]
        return run_experiments(requests, executor=executor, progress=compiling)

    here = isinstance(executor, ThreadExecutor)  # otherwise workers compile
    with _network_ahead(out, [*tuning, *guessed] if here else []) as wait:
        compiling = _Waiting(progress, wait)
        found = {
            one.folder: planned_part(one, study) for one, study in zip(tuning, run_all(tuning, compiling), strict=True)
        }
        choices = choices_from(size, parts, lambda planned: found[planned.folder])
        run_all(_reported(size, parts, choices), compiling)


class _Weighted(Progress):
    """Observer of one study, whose slots count by their cost in the work that was announced at the start."""

    def __init__(self, planned: PlannedStudy, progress: Progress) -> None:
        self.planned, self.progress = planned, progress

    def expect(self, slots: float) -> None:
        """Count the stored part of the study as done."""
        self.progress.advance(max(0.0, _slots(self.planned) - slots * self.planned.cost))

    def advance(self, slots: float) -> None:
        """Count slots by their cost."""
        self.progress.advance(slots * self.planned.cost)


class _Waiting(Progress):
    """Observer of compilations that waits for the second process before the loop of MP-NUCB is compiled here."""

    def __init__(self, progress: Progress, wait: Callable[[], None]) -> None:
        self.progress, self.wait = progress, wait

    def compiling(self, policy: str) -> None:
        """Wait where the policy is a network."""
        self.progress.compiling(policy)
        if policy.startswith(NEURAL_POLICY):
            self.wait()


def _network_ahead(out: Path, planned: Sequence[PlannedStudy]) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """Compile MP-NUCB in a second process: it takes longest to compile and is needed last of the tuning."""
    if all((out / STUDIES / one.folder / "manifest.json").exists() for one in planned if one.cost > 1):
        return contextlib.nullcontext(lambda: None)
    return compiled_ahead(NEURAL_POLICY)


def any_choices(parts: Sequence[str]) -> Choices:
    """Return a guess of the tuned parameters that gives as many policies as the tuned ones."""
    pairs = dict.fromkeys(pair for part in parts for pair in tuning_of(part))
    guess = TunedParameters(GRID[0], dict.fromkeys(TUNED_BASELINES, GRID[0]), GAMMA_GRID[0])
    return {(reading.key, preset): guess for reading, preset in pairs}


def _reported(size: Size, parts: Sequence[str], choices: Choices) -> list[PlannedStudy]:
    """Return the reported studies, each once: fast ones first, then MP-NUCB."""
    planned = {one.folder: one for part in parts for one in reported_of(size, part, choices)}
    return sorted(planned.values(), key=lambda one: (one.cost > 1, -one.cost))


def _slots(planned: PlannedStudy) -> float:
    """Return the work of a study in slots of a fast policy."""
    return len(planned.experiment.tasks) * planned.experiment.horizon * planned.cost
