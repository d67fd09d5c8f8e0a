"""Copies of compiled functions for a GPU.

The functions of the package are compiled for a GPU from the same source as for the CPU. A copy of a function refers to
copies of the functions that it calls, so that nothing changes for the CPU. In the simulator of Numba, where functions
are interpreted, the copies are plain Python functions.

Constants of modules may have another value on a GPU: `CONSTANTS`.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any

from idleband.kernels import ridge, two_state_chain
from idleband.kernels.compile import INTERPRETED, LazyFunction
from idleband.policies import lucb
from idleband.simulation.gpu.device import cuda_module

CONSTANTS: Mapping[str, Mapping[str, Any]] = {
    ridge.__name__: {"LOWER_TRIANGLE": True},
    lucb.__name__: {"KEEP": False},
    two_state_chain.__name__: {"TOGETHER": 4},
}


class DeviceCode:
    """Copies of functions, each made once."""

    def __init__(self) -> None:
        self._functions: dict[int, Any] = {}
        self._modules: dict[str, types.ModuleType] = {}
        self._kept: list[Any] = []  # so that identities stay unique

    def function(self, function: Callable[..., Any], bindings: Mapping[str, Any] | None = None) -> Any:
        """Return the copy of a function of the package, or of a user's policy or perturbation model.

        `bindings` are functions that replace global names, as in `compile.specialise`.
        """
        key = id(function)
        if key not in self._functions:
            self._kept.append(function)
            plain: Any = getattr(function, "py_func", function)
            names: dict[str, Any] = {"__builtins__": __builtins__, "__name__": plain.__module__}
            copy = types.FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__)
            self._functions[key] = copy if INTERPRETED else _device_function(copy)
            for name in _names(plain.__code__):
                if bindings and name in bindings:
                    names[name] = self.function(bindings[name])
                elif name in plain.__globals__:
                    constants = CONSTANTS.get(plain.__module__, {})
                    names[name] = constants.get(name, self._value(plain.__globals__[name], plain.__code__))
        return self._functions[key]

    def _value(self, value: Any, code: types.CodeType) -> Any:
        """Return what a global name has as its value in a copy."""
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == "idleband":
            return self._module(value, code)
        of_package = isinstance(value, types.FunctionType) and value.__module__.startswith("idleband.")
        if isinstance(value, LazyFunction) or of_package or hasattr(value, "py_func"):  # a user's, under @numba.njit
            return self.function(value)
        return value

    def _module(self, module: types.ModuleType, code: types.CodeType) -> types.ModuleType:
        """Return a module with copies of the functions that the code uses."""
        copy = self._modules.setdefault(module.__name__, types.ModuleType(module.__name__))
        constants = CONSTANTS.get(module.__name__, {})
        for name in _names(code):
            if hasattr(module, name) and not hasattr(copy, name):
                setattr(copy, name, None)  # so that a function that refers to the module ends here
                setattr(copy, name, constants.get(name, self._value(getattr(module, name), code)))
        return copy


def _names(code: types.CodeType) -> set[str]:
    """Return the global and attribute names in the code of a function and of the functions that it defines."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _device_function(function: Callable[..., Any]) -> Any:
    return cuda_module().jit(device=True, forceinline=True)(function)
