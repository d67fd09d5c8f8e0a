"""The only place that configures the compiler, its cache and its targets.

Every kernel is a plain function under `@jit`: scalar loops on explicit state, nothing allocated inside. The same
source runs interpreted (`NUMBA_DISABLE_JIT=1`), compiled on the CPU, inside a CUDA kernel, and inside that kernel
simulated on a CPU.

A loop that calls a policy is not passed the policy's functions as arguments: it would be compiled anew in every
process. `specialise` clones the loop's function with the policy's functions bound as its globals instead, so there is
one loop in the source and one cached machine code per policy.
"""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# error_model "numpy": a division by zero gives inf or nan as in NumPy, without a check and a branch at each one.
# fastmath stays off: compiled and interpreted runs must agree to the last bit.
# _nrt off: kernels allocate nothing, so arrays need no reference counts; counting made MP-LUCB three times as slow.
OPTIONS: Mapping[str, Any] = types.MappingProxyType({"error_model": "numpy", "nogil": True, "_nrt": False})
ALLOCATING: Mapping[str, Any] = types.MappingProxyType({**OPTIONS, "_nrt": True})


INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]  # NUMBA_DISABLE_JIT=1: nothing is compiled


def jit(function: F, *, allocates: bool = False) -> F:
    """Compile a function the first time it is called (never, under `NUMBA_DISABLE_JIT=1`).

    `allocates` is for users' own policies that make arrays as they go.
    """
    return cast(F, numba.njit(forceinline=True, **(ALLOCATING if allocates else OPTIONS))(function))


def specialise(
    loop: Callable[..., Any],
    name: str,
    bindings: Mapping[str, Any],
    *,
    cached: bool = True,
    allocates: bool = False,
) -> Any:
    """A compiled copy of `loop` in which the global names in `bindings` mean what they map to.

    `name` must say everything that the bindings are, because the on-disk cache finds the machine code by it: the
    cache cannot see that a bound function changed.
    """
    options = ALLOCATING if allocates else OPTIONS
    clone = _clone(loop, name, bindings)
    folder = cache_folder() if cached else None
    if folder is None:
        return numba.njit(**options)(clone)
    config: Any = numba.config
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return numba.njit(cache=True, **options)(clone)
    finally:
        config.CACHE_DIR = before


def bind(function: Callable[..., Any], bindings: Mapping[str, Any], *, allocates: bool = False) -> Any:
    """The same copy of a function that is not called from Python but from a loop, which is then bound to it."""
    return jit(_clone(function, function.__name__, bindings), allocates=allocates)


def reason(error: Exception) -> str:
    """The line of the compiler's message that says most."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip(" -")]
    telling = [line for line in lines if "Cannot determine" in line] or [
        line for line in lines if not line.startswith("Failed in")
    ]
    return (telling or lines or [type(error).__name__])[0]


def call(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Call a cached kernel; if its machine code cannot be saved (a full disk), it is used all the same."""
    try:
        return kernel(*arguments)
    except OSError:  # raised after compiling and before running: kernels themselves touch no file
        return kernel(*arguments)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Compile inside this, and Ctrl-C is not lost.

    Where the compiler calls back into Python, from C, a KeyboardInterrupt would be printed and ignored; there it is put
    off until the compilation ends. Everywhere else it is raised at once, as usual.
    """
    put_off = []

    def handle(number: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_name.startswith("_raw_object_cache_"):  # llvmlite's callbacks
                put_off.append(number)
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and usual is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, usual)
    if put_off:
        raise KeyboardInterrupt


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
def source_hash(*more: str) -> str:
    """A hash of the package's sources that shape results, and of more folders, so that nothing stale is reused."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("kernels", "policies", "scenario", "simulation", *more):
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
    key = hashlib.sha256("\0".join((source_hash("allocator"), *versions)).encode()).hexdigest()[:16]
    try:
        root = _cache_root() / "compiled"
        (root / key).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root / key):
            pass
        os.utime(root / key)
        _forget_old(root, keep=root / key)
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    return root / key


def _cache_root() -> Path:
    if own := os.environ.get("IDLEBAND_CACHE_DIR"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "idleband"
    return Path.home() / ".cache" / "idleband"


def _forget_old(root: Path, keep: Path, days: int = 30) -> None:
    """Drop compiled code of versions that were not used for a month; nothing that is not named like them."""
    for folder in root.iterdir():
        old = folder.is_dir() and folder.stat().st_mtime < time.time() - days * 86400
        if old and folder != keep and re.fullmatch(r"[0-9a-f]{16}", folder.name):
            shutil.rmtree(folder, ignore_errors=True)
