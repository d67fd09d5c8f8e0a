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
from idleband.service.journal import REPORT, Event, JournalError
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME, SqliteJournal
from tests.service.running import contexts_of, learn, settings
from tests.service.test_journal_contract import events, prune, snapshot, stored_events

DECISIONS = 30


def decide(manager: AllocatorManager, number: int) -> Decision:
    return manager.decide(manager.allocators["main"], contexts_of(number), request_id=f"r{number}")


def report(manager: AllocatorManager, decision: Decision) -> Receipt:
    allocator, request_id = manager.allocators["main"], str(decision.request_id)
    rewards = [(0.1, 1.0)[(k + decision.slot) % 2] for k in decision.channels]
    return learn(manager, allocator, request_id, rewards)


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
            manager = AllocatorManager(to)
            assert manager.allocators["main"].uncovered
            manager.close()
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


def open_all(folder: Path) -> None:
    """Open a folder and its allocators, and leave them as they are."""
    manager = AllocatorManager(folder)
    try:
        list(manager.allocators.values())
    finally:
        manager.journal.close()


def refusal(journal: Path) -> str:
    """Return the line with which a folder is refused; its files must be unchanged."""
    before = journal.read_bytes() if journal.is_file() else None
    log = journal.with_name(f"{FILE_NAME}-wal")
    logged = log.read_bytes() if log.exists() else b""
    with pytest.raises(InputError) as error:
        open_all(journal.parent)
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
        assert part > 0.9 or not merged  # the end of the file may be free space
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
    "a deleted event": ("DELETE FROM events WHERE seq = 17", "event 17 of allocator main is missing"),
    "deleted events": (
        "DELETE FROM events WHERE seq BETWEEN 41 AND 49",
        "events 41 to 49 of allocator main are missing",
    ),
    "the first event": ("DELETE FROM events WHERE seq = 1", "event 1 of allocator main is missing"),
    "the last event": ("DELETE FROM events WHERE seq = 60", "event 60 of allocator main is missing"),
    "swapped events": (
        "UPDATE events SET seq = CASE seq WHEN 50 THEN -1 ELSE 50 END WHERE seq IN (50, 52);"
        "UPDATE events SET seq = 52 WHERE seq = -1",
        "event 50 of allocator main",
    ),
    "all events": ("DELETE FROM events", "events 1 to 60 of allocator main are missing"),
    "the chain": ("DELETE FROM chains", "the number of events of allocator main is missing"),
    "an older end of the chain": ("UPDATE chains SET last = last - 1", "the last event of allocator main is not"),
    "a shorter journal": (
        "DELETE FROM events WHERE seq > 50; UPDATE chains SET last = 50",
        "the last event of allocator",
    ),
    "a missing snapshot": (
        "DELETE FROM snapshots; UPDATE chains SET first = 3; DELETE FROM events WHERE seq < 3",
        "the snapshot of allocator main is missing",
    ),
    "a missing part": ("DELETE FROM snapshot_parts", "snapshot of allocator main"),
    "its kind": ("UPDATE events SET kind = 2 WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its place": ("UPDATE events SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "its type": ("UPDATE events SET body = 'text' WHERE seq = (SELECT max(seq) FROM events)", "event"),
    "a snapshot": ("UPDATE snapshot_parts SET data = zeroblob(length(data))", "snapshot of allocator main"),
    "a snapshot's type": ("UPDATE snapshot_parts SET data = 'text'", "snapshot of allocator main"),
    "a snapshot's place": ("UPDATE snapshots SET seq = seq - 1", "snapshot of allocator main"),
    "settings": ("UPDATE allocators SET settings = replace(settings, '\"seed\": 0', '\"seed\": 1')", "settings"),
    "a name": ("UPDATE allocators SET name = 'mein'", "settings of allocator 'mein'"),
    "the format": ("UPDATE about SET format = 4", "format 4"),
    "the format's row": ("DELETE FROM about", "format None"),
    "a table": ("DROP TABLE events", "events"),
    "all tables of ours": ("ALTER TABLE about RENAME TO other", "was not written by idleband"),
}


@pytest.mark.parametrize(("change", "names"), ROWS.values(), ids=ROWS)
def test_changed_rows_are_noticed(killed: KilledJournal, tmp_path: Path, change: str, names: str) -> None:
    """SQLite itself does not notice these changes."""
    journal = killed.copy(tmp_path / "data")
    with sqlite3.connect(journal) as connection:
        connection.executescript(change)
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
        last, head = connection.execute("SELECT last, head FROM chains").fetchone()
        event = Event(1, last + 1, REPORT, "r1", b"nonsense")
        row = (*event, event.checksum(head))
        columns = "allocator, seq, kind, request, body, checksum"
        connection.execute(f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute("UPDATE chains SET last = ?, head = ?", (last + 1, row[-1]))
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
        SqliteJournal(tmp_path / "data")


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
    journal = SqliteJournal(tmp_path)
    with pytest.raises(InputError, match="in use by another process"):
        SqliteJournal(tmp_path)
    journal.close()
    SqliteJournal(tmp_path).close()


def test_full_disk_writes_nothing(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    journal.add("main", "{}")
    journal.write(events(1, 10))
    journal._writer.execute("PRAGMA max_page_count = 1")
    with pytest.raises(JournalError, match="full"):
        journal.write(events(11, 1000))
    assert journal.last(1) == 10
    journal._writer.execute("PRAGMA max_page_count = 1000000")
    journal.write(events(11, 1000))
    assert stored_events(journal) == list(range(1, 1011))
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
    assert (tmp_path / "one" / "lock").read_text().split()[-2] == "0000000002"


def test_old_events_are_deleted_and_the_file_stops_growing(tmp_path: Path) -> None:
    keep, sizes = 200, []
    journal = SqliteJournal(tmp_path)
    journal.add("main", "{}")
    for i in range(60):
        journal.write(events(50 * i + 1, 50))
        last = 50 * i + 50
        journal.write_snapshot(snapshot(last))
        prune(journal, keep)
        journal._writer.execute("PRAGMA wal_checkpoint")  # moves the log into the file
        sizes.append(journal.path.stat().st_size)
        first = journal._reader.execute("SELECT min(seq) FROM events").fetchone()[0]
        assert max(1, last - keep + 1 - keep // 8) <= first <= max(1, last - keep + 1)
    assert sizes[-1] <= 1.3 * sizes[30]  # beside 8 bytes per deleted decision
    journal.close()
    journal = SqliteJournal(tmp_path)
    assert stored_events(journal) == []
    assert journal.total == 3000
    journal.write(events(3001, 1))
    journal.close()


# --- older parts -----------------------------------------------------------------------------------------------------


def pages(content: bytes) -> list[bytes]:
    size = int.from_bytes(content[16:18], "big")
    return [content[i : i + size] for i in range(0, len(content), size)]


def test_older_page_is_refused_or_harmless(killed: KilledJournal, tmp_path: Path) -> None:
    """Each page in turn is as it was when half of the events had been written."""
    first, second = killed.copy(tmp_path / "first", merged=True), tmp_path / "second"
    shutil.copytree(first.parent, second)
    old = pages(first.read_bytes())
    manager = AllocatorManager(second, keep=30)
    for i in range(100, 120):
        report(manager, decide(manager, i))
        manager.commit()
    state = manager.allocators["main"].core.snapshot()()
    manager.close()
    new = pages((second / FILE_NAME).read_bytes())
    refused = 0
    for i, page in enumerate(old):
        if page == new[i]:
            continue
        folder = tmp_path / f"page{i}"
        folder.mkdir()
        (folder / "lock").write_text("closed\n")  # which records no number of events
        (folder / FILE_NAME).write_bytes(b"".join([*new[:i], page, *new[i + 1 :]]))
        try:
            open_all(folder)
        except InputError:
            refused += 1
            continue
        manager = AllocatorManager(folder, keep=30)
        assert manager.allocators["main"].core.snapshot()() == state
        assert decide(manager, 110).slot == 41
        manager.journal.close()
    assert refused >= 5


def test_file_and_log_of_different_times_are_refused(tmp_path: Path) -> None:
    """The copy of a running folder: the file is copied, the log begins anew, then the log and the lock are copied."""
    made = tmp_path / "made"
    manager = AllocatorManager(made)
    manager.open("main", settings())

    def play(count: int) -> None:
        for _ in range(count):
            decide(manager, manager.allocators["main"].core.slot)
            manager.commit()

    refused = 0
    for i in range(12):
        play(20 + i)
        copied = tmp_path / f"copy{i}"
        copied.mkdir()
        shutil.copy(made / "lock", copied)
        shutil.copy(made / FILE_NAME, copied)
        at_least = manager.allocators["main"].core.slot
        play(2 * i)
        manager.journal._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        play(5)
        shutil.copy(made / f"{FILE_NAME}-wal", copied)
        try:
            again = AllocatorManager(copied)
        except InputError:
            refused += 1
        else:
            core = again.allocators["main"].core
            assert core.slot >= at_least  # whole: everything that was acknowledged before the copy began
            assert len(core.records) == core.slot
            again.journal.close()
    assert refused
    manager.journal.close()
