"""Full disks, Ctrl-C, closed pipes, and progress on a terminal."""

import contextlib
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, active_count

import pytest

import idleband as ib
from idleband.progress import Progress
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult, run_tasks
from tests.cli.calls import SMALL, command, interrupted, one_line
from tests.own_policy import MINE
from tests.stored_tasks import stored_tasks

FULL_DISK = 1  # status of errors other than invalid input

# --- a full disk -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Allow no file of this process to grow beyond `limit` bytes, which acts like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("largest", "message"),
    [
        ("experiment.toml", "out/experiment.toml: cannot be written: File too large"),
        ("tasks.log", "out/tasks.log: cannot be written: File too large"),
        ("results.parquet", "out/results.parquet: cannot be written: File too large"),
        ("reward.png", "out/reward.png"),
    ],
)  # fmt: skip
def test_full_disk_is_reported_and_the_same_command_continues(
    finished: Path, call: Callable[..., tuple[int, str, str]], ok: Callable[..., str], largest: str, message: str
) -> None:
    """Files are written in the order above, and each is larger than those before it, the log also by half."""
    size = (finished / largest).stat().st_size
    limit = size // 2 if largest == "tasks.log" else size - 1  # it may have grown by a record that it was synced
    assert largest != "tasks.log" or limit > (finished / "experiment.toml").stat().st_size
    arguments = ("run", "S1", *SMALL, "--out", "out")
    with full_disk(limit):
        status, _, err = call(*arguments)
    assert (status, err.count("\n")) == (FULL_DISK, 1)
    assert err.startswith("idleband: ")
    assert message in err
    assert not list(Path("out").rglob(".tmp-*"))
    ok(*arguments)
    assert Path("out/results.parquet").read_bytes() == (finished / "results.parquet").read_bytes()


def test_run_continues_after_a_full_disk_with_a_user_policy(
    call: Callable[..., tuple[int, str, str]], ok: Callable[..., str]
) -> None:
    Path("mine.py").write_text(MINE)
    arguments = ("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    with full_disk(len(MINE) + 10):
        status, _, err = call(*arguments)
    assert status == FULL_DISK
    assert "out/experiment.toml: cannot be written" in err
    ok(*arguments)


def test_run_succeeds_where_the_cache_cannot_be_written(finished: Path) -> None:
    Path("cache").mkdir()
    environment = {**os.environ, "IDLEBAND_CACHE_DIR": str(Path("cache").absolute())}
    limit = (finished / "results.parquet").stat().st_size  # enough for the results, too little for machine code
    arguments = command("run", "S1", *SMALL, "--out", "out")
    with full_disk(limit):  # also of the processes that this one starts
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=environment)
    assert "Traceback" not in result.stderr
    assert Path("out/results.parquet").exists()


def test_output_that_cannot_be_written_is_reported() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(command("policies"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    one_line(result, status=1)


# --- stopping --------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_long_task(finished: Path) -> None:  # finished: the loop is compiled
    arguments = ("run", "S1", "--policy", "mp-random", "--horizon", "1e9", "--out", "out")
    claimed = Path("out/experiment.toml")

    def running() -> bool:  # the loop is loaded: see test_ctrl_c_ends_a_run_while_a_loop_is_compiled_or_loaded
        return claimed.exists() and time.time() > claimed.stat().st_mtime + 1

    status, err, seconds = interrupted(arguments, running)
    assert (status, err.count("\n")) == (130, 1)
    assert err.startswith("idleband: interrupted; finished work is kept")
    assert seconds < 5  # a segment of 0.1 s and the end of the process, on a busy machine
    assert not list(Path("out").rglob(".tmp-*"))


@pytest.mark.parametrize("gap", [None, 0.02])
def test_ctrl_c_keeps_finished_tasks_and_the_same_command_continues(ok: Callable[..., str], gap: float | None) -> None:
    arguments = ("run", "S1", "--policy", "mp-random", "--horizon", 200_000, "--replications", 12, "--out", "out")
    status, err, _ = interrupted([*arguments, "--threads", 1], lambda: len(stored_tasks(Path("out"))) >= 3, gap)
    # A second Ctrl-C may arrive while the interpreter exits, and then ends the process by the signal.
    assert status == 130 or (gap is not None and status == -signal.SIGINT)
    assert err == "idleband: interrupted; finished work is kept, and the same command continues from there\n"
    kept = stored_tasks(Path("out"))
    assert 3 <= len(kept) < 24
    assert f", {len(kept)} of 24 tasks already there\n" in ok(*arguments)
    assert len(stored_tasks(Path("out"))) == 24
    assert kept.items() <= stored_tasks(Path("out")).items()
    assert ib.load("out")["mp-random"].replications == 12


def test_ctrl_c_ends_the_threads_within_a_segment() -> None:
    finished: list[Task] = []

    class Interrupt(Progress):
        sent = False

        def advance(self, slots: float) -> None:
            if not self.sent:
                self.sent = True
                signal.raise_signal(signal.SIGINT)

    def keep(task: Task, result: TaskResult) -> None:
        finished.append(task)

    task, before = Task(ib.policy("mp-random"), 0), active_count()
    with pytest.raises(KeyboardInterrupt):
        run_tasks([ScheduledTask(ib.scenario("S1"), task, 3_000_000, 0, keep, Interrupt())])
    assert not finished
    assert active_count() == before


# Interrupts a run where LLVM calls back into Python with a compiled module. An exception raised there is lost.
INTERRUPTED_IN_LLVM = """
import pathlib, signal
from llvmlite.binding.executionengine import ExecutionEngine

install, claimed, sent = ExecutionEngine.set_object_cache, pathlib.Path("out/experiment.toml"), []

def set_object_cache(self, notify, find):
    def interrupted(module, code):
        if claimed.exists() and not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGINT)
        notify(module, code)
    install(self, interrupted, find)

ExecutionEngine.set_object_cache = set_object_cache

from idleband.cli import main
main(["run", "S1", "--policy", "mp-random", "--horizon", "1e6", "--out", "out"])
"""


def test_ctrl_c_ends_a_run_while_a_loop_is_compiled_or_loaded() -> None:
    result = subprocess.run([sys.executable, "-c", INTERRUPTED_IN_LLVM], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr.count("\n")) == (130, 1)
    assert result.stderr.startswith("idleband: interrupted")


def test_pipe_closed_after_the_first_line_is_no_error() -> None:
    result = subprocess.run(
        f"{sys.executable} -m idleband policies | head -1", shell=True, capture_output=True, text=True, timeout=60
    )
    assert (result.stdout, result.stderr) == ("The paper and its baselines\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["policies"],
        ["show", "S4", "--json"],
        ["--help"],
    ],
)
def test_pipe_closed_before_the_first_line_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    try:
        result = subprocess.run(
            command(*arguments), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, env=environment
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_a_terminal(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return what a run writes to stdout and to stderr where stderr is a terminal."""
    ours, its = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        while True:
            try:
                written.append(os.read(ours, 4096))
            except OSError:  # raised at the end of a terminal on Linux
                return

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        command("run", "S1", "--policy", "mp-random", "--horizon", 500_000, "--replications", 2, "--out", "out"),
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
        env=environment,
        cwd=tmp_path_factory.mktemp("terminal"),
    )
    os.close(its)
    reader = Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=120)
    reader.join()
    os.close(ours)
    assert process.returncode == 0, b"".join(written)
    return out, b"".join(written).decode()


def test_progress_is_shown_on_a_terminal(on_a_terminal: tuple[str, str]) -> None:
    out, shown = on_a_terminal
    assert "running" in shown
    assert "100%" in shown
    assert " M slots/s" in shown
    assert "slots/s" not in out
    assert "results: out/results.parquet" in out


def test_output_stays_on_stdout_when_only_stderr_is_a_terminal(on_a_terminal: tuple[str, str]) -> None:
    assert on_a_terminal[0].startswith("S1: 1 policy x 2 replications x ")
