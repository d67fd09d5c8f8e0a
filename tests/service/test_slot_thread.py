"""Allocators with slow slots run in threads: others do not wait, and the order of events is that of the changes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idleband.policies.registry import POLICIES
from idleband.service import allocator_api
from idleband.service.manager import AllocatorManager
from idleband.service.slot_thread import QUICK_POLICIES, is_quick
from tests.allocator.helpers import plain
from tests.service.running import V1, eventually, in_thread, report_body, settings


def test_quick_policies_exist() -> None:
    assert set(POLICIES) > QUICK_POLICIES


@pytest.mark.parametrize(
    ("quick", "given"),
    [
        (True, {}),
        (True, {"policy": "mp-lucb", "channels": 100, "dimension": 20}),
        (False, {"policy": "mp-lucb", "channels": 100, "dimension": 100}),
        (False, {"policy": "mp-nucb"}),
        (False, {"incumbent": "mp-nucb"}),
        (False, {"fallback": "mp-swucb"}),
        (False, {"deadline": 1.0}),
    ],
)
def test_settings_that_are_quick(quick: bool, given: dict[str, object]) -> None:
    assert is_quick(settings(**given)) == quick  # type: ignore[arg-type]


def test_slow_slot_does_not_delay_others(tmp_path: Path) -> None:
    """Every fourth slot waits until another allocator has decided, its status was read and the service is healthy."""
    may_go = threading.Event()
    plain(lambda slot, picks: may_go.wait(60.0) and None if slot.t % 4 == 0 else None)
    with in_thread(tmp_path, main=settings(), slow=settings("plain")) as service, ThreadPoolExecutor() as pool:
        for i in range(3):
            assert service.decide(f"s{i}", i, name="slow").status == 200
        waiting = pool.submit(service.decide, "s3", 3, name="slow")
        thread = service.service.manager.allocators["slow"].thread
        assert thread is not None
        eventually(lambda: thread.busy)
        more = [pool.submit(service.decide, f"s{i}", i, name="slow") for i in range(4, 7)]
        for i in range(5):
            reply = service.decide(f"m{i}", i)
            assert service.report(report_body(reply.data)).status == 200
        assert service.get("/health").status == service.get("/metrics").status == service.get(V1).status == 200
        assert not waiting.done()
        may_go.set()
        decisions = [waiting.result().data, *(one.result().data for one in more)]
        assert sorted(one["slot"] for one in decisions) == [4, 5, 6, 7]
        for decision in decisions:
            assert service.report(report_body(decision), name="slow").data["learned"] == decision["channels"]
        assert service.get(f"{V1}/slow/explain?request_id=s3").status == 200
        assert service.post(f"{V1}/slow/vacate", {"channels": [0]}).data["vacated"] == [0]
        assert service.status("slow")["slot"] == 7
        before = service.state("slow")
    manager = AllocatorManager(tmp_path)
    assert manager.allocators["slow"].core.snapshot()() == before
    manager.close()


def test_slow_allocator_in_the_event_loop_moves_into_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(allocator_api, "MAX_QUICK_SECONDS", -1.0)
    with in_thread(tmp_path) as service:
        allocator = service.service.manager.allocators["main"]
        assert service.decide("a").status == 200
        assert allocator.thread is None
        service.decide("b", 1)
        assert allocator.thread is None  # a first decision and a first report may compile something
        service.decide("c", 2)
        assert allocator.thread is not None
        assert service.decide("c", 2).data["slot"] == 3
        assert service.decide("a").data["slot"] == 1
    assert [one.getMessage() for one in caplog.records].count("slow allocator runs in a thread") == 1


def test_snapshots_of_an_allocator_in_a_thread(tmp_path: Path) -> None:
    with in_thread(tmp_path, main=settings(deadline=60.0)) as service:
        manager = service.service.manager
        manager._snapshot_every = manager._next_snapshot = 10
        allocator = manager.allocators["main"]
        for i in range(40):
            service.report(report_body(service.decide(f"r{i}", i).data))
        eventually(lambda: allocator.uncovered < 30)
        before = service.state()
        service.within(manager.open_allocators.clear)  # so that nothing is written at the end
    again = AllocatorManager(tmp_path)
    assert again.allocators["main"].replayed < 30
    assert again.allocators["main"].core.snapshot()() == before
    again.close()


def test_change_that_was_under_way_during_a_failed_write_is_not_journaled(tmp_path: Path) -> None:
    """The allocator is restored from the journal meanwhile; the request is refused and can be sent again."""
    may_go = threading.Event()
    plain(lambda slot, picks: may_go.wait(60.0) and None if slot.t == 2 else None)
    with in_thread(tmp_path, slow=settings("plain")) as service, ThreadPoolExecutor() as pool:
        manager = service.service.manager
        service.decide("a", name="slow")
        waiting = pool.submit(service.decide, "b", 1, name="slow")
        thread = manager.allocators["slow"].thread
        assert thread is not None
        eventually(lambda: thread.busy)
        queued = pool.submit(service.decide, "c", 2, name="slow")
        eventually(lambda: len(thread._turn._waiters or ()) == 1)
        service.within(manager.reload)
        may_go.set()
        assert [one.result().status for one in (waiting, queued)] == [503, 503]
        assert "restored from the journal meanwhile" in waiting.result().detail
        assert service.decide("b", 1, name="slow").data["slot"] == 2
        before = service.state("slow")
    again = AllocatorManager(tmp_path)
    assert again.allocators["slow"].core.snapshot()() == before
    again.close()
