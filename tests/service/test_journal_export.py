"""The export of decisions from a journal: complete, with propensities where they are known, also of older events."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from idleband.errors import InputError
from idleband.evaluation.decision_log import DecisionLog
from idleband.service.journal import DECIDE, Event
from idleband.service.journal_export import decision_log
from idleband.service.manager import AllocatorManager
from idleband.service.sqlite_journal import FILE_NAME
from tests.service.running import contexts_of, learn, settings


def played(folder: Path, decisions: int = 30) -> DecisionLog:
    """Make a journal: channel 3 is vacated for a while, and feedback comes in parts, late or never."""
    manager = AllocatorManager(folder, snapshot_every=20)
    manager.open("main", settings("mp-random", patience=5))
    allocator = manager.open("ucb", settings("mp-ucb"))
    manager.decide(allocator, contexts_of(0), request_id="r0")
    allocator = manager.allocators["main"]
    for i in range(decisions):
        if i in (10, 20):
            (manager.vacate if i == 10 else manager.restore)(allocator, [3])
        channels = manager.decide(allocator, contexts_of(i), request_id=f"r{i}").channels
        states = [(k + i) % 2 for k in channels]
        rewards = [(0.1, 1.0)[s] for s in states]
        learn(manager, allocator, f"r{i}", [rewards[0], None], [states[0], None])
        if i % 3 and i:  # the second channel of the slot before
            core = allocator.core
            k = core.record(f"r{i - 1}").decision.channels[1]
            s = (k + i - 1) % 2
            learn(manager, allocator, f"r{i - 1}", [None, (0.1, 1.0)[s]], [None, s])
        manager.commit()
    log = decision_log(folder, "main")  # while the service has it open
    manager.close()
    return log


def test_export_contains_every_decision_with_its_feedback(tmp_path: Path) -> None:
    log = played(tmp_path)
    assert log.slot.tolist() == list(range(1, 31))
    assert log.request_id == tuple(f"r{i}" for i in range(30))
    assert log.contexts.tolist() == [contexts_of(i) for i in range(30)]
    assert log.known.all()
    vacated = np.arange(30) // 10 == 1
    assert np.array_equal(log.available[:, 3], ~vacated)
    assert log.propensity[vacated] == pytest.approx(np.tile([2 / 3, 2 / 3, 2 / 3, 0], (10, 1)))
    assert (log.propensity[~vacated] == 0.5).all()
    for i in range(30):
        first, second = np.flatnonzero(log.selected[i])
        assert log.reported_after[i, first] == i + 1
        assert log.reported_after[i, second] == (i + 2 if (i + 1) % 3 and i < 29 else 0)
        assert log.state[i, first] == (first + i) % 2
        assert np.isnan(log.reward[i, second]) == (log.reported_after[i, second] == 0)
    assert (np.diff(log.time) >= 0).all()
    assert log.time[0] > 1.7e9
    assert not decision_log(tmp_path, "ucb").known.any()


def test_events_without_propensities_are_valid(tmp_path: Path) -> None:
    """Bodies as they were before, ten fields long; the service opens the journal and continues."""
    expected = played(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as journal, journal:
        heads = dict(journal.execute("SELECT number, checksum FROM allocators"))
        for *row, number in journal.execute(
            "SELECT allocator, seq, kind, request, body, id FROM events ORDER BY id"
        ).fetchall():
            event = Event(*row)
            if event.kind == DECIDE:
                body = msgspec.msgpack.encode(msgspec.msgpack.decode(event.body)[:10])
                event = event._replace(body=body)
            heads[event.allocator] = event.checksum(heads[event.allocator])
            journal.execute(
                "UPDATE events SET body = ?, checksum = ? WHERE id = ?", (event.body, heads[event.allocator], number)
            )
        for number, head in heads.items():
            journal.execute("UPDATE chains SET head = ? WHERE allocator = ?", (head, number))
        journal.execute("DELETE FROM snapshots")
    log = decision_log(tmp_path, "main")
    assert not log.known.any()
    assert np.isnan(log.time).all()
    assert np.array_equal(log.selected, expected.selected)
    assert np.array_equal(log.reward, expected.reward, equal_nan=True)
    manager = AllocatorManager(tmp_path)
    manager.decide(manager.allocators["main"], contexts_of(30), request_id="r30")
    manager.commit()
    manager.close()
    assert decision_log(tmp_path, "main").known.tolist() == [False] * 30 + [True]


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    played(tmp_path)
    with pytest.raises(InputError, match="did you mean 'main'"):
        decision_log(tmp_path, "mian")
    with pytest.raises(InputError, match=r"has no journal\.sqlite"):
        decision_log(tmp_path / "missing", "main")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as journal, journal:
        journal.execute("DELETE FROM events WHERE allocator = 1 AND seq = 7")
    with pytest.raises(InputError, match="event 7 of allocator main is missing"):
        decision_log(tmp_path, "main")
