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
from xdist.scheduler import LoadScopeScheduling

# No deadline, because a first call compiles; the same examples every time, because a test must not flake.
hypothesis.settings.register_profile("idleband", deadline=None, derandomize=True)
hypothesis.settings.load_profile("idleband")

ROOT = Path(__file__).parent.parent


def pytest_configure(config: pytest.Config) -> None:
    if "IDLEBAND_CACHE_DIR" not in os.environ:  # the first process; workers and subprocesses inherit it
        os.environ["IDLEBAND_CACHE_DIR"] = tempfile.mkdtemp(prefix="idleband-test-cache-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("IDLEBAND_CACHE_DIR"), ignore_errors=True))


class Grouped(LoadScopeScheduling):  # type: ignore[misc]
    """Tests that compile the same code run in the same process. (In pytest 9.2 the marks of pytest-xdist 3.8 group
    nothing.)"""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Grouped:
    return Grouped(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of policies first: then each loop is compiled once, and all others, subprocesses too, find it in the shared
    folder. Of them the networks', which take longest."""
    items.sort(key=lambda item: turn_of(group_of(item.nodeid)))


def group_of(nodeid: str) -> str:
    """The module of the policy that a test is about; the package of the paper, whose tests share a reproduction; else
    the test's file, or the test itself where it does all its work in processes of its own."""
    path, _, test = nodeid.partition("::")
    folder, file = Path(path).parent, Path(path).stem.removeprefix("test_")
    if folder == Path("tests/contracts"):
        return contract_of(test)
    if folder == Path("tests/policies"):
        return file
    if folder == Path("tests/paper"):
        return folder.name
    return test if file == "readme" else path


def contract_of(test: str) -> str:
    """The module of the policy in the brackets of a contract's name; a contract of all policies stands alone."""
    from tests.contracts.cases import CASES  # not earlier: the folder for compiled code must be set before

    _, _, case = test.partition("[")
    labels = [label for label in CASES if case.startswith(label)]
    return CASES[max(labels, key=len)].policy.select.__module__.rpartition(".")[2] if labels else test


LONGEST_COMPILATION_FIRST = ("nucb", "belief_nucb", "belief_lucb")


def turn_of(group: str) -> int:
    """Groups of one turn keep their order: the slowest, other policies and what stands alone, then files."""
    if group in LONGEST_COMPILATION_FIRST:
        return LONGEST_COMPILATION_FIRST.index(group)
    return len(LONGEST_COMPILATION_FIRST) + group.endswith(".py")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Policies and models that a test registers are forgotten after it."""
    from idleband import POLICIES  # not earlier: the folder for compiled code must be set before
    from idleband.scenario.perturbation import PERTURBATION_MODELS

    before = dict(POLICIES), dict(PERTURBATION_MODELS)
    yield
    for table, content in zip((POLICIES, PERTURBATION_MODELS), before, strict=True):
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
