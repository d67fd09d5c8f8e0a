"""Stored studies of a reproduction, found by what they are of: reading, scenario, policy."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.experiments.compare import load
from idleband.experiments.store import read_manifest
from idleband.experiments.study import Study
from idleband.paper.folder import STUDIES, read_settings
from idleband.paper.parts import PARTS
from idleband.paper.plan import (
    Choices,
    PlannedStudy,
    baseline_policies,
    choices_from,
    figure3_study,
    figure4_study,
    gamma_tuning_of,
    inner_beta,
    linear_study,
    neural_study,
    reported_of,
    tuning_of,
    tuning_study,
)
from idleband.paper.readings import BASELINES, LINEAR, NEURAL, PROPOSED, Reading, baselines_of, tuned_in
from idleband.policies.registry import ConfiguredPolicy
from idleband.simulation.result import Result


class StoredStudy(NamedTuple):
    """A planned study and its results."""

    planned: PlannedStudy
    study: Study


class StoredStudies:
    """The stored studies of a reproduction, each with the replications that were requested last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = read_settings(folder)
        self._loaded: dict[str, Study | None] = {}
        self.used: dict[str, StoredStudy] = {}  # the studies that were looked up and found, by folder

    def study(self, planned: PlannedStudy) -> Study | None:
        """Return the stored results of a planned study, or None if they do not contain all of its policies."""
        place = self.folder / STUDIES / planned.folder
        if planned.folder not in self._loaded:
            self._loaded[planned.folder] = load(place) if (place / "manifest.json").exists() else None
        study = self._loaded[planned.folder]
        if study is None or not {c.label for c in planned.experiment.policies} <= set(study.labels):
            return None
        study = planned_part(planned, study)
        self.used[planned.folder] = StoredStudy(planned, study)
        return study

    @cached_property
    def choices(self) -> Choices:
        """Tuned parameters of each reading and scenario whose tuning study is stored."""
        return choices_from(self.size, PARTS, self.study)

    @cached_property
    def parts(self) -> list[str]:
        """The parts whose studies are all stored."""
        return [part for part in PARTS if self._has(part)]

    def _has(self, part: str) -> bool:
        tuned = [self.choices.get((reading.key, preset)) for reading, preset in tuning_of(part)]
        networks = [self.choices.get((reading.key, preset)) for reading, preset in gamma_tuning_of(part)]
        if None in tuned or any(one is None or one.gamma is None for one in networks):
            return False
        # Look up all studies, so that `used` does not depend on which of them is missing.
        return None not in [self.study(planned) for planned in reported_of(self.size, part, self.choices)]

    def inner_beta(self, reading: Reading, preset: str) -> float:
        """Return the best beta of the tuning study that is not an end of the grid."""
        study = self.study(tuning_study(self.size, reading, preset))
        assert study is not None  # callers ask for parts that are stored
        return inner_beta(reading, study)

    def proposed(self, reading: Reading, preset: str, role: str) -> Result:
        """Return the result of MP-LUCB or MP-NUCB in a reading."""
        if role == NEURAL:
            planned = neural_study(self.size, reading, preset, self.choices)
            return self._result(planned, planned.experiment.policies[0])
        assert role == LINEAR
        planned = linear_study(self.size, reading, preset, self.choices)
        return self._result(planned, planned.experiment.policies[-1])

    def all_policies(self, reading: Reading, preset: str) -> dict[str, Result]:
        """Return the results of the tuned baselines and of the two proposed policies in a reading, by role."""
        return {name: self.baseline(reading, preset, name) for name in BASELINES} | {
            role: self.proposed(reading, preset, role) for role in PROPOSED
        }

    def baseline(self, reading: Reading, preset: str, name: str, *, tuned: bool = True) -> Result:
        """Return the result of a baseline on the sample paths of a reading."""
        owner = baselines_of(reading)
        pair = baseline_policies(self.choices[tuned_in(reading).key, preset].L)[name]
        return self._result(linear_study(self.size, owner, preset, self.choices), pair[0 if tuned else 1])

    def with_users(self, reading: Reading, role: str, M: int) -> Result:
        """Return the result of MP-LUCB or MP-NUCB in a reading with M users, for figure 3."""
        planned = figure3_study(self.size, reading, role, M, self.choices)
        return self._result(planned, planned.experiment.policies[0])

    def with_beta(self, reading: Reading) -> list[Result]:
        """Return the results of MP-LUCB in a reading for every beta of the grid, for figure 4."""
        planned = figure4_study(self.size, reading)
        return [self._result(planned, configured) for configured in planned.experiment.policies]

    def _result(self, planned: PlannedStudy, configured: ConfiguredPolicy) -> Result:
        study = self.study(planned)
        if study is None:
            place = self.folder / STUDIES / planned.folder
            raise InputError(f"{place}: not finished; `idleband reproduce` continues it")
        return study[configured.label]

    @cached_property
    def manifests(self) -> list[dict[str, Any]]:
        """Manifests of the stored studies of all parts, complete or not."""
        _ = self.parts  # looks up every study
        return [read_manifest(self.folder / STUDIES / name) for name in self.used]


def planned_part(planned: PlannedStudy, study: Study) -> Study:
    """Return the planned policies and replications of a study; a folder may contain more."""
    R = planned.experiment.replications
    return replace(study, results=tuple(_first(study[c.label], R) for c in planned.experiment.policies))


def _first(result: Result, replications: int) -> Result:
    curves = {name: curve[:replications] for name, curve in result.curves.items()}
    return replace(result, curves=curves, plays=result.plays[:replications])


def final(result: Result, column: str) -> Floats:
    """Return (R,) the values of a column at the horizon."""
    return result.curves[column][:, -1]
