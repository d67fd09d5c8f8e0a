"""`idleband serve`: what it refuses, how it ends, and what a killed service leaves."""

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
from idleband.allocator.events import Decision, StepResult
from idleband.service.client import Client, ServiceError
from idleband.service.sqlite_journal import FILE_NAME
from tests.own_policy import MINE
from tests.service.running import (
    NEW,
    TIMEOUT,
    V1,
    AsCommand,
    as_command,
    contexts_of,
    eventually,
    in_thread,
    report_body,
    settings,
)

TOKEN = "a-token-of-the-tests"


# --- refused: one line and status 2 ---------------------------------------------------------------------------------


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The command sets up logging for its process, which is that of the tests."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    before = root.handlers, root.level, uvicorn.level
    yield
    root.handlers, root.level, uvicorn.level = before


@pytest.fixture
def refusal(
    restored_logging: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IDLEBAND_TOKEN", raising=False)

    def refuse(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["serve", "--port", "0", *map(str, arguments)])  # the default port may be in use
        printed = capsys.readouterr()
        assert (ended.value.code, printed.out) == (2, "")
        assert printed.err.startswith("idleband: ")
        assert printed.err.count("\n") == 1
        return printed.err

    return refuse


REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "no policy in a new folder": ((), "has no allocator yet"),
    "sizes without a policy": (("--channels", 4), "--channels: must come with --policy"),
    "a setting without a policy": (("--set", "seed=1"), "must come with --policy"),
    "no channels": (("--policy", "mp-ucb", "--users", 1, "--dimension", 1), "--channels"),
    "no users": (("--policy", "mp-ucb", "--channels", 1, "--dimension", 1), "--users"),
    "no dimension": (("--policy", "mp-lucb", "--channels", 1, "--users", 1), "dimension"),
    "channels that are not a number": ((*NEW, "--channels", "many"), "channels = many"),
    "too many users": ((*NEW, "--users", 5), "users = 5"),
    "an unknown policy": ((*NEW, "--policy", "mp-ubc"), "did you mean"),
    "an oracle": ((*NEW, "--policy", "oracle-static"), "oracle-static"),
    "an unknown parameter": ((*NEW, "--policy", "mp-ucb:beta=1"), "beta"),
    "a missing policy file": ((*NEW, "--policy", "none.py:mine"), "none.py"),
    "an unknown setting": ((*NEW, "--set", "colour=red"), "--set colour=red"),
    "a setting without a value": ((*NEW, "--set", "deadline"), "--set deadline"),
    "a deadline in words": ((*NEW, "--set", "deadline=soon"), "deadline = 'soon'"),
    "a deadline of 0": ((*NEW, "--set", "deadline=0"), "deadline"),
    "a limit above one": ((*NEW, "--set", "collision_limit=2"), "collision_limit"),
    "an error probability above one": ((*NEW, "--set", "missed=2"), "sensing_errors.missed = 2.0: must be a number"),
    "an error probability in words": ((*NEW, "--set", "false_alarm=few"), "sensing_errors.false_alarm = 'few'"),
    "error probabilities of 2 channels": ((*NEW, "--set", "missed=0.1,0.2"), "sensing_errors.missed: has 2 entries"),
    "a negative switching cost": ((*NEW, "--set", "switching_cost=-1"), "switching_cost = -1"),
    "a station with a missing trace": ((*NEW, "--station", "none.parquet"), "none.parquet: cannot be read"),
    "a missing trace": ((*NEW, "--trace", "none.parquet"), "none.parquet: cannot be read"),
    "rewards in the wrong order": ((*NEW, "--set", "rewards=1,0"), "rewards"),
    "a policy file as incumbent": ((*NEW, "--set", "incumbent=user_code.py:mine"), "incumbent"),
    "no patience": ((*NEW, "--set", "patience=0"), "patience"),
    "a name with ..": ((*NEW, "--name", "../main"), "name = '../main': must be 1 to 80 letters"),
    "a misspelt option": (("--polcy", "mp-ucb"), "--polcy mp-ucb; did you mean --policy? (see idleband serve --help)"),
    "a port above the limit": ((*NEW, "--port", 65536), "--port = 65536"),
    "a body limit of 0": ((*NEW, "--body", 0), "--body = 0"),
    "no rate": ((*NEW, "--rate", 0), "--rate = 0"),
    "no connections": ((*NEW, "--connections", 0), "--connections = 0"),
    "no connections from an address": ((*NEW, "--per-address", 0), "--per-address = 0"),
    "a proxy by its name": ((*NEW, "--proxy", "proxy.example"), "--proxy 'proxy.example': must be an IP address"),
    "a network with host bits": ((*NEW, "--proxy", "10.1.2.3/16"), "--proxy '10.1.2.3/16': must be an IP address"),
    "no pace": ((*NEW, "--pace", 0), "--pace = 0"),
    "a public host without a token": ((*NEW, "--host", "0.0.0.0"), "needs a token"),
    "a missing token file": ((*NEW, "--token-file", "none"), "--token-file none"),
    "a station with an unknown scenario": ((*NEW, "--station", "S99"), "S99"),
    "a station with other sizes": ((*NEW, "--station", "S1"), "channels = 4: scenario S1 has 10"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_arguments_are_refused_in_one_line(
    refusal: Any, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    assert message in refusal("--data", "data", *arguments)
    # A refused start leaves nothing behind: the same folder can be used with valid arguments.
    if (tmp_path / "data" / FILE_NAME).exists():
        with in_thread(tmp_path / "data", main=settings(seed=5)) as service:
            assert service.get(V1).data == {"allocators": ["main"]}


def test_misspelt_folder_is_not_created(refusal: Any, tmp_path: Path) -> None:
    assert "dta: has no allocator yet; give --policy, --channels and --users" in refusal("--data", tmp_path / "dta")
    assert not (tmp_path / "dta").exists()


def test_port_in_use_is_refused(refusal: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "one") as service:
        assert f":{service.port}: cannot listen" in refusal("--data", "two", *NEW, "--port", service.port)


def test_folder_in_use_is_refused(refusal: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data"):
        assert "data: is in use by another process" in refusal("--data", tmp_path / "data", *NEW)


def test_other_settings_of_an_existing_allocator_are_refused(refusal: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data") as service:
        service.decide("r")
    for more, differs in (
        (("--set", "seed=1"), "seed = 0"), (("--channels", 5), "channels = 4"),
        (("--policy", "mp-ucb:L=2"), "parameters = "), (("--set", "missed=0.1"), "sensing_errors = None"),
        (("--set", "switching_cost=0.1"), "switching_cost = 0.0"),
    ):  # fmt: skip
        assert f"main: exists with {differs}" in refusal("--data", tmp_path / "data", *NEW, *more)
    with in_thread(tmp_path / "data") as service:
        assert service.status()["slot"] == 1


def test_unknown_name_is_refused(refusal: Any, tmp_path: Path) -> None:
    with in_thread(tmp_path / "data"):
        pass
    assert "other" in refusal("--data", tmp_path / "data", "--name", "other")
    assert "other" in refusal("--data", tmp_path / "data", "--name", "other", "--station", "S1")


def test_damaged_journal_is_refused_and_left_unchanged(refusal: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    journal = tmp_path / "data" / FILE_NAME
    journal.write_text("Some text,\n" * 1000)
    assert str(Path("data") / FILE_NAME) in refusal("--data", "data", *NEW)
    assert journal.read_text() == "Some text,\n" * 1000


# --- the process -----------------------------------------------------------------------------------------------------


def test_signal_right_after_the_start_ends_the_service_in_order(tmp_path: Path) -> None:
    """Before the server has handlers for signals of its own."""
    with as_command(tmp_path / "data", *NEW) as service:
        assert service.end() == 0
        assert [line["event"] for line in service.log_lines][-1] == "service stopped"


def test_start_stop_and_start_again_on_the_same_folder(tmp_path: Path) -> None:
    more = ("--set", "deadline=60", "--set", "incumbent=mp-random", "--set", "collision_limit=0.95", "--rate", 500)
    with as_command(tmp_path / "data", *NEW, *more, token=TOKEN) as service:
        status = service.status()
        assert (status["policy"], status["collision_limit"]) == ("mp-ucb", 0.95)
        decision = service.decide("first").data
        assert (decision["by"], len(decision["proposed"])) == ("incumbent", 2)
        assert service.get(V1, Authorization="").status == 401
        assert service.report(report_body(decision)).status == 200
        assert service.post(f"{V1}/main/decide", b"{").status == 400
        assert service.end() in (0, -signal.SIGTERM)
        lines = [line for line in service.log_lines if not line["event"].startswith("compiling ")]  # at a first use
        events = [line["event"] for line in lines]
        assert events == ["service started", "request refused", "request refused", "service stopped"]
        assert {line["level"] for line in service.log_lines} == {"info", "warning"}
        assert service.log_lines[-1]["slots"] == {"main": 1}
    assert not (tmp_path / "data" / f"{FILE_NAME}-wal").exists()
    with sqlite3.connect(tmp_path / "data" / FILE_NAME) as journal:
        (snapshot,), (last,) = (
            journal.execute(question).fetchone()
            for question in ("SELECT seq FROM snapshots", "SELECT max(seq) FROM events")
        )
        assert snapshot == last == 2  # the next start replays nothing
    journal.close()
    with as_command(tmp_path / "data") as service:
        assert service.decide("first").data == decision
        assert service.report(report_body(decision)).data["repeated"] == decision["channels"]
        second = subprocess.run(
            [sys.executable, "-m", "idleband", "serve", "--port", "0", "--data", tmp_path / "data"],
            capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "is in use by another process" in second.stderr
        service.end(signal.SIGINT)


def test_simulated_station_plays_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "user_code.py").write_text(MINE)
    size = ("--channels", 10, "--users", 5, "--dimension", 8)
    arguments = ("--policy", f"{tmp_path / 'user_code.py'}:mine", *size, "--station", "S1", "--pace", 200)
    with as_command(tmp_path / "data", *arguments) as service:
        eventually(lambda: service.status()["counts"]["reported"] > 100)
        assert [row["name"] for row in service.status()["channel"]] == [f"ch{k + 1}" for k in range(10)]
        service.end()
        events = [line["event"] for line in service.log_lines if not line["event"].startswith("compiling")]
        assert events == ["service started", "service stopped"]


def test_service_continues_after_the_disk_was_full(tmp_path: Path) -> None:
    with as_command(tmp_path / "data", *NEW) as service:
        acknowledged = [service.decide(f"r{i}", i).data for i in range(10)]
        service.limit_file_size((tmp_path / "data" / f"{FILE_NAME}-wal").stat().st_size)
        number, statuses = 10, []
        while 503 not in statuses:
            reply = service.decide(f"r{number}", number)
            statuses.append(reply.status)
            if reply.status == 200:
                acknowledged.append(reply.data)
            number += 1
        assert "cannot be written" in reply.detail
        assert eventually(lambda: service.get("/health").data)["status"] == "failing"
        service.limit_file_size(2**40)
        eventually(lambda: service.get("/health").data["status"] == "ok")
        for i, decision in enumerate(acknowledged):
            assert service.decide(f"r{i}", i).data == decision
        assert service.status()["slot"] == len(acknowledged)
        assert service.decide(f"r{number}", number).status == 200
        service.end(signal.SIGKILL)
    with as_command(tmp_path / "data") as service:
        for i, decision in enumerate(acknowledged):
            assert service.decide(f"r{i}", i).data == decision


# --- killed ----------------------------------------------------------------------------------------------------------


class Station(threading.Thread):
    """A client that decides and reports without pause, and records which requests were acknowledged."""

    def __init__(self, number: int, port: int) -> None:
        super().__init__(daemon=True)
        self.number, self.port = number, port
        self.decisions: dict[str, tuple[int, Decision]] = {}  # acknowledged: number of the contexts, decision
        self.reported: dict[str, int] = {}  # acknowledged reports: number of channels
        self.unsure: dict[str, int] = {}  # reports that were sent and not acknowledged

    def run(self) -> None:
        client = Client(f"http://127.0.0.1:{self.port}", patience=0.0)
        try:
            if self.number % 2:
                self.step(client)
            for i in range(10**6):
                request_id = f"{self.number}-{i}"
                decision = client.decide(contexts_of(i), request_id=request_id)
                self.decisions[request_id] = i, decision
                self.unsure[request_id] = len(decision.channels)
                client.report(request_id, *feedback_for(decision))
                self.reported[request_id] = self.unsure.pop(request_id)
        except ServiceError:  # the service was killed
            client.close()

    def step(self, client: Client) -> None:
        """Decide and report in steps, every other one as one of several."""
        report = None
        for i in range(10**6):
            request_id = f"{self.number}-{i}"
            decide = {"contexts": contexts_of(i), "request_id": request_id}
            if i % 2:
                (found,) = client.steps([{"name": "main", "report": report, "decide": decide}])
            else:
                found = client.step(report, decide)
            assert isinstance(found, StepResult)
            assert found.decision is not None
            if report is not None:
                self.reported[report["request_id"]] = self.unsure.pop(report["request_id"])
            self.decisions[request_id] = i, found.decision
            self.unsure[request_id] = len(found.decision.channels)
            rewards, states = feedback_for(found.decision)
            report = {"request_id": request_id, "rewards": rewards, "states": states}


def feedback_for(decision: Decision) -> tuple[list[float], list[int]]:
    """Return rewards and states that depend on the slot and the channels only."""
    states = [(k + decision.slot) % 2 for k in decision.channels]
    return [(0.1, 1.0)[s] for s in states], states


def test_kill_and_restart_keeps_every_acknowledged_request(tmp_path: Path) -> None:
    """Every acknowledged decision is returned again and every acknowledged report is known; nothing is learned twice.

    The service counts the channels that it learned from, and saves the count with its state. It must equal the number
    of channels in the reports that it knows: those that were acknowledged, and those of the few in flight at the kill
    that had been written. The latter are found by sending them again.
    """
    moments = random.Random(0)
    learned = 0  # channels in reports that the service knows
    decisions: dict[str, tuple[int, Decision]] = {}
    service = AsCommand(tmp_path / "data", *NEW, "--set", "patience=100000")
    try:
        for life in range(3):
            stations = [Station(10 * life + n, service.port) for n in range(4)]
            for station in stations:
                station.start()
            eventually(lambda: all(station.reported for station in stations))  # noqa: B023
            time.sleep(moments.uniform(0.0, 0.15))  # any moment is a valid one
            service.end(signal.SIGKILL)
            for station in stations:
                station.join(TIMEOUT)
                decisions |= station.decisions
            service = AsCommand(tmp_path / "data")
            counted = service.status()["counts"]["reported"]
            learned += sum(count for station in stations for count in station.reported.values())
            in_flight = 0
            with Client(f"http://127.0.0.1:{service.port}") as client:
                for request_id, (number, decision) in moments.sample(
                    sorted(decisions.items()), min(200, len(decisions))
                ):
                    assert client.decide(contexts_of(number), request_id=request_id) == decision
                for station in stations:
                    for request_id in station.reported:
                        receipt = client.report(request_id, *feedback_for(station.decisions[request_id][1]))
                        assert (receipt.learned, receipt.late) == ((), False)
                    for request_id, count in station.unsure.items():
                        receipt = client.report(request_id, *feedback_for(station.decisions[request_id][1]))
                        assert not (receipt.learned and receipt.repeated)  # a report is written as a whole or not
                        learned += len(receipt.repeated)
                        in_flight += count - len(receipt.repeated)
            assert counted == learned
            learned += in_flight  # learned now
        counts = service.status()["counts"]
        assert counts["reported"] == learned
        assert len(decisions) <= counts["decisions"] <= len(decisions) + 3 * 4  # and those in flight
    finally:
        service.end(signal.SIGKILL)
