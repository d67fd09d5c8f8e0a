"""Helpers of the tests of the command line."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]
Refuse = Callable[..., str]

SMALL = ("--policy", "mp-random", "--horizon", 200, "--replications", 2)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder: the bytes of files, None for folders."""
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "idleband", *map(str, arguments)]


def one_line(result: subprocess.CompletedProcess[str], status: int = 2) -> str:
    """Return the only line on stderr of a command that failed with a status."""
    assert result.returncode == status, result.stderr
    assert result.stderr.startswith("idleband: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def interrupted(
    arguments: Sequence[object], ready: Callable[[], object], gap: float | None = None
) -> tuple[int, str, float]:
    """Interrupt a run when it is ready, and again after a gap; return status, stderr and the seconds until its end."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(ready, process)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        if gap is not None:
            time.sleep(gap)
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        return process.returncode, err, time.monotonic() - began
    finally:
        process.kill()
        process.wait()
