"""The only place that configures the compiler, its cache and its targets.

Every kernel is a plain function under `@jit`: scalar loops on explicit state, nothing allocated inside. The same
source runs interpreted (`NUMBA_DISABLE_JIT=1`), compiled on the CPU, inside a CUDA kernel, and inside that kernel
simulated on a CPU.

A loop that calls a policy is not passed the policy's functions as arguments: it would be compiled anew in every
process. `specialise` clones the loop's function with the policy's functions bound as its globals instead, so there is
one loop in the source and one cached machine code per policy.
"""

import hashlib
import os
import platform
import shutil
import tempfile
import time
import types
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# error_model "numpy": a division by zero gives inf or nan as in NumPy, without a check and a branch at each one.
# fastmath stays off: compiled and interpreted runs must agree to the last bit.
OPTIONS: Mapping[str, Any] = types.MappingProxyType({"error_model": "numpy", "nogil": True, "_nrt": False})


def jit(function: F) -> F:
    """Compile a function the first time it is called (never, under `NUMBA_DISABLE_JIT=1`)."""
    return cast(F, numba.njit(forceinline=True, **OPTIONS)(function))


def specialise(loop: Callable[..., Any], name: str, bindings: Mapping[str, Any], *, cached: bool = True) -> Any:
    """A compiled copy of `loop` in which the global names in `bindings` mean what they map to.

    `name` must say everything that the bindings are, because the on-disk cache finds the machine code by it: the
    cache cannot see that a bound function changed.
    """
    clone = _clone(loop, name, bindings)
    folder = cache_folder() if cached else None
    if folder is None:
        return numba.njit(**OPTIONS)(clone)
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return numba.njit(cache=True, **OPTIONS)(clone)
    finally:
        config.CACHE_DIR = before


def interpreted(loop: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Any:
    """The same copy, left to the Python interpreter; whatever compiled functions it calls stay compiled."""
    return _clone(loop, name, bindings)


def _clone(loop: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> types.FunctionType:
    function = cast(types.FunctionType, getattr(loop, "py_func", loop))
    clone = types.FunctionType(function.__code__, {**function.__globals__, **bindings}, name, function.__defaults__)
    clone.__qualname__ = name
    clone.__doc__ = function.__doc__
    return clone


@cache
def source_hash() -> str:
    """A hash of the package's sources that shape results, so that nothing stale is reused after a change."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("kernels", "policies", "scenario", "simulation"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(f"{folder}/{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def cache_folder() -> Path | None:
    """Where compiled code is kept between processes; None where nothing can be written.

    Keyed on the package's sources and the versions of what compiles them, because the compiler's own cache does not
    notice that a callee in another file changed.
    """
    versions = (platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__)
    key = hashlib.sha256("\0".join((source_hash(), *versions)).encode()).hexdigest()[:16]
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idleband"
    root = Path(os.environ.get("IDLEBAND_CACHE_DIR") or default)
    try:
        (root / key).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / key):
            pass
        os.utime(root / key)
        _forget_old(root, keep=root / key)
    except OSError:
        return None
    return root / key


def _forget_old(root: Path, keep: Path, days: int = 30) -> None:
    """Drop compiled code of versions that were not used for a month."""
    for folder in root.iterdir():
        if folder != keep and folder.is_dir() and folder.stat().st_mtime < time.time() - days * 86400:
            shutil.rmtree(folder, ignore_errors=True)


# --- one state per GPU thread -------------------------------------------------------------------------------------


def batch(states: list[Any]) -> Any:
    """Equal NamedTuples of arrays as one, the replication axis last, so that neighbouring threads read neighbours.

    >>> from typing import NamedTuple
    >>> class Point(NamedTuple):
    ...     x: np.ndarray
    ...     name: int
    >>> batch([Point(np.array([1.0, 2.0]), 7), Point(np.array([3.0, 4.0]), 7)]).x.shape
    (2, 2)
    """
    fields = []
    for values in zip(*states, strict=True):
        if isinstance(values[0], np.ndarray):
            fields.append(np.stack(values, axis=-1))
        elif isinstance(values[0], tuple):
            fields.append(batch(list(values)))
        else:
            fields.append(values[0])
    return type(states[0])(*fields)


def member(example: tuple[Any, ...]) -> Callable[[Any, int], Any]:
    """A function (batched, i) -> the i-th of a batch of NamedTuples like `example`, as views.

    Written out as source and compiled by Python, because neither compiler target can loop over the fields of a tuple
    that holds unlike things.
    """
    types_used: dict[str, type] = {}

    def expression(value: tuple[Any, ...], path: str) -> str:
        name = f"Type{len(types_used)}"
        types_used[name] = type(value)
        parts = []
        for field, item in zip(type(value)._fields, value, strict=True):  # type: ignore[attr-defined]
            here = f"{path}.{field}"
            if isinstance(item, np.ndarray):
                parts.append(f"{here}[..., i]")
            elif isinstance(item, tuple):
                parts.append(expression(item, here))
            else:
                parts.append(here)
        return f"{name}({', '.join(parts)})"

    source = f"def view(batched, i):\n    return {expression(example, 'batched')}\n"
    namespace: dict[str, Any] = dict(types_used)
    exec(compile(source, "<member>", "exec"), namespace)
    return jit(cast(Callable[[Any, int], Any], namespace["view"]))
