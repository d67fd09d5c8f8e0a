"""The compilation cache: reuse by a second process, and invalidation by changed sources."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idleband.kernels import compile

LIST_COMPILED = """
import idleband as ib
from idleband.simulation.run import PolicyRun
run = PolicyRun.start(ib.scenario("S1"), ib.policy("mp-random"), 10, 0, 0)  # one kernel stands for all
run.to(10)
stats = run.kernel.run.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def hits_and_misses(folder: Path) -> tuple[int, int]:
    """Return the cache hits and misses of a process that runs a policy with this cache folder."""
    environment = {**os.environ, "IDLEBAND_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", LIST_COMPILED], capture_output=True, text=True, env=environment, check=True, timeout=120
    )
    hits, misses = done.stdout.split()
    return int(hits), int(misses)


def test_second_process_does_not_compile_again(tmp_path: Path) -> None:
    assert hits_and_misses(tmp_path) == (0, 1)
    assert hits_and_misses(tmp_path) == (1, 0)


def test_compiles_without_a_writable_cache(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    assert hits_and_misses(tmp_path / "a-file")[0] == 0


def test_cache_folder_depends_on_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDLEBAND_CACHE_DIR", str(tmp_path))
    folder = compile.cache_folder.__wrapped__
    first = folder()
    assert first == folder()
    monkeypatch.setattr(compile, "source_hash", lambda *more: "other sources")
    assert folder() != first


def test_cache_of_old_versions_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDLEBAND_CACHE_DIR", str(tmp_path))
    old, recent, foreign = "0123456789abcdef", "fedcba9876543210", "thesis"
    folder = tmp_path / "compiled"
    for path, age in ((folder / old, 10**8), (folder / recent, 10), (folder / foreign, 10**8), (tmp_path / old, 10**8)):
        path.mkdir(parents=True)
        os.utime(path, (time.time() - age, time.time() - age))
    kept = compile.cache_folder.__wrapped__()
    assert {path.name for path in folder.iterdir()} == {recent, foreign, kept.name}
    assert (tmp_path / old).exists()


def test_no_cache_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("could not determine home directory")

    for variable in ("IDLEBAND_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert compile.cache_folder.__wrapped__() is None


def test_threads_specialise_into_the_cache_folder() -> None:
    interval = sys.getswitchinterval()
    folder = compile.cache_folder()
    assert folder is not None

    def loop(x: int) -> int:
        return x

    def paths(_: int) -> list[str]:
        return [compile.specialise(loop, "tests_threads", {}).stats.cache_path for _ in range(60)]

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = {path for part in pool.map(paths, range(8)) for path in part}
    finally:
        sys.setswitchinterval(interval)
    assert {Path(path).is_relative_to(folder) for path in found} == {True}


def test_specialise_binds_names() -> None:
    def loop(x: int) -> int:
        return bound(x)  # type: ignore[name-defined]  # noqa: F821

    double = compile.specialise(loop, "double", {"bound": compile.jit(lambda x: 2 * x)}, cached=False)
    triple = compile.specialise(loop, "triple", {"bound": compile.jit(lambda x: 3 * x)}, cached=False)
    assert (double(7), triple(7)) == (14, 21)
    assert compile.interpreted(loop, "plain", {"bound": str})(7) == "7"
