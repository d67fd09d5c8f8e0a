"""A temporary folder for compiled code, shared by all test processes, and fixtures that several tests use."""

import gc
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

# No deadline, because a first call compiles; the same examples in every run, so that results are reproducible.
hypothesis.settings.register_profile("idleband", deadline=None, derandomize=True)
hypothesis.settings.load_profile("idleband")

ROOT = Path(__file__).parent.parent

collect_ignore = ["data"]  # files of version 0.1


# Most of the time of all tests is compiling, of which this saves a quarter. Results are the same, bit by bit: digests
# in the tests are of code with all optimisations.
os.environ.setdefault("NUMBA_OPT", "1")


def pytest_configure(config: pytest.Config) -> None:
    if "IDLEBAND_CACHE_DIR" not in os.environ:  # the first process; workers and subprocesses inherit it
        os.environ["IDLEBAND_CACHE_DIR"] = tempfile.mkdtemp(prefix="idleband-test-cache-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("IDLEBAND_CACHE_DIR"), ignore_errors=True))


class Grouped(LoadScopeScheduling):  # type: ignore[misc]
    """Run tests that compile the same code in the same process.

    The marks of pytest-xdist 3.8 have no effect in pytest 9.2, so this overrides a private method, which
    tests/test_private_interfaces.py checks.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Grouped:
    return Grouped(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files whose tests are all deselected."""
    slow = collection_path.suffix == ".py" and is_slow(collection_path.relative_to(ROOT).as_posix())
    return True if slow and config.option.markexpr == "not slow" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of policies first, so that each loop is compiled once and found in the shared folder by other tests.

    The policies that take longest to compile come first. Tests in files that compile much or start many processes are
    marked as slow.
    """
    items.sort(key=lambda item: turn_of(group_of(item.nodeid)))
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was imported and collected to the end of the process, and collect garbage rarely.

    The compiler makes many objects that live long; searching them took a tenth of the CPU time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


# Folders and files whose tests compile policies or start many processes, so that `make check` leaves them out, and the
# files in these folders that it includes.
SLOW = (
    "src/idleband/simulation/prediction_error.py",
    "tests/advice/",
    "tests/allocator/",
    "tests/benchmarks/",
    "tests/cli/test_advise.py",
    "tests/cli/test_cluster.py",
    "tests/cluster/test_executor.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_faults.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_reproduce.py",
    "tests/contracts/",
    "tests/environments/",
    "tests/experiments/test_killed.py",
    "tests/experiments/test_ranking.py",
    "tests/experiments/test_study.py",
    "tests/experiments/test_version_0_1.py",
    "tests/kernels/test_compile.py",
    "tests/kernels/test_covariance.py",
    "tests/kernels/test_mlp.py",
    "tests/kernels/test_two_state_chain.py",
    "tests/kernels/test_whittle_lagrangian.py",
    "tests/paper/",
    "tests/policies/",
    "tests/reporting/test_plots.py",
    "tests/reporting/test_ranking.py",
    "tests/scenario/test_noise.py",
    "tests/scenario/test_optimum.py",
    "tests/scenario/test_perturbation.py",
    "tests/scenario/test_strength_search.py",
    "tests/scenario/test_user_models.py",
    "tests/service/",
    "tests/simulation/gpu/test_bench.py",
    "tests/simulation/gpu/test_executor.py",
    "tests/simulation/gpu/test_replications.py",
    "tests/simulation/test_bench.py",
    "tests/simulation/test_environment.py",
    "tests/simulation/test_loop.py",
    "tests/simulation/test_precompile.py",
    "tests/simulation/test_prediction_error.py",
    "tests/test_agent_environment.py",
)
FAST = (
    "tests/allocator/test_settings.py",
    "tests/paper/test_changes.py",
    "tests/paper/test_plan.py",
    "tests/paper/test_readings.py",
    "tests/paper/test_summary.py",
    "tests/policies/test_constructors.py",
    "tests/service/test_client.py",
    "tests/service/test_journal.py",
    "tests/service/test_journal_contract.py",
    "tests/service/test_live_view.py",
    "tests/service/test_metrics.py",
    "tests/service/test_middleware.py",
    "tests/service/test_request_filter.py",
)


def is_slow(nodeid: str) -> bool:
    """Return whether a test is left out of `make check`."""
    return nodeid.startswith(SLOW) and not nodeid.startswith(FAST)


# Policies whose functions call the same functions: a process compiles these once.
COMPILED_TOGETHER = {
    "nucb": "belief_nucb",
    "belief": "belief_lucb",
    "belief_state": "belief_lucb",
    "lucb": "belief_lucb",
}


def group_of(nodeid: str) -> str:
    """Return the group of a test, whose tests run in one process.

    The module of the policy under test, the folder of the paper's tests (they share a reproduction), or the test's
    file; the test itself where it only starts subprocesses.
    """
    path, _, test = nodeid.partition("::")
    folder, file = Path(path).parent, Path(path).stem.removeprefix("test_")
    if folder == Path("tests/contracts"):
        group = contract_of(test)
        return COMPILED_TOGETHER.get(group, group)
    if folder in (Path("tests/policies"), Path("tests/policies/decentralised")):
        return COMPILED_TOGETHER.get(file, file)
    if folder == Path("tests/paper"):
        return folder.name
    return test if file == "readme" else path


def contract_of(test: str) -> str:
    """Return the module of the policy in the parameters of a contract test; a test of all policies is its own group."""
    from tests.contracts.configurations import CONFIGURED  # after the folder for compiled code is set
    from tests.contracts.users_configurations import USERS

    _, _, parameters = test.partition("[")
    every = CONFIGURED | USERS
    labels = [label for label in every if parameters.startswith(label)]
    return every[max(labels, key=len)].policy.select.__module__.rpartition(".")[2] if labels else test


SLOW_TO_COMPILE = ("belief_nucb", "belief_lucb")


def turn_of(group: str) -> int:
    """Return the position of a group: slow policies, then other policies and single tests, then files."""
    if group in SLOW_TO_COMPILE:
        return SLOW_TO_COMPILE.index(group)
    return len(SLOW_TO_COMPILE) + group.endswith(".py")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Remove the policies and models that a test registers."""
    from idleband.policies.registry import DECENTRALISED, POLICIES  # after the folder for compiled code is set
    from idleband.scenario.perturbation import PERTURBATION_MODELS

    tables = (POLICIES, DECENTRALISED, PERTURBATION_MODELS)
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


@pytest.fixture
def idleband(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command in an empty folder."""

    def run(*arguments: object, timeout: float = 120, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "idleband", *map(str, arguments)]
        settings = {"capture_output": True, "text": True, "timeout": timeout, "cwd": tmp_path, **options}
        return subprocess.run(command, **settings)  # type: ignore[call-overload, no-any-return]

    return run
