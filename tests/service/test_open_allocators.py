"""Allocators are opened when they are needed and closed for want of memory; neither changes what they decide."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from idleband.allocator.core import AllocatorCore
from idleband.errors import InputError
from idleband.service import allocator_api, journal_files, metrics
from idleband.service import manager as manager_module
from idleband.service.journal import JournalError
from idleband.service.journaled_allocator import JournaledAllocator
from idleband.service.limits import Limits
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME
from tests.allocator.helpers import plain
from tests.service.running import (
    TIMEOUT,
    V1,
    InThread,
    contexts_of,
    decide_body,
    eventually,
    in_thread,
    report_body,
    settings,
)
from tests.service.test_manager import decide, state

NAMES = [f"a{i}" for i in range(6)]
POLICIES = ("mp-ucb", "mp-lucb")
ONE = 1  # byte: all allocators but the one in use are closed


class Reference:
    """Allocators without a journal that are never closed, and get the same requests."""

    def __init__(self) -> None:
        self.cores = {name: AllocatorCore(settings_of(name)) for name in NAMES}

    def decide(self, name: str, number: int) -> None:
        core = self.cores[name]
        core.decide(core.parse_decide(contexts_of(number), request_id=f"r{number}"))

    def report(self, name: str, number: int) -> None:
        core = self.cores[name]
        decision = core.record(f"r{number}").decision
        states = [(k + decision.slot) % 2 for k in decision.channels]
        core.learn(core.parse_report(f"r{number}", [(0.1, 1.0)[s] for s in states], states))

    def state(self, name: str) -> bytes:
        return self.cores[name].snapshot()()


def settings_of(name: str) -> Any:
    number = NAMES.index(name)
    return settings(POLICIES[number % 2], seed=number, patience=3)


def opened(folder: Path, **options: Any) -> AllocatorManager:
    manager = AllocatorManager(folder, **options)
    for name in NAMES:
        manager.open(name, settings_of(name))
    return manager


def names(manager: AllocatorManager) -> list[str]:
    return [one.name for one in manager.open_allocators]


# --- closing and opening ---------------------------------------------------------------------------------------------


def test_closed_allocators_decide_like_those_that_stay_open(tmp_path: Path) -> None:
    manager, reference = opened(tmp_path, memory=ONE, keep=40, snapshot_every=30), Reference()
    for number in range(24):
        for i, name in enumerate(NAMES):
            if number % (i + 1):
                continue
            decision = decide(manager, f"r{number}", number, name)
            reference.decide(name, number)
            manager.commit()
            assert decide(manager, f"r{number}", number, name) == decision
            if number % 3:
                allocator = manager.allocators[name]
                states = [(k + decision.slot) % 2 for k in decision.channels]
                rewards = [(0.1, 1.0)[s] for s in states]
                checked = allocator.parse_report(f"r{number}", rewards, states)
                manager.report(allocator, f"r{number}", checked)
                reference.report(name, number)
                manager.commit()
            assert len(manager.open_allocators) <= 2
    assert manager.closings > 30
    for name in NAMES:
        assert state(manager, name) == reference.state(name)
    manager.journal.close()


def test_start_opens_nothing_and_lookups_open_one(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    decide(manager, "r0", name="a3")
    manager.close()
    manager = AllocatorManager(tmp_path)
    assert list(manager.allocators) == NAMES
    assert ("a1" in manager.allocators, "b" in manager.allocators, len(manager.allocators)) == (True, False, 6)
    assert names(manager) == []
    assert manager.allocators["a3"].core.slot == 1
    assert names(manager) == ["a3"]
    with pytest.raises(KeyError):
        manager.allocators["b"]
    manager.close()


def test_those_unused_for_longest_are_closed_first(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    each = max(one.size for one in manager.open_allocators)
    manager.close()
    manager = AllocatorManager(tmp_path, memory=3 * each + each // 2)
    for name in ("a0", "a1", "a2", "a0", "a3"):
        _ = manager.allocators[name]
    assert names(manager) == ["a2", "a0", "a3"]
    assert 0 < manager.open_allocators.bytes <= 3 * each
    manager.close()


def test_kept_decisions_count_as_memory(tmp_path: Path) -> None:
    manager = AllocatorManager(tmp_path)
    allocator = manager.open("main", settings(patience=10))
    before = manager.open_allocators.bytes
    for i in range(30):
        decide(manager, f"r{i}", i)
        manager.commit()
    assert manager.open_allocators.bytes == before + 10 * allocator.core.record_size
    manager.forget(allocator)
    assert manager.open_allocators.bytes == 0
    manager.close()


def test_allocator_with_many_events_is_closed_after_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "MAX_REPLAYED", 5)
    manager = opened(tmp_path, memory=ONE)
    for i in range(4):
        decide(manager, f"r{i}", i, "a0")
    manager.commit()
    _ = manager.allocators["a1"]
    assert names(manager) == ["a1"]  # four events are replayed
    assert manager.allocators["a0"].replayed == 4
    for i in range(4, 8):
        decide(manager, f"r{i}", i, "a0")
    manager.commit()
    _ = manager.allocators["a1"]
    assert set(names(manager)) == {"a0", "a1"}
    manager.commit()  # which writes the snapshot
    assert names(manager) == ["a1"]
    assert manager.allocators["a0"].replayed == 0
    assert manager.allocators["a0"].core.slot == 8
    manager.close()


def test_allocator_with_changes_that_are_not_durable_stays_open(tmp_path: Path) -> None:
    manager = opened(tmp_path, memory=ONE)
    decide(manager, "r0", name="a0")
    decide(manager, "r0", name="a1")
    _ = manager.allocators["a2"]
    assert set(names(manager)) == {"a0", "a1", "a2"}
    manager.commit()
    _ = manager.allocators["a3"]
    assert names(manager) == ["a3"]
    manager.close()


def test_failed_write_restores_closed_and_open_allocators(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    decide(manager, "r0", name="a0")
    manager.commit()
    before = state(manager, "a0")
    decide(manager, "r1", 1, name="a0")
    manager.journal._writer.execute("PRAGMA query_only = ON")
    with pytest.raises(JournalError):
        manager.commit()
    manager.journal._writer.execute("PRAGMA query_only = OFF")
    manager.reload()
    assert names(manager) == []
    assert state(manager, "a0") == before
    assert decide(manager, "r1", 1, name="a0").slot == 2
    manager.close()


def test_end_of_the_service_is_bounded_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of allocators without a last snapshot are replayed."""
    monkeypatch.setattr(manager_module, "CLOSE_TIMEOUT", -1.0)
    manager = opened(tmp_path)
    decide(manager, "r0", name="a0")
    before = state(manager, "a0")
    manager.close()
    manager = AllocatorManager(tmp_path)
    assert state(manager, "a0") == before
    assert manager.allocators["a0"].replayed == 1
    manager.close()


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[InThread]:
    """A service that keeps one allocator open."""
    with in_thread(
        tmp_path / "data", limits=Limits(memory=ONE), **{name: settings_of(name) for name in NAMES}
    ) as service:
        yield service


def open_names(service: InThread) -> list[str]:
    return service.within(lambda: names(service.service.manager))


def test_requests_to_closed_allocators_are_answered_like_others(small: InThread) -> None:
    reference = Reference()

    def play(name: str) -> None:
        for number in range(12):
            decision = small.decide(f"r{number}", number, name).data
            assert small.decide(f"r{number}", number, name).data == decision
            reference.decide(name, number)
            assert small.report(report_body(decision), name).data["learned"] == decision["channels"]
            reference.report(name, number)
            assert small.get(f"{V1}/{name}/explain?request_id=r{number}").data["slot"] == number + 1

    with ThreadPoolExecutor(len(NAMES)) as pool:
        list(pool.map(play, NAMES))
    steps = [{"name": name, "decide": decide_body("r12", 12)} for name in NAMES]
    for name, found in zip(NAMES, small.post("/v1/steps", {"steps": steps}).data["results"], strict=True):
        assert found["decide"]["slot"] == 13
        reference.decide(name, 12)
    assert small.within(lambda: small.service.manager.closings) > 20
    for name in NAMES:
        assert small.state(name) == reference.state(name)


def test_allocator_that_is_watched_stays_open(small: InThread) -> None:
    with small.raw() as stream:
        stream.sendall(f"GET {V1}/a0/watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        received = b""
        while b"data: " not in received:
            received += stream.recv(2**16)
        for name in NAMES[1:]:
            assert small.status(name)["slot"] == 0
        assert open_names(small) in (["a0", NAMES[-1]], [NAMES[-1], "a0"])
    eventually(lambda: not small.within(lambda: small.service.manager._held))
    small.status("a1")
    assert open_names(small) == ["a1"]


def test_allocator_that_works_in_a_thread_stays_open(tmp_path: Path) -> None:
    may_go = threading.Event()
    plain(lambda slot, picks: may_go.wait(TIMEOUT) and None if slot.t > 1 else None)
    made = {"slow": settings("plain"), "late": settings("plain", deadline=0.01), "main": settings()}
    with in_thread(tmp_path, limits=Limits(memory=ONE), **made) as service, ThreadPoolExecutor() as pool:
        for name in ("slow", "late"):
            assert service.decide("r0", name=name).status == 200
        assert service.decide("r1", name="late").data["by"] == "fallback"  # and its policy is still at it
        waiting = pool.submit(service.decide, "r1", name="slow")
        eventually(
            lambda: any(one.name == "slow" and not one.is_idle for one in service.service.manager.open_allocators)
        )
        for i in range(3):
            assert service.decide(f"r{i}").status == 200
        assert sorted(open_names(service)) == ["late", "main", "slow"]
        may_go.set()
        assert waiting.result().data["slot"] == 2
        eventually(lambda: service.status() and open_names(service) == ["main"])
        assert service.decide("r1", name="slow").data["slot"] == 2
        assert service.decide("r1", name="late").data["by"] == "fallback"
        assert service.decide("r2", name="late").data["slot"] == 3


def test_policy_out_of_service_is_in_health_after_its_allocator_is_closed(tmp_path: Path) -> None:
    def raising(slot: Any, picks: Any) -> None:
        raise ValueError("no")

    plain(raising)
    with in_thread(tmp_path, limits=Limits(memory=ONE), broken=settings("plain"), main=settings()) as service:
        service.decide("r0", name="broken")
        service.decide("r0")
        health = service.get("/health").data
        assert (health["allocators"], health["open"]) == (2, 1)
        assert "ValueError: no" in health["out_of_service"]["broken"]


def test_damaged_allocator_is_refused_and_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"
    manager = opened(folder)
    for name in NAMES:
        decide(manager, "r0", name=name)
    manager.close()
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute("DELETE FROM events WHERE allocator = 2")
    connection.close()
    with in_thread(folder, a0=settings_of("a0")) as service:
        for _ in range(2):
            reply = service.decide("r1", 1, "a1")
            assert reply.status == 500
            assert "allocator a1: cannot be opened" in reply.detail
            assert "event 1 of allocator a1 is missing" in reply.detail
        steps = [{"name": name, "decide": decide_body("r1", 1)} for name in ("a0", "a1", "a2")]
        found = service.post("/v1/steps", {"steps": steps}).data["results"]
        assert [one.get("problem", {"status": 200})["status"] for one in found] == [200, 500, 200]
        assert service.get("/health").status == 200
        with pytest.raises(InputError, match="event 1 of allocator a1 is missing"):
            service.within(lambda: service.service.manager.allocators["a1"])
    assert [one.getMessage() for one in caplog.records].count("allocator cannot be opened") == 1
    assert len(journal_files.verify(folder).faults) == 1


def test_requests_wait_for_one_opening_and_it_is_repeated_after_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).close()
    may_open, begun = threading.Event(), []
    restore = AllocatorManager._restore

    def slow(self: AllocatorManager, stored: Any) -> JournaledAllocator:
        begun.append(stored.name)
        found = restore(self, stored)
        assert may_open.wait(TIMEOUT)
        return found

    with in_thread(tmp_path, a0=settings_of("a0")) as service, ThreadPoolExecutor() as pool:
        monkeypatch.setattr(AllocatorManager, "_restore", slow)
        waiting = [pool.submit(service.decide, f"r{i}", i, "a1") for i in range(3)]
        eventually(lambda: begun)
        assert service.decide("r0", name="a0").status == 200  # others do not wait
        service.within(service.service.manager.reload)
        may_open.set()
        assert sorted(one.result().data["slot"] for one in waiting) == [1, 2, 3]
        assert begun.count("a1") == 2


def test_release_waits_until_nothing_is_under_way_and_forget_does_not(tmp_path: Path) -> None:
    """What `forget` loses was not acknowledged."""
    with in_thread(tmp_path, main=settings()) as service:
        manager = service.service.manager
        first = service.decide("r0").data
        before = service.state()

        def in_loop(work: Callable[[], Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(work(), service._loop).result(TIMEOUT)

        in_loop(lambda: manager.release("main"))
        in_loop(lambda: manager.release("main"))  # which does nothing
        assert open_names(service) == []
        assert service.state() == before

        async def forget() -> None:
            allocator = await manager.opened("main")
            manager.forget(allocator)
            with pytest.raises(JournalError):
                manager.decide(allocator, contexts_of(1), request_id="r1")
            assert (await manager.opened("main")) is not allocator

        in_loop(forget)
        assert service.decide("r0").data == first
        assert service.decide("r1", 1).data["slot"] == 2


# --- lists -----------------------------------------------------------------------------------------------------------


def test_list_of_names_has_pages(small: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    assert small.get(V1).data == {"allocators": NAMES}
    assert small.get(f"{V1}?limit=4").data == {"allocators": NAMES[:4], "next": "a3"}
    assert small.get(f"{V1}?limit=4&after=a3").data == {"allocators": NAMES[4:]}
    assert small.get(f"{V1}?after=a5").data == {"allocators": []}
    assert "limit = 0" in small.get(f"{V1}?limit=0").detail
    assert "limit = 1001" in small.get(f"{V1}?limit=1001").detail
    monkeypatch.setattr(allocator_api, "MAX_LISTED", 5)
    assert small.get(V1).data["next"] == "a4"


def test_metrics_of_open_allocators_up_to_a_limit(small: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    small.decide("r0", name="a2")
    text = small.get("/metrics").text.decode()
    assert 'idleband_slot{allocator="a2"} 1\n' in text
    assert "idleband_allocators 6\n" in text
    assert "idleband_open_allocators 1\n" in text
    assert 'allocator="a1"' not in text
    monkeypatch.setattr(metrics, "MAX_ALLOCATORS", 0)
    assert "allocator=" not in small.get("/metrics").text.decode()
