"""Fixtures of the tests of the service: a PostgreSQL server per test process, and journals of both kinds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idleband.service.journal import Journal
from idleband.service.postgres_journal import PostgresJournal
from idleband.service.postgres_url import PostgresUrl
from idleband.service.sqlite_journal import SqliteJournal
from tests.service.postgres_server import PostgresServer, postgres_server

ADDRESS = "http://127.0.0.1:1"  # of a process that nothing is forwarded to


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that is shared: it is neither stopped nor filled up."""
    with postgres_server() as server:
        yield server


class Journals:
    """Opens one journal again and again, and counts the rows of its tables."""

    def __init__(self, place: Path | PostgresUrl, server: PostgresServer | None = None) -> None:
        self.place, self._server = place, server
        self._opened: list[Journal] = []

    def open(self) -> Journal:
        journal: Journal
        if isinstance(self.place, Path):
            journal = SqliteJournal(self.place)
        else:
            journal = PostgresJournal(self.place, ADDRESS, 5.0)
        self._opened.append(journal)
        return journal

    def kill(self, journal: Journal) -> None:
        """Leave a journal as a killed process does."""
        if isinstance(journal, PostgresJournal):
            journal.database.close()
        else:
            journal.close()

    def count(self, journal: Journal, table: str) -> int:
        query = f"SELECT count(*) FROM {table}"
        if isinstance(journal, SqliteJournal):
            return int(journal._reader.execute(query).fetchone()[0])
        assert isinstance(self.place, PostgresUrl)
        assert self._server is not None
        return int(self._server.execute(self.place.dsn, query)[0][0])

    def close(self) -> None:
        for journal in self._opened:
            if isinstance(journal, PostgresJournal):
                journal.database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journals]:
    """A new journal of each kind."""
    if request.param == "sqlite":
        yield Journals(tmp_path / "journal")
        return
    server = request.getfixturevalue("postgres")
    found = Journals(PostgresUrl(server.new_database()), server)
    yield found
    found.close()
