"""Fixtures that call the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from idleband.cli import main
from tests.cli.calls import SMALL, Refuse, contents


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Call the command in this process; return status, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        assert isinstance(end.value.code, int)
        return (end.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def ok(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Call the command, which must succeed without messages; return its output."""

    def ok(*arguments: object) -> str:
        status, out, err = call(*arguments)
        assert (status, err) == (0, "")
        return out

    return ok


@pytest.fixture
def refuse(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Refuse:
    """Call the command, which must refuse its input in one line and write nothing; return the line."""

    def refuse(*arguments: object) -> str:
        before = contents(tmp_path)
        status, _, err = call(*arguments)
        assert status == 2
        assert err.startswith("idleband: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert contents(tmp_path) == before
        return err

    return refuse


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run of SMALL on S1. Tests must not change it."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    with pytest.raises(SystemExit, match="0"):
        main(["run", "S1", *map(str, SMALL), "--out", str(folder)])
    return folder
