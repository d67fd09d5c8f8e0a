"""Whether a GPU can be used."""

import importlib.util
import os
import subprocess
import sys

import pytest

from idleband.errors import InputError
from idleband.simulation.gpu import device
from tests.conftest import ROOT

CHECK = "from idleband.simulation.gpu.device import *; check_usable(); print(device_name(), free_memory())"


def test_without_numba_cuda_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'^device = cuda: needs numba-cuda; pip install "idleband\[gpu\]"$'):
        device.check_usable()


def test_without_a_gpu_there_is_one_line() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    if device.cuda_module().is_available():
        assert device.free_memory() > 0
        return
    with pytest.raises(InputError, match=r"^device = cuda: no NVIDIA GPU is found here$"):
        device.check_usable()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NUMBA_DISABLE_JIT": "1", "NUMBA_ENABLE_CUDASIM": "1"}, "simulator 1073741824"),
        ({"NUMBA_DISABLE_JIT": "1"}, "the simulator needs both NUMBA_DISABLE_JIT=1 and NUMBA_ENABLE_CUDASIM=1"),
        ({"NUMBA_ENABLE_CUDASIM": "1"}, "the simulator needs both NUMBA_DISABLE_JIT=1 and NUMBA_ENABLE_CUDASIM=1"),
    ],
)
def test_the_simulator_needs_both_settings(environment: dict[str, str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    assert message in (done.stdout + done.stderr).strip().splitlines()[-1]
