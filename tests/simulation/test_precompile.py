"""A second process compiles, and whatever becomes of it, nothing but time is lost."""

import sys
from pathlib import Path

import pytest

from idleband.kernels.compile import cache_folder
from idleband.simulation.precompile import compiled_ahead


def compiled() -> set[str]:
    folder = cache_folder()
    assert folder is not None
    return {path.name for path in folder.rglob("*.nbc") if "policies_random" in path.name}


def test_what_it_compiled_lies_in_the_cache() -> None:
    with compiled_ahead("mp-random") as wait:
        wait()
    assert compiled()


def test_no_file_of_the_users_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("queue", "tomllib", "scipy"):
        Path(f"{module}.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    with compiled_ahead("mp-random") as wait:
        wait()
    assert not Path("ran").exists()


def test_a_process_that_cannot_start_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with compiled_ahead("mp-random") as wait:
        wait()


def test_leaving_early_ends_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IDLEBAND_CACHE_DIR", str(tmp_path))  # of the process alone: here the folder is known already
    with compiled_ahead("mp-nucb"):
        pass
    assert not list(tmp_path.rglob("*.nbc"))
