"""The command: what it refuses, how it ends, and what is left of it after it was killed."""

import logging
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idleband import cli
from idleband.service.client import Client, ServiceError
from idleband.service.journal import NAME
from idleband.service.serve import read_token
from tests.own_policy import MINE
from tests.service.running import LONG, NEW, AsCommand, as_command, eventually, feedback, in_thread, question, settings

TOKEN = "a-token-of-the-tests"


# --- mistakes: one line and status 2 ---------------------------------------------------------------------------------


@pytest.fixture
def own_logs() -> Iterator[None]:
    """The command sets up logging for its process, which is that of the tests here."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.handlers, root.level, uvicorn.level
    yield
    root.handlers, root.level, uvicorn.level = before


@pytest.fixture
def refused(own_logs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IDLEBAND_TOKEN", raising=False)

    def refuse(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["serve", "--port", "0", *map(str, arguments)])  # the usual one may be in use
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, "")
        assert said.err.startswith("idleband: ")
        assert said.err.count("\n") == 1
        return said.err

    return refuse


MISTAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "no policy in a new folder": ((), "has no allocator yet"),
    "sizes without a policy": (("--channels", 4), "--channels: must come with --policy"),
    "a setting without a policy": (("--set", "seed=1"), "must come with --policy"),
    "no channels": (("--policy", "mp-ucb", "--users", 1, "--dimension", 1), "--channels"),
    "no users": (("--policy", "mp-ucb", "--channels", 1, "--dimension", 1), "--users"),
    "no dimension": (("--policy", "mp-ucb", "--channels", 1, "--users", 1), "--dimension"),
    "channels that are no number": ((*NEW, "--channels", "many"), "channels = many"),
    "too many users": ((*NEW, "--users", 5), "users = 5"),
    "an unknown policy": ((*NEW, "--policy", "mp-ubc"), "did you mean"),
    "an oracle": ((*NEW, "--policy", "oracle-static"), "oracle-static"),
    "a parameter that there is not": ((*NEW, "--policy", "mp-ucb:beta=1"), "beta"),
    "a file that there is not": ((*NEW, "--policy", "none.py:mine"), "none.py"),
    "an unknown setting": ((*NEW, "--set", "colour=red"), "--set colour=red"),
    "a setting without a value": ((*NEW, "--set", "deadline"), "--set deadline"),
    "a deadline in words": ((*NEW, "--set", "deadline=soon"), "deadline = 'soon'"),
    "a deadline of nothing": ((*NEW, "--set", "deadline=0"), "deadline"),
    "a limit above one": ((*NEW, "--set", "collision_limit=2"), "collision_limit"),
    "rewards the wrong way round": ((*NEW, "--set", "rewards=1,0"), "rewards"),
    "an incumbent of somebody's own": ((*NEW, "--set", "incumbent=user_code.py:mine"), "incumbent"),
    "no patience": ((*NEW, "--set", "patience=0"), "patience"),
    "a name that leads elsewhere": ((*NEW, "--name", "../main"), "name = '../main': must be 1 to 80 letters"),
    "a misspelt option": (("--polcy", "mp-ucb"), "--polcy mp-ucb; did you mean --policy? (see idleband serve --help)"),
    "a port that there is not": ((*NEW, "--port", 65536), "--port = 65536"),
    "a body of nothing": ((*NEW, "--body", 0), "--body = 0"),
    "no rate": ((*NEW, "--rate", 0), "--rate = 0"),
    "no connections": ((*NEW, "--connections", 0), "--connections = 0"),
    "no pace": ((*NEW, "--pace", 0), "--pace = 0"),
    "a host of others without a token": ((*NEW, "--host", "0.0.0.0"), "must have a token"),
    "a token's file that there is not": ((*NEW, "--token-file", "none"), "--token-file none"),
    "a station on an unknown scenario": ((*NEW, "--station", "S99"), "S99"),
    "a station of another size": ((*NEW, "--station", "S1"), "channels = 4: scenario S1 has 10"),
}


@pytest.mark.parametrize(("arguments", "says"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(refused: Any, tmp_path: Path, arguments: tuple[object, ...], says: str) -> None:
    assert says in refused("--data", "data", *arguments)
    # What was refused left nothing behind: with the mistake mended, the same folder will do.
    if (tmp_path / "data" / NAME).exists():
        with in_thread(tmp_path / "data", main=settings(seed=5)) as service:
            assert service.get("/allocators").data == {"allocators": ["main"]}


def test_a_port_in_use(refused: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "one") as service:
        assert f":{service.port}: cannot be listened at" in refused("--data", "two", *NEW, "--port", service.port)


def test_a_folder_in_use(refused: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data"):
        assert "data: is in use by another process" in refused("--data", tmp_path / "data", *NEW)


def test_other_settings_for_an_allocator_that_is_there(refused: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data") as service:
        service.decide("r")
    for more, differs in (
        (("--set", "seed=1"), "seed = 0, and not 1"), (("--channels", 5), "channels = 4, and not 5"),
        (("--policy", "mp-ucb:L=2"), "parameters = "),
    ):  # fmt: skip
        assert f"main: is there with {differs}" in refused("--data", tmp_path / "data", *NEW, *more)
    with in_thread(tmp_path / "data") as service:
        assert service.standing()["slot"] == 1


def test_a_name_that_is_not_there(refused: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data"):
        pass
    assert "other" in refused("--data", tmp_path / "data", "--name", "other")
    assert "other" in refused("--data", tmp_path / "data", "--name", "other", "--station", "S1")


def test_a_damaged_journal(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    journal = tmp_path / "data" / NAME
    journal.write_text("Dear diary,\n" * 1000)
    assert str(Path("data") / NAME) in refused("--data", "data", *NEW)
    assert journal.read_text() == "Dear diary,\n" * 1000


# --- the token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    ["", "short", "x" * 15, "with a space in it", "a-tokèn-of-the-tests", "two-lines-of-\ntokens", "a\ttab-of-tests"],
)  # fmt: skip
def test_a_token_that_is_none(token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(ValueError, match=f"{file}: a token must have") as error:
        read_token(str(file))
    assert not token or token not in str(error.value).replace(str(file), "")
    monkeypatch.setenv("IDLEBAND_TOKEN", token)
    with pytest.raises(ValueError, match="IDLEBAND_TOKEN: a token must have"):
        read_token(None)


def test_where_a_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDLEBAND_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("IDLEBAND_TOKEN", "from-the-environment")
    assert read_token(None) == "from-the-environment"
    (tmp_path / "token").write_text(f"\n{TOKEN}\n")
    assert read_token(str(tmp_path / "token")) == TOKEN
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match="--token-file"):
            read_token(str(wrong))
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(ValueError, match="--token-file"):
        read_token(str(tmp_path / "binary"))


# --- the process -----------------------------------------------------------------------------------------------------


def test_a_life(tmp_path: Path) -> None:
    """Started, asked, told to end; started again without its settings, as it was."""
    more = ("--set", "deadline=2", "--set", "incumbent=mp-random", "--set", "collision_limit=0.95", "--rate", 500)
    with as_command(tmp_path / "data", *NEW, *more, token=TOKEN) as service:
        standing = service.standing()
        assert (standing["policy"], standing["collision_limit"]) == ("mp-ucb", 0.95)
        answer = service.decide("first").data
        assert (answer["by"], len(answer["proposed"])) == ("incumbent", 2)
        assert service.get("/allocators", Authorization="").status == 401
        assert service.report(feedback(answer)).status == 200
        assert service.post("/allocators/main/decide", b"{").status == 400
        assert service.end() in (0, -signal.SIGTERM)
        said = [line["event"] for line in service.lines]
        assert said == ["started", "refused", "refused", "stopped"]  # lines of JSON, all of them
        assert {line["level"] for line in service.lines} == {"info", "warning"}
        assert service.lines[-1]["slots"] == {"main": 1}
    assert not (tmp_path / "data" / f"{NAME}-wal").exists()
    with sqlite3.connect(tmp_path / "data" / NAME) as journal:
        (snapshot,), (last,) = (
            journal.execute(question).fetchone()
            for question in ("SELECT seq FROM snapshots", "SELECT max(seq) FROM events")
        )
        assert snapshot == last == 2  # so that the next start replays nothing
    journal.close()
    with as_command(tmp_path / "data") as service:
        assert service.decide("first").data == answer
        assert service.report(feedback(answer)).data["repeated"] == answer["channels"]
        second = subprocess.run(
            [sys.executable, "-m", "idleband", "serve", "--port", "0", "--data", tmp_path / "data"],
            capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "is in use by another process" in second.stderr
        service.end(signal.SIGINT)


def test_a_station_gives_it_life(tmp_path: Path) -> None:
    (tmp_path / "user_code.py").write_text(MINE)
    size = ("--channels", 10, "--users", 5, "--dimension", 8)
    arguments = ("--policy", f"{tmp_path / 'user_code.py'}:mine", *size, "--station", "S1", "--pace", 200)
    with as_command(tmp_path / "data", *arguments) as service:
        eventually(lambda: service.standing()["counts"]["reported"] > 100)
        service.end()
        assert [line["event"] for line in service.lines] == ["started", "stopped"]


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """No file may grow: refused with a reason; then there is room again, and it goes on by itself."""
    with as_command(tmp_path / "data", *NEW) as service:
        acknowledged = [service.decide(f"r{i}", i).data for i in range(10)]
        service.limit((tmp_path / "data" / f"{NAME}-wal").stat().st_size)
        number, statuses = 10, []
        while 503 not in statuses:
            reply = service.decide(f"r{number}", number)
            statuses.append(reply.status)
            if reply.status == 200:
                acknowledged.append(reply.data)
            number += 1
        assert "cannot be written" in reply.reason
        assert eventually(lambda: service.get("/health").data)["status"] == "failing"
        service.limit(2**40)
        eventually(lambda: service.get("/health").data["status"] == "ok")
        for i, answer in enumerate(acknowledged):
            assert service.decide(f"r{i}", i).data == answer
        assert service.standing()["slot"] == len(acknowledged)
        assert service.decide(f"r{number}", number).status == 200
        service.end(signal.SIGKILL)
    with as_command(tmp_path / "data") as service:
        for i, answer in enumerate(acknowledged):
            assert service.decide(f"r{i}", i).data == answer


# --- killed ----------------------------------------------------------------------------------------------------------


class Radio(threading.Thread):
    """A client that asks and reports without pause, and keeps what it was told."""

    def __init__(self, number: int, port: int) -> None:
        super().__init__(daemon=True)
        self.number, self.port = number, port
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}  # acknowledged: the number of the question, the answer
        self.reported: dict[str, dict[str, Any]] = {}  # acknowledged feedback
        self.unsure: dict[str, dict[str, Any]] = {}  # feedback that was sent, and not acknowledged

    def run(self) -> None:
        client = Client(f"http://127.0.0.1:{self.port}", patience=0.0)
        try:
            for i in range(10**6):
                name = f"{self.number}-{i}"
                body = question(name, i)
                answer = client.call("POST", "/allocators/main/decide", body)
                self.answers[name] = i, answer
                self.unsure[name] = said = feedback(answer)
                client.call("POST", "/allocators/main/report", said)
                self.reported[name] = self.unsure.pop(name)
        except ServiceError:  # it was killed
            client.close()


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Every acknowledged answer is given again, and every acknowledged report is known; nothing is learned twice.

    How often something was learned is counted by the service itself, and the count is saved with what was learned. It
    must be the number of channels in reports that it says it knows: those that were acknowledged, and those of the few
    on their way when it was killed that had been written. Whether they had shows when they are said again: known, or
    learned now.
    """
    fate = random.Random(0)
    reports: dict[str, dict[str, Any]] = {}
    answers: dict[str, tuple[int, dict[str, Any]]] = {}
    arguments: tuple[object, ...] = (*NEW, "--set", "patience=100000")
    service = AsCommand(tmp_path / "data", *arguments)
    try:
        for life in range(5):
            radios = [Radio(10 * life + n, service.port) for n in range(4)]
            for radio in radios:
                radio.start()
            eventually(lambda: all(radio.reported for radio in radios))  # noqa: B023
            time.sleep(fate.uniform(0.0, 0.15))  # no synchronisation: any moment is the right one
            service.end(signal.SIGKILL)
            for radio in radios:
                radio.join(LONG)
            service = AsCommand(tmp_path / "data")
            acknowledged = {name: said for radio in radios for name, said in radio.reported.items()}
            unsure = {name: said for radio in radios for name, said in radio.unsure.items()}
            counted = service.standing()["counts"]["reported"]
            known = sum(len(said["outcomes"]) for said in (*reports.values(), *acknowledged.values()))
            assert known <= counted <= known + sum(len(said["outcomes"]) for said in unsure.values())
            with Client(f"http://127.0.0.1:{service.port}") as client:
                for radio in radios:
                    answers |= radio.answers
                for name, (number, answer) in fate.sample(sorted(answers.items()), min(200, len(answers))):
                    assert client.call("POST", "/allocators/main/decide", question(name, number)) == answer
                for said in acknowledged.values():
                    receipt = client.call("POST", "/allocators/main/report", said)
                    assert (receipt["learned"], receipt["late"]) == ([], False)
                written = 0
                for said in unsure.values():
                    receipt = client.call("POST", "/allocators/main/report", said)
                    assert not (receipt["learned"] and receipt["repeated"])  # all of a report, or nothing
                    written += len(receipt["repeated"])
                assert counted == known + written
            reports |= acknowledged | unsure
        with Client(f"http://127.0.0.1:{service.port}") as client:
            for name, (number, answer) in answers.items():
                assert client.call("POST", "/allocators/main/decide", question(name, number)) == answer
        counts = service.standing()["counts"]
        assert counts["reported"] == sum(len(said["outcomes"]) for said in reports.values())
        assert counts["decisions"] >= len(answers)
        assert counts["decisions"] <= len(answers) + 4 * 8  # and those whose answers were on their way
    finally:
        service.end(signal.SIGKILL)
