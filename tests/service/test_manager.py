"""The manager: nothing is acknowledged before it is durable, and a full disk loses nothing that was acknowledged."""

import contextlib
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idleband.allocator.core import AllocatorCore
from idleband.allocator.events import Decision, Receipt
from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, InputError, UnknownRequestError
from idleband.service import journaled_allocator
from idleband.service import manager as manager_module
from idleband.service.journal import JournalError
from idleband.service.manager import AllocatorManager
from tests.allocator.helpers import plain
from tests.service.running import (
    TIMEOUT,
    V1,
    InThread,
    Reply,
    contexts_of,
    eventually,
    in_thread,
    learn,
    report_body,
    settings,
)


def decide(manager: AllocatorManager, request_id: str, number: int = 0, name: str = "main") -> Decision:
    return manager.decide(manager.allocators[name], contexts_of(number), request_id=request_id)


def report(manager: AllocatorManager, decision: Decision, name: str = "main") -> Receipt:
    allocator, request_id = manager.allocators[name], str(decision.request_id)
    rewards = [(0.1, 1.0)[(k + decision.slot) % 2] for k in decision.channels]
    return learn(manager, allocator, request_id, rewards)


def decide_and_report(manager: AllocatorManager, count: int, first: int = 0) -> None:
    for i in range(first, first + count):
        report(manager, decide(manager, f"r{i}", i))
        manager.commit()


def state(manager: AllocatorManager, name: str = "main") -> bytes:
    return manager.allocators[name].core.snapshot()()


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_close_writes_snapshots_so_that_nothing_is_replayed(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    manager.open("main", settings())
    decide_and_report(manager, 10)
    before = state(manager)
    manager.close()
    manager = AllocatorManager(tmp_path)
    assert manager.allocators["main"].replayed == 0
    assert state(manager) == before
    manager.close()


def test_allocator_without_contexts_is_kept_and_restored(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    manager.open("main", Settings.checked({"policy": "mp-ucb", "channels": 3, "users": 1}))
    decision = manager.decide(manager.allocators["main"], None, request_id="r0")
    report(manager, decision)
    manager.commit()
    manager.journal.close()
    manager = AllocatorManager(tmp_path)
    assert manager.decide(manager.allocators["main"], None, request_id="r0") == decision
    manager.close()


def test_only_events_after_the_last_snapshot_are_replayed_after_a_kill(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path, snapshot_every=8)
    manager.open("main", settings())
    decide_and_report(manager, 10)  # 20 events: snapshots after 8 and 16
    before = state(manager)
    manager.journal.close()
    manager = AllocatorManager(tmp_path, snapshot_every=8)
    assert manager.allocators["main"].replayed == 4
    assert state(manager) == before
    decide_and_report(manager, 2, first=10)  # the next snapshot is due 8 events after the last, replayed ones included
    manager.journal.close()
    manager = AllocatorManager(tmp_path)
    assert manager.allocators["main"].replayed == 0
    manager.close()


def test_several_allocators_share_a_journal(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path, snapshot_every=5, keep=7)
    names = ("main", "other", "third")
    for name in names:
        manager.open(name, settings(seed=len(name)))
    for i in range(12):
        for name in names:
            if i % len(name):  # at different rates
                report(manager, decide(manager, f"r{i}", i + len(name), name), name)
        manager.commit()
    states = {name: state(manager, name) for name in names}
    manager.journal.close()
    manager = AllocatorManager(tmp_path)
    assert {name: state(manager, name) for name in manager.allocators} == states
    manager.close()


def test_repeated_requests_get_the_same_decision_while_it_is_kept(tmp_path: Path) -> None:
    keep = 60  # events: 30 decisions and their reports
    manager = AllocatorManager(tmp_path, keep=keep, snapshot_every=10)
    allocator = manager.open("main", settings(patience=3))
    decisions = {}
    for i in range(150):
        decisions[i] = decide(manager, f"r{i}", i)
        report(manager, decisions[i])
        manager.commit()
    assert manager.journal._value("SELECT count(*) FROM events") <= keep + keep // 8 + 10  # and later ones
    for i in range(150 - keep // 2, 150):
        assert decide(manager, f"r{i}", i) == decisions[i]
        with pytest.raises(ConflictError):
            decide(manager, f"r{i}", i + 1)
    slot = allocator.core.slot
    for i in range(50):  # deleted long ago, and never decided again
        with pytest.raises(ConflictError, match="too old to be kept, or of an earlier"):
            decide(manager, f"r{i}", i)
    assert allocator.core.slot == slot
    with pytest.raises(UnknownRequestError):
        allocator.parse_report("r1", {})
    manager.close()


def test_decide_repeated_before_it_is_written_and_after_patience(tmp_path: Path) -> None:
    """With little patience and a slow disk, the first event has not been written when its decision is forgotten."""
    manager = AllocatorManager(tmp_path)
    allocator = manager.open("main", settings(patience=1))
    first, second = decide(manager, "r1", 1), decide(manager, "r2", 2)
    assert not allocator.core.has_decision("r1")
    assert decide(manager, "r1", 1) == first
    with pytest.raises(ConflictError):
        decide(manager, "r1", 2)
    assert report(manager, first).late
    manager.commit()
    assert (decide(manager, "r1", 1), decide(manager, "r2", 2)) == (first, second)
    manager.close()


def test_large_allocator_keeps_fewer_events_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "KEEP_BYTES", 2**18)
    manager = AllocatorManager(tmp_path, keep=3000, snapshot_every=100)
    manager.open("main", settings(patience=3))
    manager.open("large", Settings.checked({"policy": "mp-ucb", "channels": 1000, "users": 1, "patience": 1}))
    first = decide(manager, "r0")
    for i in range(1, 1400):
        decide(manager, f"r{i}", i)
        manager.decide(manager.allocators["large"], None, request_id=f"r{i}")
        if i % 100 == 0:
            manager.commit()
    slot = manager.allocators["main"].core.slot
    assert decide(manager, "r0") == first
    assert manager.allocators["main"].core.slot == slot
    with pytest.raises(ConflictError, match="too old to be kept"):
        manager.decide(manager.allocators["large"], None, request_id="r1")
    manager.close()


def test_one_snapshot_is_taken_at_a_time_of_the_allocator_with_most_events(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path, snapshot_every=20)
    for name in ("a", "b", "c"):
        manager.open(name, settings())
    for i in range(30):
        for name, count in (("a", 3), ("b", 2), ("c", 1)):
            for j in range(count):
                decide(manager, f"r{i}-{j}", i, name)
        before = {name: one.snapshot_seq for name, one in manager.allocators.items()}
        most = max(manager.allocators.values(), key=lambda one: one.uncovered)
        manager.commit()
        changed = [name for name, one in manager.allocators.items() if one.snapshot_seq != before[name]]
        assert len(changed) <= 1
        assert changed in ([], [most.name])
        assert sum(one.uncovered for one in manager.allocators.values()) < 60
    manager.journal.close()


def test_start_after_an_interrupted_snapshot_does_not_take_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process was killed for want of memory: each time the next attempt is later."""

    def killed(self: AllocatorCore, timeout: float = 0.0) -> None:
        raise KeyboardInterrupt

    first = AllocatorManager(tmp_path, snapshot_every=10)
    first.open("main", settings())
    first.journal.close()
    decisions, attempts = 0, []
    for _ in range(4):
        manager = AllocatorManager(tmp_path, snapshot_every=10)
        with monkeypatch.context() as patch:
            patch.setattr(AllocatorCore, "snapshot", killed)
            at_start = decisions
            try:
                while decisions < 200:
                    decisions += 1
                    decide(manager, f"r{decisions}", decisions)
                    manager.commit()
            except KeyboardInterrupt:
                decisions -= 1  # not acknowledged
        attempts.append(decisions - at_start)
        manager.journal.close()
    assert attempts == [9, 9, 19, 39]  # the event of the attempt is not acknowledged and comes again
    manager = AllocatorManager(tmp_path, snapshot_every=10)
    decide_and_report(manager, 60, first=1000)
    assert manager.allocators["main"].uncovered < 20
    manager.close()


# --- names -----------------------------------------------------------------------------------------------------------


def test_refused_allocator_is_not_in_the_journal(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    with pytest.raises(InputError, match="oracle-static"):
        manager.open("oracle", settings("oracle-static"))
    with pytest.raises(InputError, match="name"):
        manager.open("../elsewhere", settings())
    manager.close()
    assert not AllocatorManager(tmp_path).allocators


def test_other_settings_with_the_same_name_conflict(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    allocator = manager.open("main", settings())
    assert manager.open("main", settings()) is allocator
    with pytest.raises(ConflictError, match="allocator main: exists with seed = 0"):
        manager.open("main", settings(seed=1))
    manager.close()


def test_allocator_too_large_for_a_snapshot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = AllocatorManager(tmp_path)
    size = manager.open("small", settings()).core.max_snapshot_size
    monkeypatch.setattr(journaled_allocator, "MAX_STATE_BYTES", size + 100)
    manager.open("same", settings(seed=1))
    with pytest.raises(InputError, match=r"allocator big: its state may take \d+\.\d GB; must be at most"):
        manager.open("big", settings(patience=1100))
    plain(lambda slot, picks: None, memory=dict)
    with pytest.raises(InputError, match=r"policy plain: state\.1 is a dict"):
        manager.open("own", settings("plain"))
    assert list(manager.allocators) == ["small", "same"]
    manager.close()


def test_number_of_allocators_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "MAX_ALLOCATORS", 2)
    manager = AllocatorManager(tmp_path)
    manager.open("a", settings())
    manager.open("b", settings())
    with pytest.raises(InputError, match="2 allocators"):
        manager.open("c", settings())
    manager.close()


# --- acknowledged when durable ---------------------------------------------------------------------------------------


class Sending:
    """A request that is sent in a thread, because the response may have to wait."""

    def __init__(self, send: Callable[[], Reply]) -> None:
        self.reply: Reply | None = None
        self._thread = threading.Thread(target=self._run, args=(send,), daemon=True)
        self._thread.start()

    def _run(self, send: Callable[[], Reply]) -> None:
        self.reply = send()

    def wait(self) -> Reply:
        self._thread.join(TIMEOUT)
        assert self.reply is not None
        return self.reply


@contextlib.contextmanager
def blocked_disk(service: InThread) -> Iterator[None]:
    """Nothing is written meanwhile."""
    with service.service.manager.journal._write_lock:
        yield


def last_slot(service: InThread) -> int:
    return int(service.within(lambda: service.service.manager.allocators["main"].core.slot))


def test_no_response_is_sent_before_its_event_is_written(tmp_path: Path) -> None:
    """Neither to the first request nor to a repeated one, nor to one that shows the state: a crash could undo it."""
    with in_thread(tmp_path) as service:
        before = service.decide("before").data
        core, manager = service.core(), service.service.manager
        with blocked_disk(service):
            sending = [Sending(lambda: service.decide("r"))]
            eventually(lambda: last_slot(service) == 2)
            paths = (f"{V1}/main/explain?request_id=r", f"{V1}/main/explain?request_id=before")
            sending += [Sending(lambda: service.decide("r")), *(Sending(lambda p=p: service.get(p)) for p in paths)]
            body = report_body(before)
            sending.append(Sending(lambda: service.report(body)))
            eventually(lambda: service.within(core.status)["counts"]["reported"] == 2)
            sending.append(Sending(lambda: service.report(body)))
            eventually(lambda: service.within(core.status)["counts"]["repeated"] == 2)
            sending.append(Sending(lambda: service.post(f"{V1}/main/vacate", {"channels": [0]})))
            eventually(lambda: service.within(core.status)["channel"][0]["vacated"])
            sending.append(Sending(lambda: service.post(f"{V1}/main/restore", {"channels": [0]})))
            eventually(lambda: not service.within(core.status)["channel"][0]["vacated"])
            sending.append(Sending(lambda: service.get(f"{V1}/main")))
            service.within(lambda: setattr(core.supervisor, "failure", "slot 2: failed by this test"))
            sending.append(Sending(lambda: service.post(f"{V1}/main/reset", None)))
            eventually(lambda: service.within(lambda: manager.commits.total) == 6)
            assert [one.reply for one in sending] == [None] * len(sending)
            assert service.within(lambda: manager.journal.total) == 1
        replies = [one.wait() for one in sending]
        assert [reply.status for reply in replies] == [200] * len(sending)
        assert replies[0].data == replies[1].data
        assert (replies[4].data["learned"], replies[5].data["repeated"]) == (before["channels"], before["channels"])
        assert manager.journal.total == 6


def test_waiting_requests_share_a_transaction(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        with blocked_disk(service):
            sending = [Sending(lambda i=i: service.decide(f"r{i}", i)) for i in range(20)]
            eventually(lambda: last_slot(service) == 20)
        assert {one.wait().status for one in sending} == {200}
        assert service.service.manager.commits.commits <= 2  # the first, and one for all that waited


# --- full disk -------------------------------------------------------------------------------------------------------


def limit_pages(service: InThread, limit: int) -> None:
    """Let the journal have so many pages, as if the disk had no room for more."""
    service.within(lambda: service.service.manager.journal._writer.execute(f"PRAGMA max_page_count = {limit}"))


def test_full_disk_refuses_requests_and_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "RETRY_INTERVAL", 0.05)
    with in_thread(tmp_path, main=settings()) as service:
        acknowledged, refused, number = {}, [], 0
        for _ in range(2):  # full twice
            limit_pages(service, 1)
            while True:
                number += 1
                reply = service.decide(f"r{number}", number)
                if reply.status != 200:
                    break
                acknowledged[number] = reply.data
            refused.append(number)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert "full" in reply.detail
            limit_pages(service, 10**6)
            eventually(lambda: service.get("/health").status == 200)
        for i, decision in acknowledged.items():
            assert service.decide(f"r{i}", i).data == decision
            assert service.report(report_body(decision)).data["learned"] == decision["channels"]
        for i in refused:  # these were not acknowledged and had no effect
            assert service.get(f"{V1}/main/explain?request_id=r{i}").status == 404
            assert service.decide(f"r{i}", i).status == 200
        before = service.state()
        assert service.status()["counts"]["decisions"] == len(acknowledged) + len(refused)
    manager = AllocatorManager(tmp_path)
    assert state(manager) == before
    manager.close()


def test_failed_write_refuses_all_waiting_requests(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        writer = service.service.manager.journal._writer
        assert service.decide("first").status == 200
        before = service.state()
        with blocked_disk(service):
            writer.execute("PRAGMA query_only = ON")
            sending = [Sending(lambda i=i: service.decide(f"r{i}", i)) for i in range(8)]
            eventually(lambda: last_slot(service) == 9)
        for one in sending:
            assert "cannot be written" in one.wait().detail
        assert service.get("/health").data["status"] == "failing"
        assert "idleband_journal_works 0" in service.get("/metrics").text.decode()
        assert service.decide("first").status == 503  # the present state is not that of the journal
        writer.execute("PRAGMA query_only = OFF")
        eventually(lambda: service.get("/health").data["status"] == "ok")
        assert service.state() == before
        assert "idleband_journal_works 1" in service.get("/metrics").text.decode()


def test_health_is_failing_until_the_journal_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "RETRY_INTERVAL", 0.0)
    with in_thread(tmp_path) as service:
        journal = service.service.manager.journal
        journal._writer.execute("PRAGMA query_only = ON")
        assert service.decide("r").status == 503
        for _ in range(3):
            health = service.get("/health")
            assert (health.status, health.data["status"]) == (503, "failing")
            assert str(journal.path) in health.data["journal"]
        journal._writer.execute("PRAGMA query_only = OFF")
        assert service.get("/health").data["status"] == "ok"
        assert service.decide("r").status == 200


def test_create_is_refused_while_the_journal_cannot_be_written(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        journal = service.service.manager.journal
        journal._writer.execute("PRAGMA query_only = ON")
        new = {"name": "new", "policy": "mp-ucb", "channels": 4, "users": 2, "dimension": 2}
        assert service.post(V1, new).status == 503
        assert service.get(V1).data == {"allocators": ["main"]}
        journal._writer.execute("PRAGMA query_only = OFF")
        assert service.post(V1, new).status == 200


def test_close_on_a_full_disk_loses_nothing_acknowledged(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    manager.open("main", settings())
    decide_and_report(manager, 5)
    before = state(manager)
    decide(manager, "not committed")
    manager.journal._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(JournalError):
        manager.close()
    manager = AllocatorManager(tmp_path)  # the folder is not locked any more
    assert state(manager) == before
    manager.journal._writer.execute("PRAGMA query_only = ON")
    manager.close()  # only the snapshot cannot be written
    manager = AllocatorManager(tmp_path)
    assert state(manager) == before
    manager.close()


def test_failed_snapshot_does_not_stop_events(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path, snapshot_every=10)
    manager.open("main", settings())
    manager.journal._background.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5000)  # no snapshot is that small
    for i in range(30):
        decide(manager, f"r{i}", i)
        manager.commit()
    manager.journal._background.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10**9)
    manager.journal.close()
    again = AllocatorManager(tmp_path, snapshot_every=10)
    assert again.allocators["main"].core.slot == again.allocators["main"].replayed == 30
    decide(again, "one more", 99)
    again.commit()
    again.journal.close()
    last = AllocatorManager(tmp_path)
    assert last.allocators["main"].replayed == 0
    last.close()


def test_feedback_after_a_snapshot_is_not_in_it(tmp_path: Path) -> None:
    """The copied state shares the records with the allocator while it is being written."""
    manager = AllocatorManager(tmp_path)
    allocator = manager.open("main", settings())
    decisions = [decide(manager, f"r{i}", i) for i in range(5)]
    report(manager, decisions[0])
    before = state(manager)
    copied, dropped = allocator.core.snapshot(), allocator.core.snapshot()
    for decision in decisions[:3]:
        report(manager, decision)
    del dropped
    assert copied() == before
    report(manager, decisions[3])
    assert state(manager) != before
    assert allocator.core._copies == [] or report(manager, decisions[4]).learned
    manager.close()


# --- a folder that is deleted while it is in use ---------------------------------------------------------------------


@pytest.mark.parametrize("remove", ["folder", "journal.sqlite", "journal.sqlite-wal", "lock"])
def test_deleted_files_are_noticed_and_nothing_is_acknowledged(
    tmp_path: Path, remove: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    with in_thread(folder) as service:
        assert service.decide("before").status == 200
        shutil.rmtree(folder) if remove == "folder" else (folder / remove).unlink()
        reply = service.decide("after")
        assert "was deleted, moved or replaced while the service was running" in reply.detail
        assert reply.status == 503
        health = service.get("/health")
        assert (health.status, health.data["status"]) == (503, "failing")
        assert service.decide("before").status == 503
    messages = [one for one in caplog.records if one.getMessage().startswith("journal cannot be written")]
    assert len(messages) == 1
    assert not (folder.exists() and remove == "folder")


def test_deleted_folder_is_noticed_without_requests(tmp_path: Path) -> None:
    with in_thread(tmp_path / "data") as service:
        shutil.rmtree(tmp_path / "data")
        eventually(lambda: service.service.manager.failure)
        assert service.get("/health").status == 503


def test_folder_that_is_put_back_works_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "RETRY_INTERVAL", 0.0)
    with in_thread(tmp_path / "data") as service:
        first = service.decide("before").data
        (tmp_path / "data").rename(tmp_path / "moved")
        assert service.decide("after", 1).status == 503
        (tmp_path / "data").mkdir()
        assert service.decide("after", 1).status == 503
        (tmp_path / "data").rmdir()
        (tmp_path / "moved").rename(tmp_path / "data")
        eventually(lambda: service.get("/health").status == 200)
        assert service.decide("before").data == first
        assert service.decide("after", 1).data["slot"] == 2
        before = service.state()
    manager = AllocatorManager(tmp_path / "data")
    assert state(manager) == before
    manager.close()
