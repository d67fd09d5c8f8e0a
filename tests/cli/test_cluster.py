"""Experiments of the command line on a Dask cluster: local workers, a scheduler that exists, and its loss."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.calls import SMALL, Refuse, command, interrupted, one_line
from tests.conftest import ROOT
from tests.stored_tasks import stored_tasks

LONG = ("run", "S1", "--policy", "mp-random", "--horizon", 300_000, "--replications", 12)
LOST = "idleband: the connection to the Dask scheduler was lost; finished work is kept, and the same command continues"


@pytest.fixture(scope="module")
def with_threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the results of LONG on threads."""
    folder = tmp_path_factory.mktemp("threads")
    subprocess.run(command(*LONG, "--out", folder), check=True, stdout=subprocess.DEVNULL)
    return folder


def assert_equal(a: Path, b: Path) -> None:
    for name in ("results.parquet", "plays.parquet"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


@contextlib.contextmanager
def dask(program: str, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a scheduler or a worker on loopback; both use the same scheduler file."""
    module = ["-m", f"distributed.cli.dask_{program}", "--scheduler-file", "scheduler.json", "--no-dashboard"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, *module, *options], stdout=quiet, stderr=quiet, text=True, env={**os.environ, **environment}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def cluster(**environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a scheduler with one worker; yield the scheduler."""
    Path("scheduler.json").unlink(missing_ok=True)
    with dask("scheduler", "--host", "127.0.0.1", "--port", "0") as scheduler:
        while not Path("scheduler.json").exists():
            assert scheduler.poll() is None
            time.sleep(0.02)
        with dask("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", **environment):
            yield scheduler


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "--workers = 0: must be a whole number from 1 to 1024"),
        (("--workers", "two"), "--workers = two: must be a whole number from 1 to 1024"),
        (("--workers", "2", "--threads", "2"), "--threads and --workers: only one of them can be given"),
        (("--cluster", "tcp://h:1", "--threads", "2"), "--threads and --cluster: only one of them can be given"),
        (("--cluster", "tcp://h:1", "--workers", "2"), "--workers and --cluster: only one of them can be given"),
        (("--cluster", "here"), "--cluster = 'here': must be the address of a Dask scheduler"),
    ],
)
def test_options_that_cannot_be_used_are_refused(refuse: Refuse, options: tuple[str, ...], message: str) -> None:
    assert message in refuse("run", "S1", *SMALL, *options)
    assert message in refuse("compare", "S1", *SMALL, *options)


def test_ctrl_c_with_local_workers_keeps_finished_tasks(ok: Callable[..., str], with_threads: Path) -> None:
    arguments = (*LONG, "--workers", 2, "--out", "out")
    status, err, _ = interrupted(arguments, lambda: len(stored_tasks(Path("out"))) >= 3)
    assert status == 130
    assert err == "idleband: interrupted; finished work is kept, and the same command continues from there\n"
    kept = stored_tasks(Path("out"))
    assert 3 <= len(kept) < 24
    assert f", {len(kept)} of 24 tasks already there\n" in ok(*arguments)
    assert_equal(Path("out"), with_threads)


def test_the_same_command_continues_after_the_loss_of_the_scheduler(ok: Callable[..., str], with_threads: Path) -> None:
    arguments = (*LONG, "--cluster", "scheduler.json", "--out", "out")
    with cluster() as scheduler:
        process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            while len(stored_tasks(Path("out"))) < 3:
                assert process.poll() is None, process.communicate()
                time.sleep(0.005)
            scheduler.kill()
            _, err = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, err) == (1, f"{LOST} from there\n")
    kept = stored_tasks(Path("out"))
    assert 3 <= len(kept) < 24
    with cluster():
        assert f", {len(kept)} of 24 tasks already there\n" in ok(*arguments)
    assert_equal(Path("out"), with_threads)


def test_workers_with_other_sources_are_refused() -> None:
    shutil.copytree(ROOT / "src/idleband", "other/idleband", ignore=shutil.ignore_patterns("__pycache__"))
    with Path("other/idleband/policies/ucb.py").open("a") as file:
        file.write("# another version\n")
    with cluster(PYTHONPATH=str(Path("other").absolute())):
        done = subprocess.run(
            command("run", "S1", *SMALL, "--cluster", "scheduler.json"), capture_output=True, text=True, timeout=100
        )
    line = one_line(done, status=1)
    assert line.startswith("idleband: worker tcp://127.0.0.1:")
    assert "results would not be those of this machine: the sources of idleband is " in line
