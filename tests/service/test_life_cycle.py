"""Rename, change of settings and deletion of allocators, in the journal and over HTTP."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from idleband.allocator.core import AllocatorCore
from idleband.errors import ConflictError, InputError, UnknownRequestError
from idleband.service import journal_chain, journal_files, sqlite_journal
from idleband.service.client import Client
from idleband.service.journal import NewSnapshot
from idleband.service.journal_export import decision_log
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME, SqliteJournal
from tests.service.running import TIMEOUT, V1, contexts_of, in_thread, learn, report_body, settings


def served(manager: AllocatorManager, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work in an event loop while the journal is written in its thread; close the manager afterwards."""

    async def run() -> None:
        manager.start(asyncio.get_running_loop())
        try:
            await work()
        finally:
            manager.close()

    asyncio.run(run())


def play(manager: AllocatorManager, name: str, first: int, last: int) -> list[tuple[int, ...]]:
    """Decide and report; return the assigned channels."""
    found = []
    allocator = manager.allocators[name]
    for i in range(first, last):
        decision = manager.decide(allocator, contexts_of(i), request_id=f"r{i}")
        found.append(decision.channels)
        rewards = [(0.1, 1.0)[(k + i) % 2] for k in decision.channels]
        learn(manager, allocator, f"r{i}", rewards)
    return found


def state(manager: AllocatorManager, name: str) -> bytes:
    return manager.allocators[name].core.snapshot()()


# --- in the journal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_every", [10**6, 5])
def test_changed_allocator_is_restored_bit_by_bit(tmp_path: Path, snapshot_every: int) -> None:
    """With all events after the creation, and with a snapshot from before or after the changes."""
    manager = AllocatorManager(tmp_path / "data", snapshot_every=snapshot_every)
    manager.open("main", settings())

    async def work() -> None:
        play(manager, "main", 0, 10)
        await manager.rename_or_change(manager.allocators["main"], "main", {"patience": 3, "collision_limit": 0.6})
        play(manager, "main", 10, 20)
        await manager.rename_or_change(manager.allocators["main"], "edge", {"channel_names": ["a", "b", "c", "d"]})
        play(manager, "edge", 20, 30)
        await manager.flush()
        crashed.mkdir()
        for file in (tmp_path / "data").iterdir():
            (crashed / file.name).write_bytes(file.read_bytes())
        states.append(state(manager, "edge"))

    crashed, states = tmp_path / "crashed", []
    served(manager, work)
    for folder in ("crashed", "data"):
        assert journal_files.verify(tmp_path / folder).faults == []
        again = AllocatorManager(tmp_path / folder)
        assert list(again.allocators) == ["edge"]
        assert state(again, "edge") == states[0]
        changed = again.allocators["edge"].core.settings
        assert (changed.patience, changed.collision_limit, changed.channel_names) == (3, 0.6, ("a", "b", "c", "d"))
        assert play(again, "edge", 30, 33) == later_decisions()
        again.commit()
        again.close()
    assert decision_log(tmp_path / "data", "edge").settings["patience"] == 3


def later_decisions() -> list[tuple[int, ...]]:
    """Return decisions of an allocator without a journal that was changed in the same slots."""
    core = AllocatorCore(settings())
    changes = {10: {"patience": 3, "collision_limit": 0.6}, 20: {"channel_names": ["a", "b", "c", "d"]}}
    found = []
    for i in range(33):
        if i in changes:
            core.change_settings(core.settings.changed(changes[i]))
        decision = core.decide(core.parse_decide(contexts_of(i), request_id=f"r{i}"))
        found.append(decision.channels)
        rewards = [(0.1, 1.0)[(k + i) % 2] for k in decision.channels]
        core.learn(core.parse_report(f"r{i}", rewards))
    return found[30:]


def test_deleted_allocator_leaves_its_number_and_request_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = AllocatorManager(tmp_path)
    manager.open("main", settings())
    manager.open("other", settings(seed=1))

    async def work() -> None:
        play(manager, "main", 0, 10)
        play(manager, "other", 0, 3)
        await manager.delete(manager.allocators["main"])
        assert list(manager.allocators) == ["other"]
        new = manager.open("main", settings("mp-lucb"))
        assert new.number == 3
        for request_id in ("r0", "r9"):
            with pytest.raises(ConflictError, match="of an earlier allocator of this name"):
                manager.decide(new, contexts_of(0), request_id=request_id)
            with pytest.raises(UnknownRequestError):
                new.parse_report(request_id, [0.1, 0.1])
        manager.decide(new, contexts_of(0), request_id="r10")
        await manager.flush()

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_journal, "SWEPT_TRANSACTIONS", 0)
        served(manager, work)
    assert journal_files.verify(tmp_path).faults == []
    for left in (20 + 1, 0):  # before and after what is left of the deleted allocator is deleted
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as journal:
            assert journal.execute("SELECT count(*) FROM events WHERE allocator = 1").fetchone() == (left,)
        again = AllocatorManager(tmp_path)
        assert {name: one.number for name, one in again.allocators.items()} == {"other": 2, "main": 3}
        assert again.allocators["main"].core.slot == 1
        with pytest.raises(ConflictError, match="of an earlier allocator of this name"):
            again.decide(again.allocators["main"], contexts_of(0), request_id="r9")
        again.commit()
        again.close()
        found = journal_files.verify(tmp_path)
        assert (found.faults, found.allocators, found.written) == ([], 2, 21 + 6 + 1)
        assert found.events == 7
    copied = journal_files.copy(tmp_path, tmp_path / "backup")
    assert (copied.faults, copied.allocators) == ([], 2)
    assert len(decision_log(tmp_path / "backup", "other").slot) == 3


def test_names_move_between_allocators(tmp_path: Path) -> None:
    """The request_ids under a name follow the name only for as long as the allocator had it."""
    manager = AllocatorManager(tmp_path)
    first = manager.open("main", settings())

    async def work() -> None:
        play(manager, "main", 0, 5)
        await manager.rename_or_change(first, "old", {})
        second = manager.open("main", settings())
        play(manager, "old", 5, 10)
        with pytest.raises(ConflictError, match="is the name of another allocator"):
            await manager.rename_or_change(second, "old", {})
        await manager.flush()
        with pytest.raises(ConflictError, match="of an earlier allocator"):
            manager.decide(second, contexts_of(0), request_id="r4")
        manager.decide(second, contexts_of(0), request_id="s")
        play(manager, "main", 5, 10)  # the first one decided them under its new name
        await manager.flush()
        await manager.rename_or_change(second, "new", {})
        await manager.rename_or_change(first, "main", {})
        assert first.decide(contexts_of(4), request_id="r4")[1] is None  # its own
        with pytest.raises(ConflictError, match="of an earlier allocator"):  # of the second one, which was main
            first.decide(contexts_of(0), request_id="s")

    served(manager, work)
    assert journal_files.verify(tmp_path).faults == []
    again = AllocatorManager(tmp_path)
    assert {name: one.number for name, one in again.allocators.items()} == {"main": 1, "new": 2}
    again.close()


def open_edge(folder: Path) -> None:
    """Open a journal and its allocator."""
    manager = AllocatorManager(folder)
    try:
        assert manager.allocators["edge"]
    finally:
        manager.close()


DAMAGE = {
    "another name": ("UPDATE changes SET name = 'mein'", "the settings of allocator 'mein' are damaged"),
    "other settings": ("UPDATE changes SET settings = replace(settings, '7', '8')", "are damaged"),
    "no change": ("DELETE FROM changes", "are not those of its last change"),
    "a deletion": ("UPDATE changes SET name = NULL", "are damaged"),
    "an earlier change": ("UPDATE chains SET changed = 3", "are not those of its last change"),
    "a name": ("UPDATE names SET allocator = 2 WHERE until = 0", "the name 'edge' of allocator number 2 is damaged"),
    "no names": ("DELETE FROM names", "the name of allocator 'edge' is damaged"),
    "a change of nothing": (
        "DELETE FROM allocators", "allocator number 1 is missing, but not its changes",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("statement", "fault"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_change_is_noticed(tmp_path: Path, statement: str, fault: str) -> None:
    manager = AllocatorManager(tmp_path)
    manager.open("main", settings())
    served(manager, lambda: manager.rename_or_change(manager.allocators["main"], "edge", {"patience": 7}))
    assert journal_files.verify(tmp_path).faults == []
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as journal, journal:
        journal.execute(statement)
    assert any(fault in one for one in journal_files.verify(tmp_path).faults), journal_files.verify(tmp_path).faults
    with pytest.raises(InputError, match=r"journal\.sqlite"):
        open_edge(tmp_path)


def test_snapshot_of_a_deleted_allocator_is_not_written(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    allocator = manager.open("main", settings())
    copy = allocator.core.snapshot()
    served(manager, lambda: manager.delete(allocator))
    journal = SqliteJournal(tmp_path)
    assert journal.write_snapshot(NewSnapshot(1, 1, journal.epoch, copy.write_to)) is False
    journal.close()


def test_events_of_a_deleted_allocator_are_deleted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_chain, "GENERATION", 15)
    manager = AllocatorManager(tmp_path)
    manager.open("main", settings())

    async def work() -> None:
        play(manager, "main", 0, 20)
        await manager.flush()
        await manager.delete(manager.allocators["main"])

    served(manager, work)
    again = AllocatorManager(tmp_path)
    again.commit()
    new = again.open("main", settings())
    for request_id in ("r19", "r15"):  # those of the last two generations are kept
        with pytest.raises(ConflictError, match="earlier allocator"):
            again.decide(new, contexts_of(0), request_id=request_id)
    again.close()
    assert journal_files.verify(tmp_path).events == 0
    assert journal_files.verify(tmp_path).faults == []


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_change_rename_and_delete_over_http(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        decision = service.decide("r1").data
        found = service.send("PATCH", f"{V1}/main", {"name": "edge", "patience": 5, "deadline": 0.5})
        assert (found.status, found.data["name"], found.data["number"], found.data["slot"]) == (200, "edge", 1, 1)
        assert (found.data["settings"]["patience"], found.data["settings"]["deadline"]) == (5, 0.5)
        assert service.get(f"{V1}/main").status == 404
        assert service.report(report_body(decision), "edge").data["learned"] == decision["channels"]
        found = service.send("PATCH", f"{V1}/edge", {"deadline": None, "channel_names": ["a", "b", "c", "d"]})
        assert found.data["settings"]["deadline"] is None
        assert service.post(f"{V1}/edge/vacate", {"channels": ["a"]}).data["vacated"] == [0]
        assert service.send("PATCH", f"{V1}/edge", {"patience": 5}).status == 200  # changes nothing
        assert service.core("edge").settings.patience == 5
        assert service.within(lambda: service.service.manager.allocators["edge"].seq) == 5
        reply = service.send("DELETE", f"{V1}/edge?number=2")
        assert "edge has number 1" in reply.detail
        assert reply.status == 409
        assert service.send("DELETE", f"{V1}/edge?number=1").data == {"name": "edge", "number": 1, "slot": 1}
        for method, path, body in (
            ("GET", "", None), ("POST", "/decide", {"request_id": "r2"}), ("DELETE", "", None), ("GET", "/watch", None),
            ("PATCH", "", {"patience": 3}), ("POST", "/report", report_body(decision)),
        ):  # fmt: skip
            assert service.send(method, f"{V1}/edge{path}", body).status == 404
        assert service.get(V1).data == {"allocators": []}
        assert service.get("/metrics").status == 200
        assert service.get("/health").data["allocators"] == 0


REFUSED = {
    '{"policy": "mp-lucb"}': "policy: cannot be changed, because what the allocator has learned depends on it",
    '{"channels": 9}': "channels: cannot be changed",
    '{"seed": 9}': "seed: cannot be changed",
    '{"rewards": [0, 1]}': "rewards: cannot be changed",
    '{"patiense": 9}': "unknown setting 'patiense': did you mean 'patience'?",
    '{"patience": 0}': "patience = 0: must be a whole number from 1",
    '{"patience": 9, "deadline": -1}': "deadline = -1.0: must be a number above 0",
    '{"collision_limit": 2}': "collision_limit = 2.0: must be a number of at least 0 and at most 1",
    '{"channel_names": ["a"]}': "channel_names: has 1 name for 4 channels",
    '{"name": "a b"}': "name",
    '{"name": null}': "name",
    "{}": "must have one of name, channel_names, patience, deadline, collision_limit",
    '{"name": "other"}': "name = 'other': is the name of another allocator; choose another one",
}


def test_changes_that_are_refused_change_nothing(tmp_path: Path) -> None:
    with in_thread(tmp_path, main=settings(), other=settings()) as service:
        before = service.status()
        for body, detail in REFUSED.items():
            reply = service.send("PATCH", f"{V1}/main", body.encode())
            assert reply.status == (409 if "other" in body else 400)
            assert detail in reply.detail
        for number in ("x", "-1", "", "1e3", "9" * 30):
            assert "number" in service.send("DELETE", f"{V1}/main?number={number}").detail
        assert service.status() == before


def test_repeated_creation_returns_the_changed_allocator(tmp_path: Path) -> None:
    """A service is restarted with the options with which it was started first."""
    with in_thread(tmp_path) as service:
        service.send("PATCH", f"{V1}/main", {"patience": 5, "collision_limit": 0.5})
    with in_thread(tmp_path, main=settings()) as service:
        assert service.core().settings.patience == 5
        with pytest.raises(ConflictError, match=r"exists with patience = 5, not 7"):
            service.within(lambda: service.service.open("main", settings(patience=7)))


def test_allocator_with_a_thread_is_changed_between_its_requests(tmp_path: Path) -> None:
    with in_thread(tmp_path, main=settings(deadline=50.0), other=settings()) as service:
        replies: list[int] = []

        def work(client: int) -> None:
            for i in range(10):
                reply = service.decide(f"{client}-{i}", name=("main", "edge")[i % 2])
                replies.append(reply.status)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for name, other in (("main", "edge"), ("edge", "main"), ("main", "edge")):
            assert service.send("PATCH", f"{V1}/{name}", {"name": other, "patience": 100}).status == 200
        for thread in threads:
            thread.join(TIMEOUT)
        assert set(replies) <= {200, 404}
        answered = replies.count(200)
        assert service.status("edge")["counts"]["decisions"] == answered
        assert service.send("DELETE", f"{V1}/edge").status == 200
        assert service.decide("r1", name="edge").status == 404
        assert service.decide("r1", name="other").status == 200
    assert journal_files.verify(tmp_path).faults == []


def test_streams_of_a_deleted_or_renamed_allocator_end(tmp_path: Path) -> None:
    with in_thread(tmp_path, main=settings(), other=settings()) as service:
        for name, method, body in (("main", "PATCH", {"name": "edge"}), ("other", "DELETE", None)):
            ended: list[bytes] = []
            began = threading.Event()

            def watch(name: str = name, ended: list[bytes] = ended, began: threading.Event = began) -> None:
                with contextlib.closing(service.raw()) as connection:
                    connection.sendall(f"GET {V1}/{name}/watch HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    found = connection.recv(65536)
                    began.set()
                    while not found.endswith(b"0\r\n\r\n"):
                        found += connection.recv(65536)
                    ended.append(found)

            thread = threading.Thread(target=watch)
            thread.start()
            assert began.wait(TIMEOUT)
            assert service.send(method, f"{V1}/{name}", body).status == 200
            thread.join(TIMEOUT)
            assert ended
            assert service.get(f"{V1}/{name}/watch").status == 404


def test_failed_write_leaves_the_allocator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(tmp_path) as service:
        service.decide("r1")
        before = service.state()
        journal = service.service.manager.journal
        for method, body in (("DELETE", None), ("PATCH", {"name": "edge", "patience": 3})):
            with monkeypatch.context() as patch:
                patch.setattr(journal, "write", lambda events: 1 / 0)
                assert service.send(method, f"{V1}/main", body).status == 503
            with monkeypatch.context() as patch:
                patch.setattr("idleband.service.manager.RETRY_INTERVAL", 0.0)
                assert service.get("/health").status == 200
            assert service.state() == before
        assert service.send("PATCH", f"{V1}/main", {"name": "edge"}).status == 200


def test_client_changes_renames_and_deletes(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service, Client(f"http://127.0.0.1:{service.port}", "main") as client:
        status = client.change(patience=7, deadline=None)
        assert status["settings"]["patience"] == 7
        client.rename("edge")
        assert client.status()["name"] == "edge"
        with pytest.raises(InputError, match="users: cannot be changed"):
            client.change(users=1)
        client.delete()
        with pytest.raises(UnknownRequestError, match="allocator 'edge': does not exist"):
            client.status()


def test_client_repeats_what_was_done_without_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer to each request is lost."""
    with in_thread(tmp_path) as service, Client(f"http://127.0.0.1:{service.port}", "main") as client:
        send, lost = client._request, set()

        def lossy(method: str, path: str, data: bytes | None) -> Any:
            found = send(method, path, data)
            if method in ("PATCH", "DELETE") and (method, path) not in lost:
                lost.add((method, path))
                raise ConnectionResetError
            return found

        monkeypatch.setattr(client, "_request", lossy)
        client.rename("edge")
        assert client.status()["number"] == 1
        client.delete()
        assert service.get(V1).data == {"allocators": []}
        service.within(lambda: service.service.open("edge", settings()))
        with pytest.raises(ConflictError, match="allocator edge has number 2"):
            client.call("DELETE", f"{V1}/edge?number=1")
