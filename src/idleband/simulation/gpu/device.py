"""The GPU: whether it can be used, and its memory."""

import importlib
import importlib.util
from typing import Any

from idleband.errors import InputError
from idleband.kernels.compile import INTERPRETED

SIMULATED_MEMORY = 2**30


def cuda_module() -> Any:
    """Return Numba's module for CUDA, or its simulator."""
    from numba import cuda

    return cuda


def check_usable() -> None:
    """Raise InputError unless kernels can be run."""
    config: Any = importlib.import_module("numba").config
    if bool(config.ENABLE_CUDASIM) != INTERPRETED:
        raise InputError("device = cuda: the simulator needs both NUMBA_DISABLE_JIT=1 and NUMBA_ENABLE_CUDASIM=1")
    if INTERPRETED:
        return
    if importlib.util.find_spec("numba_cuda") is None:
        raise InputError('device = cuda: needs numba-cuda; pip install "idleband[gpu]"')
    if not cuda_module().is_available():
        raise InputError("device = cuda: no NVIDIA GPU is found here")


def device_name() -> str:
    """Return the name of the GPU."""
    if INTERPRETED:
        return "simulator"
    name = cuda_module().get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def free_memory() -> int:
    """Return the free bytes of the GPU."""
    if INTERPRETED:
        return SIMULATED_MEMORY
    return int(cuda_module().current_context().get_memory_info().free)
