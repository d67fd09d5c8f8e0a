"""Count the work of the reproduction of the paper: runs and slots of its plan, times what they cost on this machine.

    python benchmarks/reproduction.py

A run is one policy, or the references, on one sample path. The cost of a slot is measured with each policy and each
perturbation in S1, the preparation of a run in each scenario, both as the best of three. Drawing the report is not
included.
"""

import re
from collections import Counter
from dataclasses import replace
from functools import cache

from idleband.paper.parts import PARTS
from idleband.paper.plan import PlannedStudy, Size, reported_of, tuning_studies
from idleband.paper.reproduce import any_choices
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario
from idleband.scenario.scenario import Perturbation, Scenario
from idleband.simulation.scheduler import Task, run_task

SLOTS, NETWORK_SLOTS = 200_000, 20_000  # of a measurement
FEW = 10

KINDS = {  # by folder, the first that matches
    r".*-tuning": "tuning of beta and L",
    r".*-gamma": "tuning of gamma",
    r"S\d-(slot-played|rca-sensed)-neural": "MP-NUCB, first two readings",
    r"S1-.*-users-\d-neural": "MP-NUCB, figure 3",
    r".*-neural": "MP-NUCB, other readings",
    r"S1-.*-users-\d": "figure 3",
    r"S1-.*-beta": "figure 4",
    r"S\d-(slot-played|rca-sensed)": "first two readings",
    r"S\d-slot-played-.*": "map beyond the readings",
    r".*": "other readings",
}


def seconds(scenario: Scenario, configured: ConfiguredPolicy | None, slots: int) -> float:
    """Return the processor time of a run, the best of three."""
    run_task(scenario, Task(configured, 0), FEW, 0, lambda slots: None)  # compiles
    return min(run_task(scenario, Task(configured, i), slots, 0, lambda slots: None).seconds for i in (1, 2, 3))


@cache
def preparation(scenario: Scenario) -> float:
    """Return the seconds before the first slot of a run."""
    return seconds(scenario, policy("mp-random"), FEW)


@cache
def per_slot(name: str | None, perturbation: Perturbation, reward: str) -> float:
    """Return the seconds of a slot of a policy or, without a name, of the references."""
    world = replace(scenario("S1"), perturbation=perturbation, reward=reward)
    networks = name is not None and name.startswith("mp-nucb")
    slots = NETWORK_SLOTS if networks else SLOTS
    configured = None if name is None else policy(name, **({"covariance": "diagonal"} if networks else {}))
    return (seconds(world, configured, slots) - seconds(world, configured, FEW)) / slots


def cost(planned: PlannedStudy) -> float:
    """Return the processor time of a study."""
    spec, world = planned.experiment, planned.experiment.scenario
    names = [None if task.configured is None else task.configured.policy.name for task in spec.tasks]
    return len(names) * preparation(world) + spec.horizon * sum(
        per_slot(name, world.perturbation, world.reward) for name in names
    )


def main() -> None:
    size = Size()
    studies = {planned.folder: planned for planned in tuning_studies(size, PARTS)}
    for part in PARTS:
        studies |= {planned.folder: planned for planned in reported_of(size, part, any_choices(PARTS))}
    runs, slots, times, prepared = Counter[str](), Counter[str](), Counter[str](), 0.0
    for planned in studies.values():
        kind = next(kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, planned.folder))
        runs[kind] += len(planned.experiment.tasks)
        slots[kind] += len(planned.experiment.tasks) * planned.experiment.horizon
        times[kind] += cost(planned)
        prepared += len(planned.experiment.tasks) * preparation(planned.experiment.scenario)
    print("| studies | runs | million slots | CPU seconds |\n|---|---|---|---|")
    for kind in KINDS.values():
        print(f"| {kind} | {runs[kind]:,} | {slots[kind] / 1e6:,.1f} | {times[kind]:.0f} |")
    print(f"| all | {runs.total():,} | {slots.total() / 1e6:,.1f} | {times.total():.0f} |")
    print(f"\nof these {prepared:.0f} s to prepare runs")
    world = scenario("S1")
    names = (None, *sorted({c.policy.name for planned in studies.values() for c in planned.experiment.policies}))
    costs = {name: 1e6 * per_slot(name, world.perturbation, world.reward) for name in names}
    print("us per slot in S1: " + ", ".join(f"{name or 'references'} {cost:.2f}" for name, cost in costs.items()))


if __name__ == "__main__":
    main()
