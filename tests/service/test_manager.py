"""The office: nothing is acknowledged before it is durable, and a disk that is full for a while loses nothing."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.service import manager as office_module
from idleband.service.journal import JournalError, Snapshot
from idleband.service.manager import AllocatorManager
from tests.allocator.helpers import plain
from tests.service.running import InThread, Reply, eventually, feedback, in_thread, question, settings


def asked(desk: Any, request: str, number: int = 0) -> Any:
    return desk.decide(request, question("", number)["contexts"])


def reported(desk: Any, decision: Any) -> Any:
    return desk.report(decision.request_id, {k: (0.1, 1.0)[(k + decision.slot) % 2] for k in decision.channels})


def busy(office: AllocatorManager, decisions: int, first: int = 0) -> None:
    desk = office.desks["main"]
    for i in range(first, first + decisions):
        reported(desk, asked(desk, f"r{i}", i))
        office.commit()


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_after_a_good_end_nothing_is_replayed(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path)
    office.open("main", settings())
    busy(office, 10)
    state = office.desks["main"].allocator.to_bytes()
    office.close()
    office = AllocatorManager(tmp_path)
    assert office.desks["main"].replayed == 0
    assert office.desks["main"].allocator.to_bytes() == state
    office.close()


def test_after_a_kill_only_what_came_after_the_last_snapshot_is_replayed(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path, snapshot_every=8)
    office.open("main", settings())
    busy(office, 10)  # 20 events: snapshots after 8 and 16
    state = office.desks["main"].allocator.to_bytes()
    office.journal.close()
    office = AllocatorManager(tmp_path, snapshot_every=8)
    assert office.desks["main"].replayed == 4
    assert office.desks["main"].allocator.to_bytes() == state
    busy(office, 2, first=10)  # the next one is due after 8 events, those that were replayed included
    office.journal.close()
    office = AllocatorManager(tmp_path)
    assert office.desks["main"].replayed == 0
    office.close()


def test_several_allocators_share_a_journal(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path, snapshot_every=5, keep=7)
    names = ("main", "other", "third")
    for name in names:
        office.open(name, settings(seed=len(name)))
    for i in range(12):
        for name in names:
            if i % len(name):  # not all of them as often
                reported(office.desks[name], asked(office.desks[name], f"r{i}", i + len(name)))
        office.commit()
    states = {name: office.desks[name].allocator.to_bytes() for name in names}
    office.journal.close()
    office = AllocatorManager(tmp_path)
    assert {name: desk.allocator.to_bytes() for name, desk in office.desks.items()} == states
    office.close()


def test_requests_are_answered_again_for_as_long_as_they_are_kept(tmp_path: Path) -> None:
    keep = 60  # events: 30 decisions and their reports
    office = AllocatorManager(tmp_path, keep=keep, snapshot_every=10)
    desk = office.open("main", settings(patience=3))
    answers = {}
    for i in range(150):
        answers[i] = asked(desk, f"r{i}", i)
        reported(desk, answers[i])
        office.commit()
    sizes = office.journal._one("SELECT count(*) FROM events")
    assert sizes <= keep + 1 + 10  # and what the last snapshot does not have
    for i in range(150 - keep // 2, 150):
        assert asked(desk, f"r{i}", i) == answers[i]
        with pytest.raises(ib.ConflictError):
            asked(desk, f"r{i}", i + 1)
    slot = desk.allocator.slot
    assert asked(desk, "r0", 0).slot == slot + 1  # long gone: a new question
    with pytest.raises(ib.UnknownRequestError):
        desk.report("r1", {})
    office.close()


def test_a_question_asked_again_before_it_is_written_and_after_it_is_forgotten(tmp_path: Path) -> None:
    """With little patience and a slow disk: the first is still on its way to the journal."""
    office = AllocatorManager(tmp_path)
    desk = office.open("main", settings(patience=1))
    first, second = asked(desk, "r1", 1), asked(desk, "r2", 2)
    assert not desk.allocator.remembers("r1")
    assert asked(desk, "r1", 1) == first
    with pytest.raises(ib.ConflictError):
        asked(desk, "r1", 2)
    assert reported(desk, first).late
    office.commit()
    assert (asked(desk, "r1", 1), asked(desk, "r2", 2)) == (first, second)
    office.close()


# --- names -----------------------------------------------------------------------------------------------------------


def test_an_allocator_that_cannot_be_made_leaves_no_trace(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path)
    with pytest.raises(InputError, match="oracle-static"):
        office.open("oracle", settings("oracle-static"))
    with pytest.raises(InputError, match="name"):
        office.open("../elsewhere", settings())
    office.close()
    assert not AllocatorManager(tmp_path).desks


def test_a_name_has_one_kind_of_settings(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path)
    desk = office.open("main", settings())
    assert office.open("main", settings()) is desk
    with pytest.raises(InputError, match="main: is there with seed = 0, and not 1; choose"):
        office.open("main", settings(seed=1))
    office.close()


def test_what_could_not_be_kept_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = AllocatorManager(tmp_path)
    size = office.open("small", settings()).allocator.size
    monkeypatch.setattr(office_module, "MAX_STATE", size + 100)
    office.open("same", settings(seed=1))
    with pytest.raises(InputError, match=r"allocator big: its state may take \d+\.\d GB; must be at most"):
        office.open("big", settings(patience=1100))
    plain(lambda slot, picks: None, memory=dict)
    with pytest.raises(InputError, match=r"policy plain: state\.1 is a dict; must be an array to be saved"):
        office.open("own", settings("plain"))
    assert list(office.desks) == ["small", "same"]
    office.close()


def test_not_too_many_allocators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office_module, "MAX_ALLOCATORS", 2)
    office = AllocatorManager(tmp_path)
    office.open("a", settings())
    office.open("b", settings())
    with pytest.raises(InputError, match="2 allocators already"):
        office.open("c", settings())
    office.close()


# --- acknowledged when it is durable, and not before ----------------------------------------------------------------


class Asking:
    """Something said to a service in a thread, because the answer may take its time."""

    def __init__(self, say: Any) -> None:
        self.reply: Reply | None = None
        self._thread = threading.Thread(target=self._run, args=(say,), daemon=True)
        self._thread.start()

    def _run(self, say: Any) -> None:
        self.reply = say()

    def wait(self) -> Reply:
        self._thread.join(30)
        assert self.reply is not None
        return self.reply


@contextlib.contextmanager
def slow_disk(service: InThread) -> Iterator[None]:
    """Nothing is written meanwhile."""
    with service.service.office.journal._one_at_a_time:
        yield


def slots(service: InThread) -> int:
    return service.within(lambda: service.service.office.desks["main"].allocator.slot)


def test_nobody_is_answered_before_it_is_written(tmp_path: Path) -> None:
    """Neither who asked first nor who asks the same again, nor who asks why: any of them would know of something that
    a crash could undo."""
    with in_thread(tmp_path) as service:
        before = service.decide("before").data
        with slow_disk(service):
            asking = [Asking(lambda: service.decide("r"))]
            eventually(lambda: slots(service) == 2)
            same = ("/allocators/main/explain?request=r", "/allocators/main/explain?request=before")
            asking += [Asking(lambda: service.decide("r")), *(Asking(lambda p=p: service.get(p)) for p in same)]
            allocator = service.within(lambda: service.service.office.desks["main"].allocator)
            said = feedback(before)
            asking.append(Asking(lambda: service.report(said)))
            eventually(lambda: service.within(allocator.snapshot)["counts"]["reported"] == 2)
            asking.append(Asking(lambda: service.report(said)))
            eventually(lambda: service.within(allocator.snapshot)["counts"]["repeated"] == 2)
            asking.append(Asking(lambda: service.post("/allocators/main/vacate", {"channels": [0]})))
            eventually(lambda: service.within(allocator.snapshot)["channel"][0]["vacated"])
            asking.append(Asking(lambda: service.post("/allocators/main/restore", {"channels": [0]})))
            eventually(lambda: not service.within(allocator.snapshot)["channel"][0]["vacated"])
            asking.append(Asking(lambda: service.get("/allocators/main")))
            service.within(lambda: setattr(allocator.supervisor, "failure", "slot 2: broken by this test"))
            asking.append(Asking(lambda: service.post("/allocators/main/reset", None)))
            written = service.within(lambda: service.service.office.journal.last)
            eventually(lambda: service.within(lambda: service.service.office._seq) == 6)
            assert [one.reply for one in asking] == [None] * len(asking)
            assert written == 1
        replies = [one.wait() for one in asking]
        assert [reply.status for reply in replies] == [200] * len(asking)
        assert replies[0].data == replies[1].data
        assert (replies[4].data["learned"], replies[5].data["repeated"]) == (before["channels"], before["channels"])
        assert service.service.office.journal.last == 6


def test_many_who_wait_share_a_transaction(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        with slow_disk(service):
            asking = [Asking(lambda i=i: service.decide(f"r{i}", i)) for i in range(20)]
            eventually(lambda: slots(service) == 20)
        assert {one.wait().status for one in asking} == {200}
        assert service.service.office.commits <= 2 + 1  # the one that was held up, and one for all who came meanwhile


# --- no room ---------------------------------------------------------------------------------------------------------


def pages(service: InThread, most: int) -> None:
    """As if the disk had room for so many pages."""
    service.within(lambda: service.service.office.journal._writer.execute(f"PRAGMA max_page_count = {most}"))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with a reason while it is full; nothing that was acknowledged is lost; then it goes on by itself."""
    monkeypatch.setattr(office_module, "AGAIN_AFTER", 0.05)
    with in_thread(tmp_path, main=settings()) as service:
        acknowledged, refused, number = {}, [], 0
        for _ in range(2):  # full twice
            pages(service, 1)
            while True:
                number += 1
                reply = service.decide(f"r{number}", number)
                if reply.status != 200:
                    break
                acknowledged[number] = reply.data
            refused.append(number)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert "full" in reply.reason
            pages(service, 10**6)
            eventually(lambda: service.get("/health").status == 200)
        for i, answer in acknowledged.items():
            assert service.decide(f"r{i}", i).data == answer
            assert service.report(feedback(answer)).data["learned"] == answer["channels"]
        for i in refused:  # these were not acknowledged, and did not happen
            assert service.get(f"/allocators/main/explain?request=r{i}").status == 404
            assert service.decide(f"r{i}", i).status == 200
        state = service.state()
        assert service.standing()["counts"]["decisions"] == len(acknowledged) + len(refused)
    office = AllocatorManager(tmp_path)
    assert office.desks["main"].allocator.to_bytes() == state
    office.close()


def test_all_who_wait_when_a_write_fails_are_told(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        assert service.decide("first").status == 200
        before = service.state()
        with slow_disk(service):
            service.service.office.journal._writer.execute("PRAGMA query_only = ON")
            asking = [Asking(lambda i=i: service.decide(f"r{i}", i)) for i in range(8)]
            eventually(lambda: slots(service) == 9)
        for one in asking:
            assert "cannot be written" in one.wait().reason
        assert service.get("/health").data["status"] == "failing"
        assert "idleband_journal_works 0" in service.get("/metrics").text.decode()
        assert service.decide("first").status == 503  # what it has now is not what the journal has
        assert service.post("/allocators", {"name": "new"}).status in (400, 503)
        service.service.office.journal._writer.execute("PRAGMA query_only = OFF")
        eventually(lambda: service.get("/health").data["status"] == "ok")
        assert service.state() == before
        assert "idleband_journal_works 1" in service.get("/metrics").text.decode()


def test_it_says_that_it_fails_until_it_can_write_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, and though nobody asks for anything meanwhile."""
    monkeypatch.setattr(office_module, "AGAIN_AFTER", 0.0)
    with in_thread(tmp_path) as service:
        journal = service.service.office.journal
        journal._writer.execute("PRAGMA query_only = ON")
        assert service.decide("r").status == 503
        for _ in range(3):
            health = service.get("/health")
            assert (health.status, health.data["status"]) == (503, "failing")
            assert str(journal.path) in health.data["journal"]
        journal._writer.execute("PRAGMA query_only = OFF")
        assert service.get("/health").data["status"] == "ok"
        assert service.decide("r").status == 200


def test_a_new_allocator_that_cannot_be_written(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        journal = service.service.office.journal
        journal._writer.execute("PRAGMA query_only = ON")
        new = {"name": "new", "policy": "mp-ucb", "channels": 4, "users": 2, "dimension": 2}
        assert service.post("/allocators", new).status == 503
        assert service.get("/allocators").data == {"allocators": ["main"]}
        journal._writer.execute("PRAGMA query_only = OFF")
        assert service.post("/allocators", new).status == 200


def test_an_end_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    office = AllocatorManager(tmp_path)
    office.open("main", settings())
    busy(office, 5)
    state = office.desks["main"].allocator.to_bytes()
    office.journal._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(JournalError):
        office.close()
    office = AllocatorManager(tmp_path)  # the lock is free
    assert office.desks["main"].allocator.to_bytes() == state
    office.close()


def test_a_snapshot_that_cannot_be_made_or_written_stops_nothing(tmp_path: Path) -> None:
    """Events go on, acknowledged; with the next one that works the journal is short again."""
    office = AllocatorManager(tmp_path, snapshot_every=10)
    desk = office.open("main", settings())
    office.journal._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)  # no snapshot is so small
    for i in range(30):
        desk.decide(f"r{i}", question("", i)["contexts"])
        office.commit()
    office.journal._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10**9)
    slot = desk.allocator.slot
    office.journal.close()
    again = AllocatorManager(tmp_path, snapshot_every=10)
    assert again.desks["main"].allocator.slot == slot == 30
    assert again.desks["main"].replayed == 30
    again.desks["main"].decide("one more", question("", 99)["contexts"])
    again.commit()
    again.journal.close()
    last = AllocatorManager(tmp_path)
    assert last.desks["main"].replayed == 0
    last.close()


def test_a_number_that_a_snapshot_has_is_not_given_again(tmp_path: Path) -> None:
    """An event whose write failed at the end may be in a snapshot all the same: what comes after it must come after."""
    office = AllocatorManager(tmp_path)
    desk = office.open("main", settings())
    desk.decide("a", question("", 1)["contexts"])
    office.commit()
    desk.decide("b", question("", 2)["contexts"])
    office.journal.write([], [Snapshot(desk.number, office._seq, desk.allocator.to_bytes())])  # without its event
    office.journal.close()
    office = AllocatorManager(tmp_path)
    office.desks["main"].decide("c", question("", 3)["contexts"])
    office.commit()
    office.journal.close()
    office = AllocatorManager(tmp_path)
    assert office.desks["main"].allocator.slot == 3
    assert office.desks["main"].allocator.remembers("c")
    office.close()
