"""Running the plan into a folder, and finding again what is stored there.

    DIR/reproduction.toml    how much is run: horizon, replications, seed
    DIR/studies/NAME/        one stored study for each experiment of the plan (docs/how-to/read-results.md)
    DIR/report.html          the page; figures/ and claims.csv beside it hold what it shows

Claims, figures and page are made from the stored studies alone.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from idleband import validation
from idleband.arrays import Floats
from idleband.durable import write_durably
from idleband.errors import InputError
from idleband.experiments.compare import load
from idleband.experiments.run import StudyRequest, run_experiments
from idleband.experiments.store import check_place, read_manifest
from idleband.experiments.study import Study
from idleband.paper.parts import PARTS
from idleband.paper.plan import (
    TUNING_OFFSET,
    Choices,
    Run,
    Size,
    Tuning,
    baseline_cases,
    baselines_of,
    chosen,
    figure3_run,
    figure4_run,
    inner_beta,
    linear_run,
    neural_run,
    reported_of,
    tuning_of,
    tuning_run,
)
from idleband.paper.readings import BASELINES, GRID, LINEAR, NEURAL, PROPOSED, TUNED_BASELINES, Reading
from idleband.policies.registry import ConfiguredPolicy
from idleband.progress import SILENT, Progress
from idleband.scenario.build import read_toml
from idleband.simulation.precompile import compiled_ahead
from idleband.simulation.result import Result
from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SEED, MAX_SLOTS

SCHEMA = 1
SETTINGS = "reproduction.toml"
NETWORK = "mp-nucb"  # its variants share its machine code


# --- running ---------------------------------------------------------------------------------------------------------


def reproduce(
    out: Path,
    size: Size,
    parts: Sequence[str] = tuple(PARTS),
    *,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> None:
    """Run what the parts need and the folder does not contain yet.

    Progress is measured in slots of a fast policy. All work is announced at the start; stored work counts as done.
    """
    take_folder(out, size)
    tuned = list(dict.fromkeys(pair for part in parts for pair in tuning_of(part)))
    tuning = {pair: tuning_run(size, *pair) for pair in tuned}
    # The values are not chosen yet, but how many cases there will be is known, give or take a textbook value.
    guess = {(reading.key, preset): _any_choice(reading) for reading, preset in tuned}
    progress.expect(sum(_slots(run) for run in [*tuning.values(), *_reported(size, parts, guess)]))

    def run_all(runs: Sequence[Run], progress: Progress) -> list[Study]:
        requests = [StudyRequest(run.spec, out / "studies" / run.folder, _Weighted(run, progress)) for run in runs]
        return run_experiments(requests, threads=threads, progress=progress)

    with _network_ahead(out, _reported(size, parts, guess)) as wait:
        studies = run_all(list(tuning.values()), progress)
        choices: Choices = {
            (reading.key, preset): chosen(reading, _asked(run, study))
            for ((reading, preset), run), study in zip(tuning.items(), studies, strict=True)
        }

        run_all(_reported(size, parts, choices), _Waiting(progress, wait))


class _Weighted(Progress):
    """Observer of one run, whose slots count by their cost in the work that was announced at the start."""

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run, self.progress = run, progress

    def expect(self, slots: float) -> None:
        self.progress.advance(max(0.0, _slots(self.run) - slots * self.run.cost))  # found in the folder

    def advance(self, slots: float) -> None:
        self.progress.advance(slots * self.run.cost)


class _Waiting(Progress):
    """Observer that waits for the second process before the loop of MP-NUCB is compiled here."""

    def __init__(self, progress: Progress, wait: Callable[[], None]) -> None:
        self.progress, self.wait = progress, wait

    def compiling(self, policy: str) -> None:
        self.progress.compiling(policy)
        if policy.startswith(NETWORK):
            self.wait()


def _network_ahead(out: Path, runs: Sequence[Run]) -> contextlib.AbstractContextManager[Callable[[], None]]:
    """MP-NUCB takes longest to compile, and is needed last."""
    if all((out / "studies" / run.folder / "manifest.json").exists() for run in runs if run.cost > 1):
        return contextlib.nullcontext(lambda: None)
    return compiled_ahead(NETWORK)


def _any_choice(reading: Reading) -> Tuning:
    return Tuning(GRID[0], {} if reading.paths else dict.fromkeys(TUNED_BASELINES, GRID[0]))


def _reported(size: Size, parts: Sequence[str], choices: Choices) -> list[Run]:
    """The reported runs, each once: fast ones first, while MP-NUCB is compiled, and of the others the longest."""
    runs = {run.folder: run for part in parts for run in reported_of(size, part, choices)}
    return sorted(runs.values(), key=lambda run: (run.cost > 1, -run.cost))


def _slots(run: Run) -> float:
    """The work of a run, in slots of a fast policy."""
    return len(run.spec.tasks) * run.spec.horizon * run.cost


def take_folder(out: Path, size: Size) -> None:
    """Make the folder this reproduction's, or refuse one that holds another."""
    for place in (out, out / "studies"):
        check_place(place)
    if (out / SETTINGS).exists():
        held = read_settings(out)
        for what in ("horizon", "seed"):
            if getattr(held, what) != getattr(size, what):
                raise InputError(
                    f"{out}: holds another reproduction ({what} {getattr(held, what)}, not {getattr(size, what)});"
                    " choose another folder with --out"
                )
    write_durably(out / SETTINGS, tomli_w.dumps({"schema": SCHEMA, **asdict(size)}).encode())


def read_settings(folder: Path) -> Size:
    file = folder / SETTINGS
    if not file.exists():
        raise InputError(f"{folder}: holds no reproduction ({SETTINGS} is missing); `idleband reproduce` makes one")
    data = read_toml(file, "a reproduction's settings were there")
    validation.check_keys(data, ("schema", *asdict(Size())), str(file))
    validation.whole(data.get("schema"), f"{file}: schema", 1, SCHEMA)
    return check_size(**{key: data.get(key) for key in asdict(Size())}, where=f"{file}: ")


def check_size(where: str = "", **values: Any) -> Size:
    """A size, validated. Intervals need two replications."""
    most = {"horizon": MAX_SLOTS, "seed": MAX_SEED - TUNING_OFFSET}
    least = {"horizon": 10, "seed": 0, "tuning": 1}
    return Size(
        **{
            key: validation.whole(value, where + key, least.get(key, 2), most.get(key, MAX_REPLICATIONS))
            for key, value in values.items()
        }
    )


# --- what is stored --------------------------------------------------------------------------------------------------


class Used(NamedTuple):
    run: Run
    study: Study


class Evidence:
    """The stored studies of a reproduction: of each as many replications as were last asked for, if they are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = read_settings(folder)
        self._studies: dict[str, Study | None] = {}
        self.used: dict[str, Used] = {}  # by folder, what was asked for and is there

    def study(self, run: Run) -> Study | None:
        """The stored study of a run, if it holds all cases that the run asks for."""
        place = self.folder / "studies" / run.folder
        if run.folder not in self._studies:
            self._studies[run.folder] = load(place) if (place / "manifest.json").exists() else None
        study = self._studies[run.folder]
        if study is None or not {case.label for case in run.spec.policies} <= set(study.labels):
            return None
        study = _asked(run, study)
        self.used[run.folder] = Used(run, study)
        return study

    @cached_property
    def choices(self) -> Choices:
        """What was chosen for each reading and scenario whose tuning runs are there."""
        pairs = dict.fromkeys(pair for part in PARTS for pair in tuning_of(part))
        found = {pair: self.study(tuning_run(self.size, *pair)) for pair in pairs}
        return {(pair[0].key, pair[1]): chosen(pair[0], study) for pair, study in found.items() if study is not None}

    @cached_property
    def parts(self) -> list[str]:
        """The parts of which everything has been run."""
        return [part for part in PARTS if self._has(part)]

    def _has(self, part: str) -> bool:
        if any((reading.key, preset) not in self.choices for reading, preset in tuning_of(part)):
            return False
        # Each is asked for, so that the same are used whichever is missing.
        return None not in [self.study(run) for run in reported_of(self.size, part, self.choices)]

    def inner_beta(self, reading: Reading, preset: str) -> float:
        """The best beta of the tuning runs that is not an end of the grid."""
        study = self.study(tuning_run(self.size, reading, preset))
        assert study is not None  # the part's tuning is there
        return inner_beta(reading, study)

    def proposed(self, reading: Reading, preset: str, role: str) -> Result:
        """MP-LUCB or MP-NUCB in a reading."""
        if role == NEURAL:
            return self._result(neural_run(self.size, reading, preset), reading.neural)
        assert role == LINEAR
        run = linear_run(self.size, reading, preset, self.choices)
        return self._result(run, run.spec.policies[-1])

    def everyone(self, reading: Reading, preset: str) -> dict[str, Result]:
        """The tuned baselines and the two policies of a reading, by role."""
        return {name: self.baseline(reading, preset, name) for name in BASELINES} | {
            role: self.proposed(reading, preset, role) for role in PROPOSED
        }

    def baseline(self, reading: Reading, preset: str, name: str, *, tuned: bool = True) -> Result:
        """A baseline on the sample paths of a reading."""
        owner = baselines_of(reading)
        pair = baseline_cases(self.choices[owner.key, preset].L)[name]
        return self._result(linear_run(self.size, owner, preset, self.choices), pair[0 if tuned else 1])

    def with_users(self, reading: Reading, role: str, M: int) -> Result:
        """Figure 3: MP-LUCB or MP-NUCB in a reading with M users."""
        run = figure3_run(self.size, reading, role, M, self.choices)
        return self._result(run, run.spec.policies[0])

    def with_beta(self, reading: Reading) -> list[Result]:
        """Figure 4: MP-LUCB in a reading for every beta of the grid."""
        run = figure4_run(self.size, reading)
        return [self._result(run, case) for case in run.spec.policies]

    def _result(self, run: Run, case: ConfiguredPolicy) -> Result:
        study = self.study(run)
        if study is None:
            raise InputError(
                f"{self.folder / 'studies' / run.folder}: not finished; `idleband reproduce` goes on with it"
            )
        return study[case.label]

    @cached_property
    def manifests(self) -> list[dict[str, Any]]:
        """What the studies of all parts, finished or not, say of themselves."""
        _ = self.parts  # which asks for every study
        return [read_manifest(self.folder / "studies" / name) for name in self.used]


def _asked(run: Run, study: Study) -> Study:
    """What a run asks for; a folder may hold more."""
    return replace(study, results=tuple(_first(study[case.label], run.spec.replications) for case in run.spec.policies))


def _first(result: Result, replications: int) -> Result:
    curves = {name: curve[:replications] for name, curve in result.curves.items()}
    return replace(result, curves=curves, plays=result.plays[:replications])


def final(result: Result, column: str) -> Floats:
    """(R,) a column at the horizon."""
    return result.curves[column][:, -1]
