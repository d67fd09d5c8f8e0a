"""Studies of the reproduction, as data: sizes, parts, and the experiments of each part.

Every study has its own folder below studies/. The tuning studies run first, on other sample paths; the parameters that
they choose define the policies of the reported studies.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.study import Study
from idleband.paper.readings import (
    BASELINES,
    GRID,
    LINEAR,
    MAIN,
    MAP,
    NEURAL,
    READINGS,
    SCENARIOS,
    SENSED,
    TUNED_BASELINES,
    Reading,
    ScenarioSettings,
    find,
)
from idleband.policies.registry import ConfiguredPolicy, policy

FIGURES_1_2 = (MAIN, SENSED)
SMALLER = tuple(reading for reading in READINGS if reading not in FIGURES_1_2)
FIGURE_3_USERS = tuple(range(1, 10))  # with M = K = 10 all channels are played
FIGURE_3 = ((MAIN, LINEAR), (MAIN, NEURAL), (SENSED, LINEAR))
FIGURE_4 = tuple(reading for reading in READINGS if reading.settings.model == "linear")
FIGURE_3_4_SCENARIO = "S1"

# Kinds of studies by cost, with the cost of a slot relative to a fast policy (for the progress bar).
FAST, FEWER, WHOLE, DIAGONAL = "fast", "fewer", "whole", "diagonal"
COST = {FAST: 1.0, FEWER: 1.0, WHOLE: 50.0, DIAGONAL: 15.0}


@dataclass(frozen=True)
class Size:
    """Size of a reproduction. The paper has 10^5 slots and five replications."""

    horizon: int = 100_000
    replications: int = 20  # of fast policies
    fewer: int = 10  # of fast policies in the map beyond P(n < 1) = 0.7, and in figures 3 and 4 beyond MAIN
    neural: int = 6  # of MP-NUCB in the main reading, with the full matrix
    neural_fewer: int = 5  # of MP-NUCB elsewhere, with its diagonal
    tuning: int = 3  # of each value of a grid
    seed: int = 0

    @property
    def tuning_seed(self) -> int:
        """Seed of the tuning studies, whose sample paths differ from those reported."""
        return self.seed + TUNING_OFFSET

    def of(self, kind: str) -> int:
        """Return the replications of a kind of study."""
        return {FAST: self.replications, FEWER: self.fewer, WHOLE: self.neural, DIAGONAL: self.neural_fewer}[kind]


TUNING_OFFSET = 1_000_003
QUICK = Size(horizon=10_000, replications=3, fewer=3, neural=3, neural_fewer=3, tuning=1)


class PlannedStudy(NamedTuple):
    """One experiment of the reproduction and the folder of its results."""

    folder: str  # under studies/
    experiment: Experiment
    kind: str = FAST

    @property
    def cost(self) -> float:
        return COST[self.kind]


class TunedParameters(NamedTuple):
    """Parameters chosen for a reading in a scenario."""

    beta: float
    L: dict[str, float]  # of each tuned baseline; empty where another reading has the same baselines


Choices = dict[tuple[str, str], TunedParameters]  # by reading and scenario


# --- tuning ----------------------------------------------------------------------------------------------------------


def tuning_study(size: Size, reading: Reading, preset: str) -> PlannedStudy:
    """Plan the study that chooses beta and, where the reading has its own baselines, their L."""
    policies = [policy(reading.linear, beta=beta) for beta in GRID]
    if not reading.paths:
        policies += [policy(name, L=L) for name in TUNED_BASELINES for L in GRID]
    scenario = reading.settings.scenario(preset)
    planned = experiment(scenario, policies, size.horizon, size.tuning, size.tuning_seed)
    return PlannedStudy(f"{preset}-{reading.key}-tuning", planned)


def inner_beta(reading: Reading, study: Study) -> float:
    """Return the best beta that is not an end of the grid, for the claim that neither end is best."""
    return _best(study, [policy(reading.linear, beta=beta) for beta in GRID[1:-1]], GRID[1:-1])


def chosen(reading: Reading, study: Study) -> TunedParameters:
    """Return the value of each grid with the highest mean reward in the tuning study; the smallest in case of a tie."""
    beta = _best(study, [policy(reading.linear, beta=beta) for beta in GRID])
    L = {name: _best(study, [policy(name, L=L) for L in GRID]) for name in TUNED_BASELINES if not reading.paths}
    return TunedParameters(beta, L)


def _best(study: Study, policies: Sequence[ConfiguredPolicy], grid: Sequence[float] = GRID) -> float:
    return grid[int(np.argmax([study.interval(configured.label).mean for configured in policies]))]


# --- reported studies ------------------------------------------------------------------------------------------------


def baseline_policies(tuned: dict[str, float]) -> dict[str, tuple[ConfiguredPolicy, ConfiguredPolicy]]:
    """Return each baseline tuned and as published; the two are equal where tuning changes nothing."""
    return {name: (policy(name, **({"L": tuned[name]} if name in tuned else {})), policy(name)) for name in BASELINES}


def linear_study(size: Size, reading: Reading, preset: str, choices: Choices) -> PlannedStudy:
    """Plan MP-LUCB with the chosen beta and, where no other reading has the same sample paths, the baselines."""
    tuning = choices[reading.key, preset]
    policies = [policy(reading.linear, beta=tuning.beta)]
    if not reading.paths:
        policies = [configured for pair in baseline_policies(tuning.L).values() for configured in pair] + policies
    kind = FAST if reading in READINGS else FEWER
    return _reported_study(size, f"{preset}-{reading.key}", reading.settings, preset, policies, kind)


def neural_study(size: Size, reading: Reading, preset: str) -> PlannedStudy:
    """Plan MP-NUCB in a reading."""
    kind = WHOLE if reading.neural.values["covariance"] == "full" else DIAGONAL
    return _reported_study(size, f"{preset}-{reading.key}-neural", reading.settings, preset, [reading.neural], kind)


def figure3_study(size: Size, reading: Reading, role: str, M: int, choices: Choices) -> PlannedStudy:
    """Plan one of the two policies with another number of users; beta is that chosen for five users."""
    preset = FIGURE_3_4_SCENARIO
    settings, name = replace(reading.settings, users=M), f"{preset}-{reading.key}-users-{M}"
    if role == NEURAL:
        configured = policy(reading.neural, covariance="diagonal")
        return _reported_study(size, f"{name}-neural", settings, preset, [configured], DIAGONAL)
    configured = policy(reading.linear, beta=choices[reading.key, preset].beta)
    return _reported_study(size, name, settings, preset, [configured], FAST if reading is MAIN else FEWER)


def figure4_study(size: Size, reading: Reading) -> PlannedStudy:
    """Plan MP-LUCB in a reading for every beta of the grid."""
    preset = FIGURE_3_4_SCENARIO
    policies = [policy(reading.linear, beta=beta) for beta in GRID]
    kind = FAST if reading is MAIN else FEWER
    return _reported_study(size, f"{preset}-{reading.key}-beta", reading.settings, preset, policies, kind)


def _reported_study(
    size: Size, folder: str, settings: ScenarioSettings, preset: str, policies: Iterable[ConfiguredPolicy], kind: str
) -> PlannedStudy:
    distinct = list(dict.fromkeys(policies))
    planned = experiment(settings.scenario(preset), distinct, size.horizon, size.of(kind), size.seed)
    return PlannedStudy(folder, planned, kind)


# --- parts -----------------------------------------------------------------------------------------------------------


def tuning_of(part: str) -> list[tuple[Reading, str]]:
    """Return the readings and scenarios that must be tuned before the reported studies of a part."""
    if part == "figure3":
        return [(reading, FIGURE_3_4_SCENARIO) for reading in dict.fromkeys(reading for reading, _ in FIGURE_3)]
    if part == "figure4":  # the inner beta is chosen in the tuning study
        return [(reading, FIGURE_3_4_SCENARIO) for reading in FIGURE_4]
    readings = {"figure1": FIGURES_1_2, "figure2": FIGURES_1_2, "readings": (MAIN, *SMALLER), "map": MAP}[part]
    return [(reading, preset) for preset in SCENARIOS for reading in readings]


def reported_of(size: Size, part: str, choices: Choices) -> Iterator[PlannedStudy]:
    """Yield the reported studies of a part."""
    if part == "figure3":
        for M in FIGURE_3_USERS:
            for reading, role in FIGURE_3:
                yield figure3_study(size, reading, role, M, choices)
    elif part == "figure4":
        for reading in FIGURE_4:
            yield figure4_study(size, reading)
    else:
        for reading, preset in tuning_of(part):
            yield linear_study(size, reading, preset, choices)
            if part != "map" and not (part == "readings" and reading is MAIN):
                yield neural_study(size, reading, preset)


def baselines_of(reading: Reading) -> Reading:
    """Return the reading whose studies contain the baselines of a reading."""
    return find(reading.paths) if reading.paths else reading
