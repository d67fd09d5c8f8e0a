"""Compilation in a second process: its cache, its environment and its failures."""

import sys
from pathlib import Path

import pytest

from idleband.kernels.compile import cache_folder
from idleband.simulation.precompile import compiled_ahead


def compiled() -> set[str]:
    """Return the cached files of mp-random."""
    folder = cache_folder()
    assert folder is not None
    return {path.name for path in folder.rglob("*.nbc") if "policies_random" in path.name}


def test_compiled_code_is_in_the_cache() -> None:
    with compiled_ahead("mp-random") as wait:
        wait()
    assert compiled()


def test_files_in_the_current_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("queue", "tomllib", "scipy"):
        Path(f"{module}.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    with compiled_ahead("mp-random") as wait:
        wait()
    assert not Path("ran").exists()


def test_process_that_cannot_start_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with compiled_ahead("mp-random") as wait:
        wait()


def test_leaving_the_context_ends_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(
        "IDLEBAND_CACHE_DIR", str(tmp_path)
    )  # for the new process; this one has opened its cache already
    with compiled_ahead("mp-nucb"):
        pass
    assert not list(tmp_path.rglob("*.nbc"))
