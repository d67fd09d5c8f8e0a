"""Backup, verification and restoring: a copy is whole or not there, and verification says what is wrong."""

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from idleband.errors import InputError
from idleband.service import journal_files
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME
from tests.allocator.version_0_1 import unpack_journal
from tests.service.running import contexts_of, settings


def made(folder: Path, decisions: int = 30, name: str = "main") -> AllocatorManager:
    manager = AllocatorManager(folder, snapshot_every=20)
    manager.open("main", settings())
    manager.open("other", settings(seed=1))
    play(manager, decisions)
    return manager


def play(manager: AllocatorManager, decisions: int) -> None:
    for _ in range(decisions):
        slot = manager.allocators["main"].core.slot
        for allocator in manager.allocators.values():
            manager.decide(allocator, contexts_of(slot), request_id=f"r{slot}")
        manager.commit()


def state(manager: AllocatorManager, name: str = "main") -> bytes:
    return manager.allocators[name].core.snapshot()()


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.executescript(statement)


def test_backup_of_a_running_folder_is_whole_and_can_be_restored(tmp_path: Path) -> None:
    manager = made(tmp_path / "data")
    before = {name: state(manager, name) for name in manager.allocators}
    assert journal_files.verify(tmp_path / "data").faults == []
    found = journal_files.copy(tmp_path / "data", tmp_path / "backup")
    assert (found.allocators, found.events, found.written, found.faults) == (2, 60, 60, [])
    play(manager, 5)
    manager.close()
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == [FILE_NAME, "lock"]
    assert journal_files.verify(tmp_path / "backup").written == 60
    shutil.rmtree(tmp_path / "data")
    journal_files.copy(tmp_path / "backup", tmp_path / "data")
    manager = AllocatorManager(tmp_path / "data")
    assert {name: state(manager, name) for name in manager.allocators} == before
    play(manager, 1)
    manager.close()
    assert journal_files.verify(tmp_path / "data").written == 62


def test_backups_while_events_are_written_contain_all_that_was_acknowledged(tmp_path: Path) -> None:
    manager = made(tmp_path / "data")
    stop = threading.Event()
    acknowledged = [30]

    def work() -> None:
        while not stop.is_set():
            play(manager, 1)
            acknowledged[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for i in range(5):
            at_least = acknowledged[0]
            found = journal_files.copy(tmp_path / "data", tmp_path / f"backup{i}")
            assert found.written >= 2 * at_least
            assert journal_files.verify(tmp_path / "data").faults == []
    finally:
        stop.set()
        thread.join()
    manager.close()


DAMAGE: dict[str, tuple[str, list[str]]] = {
    "missing events": (
        "DELETE FROM events WHERE allocator = 1 AND seq IN (7, 8, 9, 22)",
        ["events 7 to 9 of allocator main are missing", "event 22 of allocator main is missing"],
    ),
    "a changed event": (
        "UPDATE events SET body = zeroblob(5) WHERE allocator = 2 AND seq = 3",
        ["event 3 of allocator other is damaged, or does not follow the one before it"],
    ),
    "the end": (
        "DELETE FROM events WHERE allocator = 2 AND seq >= 29",
        ["events 29 to 30 of allocator other are missing"],
    ),
    "settings": (
        "UPDATE allocators SET settings = replace(settings, '0', '1') WHERE number = 1",
        ["the settings of allocator 'main' are damaged", "the events of allocator main do not belong to it"],
    ),
    "a snapshot": (
        "UPDATE snapshot_parts SET data = zeroblob(9) WHERE snapshot = (SELECT snapshot FROM snapshots)",
        ["the snapshot of allocator main is damaged"],
    ),
    "an allocator": (
        "DELETE FROM allocators WHERE number = 2; UPDATE about SET base = 30",
        ["allocator number 2 is missing, but not its events", "allocator number 2 is missing, but not its chains",
         "2 allocators were written, but only 1 can be read"],
    ),
    "an older journal": (
        "DELETE FROM events WHERE seq > 28; UPDATE chains SET last = 28, head = (SELECT checksum FROM events WHERE"
        " events.allocator = chains.allocator AND seq = 28)",
        ["event 29 of allocator other is missing: its snapshot is newer than its events",
         "60 events were written, but only 56 can be read"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("statement", "faults"), DAMAGE.values(), ids=DAMAGE)
def test_verify_lists_what_is_wrong_and_nothing_is_copied(tmp_path: Path, statement: str, faults: list[str]) -> None:
    manager = made(tmp_path / "data")
    manager.journal.close()
    change(tmp_path / "data", statement)
    found = journal_files.verify(tmp_path / "data").faults
    assert len([fault for fault in found if "its snapshots" not in fault]) == len(faults), found
    for expected in faults:
        assert any(fault.startswith(expected) for fault in found), found
    with pytest.raises(InputError, match="nothing was written") as error:
        journal_files.copy(tmp_path / "data", tmp_path / "backup")
    assert found[0] in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with pytest.raises(InputError):
        list(AllocatorManager(tmp_path / "data").allocators.values())


def test_restore_never_overwrites(tmp_path: Path) -> None:
    made(tmp_path / "data").close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target in ("data", "other", "file"):
        with pytest.raises(InputError, match="exists and is not an empty folder; nothing was written"):
            journal_files.copy(tmp_path / "data", tmp_path / target)
    assert (tmp_path / "other" / "letter").read_text() == (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert journal_files.copy(tmp_path / "data", tmp_path / "empty").allocators == 2


def test_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    for call in (journal_files.verify, lambda folder: journal_files.copy(folder, tmp_path / "copy")):
        with pytest.raises(InputError, match=r"has no journal\.sqlite"):
            call(tmp_path / "nothing")


def test_missing_or_foreign_file_is_a_fault(tmp_path: Path) -> None:
    made(tmp_path / "data").close()
    (tmp_path / "data" / FILE_NAME).unlink()
    (fault,) = journal_files.verify(tmp_path / "data").faults
    assert "is missing or empty" in fault
    (tmp_path / "data" / FILE_NAME).write_text("Some text,\n" * 1000)
    (fault,) = journal_files.verify(tmp_path / "data").faults
    assert "cannot be read" in fault


def test_journal_of_an_older_version_is_verified_and_copied(tmp_path: Path) -> None:
    unpack_journal(tmp_path)
    assert journal_files.verify(tmp_path).faults == []
    assert journal_files.copy(tmp_path, tmp_path / "copy").allocators == 3
    change(tmp_path, "UPDATE events SET body = zeroblob(5) WHERE seq = (SELECT max(seq) FROM events)")
    (fault,) = journal_files.verify(tmp_path).faults
    assert fault.endswith("is damaged")
