"""Bind the functions of a policy into a kernel and compile it.

A kernel is a function that calls a policy: the simulation loop, or one of the two halves of a live slot. Simulation and
allocator both bind here. A built-in policy always compiles. A user's policy is tried first without and then with
allocation, and runs interpreted if neither compiles.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from idleband import user_code
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.policies.protocol import Policy


class Kernel(NamedTuple):
    run: Callable[..., Any]
    compiled: bool
    reason: str  # why it is not compiled; empty if it is


class Bindings(NamedTuple):
    """What is bound into a kernel besides the functions of the policy."""

    functions: dict[str, Any]
    name: str = ""  # identifies them in the name of the machine code
    cacheable: bool = True
    allocates: bool = False


def kernel_name(kernel: str, policy: Policy, more: str) -> str:
    """Return the name under which the machine code is cached.

    It contains the module that holds the policy's functions, which names such as mp-lucb and mp-lucb-rca share. For a
    user's policy it also contains a hash of its name and source, because one module may hold several.
    """
    whose = "" if policy.source is None else hashlib.sha256(f"{policy.name}\0{policy.source}".encode()).hexdigest()[:16]
    return re.sub(r"\W", "_", f"{kernel}_{policy.select.__module__}_{whose}_{more}")


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
    if policy.source is None:
        run = compile.specialise(
            kernel, name, functions | more.functions, cached=more.cacheable, allocates=more.allocates
        )
        compile.call(run, *trial)
        return Kernel(run, True, "")
    plain = {key: getattr(f, "py_func", f) for key, f in functions.items()}
    cached = policy.cacheable and more.cacheable
    for allocates in (True,) if more.allocates else (False, True):
        try:
            jitted = {key: compile.jit(f, allocates=allocates) for key, f in plain.items()} | more.functions
            own_name = name + "_allocates" * allocates
            run = compile.specialise(kernel, own_name, jitted, cached=cached, allocates=allocates)
            compile.call(run, *trial)
            return Kernel(run, True, "")
        except Exception as error:  # the trial does nothing, so this is an error of the compiler
            reason = compile.reason(error)
    return Kernel(compile.interpreted(kernel, name, plain | more.functions), False, reason)


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
