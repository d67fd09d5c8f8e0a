"""Compare policies on the same sample paths, and load a stored comparison."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from idleband import validation
from idleband.cluster.connect import executor_for
from idleband.errors import InputError
from idleband.experiments.run import run_experiment
from idleband.experiments.spec import experiment
from idleband.experiments.store import read_results
from idleband.experiments.study import Study
from idleband.policies.protocol import Policy
from idleband.policies.registry import Compiled, ConfiguredPolicy, PolicyLike, policy, require_compiled
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.simulation.devices import DeviceName, Precision
from idleband.validation import WholeNumber

if TYPE_CHECKING:
    from distributed import Client

Policies: TypeAlias = Iterable[PolicyLike | Iterable[PolicyLike]]
"""A list of policies; its entries may be lists, such as those that `grid` returns."""


def compare(
    scenario: ScenarioLike,
    policies: Policies,
    *,
    horizon: WholeNumber | None = None,
    replications: WholeNumber = 5,
    seed: WholeNumber = 0,
    out: str | Path | None = None,
    threads: int | None = None,
    client: "Client | None" = None,
    device: DeviceName = "cpu",
    precision: Precision = "float64",
    compiled: Compiled = "auto",
) -> Study:
    """Run several policies on the same sample paths.

    Parameters
    ----------
    scenario : str, Path, dict or Scenario
        The scenario, as in `idleband.scenario`.
    policies : list of policies
        Names such as "mp-ucb" or "mp-lucb:beta=0.5", typed constructors such as `ib.policies.MPLUCB(beta=0.5)`,
        registered classes, file.py:NAME, and lists of these, such as `ib.grid("mp-lucb", beta=[0.1, 0.5])`.
    horizon : int, optional
        Number of slots; by default 100,000, or the number of slots of the trace if one is replayed.
    replications : int
        Number of independent replications; where a trace is replayed they start at different slots of it, and intervals
        come from a bootstrap over blocks of the trace.
    seed : int
        Seed of the random streams. Equal seeds give equal sample paths.
    out : str or Path, optional
        Folder for the results. If it contains part of the same experiment, only the rest is run; more policies and more
        replications extend it.
    threads : int, optional
        Number of threads; by default all processor cores.
    client : dask.distributed.Client, optional
        Run on the workers of a Dask cluster instead of on threads, with the same results. Needs the extra `cluster`.
        The final states of policies are not returned.
    device : {"cpu", "cuda"}
        "cuda" runs all replications of a policy together on an NVIDIA GPU. Needs the extra `gpu`. Results are close to
        those of the CPU, not equal bit by bit; the final states of policies are not returned.
    precision : {"float64", "float32"}
        With "float32", a GPU keeps numbers that are not sums over many slots in 32 bits, which is faster.
    compiled : {"auto", "require"}
        With "require", a user's policy that does not compile is refused instead of run interpreted with a warning.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        If an argument is invalid, or the folder contains another experiment.
    ClusterError
        If the Dask cluster of `client` is lost, or its workers would not give the same results.

    Examples
    --------
    >>> import idleband as ib
    >>> study = ib.compare("S1", ["mp-random", ib.grid("mp-ucb", L=[0.5, 1.5])], horizon=1000, replications=3)
    >>> study.labels
    ['mp-random', 'mp-ucb L=0.5', 'mp-ucb']
    >>> study.difference("mp-ucb", "mp-random").low > 0
    True
    """
    configured = [require_compiled(policy(one), compiled) for one in _flat(policies)]
    spec = experiment(build_scenario(scenario), configured, horizon, replications, seed, device, precision)
    folder = None if out is None else validation.path(out, "out", "folder")
    return run_experiment(spec, folder, executor=executor_for(threads, client, spec.device))


def _flat(policies: Policies) -> Iterator[PolicyLike]:
    """Yield the policies of a list whose entries may be lists."""
    if isinstance(policies, str | ConfiguredPolicy | Policy | type) or not isinstance(policies, Iterable):
        raise InputError("policies: must be a list of policies")
    for entry in policies:
        if isinstance(entry, str | ConfiguredPolicy | Policy | type) or not isinstance(entry, Iterable):
            yield entry
        else:
            yield from _flat(entry)


def load(folder: str | Path) -> Study:
    """Load a stored study from its results folder.

    Parameters
    ----------
    folder : str or Path
        A folder that `compare` or `idleband run` has written. Folders of version 0.1 can be loaded, too.

    Returns
    -------
    Study
        The study. The code of users' policies and perturbation models is not needed.

    Raises
    ------
    InputError
        If the folder is not a results folder, is not finished, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import idleband as ib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ib.compare("S1", ["mp-ucb"], horizon=100, replications=2, out=folder)
    ...     ib.load(folder)
    Study(S1: 1 policy x 2 replications x 100 slots)
    """
    scenario, seed, results, complete = read_results(validation.path(folder, "folder", "folder"))
    return Study(scenario, seed, tuple(results), complete)
