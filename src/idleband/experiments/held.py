"""The experiment that a results folder holds, read without running the code in the folder.

A folder contains copies of users' files, with which its experiment can be repeated from its experiment.toml. When other
results are added to a folder, that code need not be run, and the folder may come from others. The copies are therefore
only compared, by their digests, with the policies and models that this process has loaded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from idleband import validation
from idleband.errors import InputError
from idleband.experiments.spec import SETTINGS, Experiment, grid
from idleband.policies.protocol import Policy
from idleband.policies.registry import ConfiguredPolicy, all_policies, policy
from idleband.scenario.build import read_toml, with_data_files
from idleband.scenario.scenario import Scenario
from idleband.scenario.table import from_table
from idleband.simulation.devices import Device, read_device
from idleband.simulation.simulate import check_size

FILE = "experiment.toml"


@dataclass(frozen=True)
class HeldExperiment:
    """The experiment of a folder. Policies whose code is not loaded have no functions, only what their tasks need."""

    scenario: Scenario | None  # None: its perturbation model is another one than that of the experiment it is read for
    policies: tuple[ConfiguredPolicy, ...]
    absent: tuple[ConfiguredPolicy, ...]  # whose code is not loaded
    files: Mapping[str, str]  # of the absent policies, by name
    horizon: int
    replications: int
    seed: int
    device: Device


def read_held(folder: Path, given: Experiment) -> HeldExperiment:
    """Return the experiment that a folder holds, to add the results of a given one."""
    file = folder / FILE
    data = read_toml(file)
    try:
        validation.whole(data.get("schema", 1), "schema", 1, 1)
        scenario = _scenario(validation.table(data.get("scenario"), "scenario"), folder, given.scenario)
        size = validation.table(data.get("experiment", {}), "experiment")
        validation.check_keys(size, SETTINGS, "experiment")
        device = read_device(size.get("device"), size.get("precision"))
        horizon, replications, seed = check_size(
            scenario or given.scenario, size.get("horizon"), size.get("replications", 5), size.get("seed", 0)
        )
        present, absent, files = [], [], {}
        for entry in validation.sequence(data.get("policy", []), "policy", "[[policy]], once for each"):
            entry = validation.table(entry, "policy")
            name = entry.get("name")
            if not isinstance(name, str) or ".py:" not in name:
                present += grid(entry)
                continue
            public, digest = name.rpartition(":")[2], _digest(folder, name)
            values = {key: value for key, value in entry.items() if key != "name"}
            found = _loaded(public, digest, given)
            if found is not None:
                present.append(policy(found, **values))
            elif not _is_replaced(public, values, given):
                stand_in = SimpleNamespace(name=public, source=digest, key=(public, digest))
                absent.append(ConfiguredPolicy(cast(Policy, stand_in), values))
                files[public] = name
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return HeldExperiment(scenario, tuple(present), tuple(absent), files, horizon, replications, seed, device)


def _digest(folder: Path, name: str) -> str:
    """Return the digest of the file of file.py:NAME, which identifies its source."""
    place = folder / name.rpartition(":")[0]
    try:
        return hashlib.sha256(place.read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: {getattr(error, 'strerror', None) or error}") from None


def _loaded(name: str, digest: str, given: Experiment) -> Policy | None:
    """Return the policy of this name and source, if this process has loaded it."""
    candidates = [*(one.policy for one in given.policies), *all_policies().values()]
    return next((one for one in candidates if one.name == name and one.source == digest), None)


def _is_replaced(name: str, values: dict[str, Any], given: Experiment) -> bool:
    """Return whether the given experiment contains another version of this policy with the same label."""
    for one in given.policies:
        if one.policy.name == name:
            own = {key: value for key, value in values.items() if key in one.policy.parameters}
            return policy(one.policy, **own).label in {other.label for other in given.policies}
    return False


def _scenario(table: Mapping[str, Any], folder: Path, given: Scenario) -> Scenario | None:
    """Return the scenario; None if its perturbation model is in a file that is not that of the given scenario."""
    table = with_data_files(table, folder)
    perturbation, model = table.get("perturbation"), given.perturbation.model
    kind = perturbation.get("kind") if isinstance(perturbation, Mapping) else perturbation
    if isinstance(kind, str) and ".py:" in kind:
        if (kind.rpartition(":")[2], _digest(folder, kind)) != (model.name, model.source):
            return None
        table["perturbation"] = {**perturbation, "kind": model} if isinstance(perturbation, Mapping) else model
    return from_table(table)
