"""Journals of earlier formats are converted when they are opened.

That of format 1 was written before events were chained; that of format 2 by commit e283da2, before allocators could be
renamed and deleted.
"""

import asyncio
import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from idleband.errors import ConflictError, InputError
from idleband.service import journal_files
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME
from tests.service.running import learn

DATA = Path(__file__).parents[1] / "data"
ALL_RECORDED: dict[int, dict[str, Any]] = {
    number: json.loads((DATA / f"journal-format-{number}" / "journal.json").read_text()) for number in (1, 2)
}
RECORDED = ALL_RECORDED[1]


def unpacked(folder: Path, number: int = 1) -> Path:
    """Write the journal of a format and its lock file, as the version before left them."""
    folder.mkdir()
    packed = DATA / f"journal-format-{number}" / "journal.sqlite.gz"
    (folder / FILE_NAME).write_bytes(gzip.decompress(packed.read_bytes()))
    (folder / "lock").write_text(ALL_RECORDED[number]["lock"])
    return folder


def play(manager: AllocatorManager, slot: dict[str, Any]) -> None:
    """Repeat a slot; the decision must be that of the version before."""
    allocator, request_id = manager.allocators[slot["name"]], slot["request_id"]
    decision = manager.decide(allocator, slot["contexts"], request_id=request_id)
    assert (list(decision.channels), decision.slot) == (slot["channels"], slot["slot"])
    if slot["reported"]:
        i = int(request_id.partition("-")[2])
        states = {k: int((k + i) % 3 > 0) for k in decision.channels}
        rewards = {k: (0.1, 1.0)[s] for k, s in states.items()}
        learn(manager, allocator, request_id, rewards, states)
    manager.commit()


@pytest.mark.parametrize(("number", "replayed"), [(1, 9), (2, 11)])
def test_journal_of_an_earlier_format_continues_bit_by_bit(tmp_path: Path, number: int, replayed: int) -> None:
    folder, recorded = unpacked(tmp_path / "data", number), ALL_RECORDED[number]
    assert journal_files.verify(folder).faults == []
    assert journal_files.copy(folder, tmp_path / "backup").allocators == 2  # before the upgrade
    manager = AllocatorManager(folder)
    assert {name: one.core.counts for name, one in manager.allocators.items()} == recorded["counts"]
    assert manager.allocators["main"].replayed == replayed
    for i, slot in enumerate(recorded["later"]):
        if i == 20:
            manager.close()
            manager = AllocatorManager(tmp_path / "data")
            assert manager.allocators["main"].replayed == 0
        play(manager, slot)
    manager.close()
    assert journal_files.verify(tmp_path / "data").faults == []


@pytest.mark.parametrize("number", [1, 2])
def test_earlier_requests_keep_their_answers(tmp_path: Path, number: int) -> None:
    manager, recorded = AllocatorManager(unpacked(tmp_path / "data", number)), ALL_RECORDED[number]
    slots = {name: one.core.slot for name, one in manager.allocators.items()}
    kept = 0
    for slot in recorded["earlier"]:
        allocator = manager.allocators[slot["name"]]
        if manager.journal.find_decision(allocator.number, slot["request_id"]) is not None:
            kept += 1
            decision = manager.decide(allocator, slot["contexts"], request_id=slot["request_id"])
            assert (list(decision.channels), decision.slot) == (slot["channels"], slot["slot"])
            with pytest.raises(ConflictError):
                manager.decide(allocator, recorded["later"][0]["contexts"], request_id=slot["request_id"])
    assert kept > 10
    if number == 2:  # format 1 did not keep request_ids of decisions that are deleted
        first = recorded["first"]
        with pytest.raises(ConflictError, match="too old to be kept"):
            manager.decide(manager.allocators[first["name"]], first["contexts"], request_id=first["request_id"])
    assert {name: one.core.slot for name, one in manager.allocators.items()} == slots
    manager.close()


def test_allocators_of_an_earlier_journal_can_be_renamed_and_deleted(tmp_path: Path) -> None:
    for number, recorded in ALL_RECORDED.items():
        folder = unpacked(tmp_path / f"data{number}", number)
        manager = AllocatorManager(folder)

        async def work(manager: AllocatorManager = manager, recorded: dict[str, Any] = recorded) -> None:
            manager.start(asyncio.get_running_loop())
            await manager.rename_or_change(manager.allocators["main"], "edge", {"patience": 9})
            await manager.delete(manager.allocators["second"])
            new = manager.open("main", manager.allocators["edge"].core.settings)
            slot = next(one for one in reversed(recorded["earlier"]) if one["name"] == "main")
            with pytest.raises(ConflictError, match="earlier allocator of this name"):
                manager.decide(new, slot["contexts"], request_id=slot["request_id"])
            manager.close()

        asyncio.run(work())
        assert journal_files.verify(folder).faults == []
        again = AllocatorManager(folder)
        assert {name: one.number for name, one in again.allocators.items()} == {"edge": 1, "main": 3}
        again.close()


@pytest.mark.parametrize("number", [1, 2])
def test_interrupted_conversion_leaves_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    folder, recorded = unpacked(tmp_path / "data", number), ALL_RECORDED[number]
    before = (folder / FILE_NAME).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("idleband.service.journal_migration.FORMAT", None)  # the last statement fails
        with pytest.raises(InputError, match="cannot be read"):
            AllocatorManager(folder)
    with closing(sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT format FROM about").fetchone() == (number,)
    assert len((folder / FILE_NAME).read_bytes()) == len(before)
    manager = AllocatorManager(folder)
    assert {name: one.core.counts for name, one in manager.allocators.items()} == recorded["counts"]
    manager.close()


FAULTS = {
    "a missing event": ("DELETE FROM events WHERE seq = (SELECT max(seq) - 3 FROM events)", "are missing"),
    "an older snapshot": ("DELETE FROM events WHERE seq < (SELECT max(seq) FROM snapshots) + 3", "are missing"),
    "a changed event": ("UPDATE events SET kind = 2 WHERE seq = (SELECT max(seq) FROM events)", "is damaged"),
    "a changed snapshot": ("UPDATE snapshots SET state = zeroblob(9)", "the snapshot of allocator main is damaged"),
    "changed settings": ("UPDATE allocators SET settings = '{}'", "the settings of allocator 'main' are damaged"),
    "a missing end": ("DELETE FROM events WHERE seq > (SELECT max(seq) - 3 FROM events)", "can be read"),
}


@pytest.mark.parametrize(("statement", "message"), FAULTS.values(), ids=FAULTS)
def test_damaged_journal_of_format_1_is_refused(tmp_path: Path, statement: str, message: str) -> None:
    folder = unpacked(tmp_path / "data")
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.executescript(statement)
    before = (folder / FILE_NAME).read_bytes()
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(InputError, match=message):
        AllocatorManager(folder)
    assert (folder / FILE_NAME).read_bytes() == before
    assert any(message in fault for fault in journal_files.verify(tmp_path / "copy").faults)


FAULTS_2 = {
    "a missing event": (
        "DELETE FROM events WHERE allocator = 1 AND seq = 105",
        "event 105 of allocator main is",
    ),
    "changed settings": ("UPDATE allocators SET settings = '{}'", "the settings of allocator 'main' are damaged"),
    "no snapshot": ("DELETE FROM snapshots", "the snapshot of allocator main is missing"),
}


@pytest.mark.parametrize(("statement", "message"), FAULTS_2.values(), ids=FAULTS_2)
def test_damaged_journal_of_format_2_is_refused_before_it_is_converted(
    tmp_path: Path, statement: str, message: str
) -> None:
    folder = unpacked(tmp_path / "data", 2)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.executescript(statement)
    before = (folder / FILE_NAME).read_bytes()
    with pytest.raises(InputError, match=message):
        AllocatorManager(folder)
    assert (folder / FILE_NAME).read_bytes() == before
