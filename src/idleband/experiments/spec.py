"""An experiment as data: scenario, configured policies, horizon, replications, seed, and what it runs on."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idleband import validation
from idleband.errors import InputError
from idleband.policies.registry import DECENTRALISED, POLICIES, ConfiguredPolicy, policy
from idleband.policies.registry import grid as policy_grid
from idleband.scenario.build import located, read_toml
from idleband.scenario.scenario import Scenario
from idleband.scenario.table import from_table
from idleband.simulation.devices import CPU, Device, check_device, read_device
from idleband.simulation.scheduler import Task
from idleband.simulation.simulate import check_size
from idleband.simulation.users_run import check_coordination, setup_for
from idleband.validation import WholeNumber

SETTINGS = ("horizon", "replications", "seed", "device", "precision")  # of an experiment file, under [experiment]


@dataclass(frozen=True)
class Experiment:
    scenario: Scenario
    policies: tuple[ConfiguredPolicy, ...]
    horizon: int = 100_000
    replications: int = 5
    seed: int = 0
    device: Device = CPU

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError("policy: an experiment needs at least one")
        check_device(self.device, self.scenario, self.horizon)
        labels = [configured.label for configured in self.policies]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"policy {label}: given twice")
        for configured in self.policies:
            check_coordination(self.scenario, configured.policy)
            if configured.policy.check is not None:
                configured.policy.check(setup_for(self.scenario, configured, self.horizon))

    @property
    def tasks(self) -> list[Task]:
        """The references and each policy, on every replication."""
        return [Task(configured, i) for i in range(self.replications) for configured in (None, *self.policies)]

    def to_table(
        self,
        where: Mapping[str, str] | None = None,
        model: str | None = None,
        files: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the complete experiment as it is written to a file.

        `where` maps labels of policies from a user's file to file.py:name; `model` is the same for the perturbation
        model. `files` are the names of the files of the trace and the context.
        """
        where, scenario = where or {}, self.scenario.to_dict()
        for key, file in (files or {}).items():
            scenario[key]["file"] = file
        if model is not None:
            scenario["perturbation"]["kind"] = model
        return {
            "schema": 1,
            "experiment": {
                "horizon": self.horizon,
                "replications": self.replications,
                "seed": self.seed,
                **self.device.to_dict(),
            },
            "scenario": scenario,
            "policy": [{"name": where.get(c.label, c.policy.name), **c.values} for c in self.policies],
        }


def every_policy(scenario: Scenario | None = None) -> list[ConfiguredPolicy]:
    """Return all policies of the package that can run on a scenario, with default parameters.

    Without a scenario, those that select for a base station.
    """
    if scenario is None or scenario.uncoordinated is None:
        return [policy(p) for p in POLICIES.values() if p.source is None]
    found = []
    for one in (DECENTRALISED | POLICIES).values():
        with contextlib.suppress(InputError):
            check_coordination(scenario, one)
            found += [policy(one)] if one.source is None else []
    return found


def experiment(
    scenario: Scenario,
    policies: Iterable[ConfiguredPolicy],
    horizon: WholeNumber | None = None,
    replications: WholeNumber = 5,
    seed: WholeNumber = 0,
    device: str | None = None,
    precision: str | None = None,
) -> Experiment:
    """Return an experiment after checking its size; the default horizon is that of `check_size`."""
    size = check_size(scenario, horizon, replications, seed)
    return Experiment(scenario, tuple(policies), *size, read_device(device, precision))


def read_experiment(path: Path, policies: Iterable[ConfiguredPolicy] = (), **size: Any) -> Experiment:
    """Return the experiment that a TOML file describes.

    Policies and settings (horizon, replications, seed, device, precision) that are given here replace those of the
    file. If neither has policies, all policies of the package are used. `file.py:name` is relative to the folder of the
    file.
    """
    data = read_toml(path)
    try:
        validation.check_keys(data, ("schema", "scenario", "experiment", "policy"), "the file")
        validation.whole(data.get("schema", 1), "schema", 1, 1)
        if "scenario" not in data:
            raise InputError("[scenario] is missing")
        scenario = from_table(located(validation.table(data["scenario"], "scenario"), path.parent))
        own_size = validation.table(data.get("experiment", {}), "experiment")
        validation.check_keys(own_size, SETTINGS, "experiment")
        entries = data.get("policy", [])
        if not isinstance(entries, list):
            raise InputError("policy: write [[policy]], once for each")
        listed = [one for entry in entries for one in grid(validation.table(entry, "policy"), path.parent)]
        return experiment(scenario, tuple(policies) or listed or every_policy(scenario), **{**own_size, **size})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def grid(entry: Mapping[str, Any], folder: Path = Path()) -> list[ConfiguredPolicy]:
    """Return the configured policies of one [[policy]] entry; a list as a value is a grid.

    >>> [one.label for one in grid({"name": "mp-lucb", "beta": [0.1, 0.5]})]
    ['mp-lucb beta=0.1', 'mp-lucb beta=0.5']
    """
    name = entry.get("name")
    if not isinstance(name, str):
        raise InputError(f"policy.name = {name!r}: must be the name of a policy, or file.py:name")
    if ".py:" in name:
        name = str(folder / name)
    parameters = {key: value for key, value in entry.items() if key != "name"}
    return policy_grid(name, **parameters)
