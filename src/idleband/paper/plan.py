"""Studies of the reproduction, as data: sizes, parts, and the experiments of each part.

Every study has its own folder below studies/. The tuning studies run first, on other sample paths; the parameters that
they choose define the policies of the reported studies.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from idleband.experiments.spec import Experiment, experiment
from idleband.experiments.study import Study
from idleband.paper.readings import (
    BASELINES,
    GAMMA_GRID,
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
    tuned_in,
)
from idleband.policies.registry import ConfiguredPolicy, policy

FIGURES_1_2 = (MAIN, SENSED)
SMALLER = tuple(reading for reading in READINGS if reading not in FIGURES_1_2)
FIGURE_3_USERS = (1, 3, 5, 7, 9)  # with M = K = 10 all channels are played
FIGURE_3 = ((MAIN, LINEAR), (MAIN, NEURAL), (SENSED, LINEAR))
FIGURE_4 = tuple(reading for reading in READINGS if reading.settings.model == "linear")
FIGURE_3_4_SCENARIO = "S1"

# Kinds of studies by replications and cost, with the cost of a slot relative to a fast policy (for the progress bar).
FAST, FEWER, FEWEST, NETWORK, NETWORK_FEWER = "fast", "fewer", "fewest", "network", "network-fewer"
COST = {FAST: 1.0, FEWER: 1.0, FEWEST: 1.0, NETWORK: 17.0, NETWORK_FEWER: 17.0}


@dataclass(frozen=True)
class Size:
    """Size of a reproduction. The paper has 10^5 slots and five replications.

    The sizes are chosen for the time they take (docs/explanation/reproduction.md): a slot of MP-NUCB takes twelve times
    as long as one of MP-LUCB.
    """

    horizon: int = 100_000
    replications: int = 20  # of fast policies in the first two readings, and in figures 3 and 4 in the first
    fewer: int = 10  # of fast policies in the other readings, and in figure 3 in the second
    fewest: int = 5  # of fast policies in the map beyond the readings, and in figure 4 beyond the first reading
    neural: int = 12  # of MP-NUCB in the first two readings
    neural_fewer: int = 5  # of MP-NUCB in the other readings and in figure 3
    tuning: int = 2  # of each value of a grid; one shorter run for gamma
    seed: int = 0

    @property
    def gamma_horizon(self) -> int:
        """Slots of a run that tunes gamma.

        The value with the highest reward after a fifth of the slots was also the best at the end, or not
        distinguishable from it, in the ten cases that were tried. This is not so for L: mp-ucb would lose 0.027 per
        slot in S4.
        """
        return max(10, self.horizon // 5)

    @property
    def tuning_seed(self) -> int:
        """Seed of the tuning studies, whose sample paths differ from those reported."""
        return self.seed + TUNING_OFFSET

    def of(self, kind: str) -> int:
        """Return the replications of a kind of study."""
        return {
            FAST: self.replications,
            FEWER: self.fewer,
            FEWEST: self.fewest,
            NETWORK: self.neural,
            NETWORK_FEWER: self.neural_fewer,
        }[kind]


TUNING_OFFSET = 1_000_003
QUICK = Size(horizon=10_000, replications=3, fewer=3, fewest=3, neural=3, neural_fewer=3, tuning=1)


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
    L: dict[str, float]  # of each tuned baseline; empty where they are tuned in another reading
    gamma: float | None = None  # None: not tuned, because no part that was asked for has MP-NUCB in this reading


Choices = dict[tuple[str, str], TunedParameters]  # by reading and scenario


# --- tuning ----------------------------------------------------------------------------------------------------------


def tuning_study(size: Size, reading: Reading, preset: str) -> PlannedStudy:
    """Plan the study that chooses beta and, where no other reading does, the L of the baselines."""
    policies = [policy(reading.linear, beta=beta) for beta in GRID]
    if tuned_in(reading) is reading:
        policies += [policy(name, L=L) for name in TUNED_BASELINES for L in GRID]
    scenario = reading.settings.scenario(preset)
    planned = experiment(scenario, policies, size.horizon, size.tuning, size.tuning_seed)
    return PlannedStudy(f"{preset}-{reading.key}-tuning", planned)


def gamma_study(size: Size, reading: Reading, preset: str) -> PlannedStudy:
    """Plan the study that chooses gamma: one short run for each value."""
    policies = [policy(reading.neural, gamma=gamma) for gamma in GAMMA_GRID]
    planned = experiment(reading.settings.scenario(preset), policies, size.gamma_horizon, 1, size.tuning_seed)
    return PlannedStudy(f"{preset}-{reading.key}-gamma", planned, NETWORK_FEWER)


def tuning_studies(size: Size, parts: Iterable[str]) -> list[PlannedStudy]:
    """Return the tuning studies of parts, each once."""
    parts = tuple(parts)
    linear = dict.fromkeys(pair for part in parts for pair in tuning_of(part))
    neural = dict.fromkeys(pair for part in parts for pair in gamma_tuning_of(part))
    return [*(tuning_study(size, *pair) for pair in linear), *(gamma_study(size, *pair) for pair in neural)]


def choices_from(size: Size, parts: Iterable[str], found: Callable[[PlannedStudy], Study | None]) -> Choices:
    """Return the tuned parameters of every reading and scenario of parts whose tuning study is found."""
    parts = tuple(parts)
    choices: Choices = {}
    for reading, preset in dict.fromkeys(pair for part in parts for pair in tuning_of(part)):
        study = found(tuning_study(size, reading, preset))
        if study is not None:
            choices[reading.key, preset] = chosen(reading, study)
    for reading, preset in dict.fromkeys(pair for part in parts for pair in gamma_tuning_of(part)):
        study = found(gamma_study(size, reading, preset))
        if study is not None and (reading.key, preset) in choices:
            gamma = chosen_gamma(reading, study)
            choices[reading.key, preset] = choices[reading.key, preset]._replace(gamma=gamma)
    return choices


def inner_beta(reading: Reading, study: Study) -> float:
    """Return the best beta that is not an end of the grid, for the claim that neither end is best."""
    return _best(study, [policy(reading.linear, beta=beta) for beta in GRID[1:-1]], GRID[1:-1])


def chosen(reading: Reading, study: Study) -> TunedParameters:
    """Return the value of each grid with the highest mean reward in the tuning study; the smallest in case of a tie."""
    beta = _best(study, [policy(reading.linear, beta=beta) for beta in GRID], GRID)
    names = TUNED_BASELINES if tuned_in(reading) is reading else ()
    return TunedParameters(beta, {name: _best(study, [policy(name, L=L) for L in GRID], GRID) for name in names})


def chosen_gamma(reading: Reading, study: Study) -> float:
    """Return the gamma with the highest reward in the tuning study; the smallest in case of a tie."""
    return _best(study, [policy(reading.neural, gamma=gamma) for gamma in GAMMA_GRID], GAMMA_GRID)


def _best(study: Study, policies: Sequence[ConfiguredPolicy], grid: Sequence[float]) -> float:
    return grid[int(np.argmax([study.interval(configured.label).mean for configured in policies]))]


# --- reported studies ------------------------------------------------------------------------------------------------


def baseline_policies(tuned: dict[str, float]) -> dict[str, tuple[ConfiguredPolicy, ConfiguredPolicy]]:
    """Return each baseline tuned and as published; the two are equal where tuning changes nothing."""
    return {name: (policy(name, **({"L": tuned[name]} if name in tuned else {})), policy(name)) for name in BASELINES}


def linear_study(size: Size, reading: Reading, preset: str, choices: Choices) -> PlannedStudy:
    """Plan MP-LUCB with the chosen beta and, where no other reading has the same sample paths, the baselines."""
    policies = [policy(reading.linear, beta=choices[reading.key, preset].beta)]
    if not reading.paths:
        tuned = choices[tuned_in(reading).key, preset].L
        policies = [configured for pair in baseline_policies(tuned).values() for configured in pair] + policies
    kind = FAST if reading in FIGURES_1_2 else FEWER if reading in READINGS else FEWEST
    return _reported_study(size, f"{preset}-{reading.key}", reading.settings, preset, policies, kind)


def neural_policy(reading: Reading, preset: str, choices: Choices) -> ConfiguredPolicy:
    """Return MP-NUCB with the chosen gamma."""
    gamma = choices[reading.key, preset].gamma
    assert gamma is not None  # it is tuned for every part that has MP-NUCB
    return policy(reading.neural, gamma=gamma)


def neural_study(size: Size, reading: Reading, preset: str, choices: Choices) -> PlannedStudy:
    """Plan MP-NUCB in a reading."""
    kind = NETWORK if reading in FIGURES_1_2 else NETWORK_FEWER
    policies = [neural_policy(reading, preset, choices)]
    return _reported_study(size, f"{preset}-{reading.key}-neural", reading.settings, preset, policies, kind)


def figure3_study(size: Size, reading: Reading, role: str, M: int, choices: Choices) -> PlannedStudy:
    """Plan one of the two policies with another number of users; beta and gamma are those chosen for five users."""
    preset = FIGURE_3_4_SCENARIO
    settings, name = replace(reading.settings, users=M), f"{preset}-{reading.key}-users-{M}"
    if role == NEURAL:
        policies = [neural_policy(reading, preset, choices)]
        return _reported_study(size, f"{name}-neural", settings, preset, policies, NETWORK_FEWER)
    configured = policy(reading.linear, beta=choices[reading.key, preset].beta)
    return _reported_study(size, name, settings, preset, [configured], FAST if reading is MAIN else FEWER)


def figure4_study(size: Size, reading: Reading) -> PlannedStudy:
    """Plan MP-LUCB in a reading for every beta of the grid."""
    preset = FIGURE_3_4_SCENARIO
    policies = [policy(reading.linear, beta=beta) for beta in GRID]
    kind = FAST if reading is MAIN else FEWEST
    return _reported_study(size, f"{preset}-{reading.key}-beta", reading.settings, preset, policies, kind)


def _reported_study(
    size: Size, folder: str, settings: ScenarioSettings, preset: str, policies: Iterable[ConfiguredPolicy], kind: str
) -> PlannedStudy:
    distinct = list(dict.fromkeys(policies))
    planned = experiment(settings.scenario(preset), distinct, size.horizon, size.of(kind), size.seed)
    return PlannedStudy(folder, planned, kind)


# --- parts -----------------------------------------------------------------------------------------------------------


def tuning_of(part: str) -> list[tuple[Reading, str]]:
    """Return the readings and scenarios in which beta and L must be tuned before the reported studies of a part."""
    if part == "figure3":
        return [(reading, FIGURE_3_4_SCENARIO) for reading in dict.fromkeys(reading for reading, _ in FIGURE_3)]
    if part == "figure4":  # the inner beta is chosen in the tuning study
        return [(reading, FIGURE_3_4_SCENARIO) for reading in FIGURE_4]
    readings = {"figure1": FIGURES_1_2, "figure2": FIGURES_1_2, "readings": (MAIN, *SMALLER), "map": MAP}[part]
    return [(reading, preset) for preset in SCENARIOS for reading in readings]


def gamma_tuning_of(part: str) -> list[tuple[Reading, str]]:
    """Return the readings and scenarios in which gamma must be tuned: those in which the part has MP-NUCB."""
    if part == "figure3":
        return [(reading, FIGURE_3_4_SCENARIO) for reading, role in FIGURE_3 if role == NEURAL]
    readings = {"figure1": FIGURES_1_2, "figure2": FIGURES_1_2, "readings": SMALLER}.get(part, ())
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
        for reading, preset in gamma_tuning_of(part):
            yield neural_study(size, reading, preset, choices)
