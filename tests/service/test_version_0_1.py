"""A journal written by version 0.1 opens, and its allocators decide as version 0.1 did."""

from pathlib import Path

from idleband.service.manager import AllocatorManager
from tests.allocator.version_0_1 import NAMES, recorded_slots, unpack_journal
from tests.service.running import learn


def test_journal_of_version_0_1_continues_with_the_decisions_of_version_0_1(tmp_path: Path) -> None:
    """After 15 slots it is closed and opened again, which writes snapshots of the present format."""
    unpack_journal(tmp_path)
    manager = AllocatorManager(tmp_path)
    assert {name: one.core.slot for name, one in manager.allocators.items()} == dict.fromkeys(NAMES, 50)
    assert sum(one.replayed for one in manager.allocators.values()) > 0
    compared = 0
    for name, then in recorded_slots():
        if compared == 15 * len(NAMES):
            manager.close()
            manager = AllocatorManager(tmp_path)
        allocator = manager.allocators[name]
        decision = manager.decide(allocator, then.contexts, then.users, request_id=then.request_id)
        assert (decision.channels, decision.by, decision.slot) == (then.channels, then.by, then.slot), then.request_id
        if then.reported:
            assert learn(manager, allocator, then.request_id, *then.feedback()).learned == then.channels
        compared += 1
    assert compared == 30 * len(NAMES)
    manager.close()


def test_decisions_of_version_0_1_are_repeated_from_the_journal(tmp_path: Path) -> None:
    unpack_journal(tmp_path)
    manager = AllocatorManager(tmp_path)
    core = manager.allocators["main"].core
    record = core.record("main-49")
    assert core.decide(record.request) == record.decision
    assert core.slot == 50
    manager.close()
