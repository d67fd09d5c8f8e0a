"""A run for the playground, in a process of its own: settings in, one line of JSON for every checkpoint out.

All policies go forward together, on the same paths, so that their curves grow side by side.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from idleband.errors import InputError
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario
from idleband.service.messages import Value
from idleband.simulation.path import checkpoints
from idleband.simulation.run import PolicyRun, ReferenceRun, in_segments
from idleband.simulation.statistics import student_t

MAX_POLICIES, MAX_REPLICATIONS, MAX_SLOTS, MAX_WORK = 6, 10, 10**6, 2 * 10**7
MAX_MEMORY = 3 * 2**30  # bytes of one run


class Chosen(Struct, forbid_unknown_fields=True):
    name: str
    parameters: dict[str, Value] = {}


class Trial(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to run."""

    scenario: str = "S1"
    perturbation: str = "linear"
    users: Annotated[int, Meta(ge=1, le=10)] = 5
    policies: Annotated[list[Chosen], Meta(min_length=1, max_length=MAX_POLICIES)]
    horizon: Annotated[int, Meta(ge=10, le=MAX_SLOTS)] = 20_000
    replications: Annotated[int, Meta(ge=1, le=MAX_REPLICATIONS)] = 3
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


def checked(trial: Trial) -> tuple[Scenario, list[ConfiguredPolicy]]:
    """The scenario and the policies, or one line that says what is wrong."""
    for value, field, options in (
        (trial.scenario, "scenario", PRESETS), (trial.perturbation, "perturbation", _package_models()),
    ):  # fmt: skip
        if value not in options:
            raise InputError(f"{field} = {value!r}: must be one of {', '.join(options)}")
    for one in trial.policies:
        if one.name not in POLICIES or POLICIES[one.name].source is not None:
            raise InputError(f"policy = {one.name!r}: must be the name of a policy of the package")
    cases = [policy(one.name, **one.parameters) for one in trial.policies]
    if len({case.label for case in cases}) < len(cases):
        raise InputError("policies: each of them once")
    work = len(cases) * trial.replications * trial.horizon
    if work > MAX_WORK:
        raise InputError(
            f"horizon = {trial.horizon}: {work:,} slots in all; must be at most {MAX_WORK:,}: fewer slots, policies or"
            " replications"
        )
    return make_scenario(trial.scenario, users=trial.users, perturbation=trial.perturbation), cases


def _package_models() -> list[str]:
    return [name for name, model in PERTURBATION_MODELS.items() if model.source is None]


def options() -> dict[str, Any]:
    """What there is to choose from."""
    return {
        "scenarios": list(PRESETS),
        "scenario_notes": {name: preset.note for name, preset in PRESETS.items()},
        "perturbations": _package_models(),
        "limits": {
            "policies": MAX_POLICIES, "replications": MAX_REPLICATIONS, "slots": MAX_SLOTS, "work": MAX_WORK,
        },
        "policies": [
            {
                "name": name,
                "description": one.description,
                "parameters": [
                    {
                        "name": p.name,
                        "default": p.default,
                        "kind": "word" if hasattr(p.bound, "words") else p.kind.__name__,
                        "words": list(getattr(p.bound, "words", ())),
                        "allowed": p.allowed,
                        "meaning": p.meaning,
                    }
                    for p in one.parameters.values()
                    if p.name not in one.fixed
                ],
            }
            for name, one in POLICIES.items()
            if one.source is None
        ],
    }  # fmt: skip


def run(trial: Trial, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run it, and tell of every checkpoint."""
    world, cases = checked(trial)
    R, T = trial.replications, trial.horizon
    walks = [ReferenceRun.start(world, T, trial.seed, i) for i in range(R)]
    runs: dict[str, list[PolicyRun]] = {}
    for case in cases:
        tell({"kind": "preparing", "policy": case.label})
        runs[case.label] = [PolicyRun.start(world, case, T, trial.seed, i) for i in range(R)]
    total, done = T * R * (len(cases) + 1), 0
    for point in _points(walks, runs, checkpoints(T)):
        if isinstance(point, int):
            done += point
            tell({"kind": "progress", "done": done / total})
        else:
            tell({"kind": "point", "done": done / total, **point})
    tell({"kind": "end"})


def _points(walks: list[ReferenceRun], runs: dict[str, list[PolicyRun]], marks: Any) -> Iterator[int | dict[str, Any]]:
    """How many slots were just run; and, at each checkpoint, where the curves are."""
    every: list[PolicyRun | ReferenceRun] = [*walks, *(one for many in runs.values() for one in many)]
    for c, t in enumerate(marks.tolist()):
        for one in every:
            ran: list[int] = []
            in_segments(one, t, ran.append)
            yield sum(ran)
        curves = {}
        for label, many in runs.items():
            reward = np.array([one.tally.curves[0, c] for one in many])
            best = np.array([walk.references.curves[:2, c] for walk in walks])
            regret = best - reward[:, None]
            curves[label] = {
                "static": _with_interval(regret[:, 0]),
                "contextual": _with_interval(regret[:, 1]),
                "reward": _with_interval(reward / t),
            }
        yield {"t": t, "curves": curves}


def _with_interval(values: Any) -> list[float]:
    """A mean and the half width of its 95% interval (0 for one replication)."""
    mean, half = student_t(values)
    return [float(mean), float(half) if len(values) > 1 else 0.0]


def main() -> None:
    def tell(said: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(said, allow_nan=False) + "\n")
        sys.stdout.flush()

    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    try:
        run(msgspec.json.decode(sys.argv[1].encode(), type=Trial), tell)
    except (InputError, msgspec.DecodeError) as error:
        tell({"kind": "error", "detail": str(error)})
    except MemoryError:
        tell({"kind": "error", "detail": f"it needs more than {MAX_MEMORY / 2**30:g} GiB of memory, and was stopped"})


if __name__ == "__main__":
    main()
