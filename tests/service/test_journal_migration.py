"""A journal of format 1, written before events were chained, is converted when it is opened."""

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

DATA = Path(__file__).parents[1] / "data" / "journal-format-1"
RECORDED: dict[str, Any] = json.loads((DATA / "journal.json").read_text())


def unpacked(folder: Path) -> Path:
    """Write the journal and its lock file, as the version before left them."""
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(gzip.decompress((DATA / "journal.sqlite.gz").read_bytes()))
    (folder / "lock").write_text(RECORDED["lock"])
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
        manager.report(allocator, request_id, allocator.parse_report(request_id, rewards, states))
    manager.commit()


def test_journal_of_format_1_continues_bit_by_bit(tmp_path: Path) -> None:
    manager = AllocatorManager(unpacked(tmp_path / "data"))
    assert {name: one.core.counts for name, one in manager.allocators.items()} == RECORDED["counts"]
    assert manager.allocators["main"].replayed == 9
    for i, slot in enumerate(RECORDED["later"]):
        if i == 20:
            manager.close()
            manager = AllocatorManager(tmp_path / "data")
            assert manager.allocators["main"].replayed == 0
        play(manager, slot)
    manager.close()
    assert journal_files.verify(tmp_path / "data").faults == []


def test_earlier_requests_keep_their_answers(tmp_path: Path) -> None:
    manager = AllocatorManager(unpacked(tmp_path / "data"))
    slots = {name: one.core.slot for name, one in manager.allocators.items()}
    kept = 0
    for slot in RECORDED["earlier"]:
        allocator = manager.allocators[slot["name"]]
        if manager.journal.find_decision(allocator.number, slot["request_id"]) is not None:
            kept += 1
            decision = manager.decide(allocator, slot["contexts"], request_id=slot["request_id"])
            assert (list(decision.channels), decision.slot) == (slot["channels"], slot["slot"])
            with pytest.raises(ConflictError):
                manager.decide(allocator, RECORDED["later"][0]["contexts"], request_id=slot["request_id"])
    assert kept > 10
    assert {name: one.core.slot for name, one in manager.allocators.items()} == slots
    manager.close()


def test_interrupted_conversion_leaves_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unpacked(tmp_path / "data")
    before = (folder / FILE_NAME).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("idleband.service.journal_migration.FORMAT", None)  # the last statement fails
        with pytest.raises(InputError, match="cannot be read"):
            AllocatorManager(folder)
    with closing(sqlite3.connect(f"file:{folder / FILE_NAME}?mode=ro", uri=True)) as connection:
        assert connection.execute("SELECT format FROM about").fetchone() == (1,)
    assert len((folder / FILE_NAME).read_bytes()) == len(before)
    manager = AllocatorManager(folder)
    assert {name: one.core.counts for name, one in manager.allocators.items()} == RECORDED["counts"]
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
