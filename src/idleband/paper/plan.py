"""What is run for the paper, as data: sizes, parts, and the experiments of each part.

Every experiment has a folder of its own under studies/. First the tuning runs, on sample paths of their own; what they
choose settles the cases of the reported runs.
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
    World,
    find,
)
from idleband.policies.registry import ConfiguredPolicy, policy

FIGURES_1_2 = (MAIN, SENSED)
SMALLER = tuple(reading for reading in READINGS if reading not in FIGURES_1_2)
FIGURE_3_USERS = tuple(range(1, 10))  # with M = K = 10 there is nothing to choose
FIGURE_3 = ((MAIN, LINEAR), (MAIN, NEURAL), (SENSED, LINEAR))
FIGURE_4 = tuple(reading for reading in READINGS if reading.world.model == "linear")
FIGURE_3_4_SCENARIO = "S1"

# The kinds of runs by what they cost, with the cost of a slot beside that of a fast policy (for the progress bar).
FAST, FEWER, WHOLE, DIAGONAL = "fast", "fewer", "whole", "diagonal"
COST = {FAST: 1.0, FEWER: 1.0, WHOLE: 50.0, DIAGONAL: 15.0}


@dataclass(frozen=True)
class Size:
    """How much is run. The paper has 10^5 slots and five replications."""

    horizon: int = 100_000
    replications: int = 20  # of fast policies
    fewer: int = 10  # of fast policies where less hangs on them: the map's other worlds, figures 3 and 4 beyond MAIN
    neural: int = 6  # of MP-NUCB in the main reading, with the whole matrix
    neural_fewer: int = 5  # of MP-NUCB elsewhere, with its diagonal
    tuning: int = 3  # of each value of a grid
    seed: int = 0

    @property
    def tuning_seed(self) -> int:
        """Sample paths for tuning that are none of those reported."""
        return self.seed + TUNING_OFFSET

    def of(self, kind: str) -> int:
        """The replications of a kind of runs."""
        return {FAST: self.replications, FEWER: self.fewer, WHOLE: self.neural, DIAGONAL: self.neural_fewer}[kind]


TUNING_OFFSET = 1_000_003
QUICK = Size(horizon=10_000, replications=3, fewer=3, neural=3, neural_fewer=3, tuning=1)


class Run(NamedTuple):
    """One experiment of the reproduction."""

    folder: str  # under studies/
    spec: Experiment
    kind: str = FAST

    @property
    def cost(self) -> float:
        return COST[self.kind]


class Tuning(NamedTuple):
    """What was chosen for a reading in a scenario."""

    beta: float
    L: dict[str, float]  # of each tuned baseline; empty where they are another reading's


Choices = dict[tuple[str, str], Tuning]  # (reading, scenario) -> what was chosen


# --- tuning ----------------------------------------------------------------------------------------------------------


def tuning_run(size: Size, reading: Reading, preset: str) -> Run:
    cases = [policy(reading.linear, beta=beta) for beta in GRID]
    if not reading.paths:
        cases += [policy(name, L=L) for name in TUNED_BASELINES for L in GRID]
    world = reading.world.scenario(preset)
    spec = experiment(world, cases, size.horizon, size.tuning, size.tuning_seed)
    return Run(f"{preset}-{reading.key}-tuning", spec)


def inner_beta(reading: Reading, study: Study) -> float:
    """By the same rule, the best beta that is not an end of the grid: for the claim that neither end is best."""
    return _best(study, [policy(reading.linear, beta=beta) for beta in GRID[1:-1]], GRID[1:-1])


def chosen(reading: Reading, study: Study) -> Tuning:
    """The rule: of each grid, the value with the highest mean reward over the tuning runs; the smallest if they tie."""
    beta = _best(study, [policy(reading.linear, beta=beta) for beta in GRID])
    L = {name: _best(study, [policy(name, L=L) for L in GRID]) for name in TUNED_BASELINES if not reading.paths}
    return Tuning(beta, L)


def _best(study: Study, cases: Sequence[ConfiguredPolicy], grid: Sequence[float] = GRID) -> float:
    return grid[int(np.argmax([study.interval(case.label).mean for case in cases]))]


# --- reported runs ---------------------------------------------------------------------------------------------------


def baseline_cases(tuned: dict[str, float]) -> dict[str, tuple[ConfiguredPolicy, ConfiguredPolicy]]:
    """Each baseline tuned, and as published; the same case where nothing is tuned or tuning changes nothing."""
    return {name: (policy(name, **({"L": tuned[name]} if name in tuned else {})), policy(name)) for name in BASELINES}


def linear_run(size: Size, reading: Reading, preset: str, choices: Choices) -> Run:
    """MP-LUCB with the chosen beta and, where the reading has sample paths of its own, the baselines."""
    tuning = choices[reading.key, preset]
    cases = [policy(reading.linear, beta=tuning.beta)]
    if not reading.paths:
        cases = [case for pair in baseline_cases(tuning.L).values() for case in pair] + cases
    kind = FAST if reading in READINGS else FEWER
    return _reported_run(size, f"{preset}-{reading.key}", reading.world, preset, cases, kind)


def neural_run(size: Size, reading: Reading, preset: str) -> Run:
    kind = WHOLE if reading.neural.values["covariance"] == "full" else DIAGONAL
    return _reported_run(size, f"{preset}-{reading.key}-neural", reading.world, preset, [reading.neural], kind)


def figure3_run(size: Size, reading: Reading, role: str, M: int, choices: Choices) -> Run:
    """One of the two policies with another number of users; beta as chosen for the paper's five."""
    preset = FIGURE_3_4_SCENARIO
    world, name = replace(reading.world, users=M), f"{preset}-{reading.key}-users-{M}"
    if role == NEURAL:
        case = policy(reading.neural, covariance="diagonal")
        return _reported_run(size, f"{name}-neural", world, preset, [case], DIAGONAL)
    case = policy(reading.linear, beta=choices[reading.key, preset].beta)
    return _reported_run(size, name, world, preset, [case], FAST if reading is MAIN else FEWER)


def figure4_run(size: Size, reading: Reading) -> Run:
    preset = FIGURE_3_4_SCENARIO
    cases = [policy(reading.linear, beta=beta) for beta in GRID]
    kind = FAST if reading is MAIN else FEWER
    return _reported_run(size, f"{preset}-{reading.key}-beta", reading.world, preset, cases, kind)


def _reported_run(
    size: Size, folder: str, world: World, preset: str, cases: Iterable[ConfiguredPolicy], kind: str
) -> Run:
    once = list(dict.fromkeys(cases))
    return Run(folder, experiment(world.scenario(preset), once, size.horizon, size.of(kind), size.seed), kind)


# --- parts -----------------------------------------------------------------------------------------------------------


def tuning_of(part: str) -> list[tuple[Reading, str]]:
    """What must be tuned before the reported runs of a part, and is chosen for them."""
    if part == "figure3":
        return [(reading, FIGURE_3_4_SCENARIO) for reading in dict.fromkeys(reading for reading, _ in FIGURE_3)]
    if part == "figure4":  # the inner beta that is tested is chosen by the rule for all
        return [(reading, FIGURE_3_4_SCENARIO) for reading in FIGURE_4]
    readings = {"figure1": FIGURES_1_2, "figure2": FIGURES_1_2, "readings": (MAIN, *SMALLER), "map": MAP}[part]
    return [(reading, preset) for preset in SCENARIOS for reading in readings]


def reported_of(size: Size, part: str, choices: Choices) -> Iterator[Run]:
    """The reported runs of a part."""
    if part == "figure3":
        for M in FIGURE_3_USERS:
            for reading, role in FIGURE_3:
                yield figure3_run(size, reading, role, M, choices)
    elif part == "figure4":
        for reading in FIGURE_4:
            yield figure4_run(size, reading)
    else:
        for reading, preset in tuning_of(part):
            yield linear_run(size, reading, preset, choices)
            if part != "map" and not (part == "readings" and reading is MAIN):
                yield neural_run(size, reading, preset)


def baselines_of(reading: Reading) -> Reading:
    """The reading in whose runs the baselines of a reading are."""
    return find(reading.paths) if reading.paths else reading
