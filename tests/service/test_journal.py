"""The journal: what was acknowledged is there, or the file is refused in one line and left as it is."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idleband.errors import InputError
from idleband.service.journal import DECIDE, NAME, REPORT, Event, Journal, JournalError, Snapshot
from idleband.service.manager import AllocatorManager
from tests.service.running import question, settings

DECISIONS = 30


def asked(desk: Any, number: int) -> Any:
    return desk.decide(f"r{number}", question("", number)["contexts"])


def reported(desk: Any, decision: Any) -> Any:
    return desk.report(decision.request_id, {k: (0.1, 1.0)[(k + decision.slot) % 2] for k in decision.channels})


def filled(folder: Path) -> tuple[bytes, list[Any]]:
    """A journal with a snapshot and events after it, its process ended without a word: the state, and the answers."""
    office = AllocatorManager(folder, snapshot_every=40)
    desk = office.open("main", settings())
    answers = []
    for i in range(DECISIONS):
        answers.append(asked(desk, i))
        office.commit()
        reported(desk, answers[-1])
        office.commit()
        if i == DECISIONS // 2:  # from here on things are in the log only
            office.journal._writer.execute("PRAGMA wal_checkpoint(RESTART)")
    state = desk.allocator.to_bytes()
    for name in (NAME, f"{NAME}-wal", "lock"):
        # What a process that is killed leaves: the files as they are now, and nothing done at its end.
        (folder.parent / "left").mkdir(exist_ok=True)
        shutil.copy(folder / name, folder.parent / "left")
    office.journal.close()
    return state, answers


class Left:
    """What a killed process left, copied for every test that damages it."""

    def __init__(self, folder: Path) -> None:
        self.state, self.answers = filled(folder / "made")
        self._folder = folder / "left"

    def copy(self, to: Path, *, merged: bool = False) -> Path:
        """The path of the journal; `merged`: closed in peace since then, so that all is in one file."""
        shutil.copytree(self._folder, to)
        if merged:
            AllocatorManager(to).close()
            assert not (to / f"{NAME}-wal").exists()
        return to / NAME

    def check(self, folder: Path) -> None:
        """Nothing that was acknowledged is lost."""
        office = AllocatorManager(folder)
        try:
            desk = office.desks["main"]
            assert desk.allocator.to_bytes() == self.state
            for i, answer in enumerate(self.answers):
                assert asked(desk, i) == answer
                assert reported(desk, answer).repeated == answer.channels
            assert desk.allocator.to_bytes() == self.state
        finally:
            office.journal.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return Left(tmp_path_factory.mktemp("journal"))


def refused(journal: Path) -> str:
    """The one line with which a folder is refused; everything in it is as it was."""
    before = journal.read_bytes() if journal.is_file() else None
    log = journal.with_name(f"{NAME}-wal")
    logged = log.read_bytes() if log.exists() else b""
    with pytest.raises(InputError) as error:
        AllocatorManager(journal.parent)
    assert (journal.read_bytes() if journal.is_file() else None) == before
    assert (log.read_bytes() if log.exists() else b"") == logged
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert str(journal.parent) in line
    return line


def test_what_a_killed_process_left(left: Left, tmp_path: Path) -> None:
    left.check(left.copy(tmp_path / "data").parent)
    left.check(left.copy(tmp_path / "merged", merged=True).parent)


def test_a_start_that_is_refused_can_be_tried_again(left: Left, tmp_path: Path) -> None:
    journal = left.copy(tmp_path / "data", merged=True)
    whole = journal.read_bytes()
    journal.write_bytes(b"x" * 100 + whole[100:])
    assert refused(journal)
    journal.write_bytes(whole)
    left.check(journal.parent)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_file_cut_short(left: Left, tmp_path: Path, part: float, merged: bool) -> None:
    journal = left.copy(tmp_path / "data", merged=merged)
    size = int(journal.stat().st_size * part)
    os.truncate(journal, size)
    try:
        left.check(journal.parent)  # what was cut off may be in the log still
        assert not merged
    except InputError:
        journal = left.copy(tmp_path / "again", merged=merged)
        os.truncate(journal, size)
        assert NAME in refused(journal)


@pytest.mark.parametrize("part", [0.02, 0.3, 0.7, 0.98])
@pytest.mark.parametrize("cut", [True, False])
def test_a_log_that_is_damaged(left: Left, tmp_path: Path, part: float, cut: bool) -> None:
    """SQLite takes a log that is cut short, or in which a bit has changed, for one that ends there: what comes after it
    was acknowledged, and would be gone without a word."""
    journal = left.copy(tmp_path / "data")
    log = journal.with_name(f"{NAME}-wal")
    place = int(log.stat().st_size * part)
    if cut:
        os.truncate(log, place)
    else:
        with log.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ 0xFF]))
    told = ""
    try:
        left.check(journal.parent)  # a place that is not in use: the log is written again from its beginning
    except InputError as error:
        told = str(error)
    assert ("can be read" in told) == (part < 0.9)  # near its end it has what was merged already


def test_a_log_that_is_gone(left: Left, tmp_path: Path) -> None:
    """The journal alone would look sound, and be of an earlier time."""
    journal = left.copy(tmp_path / "data")
    journal.with_name(f"{NAME}-wal").unlink()
    assert f"{NAME}-wal" in refused(journal)
    assert f"{NAME}-wal" in refused(journal)  # however often
    journal.with_name("lock").unlink()  # as the line says
    office = AllocatorManager(journal.parent)
    assert len(office.desks) <= 1
    office.close()


def test_a_journal_that_is_gone(left: Left, tmp_path: Path) -> None:
    for merged in (False, True):
        journal = left.copy(tmp_path / f"data{merged}", merged=merged)
        journal.unlink()
        assert f"{NAME}: is missing" in refused(journal)
        assert not journal.exists()


@pytest.mark.parametrize("seed", range(150))
def test_flipped_bits_anywhere(left: Left, tmp_path: Path, seed: int) -> None:
    """Noticed, or of no consequence, wherever they are in the file."""
    journal = left.copy(tmp_path / "data", merged=seed % 2 == 0)
    content = bytearray(journal.read_bytes())
    fate = random.Random(seed)
    for _ in range(fate.choice((1, 1, 8))):
        content[fate.randrange(len(content))] ^= 1 << fate.randrange(8)
    journal.write_bytes(content)
    try:
        left.check(journal.parent)
    except JournalError:  # told to whoever asks for a decision so old that nothing else needs it
        pass
    except InputError:
        refused(journal)


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
def test_rows_that_were_changed(left: Left, tmp_path: Path, change: str, names: str) -> None:
    """SQLite finds nothing wrong with these."""
    journal = left.copy(tmp_path / "data")
    with sqlite3.connect(journal) as connection:
        connection.execute(change)
    connection.close()
    journal.with_name(f"{NAME}-wal").touch()
    journal.with_name("lock").write_text("closed\n")
    assert names in refused(journal)


def test_an_index_that_does_not_match(left: Left, tmp_path: Path) -> None:
    """A decision that is not found under its name would be decided anew."""
    journal = left.copy(tmp_path / "data", merged=True)
    with sqlite3.connect(journal) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'decisions'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(journal.read_bytes())
    page = slice((root - 1) * size, root * size)
    assert content[page].count(b"r17") == 1
    content[page] = content[page].replace(b"r17", b"r1x")
    journal.write_bytes(content)
    assert "is damaged" in refused(journal)


def test_a_sound_checksum_over_nonsense(left: Left, tmp_path: Path) -> None:
    """As a later version might write it."""
    journal = left.copy(tmp_path / "data", merged=True)
    with sqlite3.connect(journal) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        event = Event(last + 1, 1, REPORT, "r1", b"nonsense")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*event, event.checksum))
    connection.close()
    assert f"event {last + 1} cannot be read" in refused(journal)


PLACES: dict[str, Callable[[Path], object]] = {
    "a text": lambda journal: journal.write_text("Dear diary,\n" * 1000),
    "zeros": lambda journal: journal.write_bytes(bytes(8192)),
    "a folder": lambda journal: journal.mkdir(),
    "a link to nowhere else": lambda journal: journal.symlink_to(journal),
}


@pytest.mark.parametrize("put", PLACES.values(), ids=PLACES)
def test_something_else_in_its_place(tmp_path: Path, put: Callable[[Path], object]) -> None:
    put(tmp_path / NAME)
    assert refused(tmp_path / NAME)


def test_the_database_of_somebody_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute("CREATE TABLE letters (text)")
    connection.close()
    assert "was not written by idleband" in refused(tmp_path / NAME)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(InputError, match="data"):
        Journal(tmp_path / "data", 10)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(left: Left, tmp_path: Path) -> None:
    journal = left.copy(tmp_path / "data")
    journal.with_name("lock").chmod(0o400)
    journal.parent.chmod(0o500)
    try:
        assert "Permission denied" in refused(journal)
    finally:
        journal.parent.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_journal_that_may_not_be_written_to(left: Left, tmp_path: Path) -> None:
    """Refused at the start, and not at every question."""
    journal = left.copy(tmp_path / "data")
    journal.chmod(0o400)
    assert "may not be written to" in refused(journal)


def test_a_process_that_ended_while_it_made_the_file(tmp_path: Path) -> None:
    """Nothing was acknowledged then, so it is made now."""
    for part in ("nothing", "a page"):
        folder = tmp_path / part
        folder.mkdir()
        (folder / NAME).touch()
        if part == "a page":
            connection = sqlite3.connect(folder / NAME)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
        office = AllocatorManager(folder)
        office.open("main", settings())
        office.close()
        assert list(AllocatorManager(folder).desks) == ["main"]


# --- one at a time, whole transactions -------------------------------------------------------------------------------


def test_a_folder_in_use(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10)
    with pytest.raises(InputError, match="in use by another process"):
        Journal(tmp_path, 10)
    journal.close()
    Journal(tmp_path, 10).close()


def events(first: int, count: int) -> list[Event]:
    return [Event(seq, 1, DECIDE, f"r{seq}", b"x" * 200) for seq in range(first, first + count)]


def test_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 10**6)
    journal.write(events(1, 3))
    with pytest.raises(JournalError, match="UNIQUE"):
        journal.write([*events(4, 3), Event(7, 1, DECIDE, "r1", b"")])
    journal.close()
    journal = Journal(tmp_path, 10**6)
    assert [event.seq for event in journal.events(1, 0)] == [1, 2, 3]
    journal.write(events(4, 1))  # and it goes on
    assert journal.last == 4
    journal.close()


def test_no_room(tmp_path: Path) -> None:
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


def test_an_allocator_that_a_damaged_log_has_lost_is_missed(tmp_path: Path) -> None:
    """It was acknowledged, though nothing has happened to it yet."""
    office = AllocatorManager(tmp_path / "one")
    office.open("main", settings())
    asked(office.desks["main"], 1)
    office.commit()
    office.journal._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    office.open("second", settings())
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    office.close()
    AllocatorManager(tmp_path / "one").close()
    log = tmp_path / "two" / f"{NAME}-wal"
    log.write_bytes(log.read_bytes()[:100])
    with pytest.raises(InputError, match="there were 2 allocators, and 1 can be read; it was left as it is"):
        AllocatorManager(tmp_path / "two")
    (tmp_path / "one" / "lock").unlink()  # it is known again as soon as something is written
    office = AllocatorManager(tmp_path / "one")
    asked(office.desks["main"], 2)
    office.close()
    assert (tmp_path / "one" / "lock").read_text().split()[-1] == "0000000002"


# --- pruning ---------------------------------------------------------------------------------------------------------


def test_old_events_go_and_the_file_stops_growing(tmp_path: Path) -> None:
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
        journal._writer.execute("PRAGMA wal_checkpoint")  # all of the log into the file
        sizes.append(journal.path.stat().st_size)
    assert len(kept) <= keep + 1
    assert sizes[-1] <= 1.3 * sizes[30]
    journal.close()


def test_events_that_no_snapshot_has_stay(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 5)
    journal.write(events(1, 100), [Snapshot(1, 40, b"state")], 40)
    for i in range(10):
        journal.write(events(101 + 100 * i, 100))
    assert next(iter(journal.events(1, 0))).seq == 41
    journal.close()
    journal = Journal(tmp_path, 5)  # it does not know any more what the snapshot has, so nothing goes
    journal.write(events(1101, 1000))
    assert next(iter(journal.events(1, 0))).seq == 41
    journal.close()


def test_the_order_goes_on_after_everything_old_is_gone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for i in range(5):
        journal.write(events(10 * i + 1, 10), [Snapshot(1, 10 * i + 10, b"state")], 10 * i + 10)
    journal.close()
    journal = Journal(tmp_path, 0)
    assert journal.last == 50  # else new events would come before the snapshot, and be left out
    journal.close()
