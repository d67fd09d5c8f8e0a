"""Run the simulation loop on a GPU, one replication per thread.

Every field of the memory is allocated once for all replications, with the replication axis last, so that neighbouring
threads read neighbouring words; each thread builds its memory from slices. Policy, environment and bookkeeping are the
functions that run on the CPU.

Without a GPU the kernel runs in Numba's simulator (`NUMBA_DISABLE_JIT=1 NUMBA_ENABLE_CUDASIM=1` before the import).
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numba import cuda

from idleband.errors import InputError
from idleband.kernels.compile import jit, resolve_modules, resolved, specialise
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.scenario import Scenario
from idleband.simulation import loop
from idleband.simulation.loop import Tally
from idleband.simulation.run import PolicyRun, check_model, model_bindings

THREADS = 64  # per block


def run_on_gpu(
    scenario: Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replications: int
) -> tuple[Tally, Any]:
    """Run all replications of a configured policy in one launch; return tally and state, replication axis last.

    Results equal those of the CPU unless two indices differ only in the last bit of a logarithm.
    """
    runs = [PolicyRun.start(scenario, configured, horizon, seed, i) for i in range(replications)]
    first = runs[0]
    memory = [(run.path, run.tally, run.state, (run.rng,)) for run in runs]
    path, tally, state, (rng,) = (_on_device(_batch(list(parts))) for parts in zip(*memory, strict=True))
    path = path._replace(x=path.contexts.reshape(scenario.K, scenario.dimension, replications))
    broken = cuda.to_device(np.zeros(replications, np.int64))
    kernel = _kernel(configured, scenario.perturbation.model, memory[0])
    blocks = (replications + THREADS - 1) // THREADS
    kernel[blocks, THREADS](_on_device(first.setup), path, tally, state, rng, horizon, broken)
    for fault in path.fault.copy_to_host().T:
        check_model(scenario, fault)
    slots = broken.copy_to_host()
    if slots.any():
        raise InputError(f"policy {configured.policy.name}: selected invalid channels in slot {slots[slots > 0].min()}")
    return _to_host(tally), _to_host(state)


def _kernel(configured: ConfiguredPolicy, model: PerturbationModel, example: tuple[Any, ...]) -> Any:
    """Return the kernel of a policy under a perturbation model, for memory like the example."""
    resolve_modules()
    path_of, tally_of, state_of, rng_of = (resolved(_member(part)) for part in example)
    bindings = {"select": configured.policy.select, "update": configured.policy.update} | model_bindings(
        model
    ).functions
    run = specialise(
        loop.run, "run_on_gpu", {name: resolved(function) for name, function in bindings.items()}, cached=False
    )

    def kernel(setup: Any, path: Any, tally: Any, state: Any, rng: Any, last: int, broken: Any) -> None:
        i = cuda.grid(1)
        if i < broken.size:
            own = (path_of(path, i), state_of(state, i), rng_of((rng,), i)[0], tally_of(tally, i))
            broken[i] = run(setup, own[0], own[1], own[2], own[3], 0, last)

    return cuda.jit(kernel)


def _fields(value: tuple[Any, ...], each: Callable[[Any], Any]) -> Any:
    """Return a tuple with `each` applied to its arrays, also in nested tuples."""
    parts = [_fields(v, each) if isinstance(v, tuple) else each(v) if hasattr(v, "shape") else v for v in value]
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def _on_device(value: tuple[Any, ...]) -> Any:
    return _fields(value, cuda.to_device)


def _to_host(value: tuple[Any, ...]) -> Any:
    return _fields(value, lambda array: array.copy_to_host())


def _batch(members: list[tuple[Any, ...]]) -> Any:
    """Stack equal tuples of arrays, the replication axis last."""
    columns: list[Any] = []
    for values in zip(*members, strict=True):
        if isinstance(values[0], np.ndarray):
            columns.append(np.stack(cast(tuple[npt.NDArray[Any], ...], values), axis=-1))
        elif isinstance(values[0], tuple):
            columns.append(_batch(list(values)))
        else:
            columns.append(values[0])
    kind = type(members[0])
    return kind(*columns) if hasattr(kind, "_fields") else tuple(columns)


def _member(example: tuple[Any, ...]) -> Callable[[Any, int], Any]:
    """Return a function (batch, i) that returns the i-th member of a batch of tuples like `example`, as views.

    It is generated as source, because compiled code cannot loop over the fields of a heterogeneous tuple.
    """
    kinds: dict[str, type] = {}

    def rebuilt(value: tuple[Any, ...], path: str) -> str:
        parts = []
        for j, item in enumerate(value):
            here = f"{path}[{j}]"
            is_array = isinstance(item, np.ndarray)
            parts.append(f"{here}[..., i]" if is_array else rebuilt(item, here) if isinstance(item, tuple) else here)
        inner = ", ".join(parts)
        if not hasattr(value, "_fields"):
            return f"({inner},)" if parts else "()"
        name = f"Kind{len(kinds)}"
        kinds[name] = type(value)
        return f"{name}({inner})"

    namespace: dict[str, Any] = {}
    source = f"def member(batch, i):\n    return {rebuilt(example, 'batch')}\n"
    exec(source, namespace)
    namespace.update(kinds)
    return jit(cast(Callable[[Any, int], Any], namespace["member"]))
