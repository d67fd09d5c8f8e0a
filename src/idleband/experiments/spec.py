"""An experiment as data: a scenario, cases, and a size."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idleband import validation
from idleband.errors import InputError
from idleband.policies.knowledge import setup_of
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.policies.registry import grid as policy_grid
from idleband.scenario.build import from_table, located, read_toml
from idleband.scenario.scenario import Scenario
from idleband.simulation.simulate import Unit, check_size


@dataclass(frozen=True)
class Experiment:
    scenario: Scenario
    cases: tuple[ConfiguredPolicy, ...]
    horizon: int = 100_000
    replications: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.cases:
            raise InputError("policy: an experiment needs at least one")
        labels = [case.label for case in self.cases]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"policy {label}: given twice")
        for case in self.cases:
            if case.policy.check is not None:
                case.policy.check(setup_of(self.scenario, case.params))

    @property
    def units(self) -> list[Unit]:
        """What is to be run: on every replication the references, and each case."""
        return [Unit(case, i) for i in range(self.replications) for case in (None, *self.cases)]

    def to_table(self, where: Mapping[str, str] | None = None, model: str | None = None) -> dict[str, Any]:
        """As it would stand in a file, complete. `where` gives file.py:name for policies from a user's file, `model` for
        the perturbation model."""
        where, world = where or {}, self.scenario.to_dict()
        if model is not None:
            world["perturbation"]["kind"] = model
        return {
            "schema": 1,
            "experiment": {"horizon": self.horizon, "replications": self.replications, "seed": self.seed},
            "scenario": world,
            "policy": [{"name": where.get(c.label, c.policy.name), **c.values} for c in self.cases],
        }


def every_policy() -> list[ConfiguredPolicy]:
    """All policies of the package, with their defaults."""
    return [policy(p) for p in POLICIES.values() if p.source is None]


def experiment(
    scenario: Scenario, cases: Iterable[ConfiguredPolicy], horizon: Any = 100_000, replications: Any = 5, seed: Any = 0
) -> Experiment:
    """An experiment, its size validated."""
    return Experiment(scenario, tuple(cases), *check_size(horizon, replications, seed))


def read_experiment(path: Path, cases: Iterable[ConfiguredPolicy] = (), **size: Any) -> Experiment:
    """An experiment from a TOML file; cases and a size (horizon, replications, seed) given here replace the file's.

    Without cases here or there, all policies of the package run. `file.py:name`, a policy's or a model's, is looked up
    from the folder of the file.
    """
    data = read_toml(path)
    try:
        validation.check_keys(data, ("schema", "scenario", "experiment", "policy"), "the file")
        validation.whole(data.get("schema", 1), "schema", 1, 1)
        if "scenario" not in data:
            raise InputError("[scenario] is missing")
        world = from_table(located(validation.table(data["scenario"], "scenario"), path.parent))
        own_size = validation.table(data.get("experiment", {}), "experiment")
        validation.check_keys(own_size, ("horizon", "replications", "seed"), "experiment")
        entries = data.get("policy", [])
        if not isinstance(entries, list):
            raise InputError("policy: write [[policy]], once for each")
        own_cases = [case for entry in entries for case in grid(validation.table(entry, "policy"), path.parent)]
        return experiment(world, tuple(cases) or own_cases or every_policy(), **{**own_size, **size})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def grid(entry: Mapping[str, Any], folder: Path = Path()) -> list[ConfiguredPolicy]:
    """The cases of one [[policy]] entry: a list as a value is a grid.

    >>> [case.label for case in grid({"name": "mp-lucb", "beta": [0.1, 0.5]})]
    ['mp-lucb beta=0.1', 'mp-lucb beta=0.5']
    """
    name = entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"policy.name = {name!r}: must be the name of a policy, or file.py:name")
    if ".py:" in name:
        name = str(folder / name)
    parameters = {key: value for key, value in entry.items() if key != "name"}
    return policy_grid(name, **parameters)
