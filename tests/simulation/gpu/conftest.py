"""Run the tests of kernels in Numba's CUDA simulator, which is chosen on import: one process per file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idleband.kernels.compile import INTERPRETED
from tests.conftest import ROOT

SIMULATOR = {"NUMBA_DISABLE_JIT": "1", "NUMBA_ENABLE_CUDASIM": "1"}
# pytest replaces the filter of kernels/rng.py for interpreted code.
OPTIONS = ("-p", "no:cacheprovider", "-n", "0", "-W", "ignore:overflow encountered in scalar:RuntimeWarning")
WITHOUT_KERNELS = ("test_device.py", "test_layout.py")


class SimulatedFile(pytest.File):
    """A file whose tests run in another process."""

    def collect(self) -> Iterator[pytest.Item]:
        yield SimulatedTests.from_parent(self, name="in_simulator")


class SimulatedTests(pytest.Item):
    """All tests of a file."""

    def runtest(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, str(self.path)],
            capture_output=True, text=True, cwd=ROOT, env={**environment, **SIMULATOR}, timeout=300,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.fail(done.stdout + done.stderr, pytrace=False)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    here = module_path.parent == Path(__file__).parent
    if INTERPRETED or not here or module_path.name in WITHOUT_KERNELS:
        return None
    return SimulatedFile.from_parent(parent, path=module_path)  # type: ignore[no-any-return]
