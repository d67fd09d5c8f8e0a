"""The journal: acknowledged events are there, or the file is refused in one line and left unchanged."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from idleband.allocator.events import Decision, Receipt
from idleband.errors import InputError
from idleband.service.journal import DECIDE, FILE_NAME, REPORT, Event, Journal, JournalError, Snapshot
from idleband.service.manager import AllocatorManager
from tests.service.running import contexts_of, settings

DECISIONS = 30


def decide(manager: AllocatorManager, number: int) -> Decision:
    return manager.decide(manager.allocators["main"], contexts_of(number), request_id=f"r{number}")


def report(manager: AllocatorManager, decision: Decision) -> Receipt:
    allocator, request_id = manager.allocators["main"], str(decision.request_id)
    rewards = [(0.1, 1.0)[(k + decision.slot) % 2] for k in decision.channels]
    return manager.report(allocator, request_id, allocator.parse_report(request_id, rewards))


class KilledJournal:
    """The files that a killed process left: a journal with a snapshot, and a log with later events.

    Tests that damage them make copies.
    """

    def __init__(self, folder: Path) -> None:
        made, self._files = folder / "made", folder / "files"
        manager = AllocatorManager(made, snapshot_every=40)
        manager.open("main", settings())
        self.decisions = []
        for i in range(DECISIONS):
            self.decisions.append(decide(manager, i))
            manager.commit()
            report(manager, self.decisions[-1])
            manager.commit()
            if i == DECISIONS // 2:  # later events are in the log only
                manager.journal._writer.execute("PRAGMA wal_checkpoint(RESTART)")
        self.state = manager.allocators["main"].core.snapshot()()
        self._files.mkdir()
        for name in (FILE_NAME, f"{FILE_NAME}-wal", "lock"):
            shutil.copy(made / name, self._files)
        manager.journal.close()

    def copy(self, to: Path, *, merged: bool = False) -> Path:
        """Return the path of a copy of the journal; `merged`: closed since then, so that there is no log."""
        shutil.copytree(self._files, to)
        if merged:
            AllocatorManager(to).close()
            assert not (to / f"{FILE_NAME}-wal").exists()
        return to / FILE_NAME

    def check(self, folder: Path) -> None:
        """Check that no acknowledged event is lost."""
        manager = AllocatorManager(folder)
        try:
            core = manager.allocators["main"].core
            assert core.snapshot()() == self.state
            for i, decision in enumerate(self.decisions):
                assert decide(manager, i) == decision
                assert report(manager, decision).repeated == decision.channels
            assert core.snapshot()() == self.state
        finally:
            manager.journal.close()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> KilledJournal:
    return KilledJournal(tmp_path_factory.mktemp("journal"))


def refusal(journal: Path) -> str:
    """Return the line with which a folder is refused; its files must be unchanged."""
    before = journal.read_bytes() if journal.is_file() else None
    log = journal.with_name(f"{FILE_NAME}-wal")
    logged = log.read_bytes() if log.exists() else b""
    with pytest.raises(InputError) as error:
        AllocatorManager(journal.parent)
    assert (journal.read_bytes() if journal.is_file() else None) == before
    assert (log.read_bytes() if log.exists() else b"") == logged
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert str(journal.parent) in line
    return line


def test_kill_loses_no_acknowledged_event(killed: KilledJournal, tmp_path: Path) -> None:
    killed.check(killed.copy(tmp_path / "data").parent)
    killed.check(killed.copy(tmp_path / "merged", merged=True).parent)


def test_refused_journal_opens_after_repair(killed: KilledJournal, tmp_path: Path) -> None:
    journal = killed.copy(tmp_path / "data", merged=True)
    content = journal.read_bytes()
    journal.write_bytes(b"x" * 100 + content[100:])
    assert refusal(journal)
    journal.write_bytes(content)
    killed.check(journal.parent)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.999])
def test_truncated_journal_is_refused_or_complete(
    killed: KilledJournal, tmp_path: Path, part: float, merged: bool
) -> None:
    journal = killed.copy(tmp_path / "data", merged=merged)
    size = int(journal.stat().st_size * part)
    os.truncate(journal, size)
    try:
        killed.check(journal.parent)  # the log may contain what was cut off
        assert not merged
    except InputError:
        journal = killed.copy(tmp_path / "again", merged=merged)
        os.truncate(journal, size)
        assert FILE_NAME in refusal(journal)


@pytest.mark.parametrize("part", [0.02, 0.7, 0.98])
@pytest.mark.parametrize("cut", [True, False])
def test_damaged_log_is_noticed(killed: KilledJournal, tmp_path: Path, part: float, cut: bool) -> None:
    """SQLite reads a damaged log as one that ends before the damage. Later events would be lost without notice."""
    journal = killed.copy(tmp_path / "data")
    log = journal.with_name(f"{FILE_NAME}-wal")
    place = int(log.stat().st_size * part)
    if cut:
        os.truncate(log, place)
    else:
        with log.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ 0xFF]))
    message = ""
    try:
        killed.check(journal.parent)  # unused part of the log
    except InputError as error:
        message = str(error)
    assert ("can be read" in message) == (part < 0.9)  # the end of the log has been merged


def test_missing_log_is_refusal(killed: KilledJournal, tmp_path: Path) -> None:
    """The journal alone would look sound but be of an earlier time."""
    journal = killed.copy(tmp_path / "data")
    journal.with_name(f"{FILE_NAME}-wal").unlink()
    assert f"{FILE_NAME}-wal" in refusal(journal)
    assert f"{FILE_NAME}-wal" in refusal(journal)
    journal.with_name("lock").unlink()  # as the message suggests
    manager = AllocatorManager(journal.parent)
    assert len(manager.allocators) <= 1
    manager.close()


def test_missing_journal_is_refusal(killed: KilledJournal, tmp_path: Path) -> None:
    for merged in (False, True):
        journal = killed.copy(tmp_path / f"data{merged}", merged=merged)
        journal.unlink()
        assert f"{FILE_NAME}: is missing" in refusal(journal)
        assert not journal.exists()


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bits_are_noticed_or_harmless(killed: KilledJournal, tmp_path: Path, seed: int) -> None:
    journal = killed.copy(tmp_path / "data", merged=seed % 2 == 0)
    content = bytearray(journal.read_bytes())
    chosen = random.Random(seed)
    for _ in range(chosen.choice((1, 1, 8))):
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    journal.write_bytes(content)
    try:
        killed.check(journal.parent)
    except JournalError:  # an old decision that nothing but a repeated request needs
        pass
    except InputError:
        refusal(journal)


ROWS: dict[str, tuple[str, str]] = {
    "an event": ("UPDATE events SET body = zeroblob(length(body)) WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its name": ("UPDATE events SET request = 'r0x' WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its kind": ("UPDATE events SET kind = 2 WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its place": ("UPDATE events SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its type": ("UPDATE events SET body = 'text' WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "a snapshot": ("UPDATE snapshots SET state = zeroblob(length(state))", "snapshot of allocator main"),
    "a snapshot's type": ("UPDATE snapshots SET state = 'text'", "snapshot of allocator main"),
    "a snapshot's place": ("UPDATE snapshots SET seq = seq - 1", "snapshot of allocator main"),
    "settings": ("UPDATE allocators SET settings = replace(settings, '\"seed\": 0', '\"seed\": 1')", "settings"),
    "a name": ("UPDATE allocators SET name = 'mein'", "settings of allocator 'mein'"),
    "the format": ("UPDATE about SET format = 2", "format 2"),
    "the format's row": ("DELETE FROM about", "format None"),
    "a table": ("DROP TABLE events", "events"),
    "all tables of ours": ("ALTER TABLE about RENAME TO other", "was not written by idleband"),
}


@pytest.mark.parametrize(("change", "names"), ROWS.values(), ids=ROWS)
def test_changed_rows_are_noticed(killed: KilledJournal, tmp_path: Path, change: str, names: str) -> None:
    """SQLite itself does not notice these changes."""
    journal = killed.copy(tmp_path / "data")
    with sqlite3.connect(journal) as connection:
        connection.execute(change)
    connection.close()
    journal.with_name(f"{FILE_NAME}-wal").touch()
    journal.with_name("lock").write_text("closed\n")
    assert names in refusal(journal)


def test_index_that_does_not_match_is_noticed(killed: KilledJournal, tmp_path: Path) -> None:
    """A decision that is not found by its request_id would be decided again."""
    journal = killed.copy(tmp_path / "data", merged=True)
    with sqlite3.connect(journal) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'decisions'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(journal.read_bytes())
    page = slice((root - 1) * size, root * size)
    assert content[page].count(b"r17") == 1
    content[page] = content[page].replace(b"r17", b"r1x")
    journal.write_bytes(content)
    assert "is damaged" in refusal(journal)


def test_unreadable_event_with_a_valid_checksum_is_refusal(killed: KilledJournal, tmp_path: Path) -> None:
    journal = killed.copy(tmp_path / "data", merged=True)
    with sqlite3.connect(journal) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        event = Event(last + 1, 1, REPORT, "r1", b"nonsense")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*event, event.checksum))
    connection.close()
    assert f"event {last + 1} cannot be read" in refusal(journal)


OTHER_FILES: dict[str, Callable[[Path], object]] = {
    "a text": lambda journal: journal.write_text("Some text,\n" * 1000),
    "zeros": lambda journal: journal.write_bytes(bytes(8192)),
    "a folder": lambda journal: journal.mkdir(),
    "a link to itself": lambda journal: journal.symlink_to(journal),
}


@pytest.mark.parametrize("put", OTHER_FILES.values(), ids=OTHER_FILES)
def test_file_that_is_no_journal_is_refusal(tmp_path: Path, put: Callable[[Path], object]) -> None:
    put(tmp_path / FILE_NAME)
    assert refusal(tmp_path / FILE_NAME)


def test_database_of_another_program_is_refusal(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("CREATE TABLE letters (text)")
    connection.close()
    assert "was not written by idleband" in refusal(tmp_path / FILE_NAME)


def test_file_instead_of_a_folder_is_refusal(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(InputError, match="data"):
        Journal(tmp_path / "data", 10)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_is_not_writable_is_refusal(killed: KilledJournal, tmp_path: Path) -> None:
    journal = killed.copy(tmp_path / "data")
    journal.with_name("lock").chmod(0o400)
    journal.parent.chmod(0o500)
    try:
        assert "Permission denied" in refusal(journal)
    finally:
        journal.parent.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_journal_that_is_not_writable_is_refusal(killed: KilledJournal, tmp_path: Path) -> None:
    """At the start, and not at every request."""
    journal = killed.copy(tmp_path / "data")
    journal.chmod(0o400)
    assert "is not writable" in refusal(journal)


def test_incomplete_new_file_is_created_again(tmp_path: Path) -> None:
    """The process ended while it created the file; nothing was acknowledged."""
    for part in ("nothing", "a page"):
        folder = tmp_path / part
        folder.mkdir()
        (folder / FILE_NAME).touch()
        if part == "a page":
            connection = sqlite3.connect(folder / FILE_NAME)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
        manager = AllocatorManager(folder)
        manager.open("main", settings())
        manager.close()
        assert list(AllocatorManager(folder).allocators) == ["main"]


# --- locking and transactions -------------------------------------------------------------------------------


def test_folder_in_use_is_refusal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10)
    with pytest.raises(InputError, match="in use by another process"):
        Journal(tmp_path, 10)
    journal.close()
    Journal(tmp_path, 10).close()


def events(first: int, count: int) -> list[Event]:
    return [Event(seq, 1, DECIDE, f"r{seq}", b"x" * 200) for seq in range(first, first + count)]


def test_failed_transaction_writes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10**6)
    journal.write(events(1, 3))
    with pytest.raises(JournalError, match="UNIQUE"):
        journal.write([*events(4, 3), Event(7, 1, DECIDE, "r1", b"")])
    journal.close()
    journal = Journal(tmp_path, 10**6)
    assert [event.seq for event in journal.events(1, 0)] == [1, 2, 3]
    journal.write(events(4, 1))
    assert journal.last == 4
    journal.close()


def test_full_disk_writes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10**6)
    journal.write(events(1, 10))
    journal._writer.execute("PRAGMA max_page_count = 1")
    with pytest.raises(JournalError, match="full"):
        journal.write(events(11, 1000))
    assert journal.last == 10
    journal._writer.execute("PRAGMA max_page_count = 1000000")
    journal.write(events(11, 1000))
    assert [event.seq for event in journal.events(1, 0)] == list(range(1, 1011))
    journal.close()


def test_allocator_lost_by_a_damaged_log_is_noticed(tmp_path: Path) -> None:
    """The allocator was acknowledged and has no events yet."""
    manager = AllocatorManager(tmp_path / "one")
    manager.open("main", settings())
    decide(manager, 1)
    manager.commit()
    manager.journal._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    manager.open("second", settings())
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    manager.close()
    AllocatorManager(tmp_path / "one").close()
    log = tmp_path / "two" / f"{FILE_NAME}-wal"
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(InputError, match="2 allocators were written, but only 1 can be read; left unchanged"):
        AllocatorManager(tmp_path / "two")
    (tmp_path / "one" / "lock").unlink()  # it is written again with the next event
    manager = AllocatorManager(tmp_path / "one")
    decide(manager, 2)
    manager.close()
    assert (tmp_path / "one" / "lock").read_text().split()[-1] == "0000000002"


# --- pruning ---------------------------------------------------------------------------------------------------------


def test_old_events_are_deleted_and_the_file_stops_growing(tmp_path: Path) -> None:
    keep, sizes = 200, []
    journal = Journal(tmp_path, keep)
    for i in range(60):
        new = events(50 * i + 1, 50)
        state = Snapshot(1, new[-1].seq, b"state")
        journal.write(new, [state], new[-1].seq)
        kept = [event.seq for event in journal.events(1, 0)]
        assert kept[-1] == new[-1].seq
        assert kept == list(range(kept[0], kept[-1] + 1))
        assert len(kept) <= max(keep + 1, new[-1].seq - keep + 50)
        assert len(kept) >= min(keep, new[-1].seq)
        journal._writer.execute("PRAGMA wal_checkpoint")  # moves the log into the file
        sizes.append(journal.path.stat().st_size)
    assert len(kept) <= keep + 1
    assert sizes[-1] <= 1.3 * sizes[30]
    journal.close()


def test_events_without_a_snapshot_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 5)
    journal.write(events(1, 100), [Snapshot(1, 40, b"state")], 40)
    for i in range(10):
        journal.write(events(101 + 100 * i, 100))
    assert next(iter(journal.events(1, 0))).seq == 41
    journal.close()
    journal = Journal(tmp_path, 5)  # what snapshots contain is not known yet, so nothing is deleted
    journal.write(events(1101, 1000))
    assert next(iter(journal.events(1, 0))).seq == 41
    journal.close()


def test_event_numbers_continue_after_all_events_are_deleted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for i in range(5):
        journal.write(events(10 * i + 1, 10), [Snapshot(1, 10 * i + 10, b"state")], 10 * i + 10)
    journal.close()
    journal = Journal(tmp_path, 0)
    assert journal.last == 50  # otherwise new events would have numbers below the snapshot
    journal.close()
