"""The journal in PostgreSQL: one owner per allocator, and a database that does not fit is refused in one line."""

import sys

import pytest

from idleband.errors import InputError
from idleband.service.journal import JournalError
from idleband.service.postgres_journal import PostgresJournal
from idleband.service.postgres_url import PostgresUrl
from tests.service.conftest import ADDRESS, Journals
from tests.service.postgres_server import PostgresServer
from tests.service.running import eventually
from tests.service.test_journal_contract import events, prune, snapshot, stored_events

LEASE = 1.0


@pytest.fixture
def url(postgres: PostgresServer) -> PostgresUrl:
    return PostgresUrl(postgres.new_database())


def opened(url: PostgresUrl, number: int) -> PostgresJournal:
    return PostgresJournal(url, f"http://127.0.0.1:{number}", LEASE)


def stop_beating(journal: PostgresJournal) -> None:
    """Let the lease run out, as in a process that is stopped or cut off."""
    journal._renewing.cancel()


# --- owners ----------------------------------------------------------------------------------------------------------


def test_process_that_lost_its_lease_cannot_write(url: PostgresUrl) -> None:
    first, second = opened(url, 1), opened(url, 2)
    stored = first.add("main", "{}")
    first.write(events(1, 40))
    assert second.allocators() == []
    stop_beating(first)
    assert eventually(second.allocators) == [stored]
    for write in (
        lambda: first.write(events(41, 1)),
        lambda: first.write_snapshot(snapshot(40)),
        lambda: (setattr(first._chains[1], "snapshot", 40), first.prune(1, 0)),
    ):
        with pytest.raises(JournalError, match="another process has taken over"):
            write()
    assert second.load(stored, complete=True)[0] is None
    assert stored_events(second) == list(range(1, 41))
    second.write(events(41, 1))
    assert second.write_snapshot(snapshot(41))
    first.check_writable()  # a new lease, without the allocator
    assert first.allocators() == []
    assert stored_events(second) == []
    for journal in (first, second):
        journal.close()


def test_allocators_of_a_process_that_ended_are_taken_over_at_once(url: PostgresUrl) -> None:
    first, second = opened(url, 1), opened(url, 2)
    first.add("main", "{}")
    first.close()
    assert eventually(second.allocators, within=0.9)
    second.close()
    again = opened(url, 2)
    assert [one.name for one in again.allocators()] == ["main"]
    again.close()


def test_restarted_process_does_not_wait_for_its_own_lease(journals: Journals) -> None:
    journal = journals.open()
    journal.add("main", "{}")
    journals.kill(journal)
    assert [one.name for one in journals.open().allocators()] == ["main"]


def test_what_was_sent_before_a_recovery_is_not_written_after_it(url: PostgresUrl) -> None:
    """A statement may still be on its way when its connection breaks."""
    journal = opened(url, 1)
    journal.add("main", "{}")
    before = journal.lease.fence(1)
    journal.check_writable()
    assert journal.lease.fence(1) > before
    owned = journal.lease.owned[1]
    journal.lease.owned = {1: before}
    with pytest.raises(JournalError, match="another process"):
        journal.write(events(1, 1))
    journal.lease.owned = {1: owned}
    journal.write(events(1, 1))
    journal.close()


def test_allocator_whose_takeover_was_not_noticed_is_found(url: PostgresUrl) -> None:
    """The database commits the takeover, and the connection breaks before it says so."""
    journal = opened(url, 1)
    journal.add("main", "{}")
    journal.lease.owned = {}
    journal.lease.doubt()
    (stored,) = eventually(journal.allocators)
    assert journal.lease.fence(stored.number) == 2
    journal.write(events(1, 1))
    journal.close()


def test_group_with_a_lost_allocator_writes_nothing(url: PostgresUrl, postgres: PostgresServer) -> None:
    journal = opened(url, 1)
    for name in ("main", "other"):
        journal.add(name, "{}")
    postgres.execute(url.dsn, "UPDATE chains SET fence = fence + 1 WHERE allocator = 2")
    with pytest.raises(JournalError, match="another process"):
        journal.write([*events(1, 3), *events(1, 3, 2)])
    assert postgres.execute(url.dsn, "SELECT count(*) FROM events") == [(0,)]
    assert postgres.execute(url.dsn, "SELECT max(last) FROM chains") == [(0,)]
    journal.write(events(1, 3))
    journal.close()


def test_parts_of_a_later_owner_are_not_deleted(url: PostgresUrl, postgres: PostgresServer) -> None:
    journal = opened(url, 1)
    journal.add("main", "{}")
    journal.write(events(1, 2))
    postgres.execute(url.dsn, "INSERT INTO snapshot_parts VALUES (1, 50, 0, '')")
    journal.write_snapshot(snapshot(1))
    journal.write_snapshot(snapshot(2))
    assert postgres.execute(url.dsn, "SELECT DISTINCT snapshot FROM snapshot_parts ORDER BY 1") == [(2,), (50,)]
    journal.close()


def test_second_allocator_of_a_name_is_refused(url: PostgresUrl) -> None:
    first, second = opened(url, 1), opened(url, 2)
    first.add("main", "{}")
    with pytest.raises(JournalError, match="another process has just created it"):
        second.add("main", "{}")
    assert second.add("other", "{}").number == 2
    for journal in (first, second):
        journal.close()


def test_new_request_ids_are_recognised_without_a_query(url: PostgresUrl) -> None:
    first = opened(url, 1)
    first.add("main", "{}")
    first.write(events(1, 400))
    first.write_snapshot(snapshot(400))
    prune(first, 100)
    first.close()
    journal = opened(url, 1)
    (stored,) = journal.allocators()
    journal.load(stored, complete=False)
    assert journal.find_decision(1, "new") is None
    eventually(lambda: journal._seen[1][1].is_complete)
    journal.write(events(401, 1))
    assert all(journal.is_expired(1, f"r{seq}") for seq in range(1, 290, 17))
    assert all(journal.find_decision(1, f"r{seq}") for seq in (310, 400, 401))
    journal.database.close()
    journal.database.failure = "was closed"
    new = [journal._is_new(1, f"n{i}") for i in range(1000)]
    assert sum(new) > 970
    assert not any(journal.is_expired(1, f"n{i}") for i in range(1000) if new[i])
    with pytest.raises(JournalError, match="was closed"):
        journal.find_decision(1, "r310")


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal(url: str) -> str:
    """Return the line with which a database is refused, which does not contain the password."""
    with pytest.raises(InputError) as error:
        PostgresJournal(PostgresUrl(url), ADDRESS, LEASE)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    assert "sEcret" not in line
    return line


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("UPDATE idleband.about SET format = 7", "has tables of format 7; this version reads 1"),
        ("DROP TABLE idleband.about", "has a schema idleband that was not written by idleband"),
    ],
)
def test_other_tables_are_refused(url: PostgresUrl, postgres: PostgresServer, change: str, names: str) -> None:
    opened(url, 1).close()
    postgres.execute(url.dsn, change)
    assert names in refusal(url.dsn)


def test_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    url = postgres.new_database("ENCODING 'SQL_ASCII' TEMPLATE template0")
    assert "has the encoding SQL_ASCII; must be UTF8" in refusal(url)


def test_database_that_cannot_be_reached_is_refused(postgres: PostgresServer) -> None:
    assert 'database "none" does not exist' in refusal(postgres.url("none", "sEcret"))
    assert "cannot be reached" in refusal("postgresql://u:sEcret@127.0.0.1:1/d")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:sEcret@host",
        "postgresql://u:sEcret@host:no/d",
        "postgresql://u:sEcret@@host/d",
        "postgresql:///",
    ],
)
def test_malformed_address_is_refused_without_its_password(url: str) -> None:
    assert "must be like postgresql://USER@HOST:PORT/DATABASE" in refusal(url)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(InputError, match=r"needs asyncpg; pip install 'idleband\[postgres\]'"):
        PostgresUrl("postgresql://u@host/d")


def test_address_is_shown_without_user_password_and_options() -> None:
    url = PostgresUrl("postgresql://me:p%40ss@db.example:5433/idle?password=p%40ss&sslmode=require")
    assert str(url) == repr(url) == "postgresql://db.example:5433/idle"
    assert url.without_secrets("p@ss or p%40ss\nof me") == "*** or *** of me"


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("UPDATE events SET body = 'x' WHERE seq = 30", "event 30 of allocator main is damaged"),
        ("DELETE FROM events WHERE seq = 30", "event 30 of allocator main is missing"),
        ("UPDATE snapshot_parts SET data = 'x'", "the snapshot of allocator main is damaged"),
        ("UPDATE allocators SET settings = '[]'", "the settings of allocator 'main' are damaged"),
    ],
)
def test_changed_rows_are_noticed(url: PostgresUrl, postgres: PostgresServer, change: str, names: str) -> None:
    journal = opened(url, 1)
    journal.add("main", "{}")
    journal.write(events(1, 40))
    journal.write_snapshot(snapshot(20))
    prune(journal, 5)
    postgres.execute(url.dsn, change)
    with pytest.raises(InputError, match=f"{names}.*; left unchanged"):
        stored_events(journal)
    journal.close()
