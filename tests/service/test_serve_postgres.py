"""`idleband serve` and `idleband journal` with an address of PostgreSQL."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from idleband import cli
from idleband.cli.parser import build_parser
from tests.conftest import ROOT
from tests.service.postgres_server import PostgresServer
from tests.service.running import NEW, in_thread

SECRET = "postgresql://me:sEcret@127.0.0.1:1/none"


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(part) for part in arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--data", SECRET, *NEW), "postgresql://127.0.0.1:1/none: cannot be reached"),
        (("serve", "--data", "mysql://me:sEcret@host/none", *NEW), "--data: must be a folder, or postgresql://USER@"),
        (("serve", "--data", "data", "--lease", 3, *NEW), "--lease: must come with --data postgresql://..."),
        (("serve", "--data", "data", "--advertise", "http://a:1", *NEW), "--advertise: must come with --data postgres"),
        (("serve", "--data", SECRET, "--lease", 0.5, *NEW), "--lease = 0.5: must be a number of at least 1"),
        (
            ("serve", "--data", SECRET, "--advertise", "here", *NEW),
            "--advertise here: must be like http://10.0.0.5:8765",
        ),
        (("journal", "backup", SECRET, "--out", "x"), "must be a folder; back up a database with pg_dump"),
        (("journal", "restore", "x", "--data", SECRET), "restore it with pg_restore"),
        (("journal", "copy", SECRET, SECRET), "must be the folder of a service, or a backup of one"),
        (("journal", "copy", "data", "other"), "other: must be postgresql://USER@HOST:PORT/DATABASE"),
        (("journal", "copy", "data", SECRET), "data: has no journal.sqlite"),
        (("journal", "verify", SECRET), "cannot be reached"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    port = ("--port", 0) if arguments[0] == "serve" else ()
    status, out, err = called(capsys, *arguments, *port)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "sEcret" not in err
    assert not list(tmp_path.iterdir())


def test_every_address_needs_one_at_which_it_is_reached(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("IDLEBAND_TOKEN", "0123456789abcdef")
    status, _, err = called(capsys, "serve", "--data", SECRET, "--host", "0.0.0.0", *NEW, "--port", 0)
    assert status == 2
    assert "--host 0.0.0.0: needs --advertise http://ADDRESS:PORT" in err


def test_journal_is_copied_verified_and_exported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, postgres: PostgresServer
) -> None:
    with in_thread(tmp_path / "data") as service:
        for i in range(3):
            assert service.decide(f"r{i}", i).status == 200
    url = postgres.new_database()
    shown = url.replace("idleband@", "")
    assert called(capsys, "journal", "copy", tmp_path / "data", url)[1] == f"copied:  {shown} (1 allocator, 3 events)\n"
    found = json.loads(called(capsys, "journal", "verify", url, "--json")[1])
    assert found == {
        "result": "sound", "journal": shown, "allocators": 1, "events": 3, "written": 3, "faults": [],
    }  # fmt: skip
    assert "3 slots" in called(capsys, "journal", "export", url, "main", tmp_path / "log.parquet")[1]
    status, _, err = called(capsys, "serve", "--data", url, "--name", "none", "--port", 0)
    assert (status, f"--name none: {shown} has no allocator of this name" in err) == (2, True)
    status, _, err = called(capsys, "serve", "--data", url, *NEW, "--set", "seed=5", "--port", 0)
    assert (status, "allocator main: exists with seed = 0" in err) == (2, True)


# --- the example in deploy/ ------------------------------------------------------------------------------------------


def test_services_of_the_compose_file_are_those_of_the_proxy() -> None:
    composed = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    servers = re.findall(r"server (\S+) (\S+):(\d+)", (ROOT / "deploy/haproxy.cfg").read_text())
    services = {name: one for name, one in composed.items() if name.startswith("idleband")}
    assert [(name, host) for name, host, _ in servers] == [(name, name) for name in services]
    for name, one in services.items():
        assert f"--advertise=http://{name}:8765" in one["command"]
        assert one["build"]["dockerfile"] == "deploy/Dockerfile"
        assert one["environment"]["PGPASSWORD"] == composed["postgres"]["environment"]["POSTGRES_PASSWORD"]
        assert build_parser().parse_args(one["command"]).host == "0.0.0.0"
