"""What every journal does, whatever database it uses."""

import random
from typing import IO

import pytest

from idleband.service import journal_chain
from idleband.service.journal import (
    CHANGE,
    DECIDE,
    DELETE,
    Event,
    Journal,
    JournalError,
    NewSnapshot,
    Snapshot,
    Stored,
    change_body,
)
from idleband.service.journal_chain import PART_BYTES
from tests.service.conftest import Journals


def events(first: int, count: int, allocator: int = 1) -> list[Event]:
    return [Event(allocator, seq, DECIDE, f"r{seq}", b"x" * 200) for seq in range(first, first + count)]


def stored_events(journal: Journal) -> list[int]:
    (stored,) = journal.allocators()
    return [event.seq for event in journal.load(stored, complete=True)[1]]


def test_failed_transaction_writes_nothing(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    journal.write(events(1, 3))
    with pytest.raises(JournalError, match=r"(?i)unique"):
        journal.write([*events(4, 3), Event(1, 7, DECIDE, "r1", b"")])
    with pytest.raises(JournalError, match="event 5 of allocator 1 does not follow 3"):
        journal.write(events(5, 1))
    journal.close()
    journal = journals.open()
    assert stored_events(journal) == [1, 2, 3]
    journal.write(events(4, 1))
    assert journal.last(1) == journal.total == 4
    journal.close()


# --- snapshots and pruning -------------------------------------------------------------------------------------------


def snapshot(seq: int, state: bytes = b"state", epoch: int = 0, allocator: int = 1) -> NewSnapshot:
    return NewSnapshot(allocator, seq, epoch, lambda file: file.write(state) and None)


def test_snapshot_of_many_parts_replaces_the_last_one(journals: Journals) -> None:
    journal = journals.open()
    stored = journal.add("main", "{}")
    journal.write(events(1, 4))
    for seq, size in ((0, 10), (2, 9 * PART_BYTES + 5), (4, 2 * PART_BYTES)):
        state = random.Random(seq).randbytes(size)
        assert journal.write_snapshot(snapshot(seq, state))
        found, later = journal.load(stored, complete=True)
        assert found == Snapshot(seq, state)
        assert [event.seq for event in later] == list(range(seq + 1, 5))
    assert journals.count(journal, "snapshot_parts") == 2
    with pytest.raises(JournalError, match="event 5 of allocator 1 is not there"):
        journal.write_snapshot(snapshot(5))
    journal.close()


def test_interrupted_snapshot_leaves_the_last_one(journals: Journals) -> None:
    journal = journals.open()
    stored = journal.add("main", "{}")
    journal.write(events(1, 2))
    journal.write_snapshot(snapshot(1, b"first"))

    def interrupted(file: IO[bytes]) -> None:
        file.write(bytes(3 * PART_BYTES))
        journal.record_snapshots(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.write_snapshot(NewSnapshot(1, 2, 0, interrupted))
    journals.kill(journal)
    journal = journals.open()
    assert journal.interrupted_snapshots == 1
    assert journal.load(stored, complete=True)[0] == Snapshot(1, b"first")
    assert journal.write_snapshot(snapshot(2, b"second"))
    assert journals.count(journal, "snapshot_parts") == 1
    journal.close()


def test_cancelled_snapshot_is_not_written(journals: Journals) -> None:
    """The numbers of its events may be used again for others."""
    journal = journals.open()
    stored = journal.add("main", "{}")
    journal.write(events(1, 2))

    def cancelling(file: IO[bytes]) -> None:
        file.write(b"state")
        journal.cancel_snapshots()

    assert not journal.write_snapshot(NewSnapshot(1, 2, journal.epoch, cancelling))
    assert journal.load(stored, complete=True)[0] is None
    assert not journal.write_snapshot(snapshot(2, epoch=journal.epoch - 1))
    assert journal.write_snapshot(snapshot(2, epoch=journal.epoch))
    journal.close()


def prune(journal: Journal, keep: int, allocator: int = 1) -> None:
    while journal.prune(allocator, keep):
        pass


def test_events_of_one_allocator_do_not_depend_on_another(journals: Journals) -> None:
    journal = journals.open()
    for name in ("main", "other"):
        journal.add(name, "{}")
    journal.write([*events(1, 100), *events(1, 100, 2)])
    journal.write_snapshot(snapshot(100))
    journal.write_snapshot(snapshot(100, allocator=2))
    prune(journal, 0, 2)
    assert journal.find_decision(1, "r1") == events(1, 1)[0]
    assert journal.find_decision(2, "r1") is None
    assert journal.is_expired(2, "r1")
    assert not journal.is_expired(2, "r101")
    assert not journal.is_expired(1, "r101")
    journal.close()


def test_events_without_a_snapshot_are_kept(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    journal.write(events(1, 100))
    prune(journal, 5)
    assert journal.find_decision(1, "r1") is not None
    journal.write_snapshot(snapshot(40))
    prune(journal, 5)
    assert journal.find_decision(1, "r40") is None
    assert journal.find_decision(1, "r41") is not None
    assert stored_events(journal) == list(range(41, 101))
    journal.close()


def test_event_numbers_continue_after_all_events_are_deleted(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    for i in range(5):
        journal.write(events(10 * i + 1, 10))
        journal.write_snapshot(snapshot(10 * i + 10))
        prune(journal, 0)
    journal.close()
    journal = journals.open()
    assert journal.last(1) == 50  # otherwise new events would have numbers below the snapshot
    assert journal.is_expired(1, "r1")
    journal.close()


def test_request_ids_of_deleted_decisions_are_kept_in_bounded_space(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_chain, "GENERATION", 100)
    journal = journals.open()
    journal.add("main", "{}")
    for i in range(20):
        journal.write(events(50 * i + 1, 50))
        journal.write_snapshot(snapshot(50 * i + 50))
        prune(journal, 0)
        assert all(journal.is_expired(1, f"r{seq}") for seq in range(max(1, 50 * i - 49), 50 * i + 51, 7))
        assert journals.count(journal, "expired") <= 250
    journal.close()


# --- changes and deletions -------------------------------------------------------------------------------------------


def test_changes_of_names_and_settings_are_durable(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    journal.write([*events(1, 3), Event(1, 4, CHANGE, None, change_body("edge", "[1]")), *events(5, 1)])
    second = journal.add("main", "{}")
    expected = [Stored(1, "edge", "[1]", ("main", "{}"), 4), Stored(2, "main", "{}")]
    assert second == expected[1]
    for _ in range(2):
        assert journal.allocators() == expected
        found = [list(journal.load(one, complete=True)[1]) for one in expected]
        assert [[event.seq for event in one] for one in found] == [[1, 2, 3, 4, 5], []]
        assert journal.is_expired(2, "r3")  # of the allocator that had the name
        assert not journal.is_expired(2, "r5")  # which had another one by then
        assert not journal.is_expired(1, "r9")
        journal.close()
        journal = journals.open()
    journal.allocators()
    journal.write([Event(1, 6, CHANGE, None, change_body("third", "[1]")), *events(1, 1, 2)])
    journal.write([Event(2, 2, CHANGE, None, change_body("edge", "{}"))])
    (_, second) = journal.allocators()
    list(journal.load(second, complete=True)[1])
    assert journal.is_expired(2, "r5")
    journal.close()


def test_deleted_allocators_leave_their_numbers_and_request_ids(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    journal.write(events(1, 600))
    journal.write_snapshot(snapshot(600))
    journal.write([Event(1, 601, DELETE, None, b"")])
    assert journal.allocators() == []
    assert journal.write_snapshot(snapshot(600)) is False
    total = journal.total
    journals.kill(journal)
    journal = journals.open()
    assert journal.allocators() == []
    second = journal.add("main", "{}")
    assert second == Stored(2, "main", "{}")
    for _ in range(3):  # in which the events are deleted
        assert journal.is_expired(2, "r1")
        assert journal.is_expired(2, "r600")
        assert not journal.is_expired(2, "r601")
        journal.maintain()
    assert [journals.count(journal, table) for table in ("events", "snapshot_parts", "snapshots", "chains")] == [
        0, 0, 0, 1,
    ]  # fmt: skip
    assert journal.total == total
    journal.write(events(1, 2, 2))
    journal.close()
    journal = journals.open()
    assert journal.allocators() == [second]
    assert journal.total == total + 2
    assert len(list(journal.load(second, complete=True)[1])) == 2
    assert journal.is_expired(2, "r600")
    journal.close()
