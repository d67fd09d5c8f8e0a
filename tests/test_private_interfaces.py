"""Private interfaces of dependencies that the package or its tests rely on.

A failure here means that a new version of a dependency has changed one of them: adapt the module that is named, then
raise the upper bound of the version in pyproject.toml.
"""

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import ExecutionEngine
from xdist.scheduler import LoadScopeScheduling

from idleband.kernels.compile import ALLOCATING, INTERPRETED, OPTIONS, LazyFunction, compiler, jit
from idleband.kernels.inner_compiler import InnerLibrary
from idleband.kernels.interrupt import CALLBACK_PREFIX


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_numba_option_nrt_forbids_allocation() -> None:
    def allocates(n: int) -> float:
        return np.ones(n).sum()

    numba = compiler()
    assert numba.njit(**ALLOCATING)(allocates)(3) == 3.0
    with pytest.raises(numba.core.errors.NumbaError):
        numba.njit(**OPTIONS)(allocates)(3)


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_numba_accepts_a_lazy_function_in_compiled_code() -> None:
    double: Any = jit(lambda x: 2 * x)
    assert isinstance(double, LazyFunction)
    numba = compiler()
    assert isinstance(numba.typeof(double), numba.types.Dispatcher), "kernels/compile.py: `_numba_type_` is not used"
    assert numba.njit(lambda x: double(x) + 1)(3) == 7


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_inner_functions_are_lowered_without_machine_code() -> None:
    half: Any = jit(lambda x: x / 2)
    quarter: Any = jit(lambda x: half(half(x)))
    numba = compiler()
    assert numba.njit(lambda x: quarter(x) + 1)(8.0) == 3.0
    assert quarter(8.0) == 2.0, "called from Python, it is compiled with a wrapper"
    (inner,) = quarter._numba_type_.dispatcher.overloads.values()
    assert isinstance(inner.library, InnerLibrary), "kernels/inner_compiler.py: the library is not used"
    assert inner.library.get_pointer_to_function(inner.fndesc.llvm_func_name) == 0


NUMBA_CUDA = {
    "numba.cuda.cgutils": ["pack_array"],
    "numba.cuda.types": ["Array"],
    "numba.cuda.extending": ["intrinsic"],
    "numba.cuda.np.arrayobj": ["populate_array"],
    "numba.cuda.core.config": ["CACHE_DIR", "CUDA_LOW_OCCUPANCY_WARNINGS"],
}


@pytest.mark.parametrize("module", NUMBA_CUDA)
def test_names_of_numba_cuda(module: str) -> None:
    """Most of these modules are in numba-cuda only, not in the simulator that comes with Numba."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed: the extra gpu")
    found = importlib.import_module(module)
    for name in NUMBA_CUDA[module]:
        assert hasattr(found, name), f"simulation/gpu/kernel.py: {module}.{name} is gone"


def test_names_of_llvmlite_callbacks() -> None:
    names = [name for name in dir(ExecutionEngine) if name.startswith(CALLBACK_PREFIX)]
    assert len(names) == 2, "kernels/interrupt.py: the callbacks of llvmlite have other names"


def test_xdist_scheduler_asks_for_the_scope_of_a_test() -> None:
    assert callable(getattr(LoadScopeScheduling, "_split_scope", None)), "tests/conftest.py: `_split_scope` is gone"
