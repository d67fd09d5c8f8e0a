"""Copy of a journal into PostgreSQL, and its verification and export there."""

from pathlib import Path

import pytest

from idleband.errors import ConflictError, InputError
from idleband.service import journal_files, postgres_files
from idleband.service.journal_export import decision_log
from idleband.service.manager import AllocatorManager
from idleband.service.postgres_journal import PostgresJournal
from idleband.service.postgres_url import PostgresUrl
from tests.service.conftest import ADDRESS
from tests.service.postgres_server import PostgresServer
from tests.service.running import settings
from tests.service.test_journal import decide, report


@pytest.fixture
def url(postgres: PostgresServer) -> PostgresUrl:
    return PostgresUrl(postgres.new_database())


def filled(folder: Path) -> AllocatorManager:
    """A journal with a snapshot, deleted events and later events, as a killed process leaves it."""
    manager = AllocatorManager(folder, keep=10, snapshot_every=20)
    manager.open("main", settings(patience=3))
    manager.open("empty", settings())
    for i in range(35):
        report(manager, decide(manager, i))
        manager.commit()
    return manager


def test_copied_allocators_continue_bit_by_bit(tmp_path: Path, url: PostgresUrl) -> None:
    manager = filled(tmp_path)
    with pytest.raises(InputError, match="is in use by a service; stop it first"):
        postgres_files.copy(tmp_path, url)
    state = manager.allocators["main"].core.snapshot()()
    manager.journal.close()
    copied = postgres_files.copy(tmp_path, url)
    assert copied == journal_files.verify(tmp_path) == postgres_files.verify(url)
    assert copied.written == 70 > copied.events
    log = postgres_files.decision_log(url, "main")
    assert (log.slot == decision_log(tmp_path, "main").slot).all()
    managers = AllocatorManager(tmp_path), AllocatorManager(PostgresJournal(url, ADDRESS, 5.0))
    for one in managers:
        assert one.allocators["main"].core.snapshot()() == state
        with pytest.raises(ConflictError, match="too old to be kept"):
            decide(one, 0)
    assert decide(managers[0], 34) == decide(managers[1], 34)
    assert decide(managers[0], 99) == decide(managers[1], 99)
    for one in managers:
        one.close()
    with pytest.raises(InputError, match="has allocators already; nothing was written"):
        postgres_files.copy(tmp_path, url)


def test_damaged_journal_is_not_copied(tmp_path: Path, url: PostgresUrl) -> None:
    filled(tmp_path).close()
    (tmp_path / "journal.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match="nothing was written"):
        postgres_files.copy(tmp_path, url)
    with pytest.raises(InputError, match="has no journal"):
        postgres_files.verify(url)


def test_faults_are_listed(tmp_path: Path, url: PostgresUrl, postgres: PostgresServer) -> None:
    filled(tmp_path).close()
    postgres_files.copy(tmp_path, url)
    postgres.execute(url.dsn, "UPDATE events SET body = '' WHERE seq = 65")
    postgres.execute(url.dsn, "DELETE FROM chains WHERE allocator = 2")
    found = postgres_files.verify(url).faults
    assert found == [
        "event 65 of allocator main is damaged, or does not follow the one before it",
        "the number of events of allocator empty is missing",
    ]
