"""Bind the functions of a policy into a kernel and compile it.

A kernel is a function that calls a policy: the simulation loop, or one of the two halves of a live slot. Simulation and
allocator both bind here. A built-in policy always compiles. A user's policy is tried first without and then with
allocation. If neither compiles, it runs interpreted with a warning, or is refused if it must be compiled.
"""

import contextlib
import hashlib
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from idleband import user_code
from idleband.errors import CompilationWarning, InputError, shown
from idleband.kernels import compile
from idleband.policies.protocol import Policy

log = logging.getLogger("idleband")

# Seconds for which the loop of a policy usually compiles, by the module of its functions.
USUAL_SECONDS = {
    "nucb": 35,
    "belief_nucb": 45,
    "belief_lucb": 20,
    "belief": 15,
    "lucb": 12,
    "adaptive": 20,
    "adaptive_lucb": 25,
}
OTHERWISE = 8


class Kernel(NamedTuple):
    run: Callable[..., Any]
    compiled: bool
    reason: str  # why it is not compiled, in one line; empty if it is
    message: str = ""  # the complete message of the compiler


class Bindings(NamedTuple):
    """What is bound into a kernel besides the functions of the policy."""

    functions: dict[str, Any]
    name: str = ""  # identifies them in the name of the machine code
    cacheable: bool = True
    allocates: bool = False


def kernel_name(kernel: str, policy: Policy, more: str) -> str:
    """Return the name under which the machine code is cached.

    It contains the module of the policy's functions, which policies such as mp-lucb and mp-lucb-rca share. For a user's
    policy it also contains a hash of its name and source, because a module may contain several policies.
    """
    identity = hashlib.sha256(f"{policy.name}\0{policy.source}".encode()).hexdigest()[:16] if policy.source else ""
    return re.sub(r"\W", "_", f"{kernel}_{policy.select.__module__}_{identity}_{more}")


def usual_seconds(policy: Policy) -> int:
    """Return how many seconds the first compilation of a policy usually takes."""
    return USUAL_SECONDS.get(policy.select.__module__.rpartition(".")[2], OTHERWISE)


def _announce(policy: Policy) -> None:
    """Say that a policy is compiled and how long that usually takes: in the log, or where a person waits."""
    text = f"compiling {policy.name}, usually {usual_seconds(policy)} s, once"
    if log.isEnabledFor(logging.INFO) and log.hasHandlers():
        log.info(text)
    elif sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(f"idleband: {text}", file=sys.stderr)


def bind_policy(
    kernel: Callable[..., Any],
    name: str,
    policy: Policy,
    functions: dict[str, Callable[..., Any]],
    more: Bindings,
    trial: tuple[Any, ...],
) -> Kernel:
    """Bind functions of a policy into a kernel, compiled if possible.

    Calling the kernel with the arguments `trial` must do nothing; it shows whether the kernel compiles.
    """
    cached = policy.cacheable and more.cacheable
    if not (cached and compile.is_cached(name)):
        _announce(policy)
    if policy.source is None:
        run = compile.specialise(kernel, name, functions | more.functions, cached=cached, allocates=more.allocates)
        compile.call(run, *trial)
        return Kernel(run, True, "")
    plain = {key: getattr(f, "py_func", f) for key, f in functions.items()}
    for allocates in (True,) if more.allocates else (False, True):
        try:
            jitted = {key: compile.jit_user(f, allocates=allocates) for key, f in plain.items()} | more.functions
            own_name = name + "_allocates" * allocates
            run = compile.specialise(kernel, own_name, jitted, cached=cached, allocates=allocates)
            compile.call(run, *trial)
            return Kernel(run, True, "")
        except Exception as error:  # the trial does nothing, so this is an error of the compiler
            reason, message = compile.reason(error), str(error).strip()
    if "select" in plain:
        plain["select"] = _checked_select(policy, plain["select"])
    return Kernel(compile.interpreted(kernel, name, plain | more.functions), False, reason, message)


def _checked_select(policy: Policy, select: Callable[..., Any]) -> Callable[..., int]:
    """Return `select` with a check of what it returns; compiled code is checked by the compiler."""

    def checked(*arguments: Any) -> int:
        count = select(*arguments)
        if not isinstance(count, int | np.integer):
            raise InputError(
                f"policy {policy.name}: select returned {shown(count)}; must return the number of channels in picks"
            )
        return int(count)

    return checked


_warned: set[tuple[str, str | None]] = set()


def check_compiled(policy: Policy, kernel: Kernel) -> Kernel:
    """Return the kernel; if it is not compiled, warn once per policy, or raise InputError if it must be compiled."""
    if kernel.compiled or policy.source is None:
        return kernel
    message = kernel.message or kernel.reason
    file, line = _place(policy, message)
    text = f"policy {policy.name} does not compile ({file}, line {line})"
    if policy.compiled == "require":
        raise InputError(f"{text}: {message}")
    if policy.key not in _warned:
        _warned.add(policy.key)
        text = f"{text} and runs interpreted, several times slower. The compiler's reason:\n{message}"
        warnings.warn_explicit(text, CompilationWarning, file, line)
    return kernel


def _place(policy: Policy, message: str) -> tuple[str, int]:
    """Return the file and line that a compiler message refers to, or those of the policy's `select`."""
    code = getattr(policy.select, "py_func", policy.select).__code__
    # Numba shows paths relative to the working directory, and the innermost place last.
    places = re.findall(r'File "([^"]+)", line (\d+)', message)
    lines = [int(line) for file, line in places if code.co_filename.endswith(file.lstrip("./"))]
    return code.co_filename, lines[-1] if lines else code.co_firstlineno


@contextlib.contextmanager
def policy_errors(policy: Policy) -> Iterator[None]:
    """Report what a user's policy raises as an InputError of one line with file and line number."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if policy.source is None:
            raise
        raise user_code.as_input_error(f"policy {policy.name}", error) from error
