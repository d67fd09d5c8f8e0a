"""A throw-away folder for compiled code, shared by all test processes, and helpers that several tests need."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# No deadline, because a first call compiles; the same examples every time, because a test must not flake.
hypothesis.settings.register_profile("idleband", deadline=None, derandomize=True)
hypothesis.settings.load_profile("idleband")

ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    if "IDLEBAND_CACHE_DIR" not in os.environ:  # the first process; workers and subprocesses inherit it
        os.environ["IDLEBAND_CACHE_DIR"] = tempfile.mkdtemp(prefix="idleband-test-cache-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("IDLEBAND_CACHE_DIR"), ignore_errors=True))


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Policies and laws that a test registers are forgotten after it."""
    from idleband import POLICIES  # not earlier: the folder for compiled code must be set before
    from idleband.scenario.perturbation import LAWS

    before = dict(POLICIES), dict(LAWS)
    yield
    for table, content in zip((POLICIES, LAWS), before, strict=True):
        table.clear()
        table.update(content)


@pytest.fixture
def idleband(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command, run in an empty folder as a user would run it."""

    def run(*arguments: object, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "idleband", *map(str, arguments)]
        settings = {"capture_output": True, "text": True, "timeout": timeout, "cwd": tmp_path, **options}
        return subprocess.run(command, **settings)  # type: ignore[call-overload, no-any-return]

    return run
