"""Helpers of the tests of the command line."""

import subprocess
import sys
from collections.abc import Callable
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
