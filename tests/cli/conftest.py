"""Ways to call the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from idleband.cli import main
from tests.cli.calls import SMALL, Refuse, contents


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: status, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(a) for a in arguments])
        assert isinstance(end.value.code, int)
        return (end.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def ok(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """The command in this process, which must succeed quietly; what it prints."""

    def ok(*arguments: object) -> str:
        status, out, err = call(*arguments)
        assert (status, err) == (0, "")
        return out

    return ok


@pytest.fixture
def refuse(call: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Refuse:
    """The command in this process, which must refuse its input in one line and write nothing; that line."""

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
    """A folder with a finished run of SMALL on S1. Not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "out"
    with pytest.raises(SystemExit, match="0"):
        main(["run", "S1", *map(str, SMALL), "--out", str(folder)])
    return folder
