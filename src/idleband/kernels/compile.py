"""Configuration of the compiler, its cache and its targets.

Every kernel is a plain function under `@jit`: scalar loops on explicit state, without allocation. The same source runs
interpreted (`NUMBA_DISABLE_JIT=1`), compiled on the CPU, inside a CUDA kernel, and inside that kernel simulated on a
CPU.

Numba is imported when the first kernel is compiled, not with the package: `jit` returns a `LazyFunction`.

A loop that calls a policy does not receive the policy's functions as arguments, because it would then be compiled again
in every process. Instead, `specialise` copies the loop's function with the policy's functions bound as its globals. So
there is one loop in the source and one cached machine code per policy.
"""

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
import types
from collections.abc import Callable, Mapping
from functools import cache, update_wrapper
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# error_model "numpy": a division by zero gives inf or nan as in NumPy, without a check and a branch for each division.
# fastmath stays off: compiled and interpreted runs must agree to the last bit.
# _nrt off (a private option, checked by tests/test_private_interfaces.py): kernels do not allocate, so arrays need no
# reference counts; with counts MP-LUCB takes three times as long.
OPTIONS: Mapping[str, Any] = types.MappingProxyType({"error_model": "numpy", "nogil": True, "_nrt": False})
ALLOCATING: Mapping[str, Any] = types.MappingProxyType({**OPTIONS, "_nrt": True})


INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")  # nothing is compiled


@cache
def compiler() -> Any:
    """Import Numba, extend it with the conversions that users' policies need, and return it."""
    import numba
    from numba.extending import overload

    @overload(float)
    def float_of_flag(value: Any) -> Any:
        """Implement float(flag), which Numba does not have."""
        if isinstance(value, numba.types.Boolean):

            def implementation(value: Any) -> float:
                return 1.0 if value else 0.0

            return implementation
        return None

    return numba


class LazyFunction:
    """A function that is compiled at its first use.

    It can be called, and it can be used inside other compiled functions: Numba asks for the attribute `_numba_type_`
    of a global that it has no type for (a private interface, checked by tests/test_private_interfaces.py). The two
    uses are compiled separately; see `inner_compiler`.
    """

    _building = Lock()

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], own: bool) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options = options
        self._own = own  # whether it is a function of the package, not a user's
        self._dispatchers: dict[bool, Any] = {}  # by whether it is called from compiled code

    def _dispatcher(self, inner: bool) -> Any:
        if inner not in self._dispatchers:
            numba = compiler()
            with self._building:
                if inner not in self._dispatchers:
                    more = _inner_options(self._own) if inner else {}
                    self._dispatchers[inner] = numba.njit(forceinline=True, **more, **self._options)(self.py_func)
        return self._dispatchers[inner]

    @property
    def dispatcher(self) -> Any:
        """The function as an object of Numba that can be called from Python."""
        return self._dispatcher(inner=False)

    @property
    def _numba_type_(self) -> Any:
        return self._dispatcher(inner=True)._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(inner=False)(*arguments)

    def __reduce__(self) -> str:
        """Return the name under which a pickle finds the function again."""
        return self.py_func.__qualname__

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"


def _inner_options(own: bool) -> dict[str, Any]:
    from idleband.kernels.inner_compiler import InnerCompiler

    return {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} | ({"pipeline_class": InnerCompiler} if own else {})


def jit(function: F) -> F:
    """Compile a function of the package at its first use (never, under `NUMBA_DISABLE_JIT=1`)."""
    return function if INTERPRETED else cast(F, LazyFunction(function, OPTIONS, own=True))


def jit_user(function: F, *, allocates: bool) -> F:
    """Compile a user's function at its first use; `allocates` allows it to create arrays."""
    options = ALLOCATING if allocates else OPTIONS
    return function if INTERPRETED else cast(F, LazyFunction(function, options, own=False))


_configuring = Lock()


def specialise(
    loop: Callable[..., Any],
    name: str,
    bindings: Mapping[str, Any],
    *,
    cached: bool = True,
    allocates: bool = False,
) -> Any:
    """Return a compiled copy of `loop` in which the global names in `bindings` have the values that they map to.

    `name` must identify the bindings, because the cache on disk finds the machine code by it; the cache does not notice
    that a bound function changed.
    """
    clone = _clone(loop, name, bindings)
    if INTERPRETED:
        return clone
    numba = compiler()
    options = ALLOCATING if allocates else OPTIONS
    folder = cache_folder() if cached else None
    if folder is None:
        return numba.njit(no_cfunc_wrapper=True, **options)(clone)
    config: Any = numba.config
    with _configuring:  # another thread would find the folder of this one, or none
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            return numba.njit(cache=True, no_cfunc_wrapper=True, **options)(clone)
        finally:
            config.CACHE_DIR = before


def is_cached(name: str) -> bool:
    """Return whether the cache on disk has machine code of a specialised loop."""
    folder = None if INTERPRETED else cache_folder()
    return folder is not None and any(folder.glob(f"*/*.{name}-*.nbc"))


def bind(function: Callable[..., Any], bindings: Mapping[str, Any], *, allocates: bool = False) -> Any:
    """Return the same copy of a function that is called from a loop instead of from Python."""
    clone = _clone(function, function.__name__, bindings)
    return clone if INTERPRETED else LazyFunction(clone, ALLOCATING if allocates else OPTIONS, own=True)


def reason(error: Exception) -> str:
    """Return the most informative line of a compiler error."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip(" -")]
    informative = [line for line in lines if "Cannot determine" in line] or [
        line for line in lines if not line.startswith("Failed in")
    ]
    return (informative or lines or [type(error).__name__])[0]


def call(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call a cached kernel, even if its machine code cannot be saved (for example because the disk is full)."""
    try:
        return kernel(*arguments)
    except OSError:  # raised after compiling and before running: kernels do not use files
        return kernel(*arguments)


def interpreted(loop: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Any:
    """Return the same copy for the Python interpreter; compiled functions that it calls stay compiled."""
    return _clone(loop, name, bindings)


def _clone(loop: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> types.FunctionType:
    function = cast(types.FunctionType, getattr(loop, "py_func", loop))
    clone = types.FunctionType(function.__code__, {**function.__globals__, **bindings}, name, function.__defaults__)
    clone.__qualname__ = name
    clone.__doc__ = function.__doc__
    return clone


@cache
def source_hash(*more: str) -> str:
    """Return a hash of the sources that determine results, and of more folders, so that nothing stale is reused."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("kernels", "policies", "scenario", "simulation", *more):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled code, or None if it cannot be written.

    Its name is a hash of the package's sources and of the versions of Python, NumPy and the compiler, because the
    compiler's own cache does not notice that a callee in another file changed.
    """
    import llvmlite
    import numba

    versions = (platform.python_version(), np.__version__, numba.__version__, llvmlite.__version__)
    key = hashlib.sha256("\0".join((source_hash("allocator", "environments"), *versions)).encode()).hexdigest()[:16]
    try:
        root = _cache_root() / "compiled"
        (root / key).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / key):
            pass
        os.utime(root / key)
        _remove_old(root, keep=root / key)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None
    return root / key


def _cache_root() -> Path:
    if own := os.environ.get("IDLEBAND_CACHE_DIR"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "idleband"
    return Path.home() / ".cache" / "idleband"


def _remove_old(root: Path, keep: Path, days: int = 30) -> None:
    """Remove folders of compiled code that were not used for a month, and nothing that is named differently."""
    for folder in root.iterdir():
        old = folder.is_dir() and folder.stat().st_mtime < time.time() - days * 86400
        if old and folder != keep and re.fullmatch(r"[0-9a-f]{16}", folder.name):
            shutil.rmtree(folder, ignore_errors=True)
