"""The journal in a PostgreSQL database that several processes share.

Each process has the allocators that it owns (`lease.py`). A group of events is one statement, which PostgreSQL commits
durably. It inserts nothing if another process owns one of the allocators by then, or if the chain of one does not end
where this process believes. Snapshots are written, and old events deleted, over a second connection whose commits are
not waited for: they become durable with a later one.

The tables are those of the journal in SQLite, in a schema of their own, and two columns and a table for the leases.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import asyncpg

from idleband.errors import InputError
from idleband.service import journal_check
from idleband.service.journal import (
    DECIDE,
    Event,
    JournalError,
    NewSnapshot,
    Owner,
    SharedJournal,
    Snapshot,
    Stored,
    digest,
)
from idleband.service.journal_chain import (
    DELETED_PARTS,
    PRUNED_EVENTS,
    ChainEnds,
    SnapshotParts,
    choose_pruned,
    pause,
)
from idleband.service.journal_check import Rows
from idleband.service.lease import Lease
from idleband.service.postgres_database import FORMAT, SCHEMA, TIMEOUT, Database, format_fault, server_fault
from idleband.service.postgres_url import PostgresUrl
from idleband.service.request_filter import RequestFilter

PAGE = 2000  # events that are read at once
MAX_FILTERS = 20_000  # of allocators, each of 512 bytes or two bytes per event
LOCK = 0x1D1EBA4D  # of PostgreSQL, held while the tables are created

TABLES = f"""
CREATE SCHEMA {SCHEMA};
CREATE TABLE about (
    format int NOT NULL,
    base bigint NOT NULL          -- number of events that were written before those in the chains
);
CREATE TABLE processes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address text NOT NULL,        -- at which other processes reach it
    snapshots int NOT NULL DEFAULT 0, -- that were begun in a row and not ended
    expires timestamptz NOT NULL  -- end of its lease
);
CREATE TABLE allocators (
    number bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    settings text NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE chains (
    allocator bigint PRIMARY KEY,
    first bigint NOT NULL,        -- number of the oldest event that is kept
    anchor bigint NOT NULL,       -- checksum of the event before it
    last bigint NOT NULL,         -- number of the last event
    head bigint NOT NULL,         -- its checksum
    owner bigint,                 -- process that owns the allocator
    fence bigint NOT NULL         -- increased with every owner
) WITH (fillfactor = 50);
CREATE TABLE events (
    allocator bigint NOT NULL,
    seq bigint NOT NULL,          -- from 1 for each allocator, without gaps
    kind smallint NOT NULL,
    request bytea,                -- in UTF-8; may contain zeros
    body bytea NOT NULL,
    checksum bigint NOT NULL,     -- covers the checksum of the event before
    PRIMARY KEY (allocator, seq)
);
CREATE UNIQUE INDEX decisions ON events (allocator, request) WHERE kind = 0;
CREATE TABLE expired (            -- request_ids of deleted decisions
    allocator bigint NOT NULL,
    generation bigint NOT NULL,
    fingerprint bigint NOT NULL,
    PRIMARY KEY (allocator, generation, fingerprint)
);
CREATE TABLE snapshots (
    allocator bigint PRIMARY KEY,
    seq bigint NOT NULL,          -- the last event that is in it
    chain bigint NOT NULL,        -- the checksum of that event
    snapshot bigint NOT NULL,     -- number of its parts
    size bigint NOT NULL,
    checksum bigint NOT NULL
);
CREATE SEQUENCE snapshot_numbers;
CREATE TABLE snapshot_parts (
    allocator bigint NOT NULL,
    snapshot bigint NOT NULL,
    part int NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (snapshot, part)
);
CREATE INDEX parts_of_allocators ON snapshot_parts (allocator);
ALTER TABLE snapshot_parts ALTER data SET STORAGE EXTERNAL;
"""

# An allocator whose chain was not extended leaves NULL in `allocator`, which is refused, and with it the statement.
_WRITE = """
WITH wanted AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        AS w (allocator, fence, previous, last, head)
), extended AS (
    UPDATE chains AS c SET last = w.last, head = w.head FROM wanted AS w
    WHERE c.allocator = w.allocator AND c.fence = w.fence AND c.last = w.previous
    RETURNING c.allocator
)
INSERT INTO events (allocator, seq, kind, request, body, checksum)
SELECT x.allocator, e.seq, e.kind, e.request, e.body, e.checksum
FROM unnest($6::bigint[], $7::bigint[], $8::smallint[], $9::bytea[], $10::bytea[], $11::bigint[])
    AS e (allocator, seq, kind, request, body, checksum)
LEFT JOIN extended AS x ON x.allocator = e.allocator
"""

_FIND_DECISION = """
SELECT e.allocator, e.seq, e.kind, e.request, e.body, e.checksum, coalesce(p.checksum, anchor)
FROM events AS e
JOIN chains AS c ON c.allocator = e.allocator
LEFT JOIN events AS p ON p.allocator = e.allocator AND p.seq = e.seq - 1
WHERE e.allocator = $1 AND e.request = $2 AND e.kind = 0
"""


class _Cancelled(Exception):
    """A snapshot is not needed any more."""


class PostgresJournal(SharedJournal):
    """The allocators of a database that this process owns.

    Parameters
    ----------
    url : PostgresUrl
        The database.
    address : str
        Where other processes reach this one, such as "http://10.0.0.5:8765".
    lease : float
        Seconds after which other processes take the allocators over, if this one does not renew its lease.
    """

    def __init__(self, url: PostgresUrl, address: str, lease: float) -> None:
        self.place, self.address = str(url), address
        self.epoch = 0
        self.database = Database(url)
        self.lease = Lease(self.database, address, lease)
        self._chains = self.lease.chains
        # By the number of an allocator, with its fencing number: what other owners have written is not in it.
        self._seen: OrderedDict[int, tuple[int, RequestFilter]] = OrderedDict()
        try:
            with self.database.refusing():
                fault = self.database.call("writer", prepared)
                if fault:
                    raise InputError(f"{self.place}: {fault}")
                self._base = int(self.database.fetch("reader", "SELECT base FROM about")[0][0])
                self.interrupted_snapshots = self.database.call("background", self.lease.first_beat, 2 * TIMEOUT)
        except BaseException:
            self.database.close()
            raise
        self._renewing = self.database.submit(self.lease.run())

    def _call(self, name: str, work: Any) -> Any:
        return self.database.call(name, work)

    # --- owners ------------------------------------------------------------------------------------------------------

    async def find_owner(self, name: str) -> Owner | None:
        database = self.database
        if database.failure:
            raise JournalError(f"{self.place}: {database.failure}")
        found = await asyncio.wrap_future(database.submit(self.lease.find(name)))
        if found is None or found.is_here or found.address is not None:
            return found
        await asyncio.wrap_future(database.submit(self.lease.beat()))
        return await asyncio.wrap_future(database.submit(self.lease.find(name)))

    async def find_settings(self, name: str) -> str | None:
        query = "SELECT settings FROM allocators WHERE name = $1"
        found = self.database.submit(self.database.use("reader", lambda connection: connection.fetchval(query, name)))
        settings: str | None = await asyncio.wrap_future(found)
        return settings

    async def names(self) -> list[str]:
        query = "SELECT name FROM allocators ORDER BY number"
        found = self.database.submit(self.database.use("reader", lambda connection: connection.fetch(query)))
        return [name for (name,) in await asyncio.wrap_future(found)]

    @property
    def failure(self) -> str:
        return f"{self.place}: {self.database.failure}" if self.database.failure else ""

    def fence(self, allocator: int) -> int:
        return self.lease.fence(allocator)

    def on_change(self, changed: Callable[[], object]) -> None:
        self.lease.changed = changed

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:  # type: ignore[override]
        """Number of all events ever written to the allocators of this process."""
        return self._base + sum(chain.last for chain in self._chains.values())

    def _refuse(self, fault: str) -> None:
        raise InputError(f"{self.place}: {fault}; left unchanged")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn a request_id that cannot be read into an InputError of one line."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise InputError(f"{self.place}: cannot be read ({error}); left unchanged") from None

    @property
    def _rows(self) -> "PostgresRows":
        return PostgresRows(lambda query, *arguments: self.database.fetch("loader", query, *arguments))

    def allocators(self) -> list[Stored]:
        """Return the allocators of this process."""
        owned = self.lease.owned
        with self._refusing():
            return [one for one in journal_check.stored_allocators(self._rows, self._refuse) if one.number in owned]

    def reread(self) -> None:
        self.check_writable()

    def load(self, allocator: Stored, *, complete: bool) -> tuple[Snapshot | None, Iterator[Event]]:
        rows = self._rows
        with self._refusing():
            chain = journal_check.chain_of(rows, allocator, self._refuse)
            found = journal_check.read_snapshot(rows, allocator, chain, self._refuse)
        row = None if found is None else found[0]
        covered = 0 if row is None else row.seq
        self._chains[allocator.number].snapshot = covered
        start = chain.first - 1 if complete or row is None else row.seq

        def events() -> Iterator[Event]:
            with self._refusing():
                for event in journal_check.checked_events(rows, allocator, chain, row, start, self._refuse):
                    if event.seq > covered:
                        yield event

        self._fill_filter(allocator.number)
        return None if found is None else Snapshot(found[0].seq, found[1]), events()

    def last(self, allocator: int) -> int:
        return self._chains[allocator].last

    def find_decision(self, allocator: int, request_id: str) -> Event | None:
        if self._is_new(allocator, request_id):
            return None
        rows = self.database.fetch("reader", _FIND_DECISION, allocator, request_id.encode())
        if not rows:
            return None
        number, seq, kind, _, body, checksum, previous = rows[0]
        event = Event(number, seq, kind, request_id, body)
        if checksum != event.checksum(previous):
            raise JournalError(f"{self.place}: event {event.seq} of allocator {allocator} is damaged")
        return event

    def is_expired(self, allocator: int, request_id: str) -> bool:
        chain = self._chains[allocator]
        if chain.first == 1 or self._is_new(allocator, request_id):
            return False
        query = "SELECT count(*) FROM expired WHERE allocator = $1 AND generation IN ($2, $3) AND fingerprint = $4"
        fingerprint = digest(request_id.encode())
        return bool(self.database.fetch("reader", query, allocator, *chain.generations, fingerprint)[0][0])

    def _filter(self, allocator: int) -> RequestFilter | None:
        """Return the filter of an allocator if it contains what earlier owners have written."""
        fence, found = self._seen.get(allocator, (0, None))
        return found if fence and fence == self.lease.fence(allocator) else None

    def _is_new(self, allocator: int, request_id: str) -> bool:
        """Return whether a request_id was certainly not used for a decision that is written."""
        found = self._filter(allocator)
        return found is not None and found.is_complete and not found.may_contain(digest(request_id.encode()))

    def _add_filter(self, allocator: int, capacity: int) -> RequestFilter:
        found = RequestFilter(capacity)
        self._seen[allocator] = self.lease.fence(allocator), found
        self._seen.move_to_end(allocator)
        while len(self._seen) > MAX_FILTERS:  # the allocators that were opened first need queries then
            self._seen.popitem(last=False)
        return found

    def _fill_filter(self, allocator: int) -> None:
        """Fill the filter of an allocator in the background, if there is none for this owner."""
        chain, known = self._chains[allocator], self._filter(allocator)
        if known is None or known.is_full:
            found = self._add_filter(allocator, chain.last - chain.first)
            self.database.submit(self._fill(allocator, found)).add_done_callback(_ignore_failure)

    async def _fill(self, allocator: int, found: RequestFilter) -> None:
        """Add what is there; what is written meanwhile is added, too."""
        decisions = """
            SELECT seq, request FROM events WHERE allocator = $1 AND kind = 0 AND seq > $2 ORDER BY seq LIMIT $3
        """
        # Afterwards, because what is deleted from the events meanwhile is there by then.
        expired = """
            SELECT generation, fingerprint FROM expired WHERE allocator = $1 AND (generation, fingerprint) > ($2, $3)
            ORDER BY generation, fingerprint LIMIT $4
        """
        database = self.database

        async def page(query: str, *arguments: Any) -> list[Any]:
            rows: list[Any] = await database.use("filter", lambda one: one.fetch(query, allocator, *arguments, PAGE))
            return rows

        after = 0
        while rows := await page(decisions, after):
            after = rows[-1][0]
            for _, request in rows:
                found.add(digest(request))
        last = (-1, 0)
        while rows := await page(expired, *last):
            last = tuple(rows[-1])
            for _, fingerprint in rows:
                found.add(fingerprint)
        found.is_complete = True

    # --- writing -----------------------------------------------------------------------------------------------------

    def add(self, name: str, settings: str) -> Stored:
        async def insert(connection: Any) -> Stored:
            async with connection.transaction():
                await connection.execute("LOCK TABLE allocators IN SHARE ROW EXCLUSIVE MODE")
                number = 1 + (await connection.fetchval("SELECT max(number) FROM allocators") or 0)
                stored = Stored(number, name, settings)
                query = "INSERT INTO allocators VALUES ($1, $2, $3, $4)"
                try:
                    await connection.execute(query, *stored, stored.checksum)
                except asyncpg.UniqueViolationError:
                    raise JournalError(f"allocator {name}: another process has just created it") from None
                query = "INSERT INTO chains VALUES ($1, 1, $2, 0, $2, $3, 1)"
                await connection.execute(query, number, stored.checksum, self.lease.process)
            return stored

        try:
            stored: Stored = self._call("writer", insert)
        except JournalError:  # perhaps after the allocator was added
            self.lease.doubt()
            raise
        self.lease.add(stored.number, ChainEnds(1, 0, stored.checksum))
        self._add_filter(stored.number, 0).is_complete = True
        return stored

    def write(self, events: Sequence[Event]) -> None:
        checksums, heads = self._chains.link(events, self.place)
        wanted = [
            (number, self.lease.fence(number), self._chains[number].last, *ends) for number, ends in heads.items()
        ]
        rows = [
            (number, seq, kind, None if request is None else request.encode(), body, checksum)
            for (number, seq, kind, request, body), checksum in zip(events, checksums, strict=True)
        ]
        if not rows:
            return
        columns = [*zip(*wanted, strict=True), *zip(*rows, strict=True)]

        async def insert(connection: Any) -> None:
            try:
                await connection.execute(_WRITE, *columns)
            except asyncpg.NotNullViolationError:
                raise JournalError(f"{self.place}: {_NOT_OWNED}") from None

        self._call("writer", insert)
        self._chains.note(heads)
        # Before this returns, because until then they are known as unwritten; and to a filter that was begun meanwhile.
        for event in events:
            found = self._filter(event.allocator) if event.kind == DECIDE else None
            if found is not None:
                found.add(digest(str(event.request_id).encode()))
        for number in heads:
            found = self._filter(number)
            if found is not None and found.is_full:
                self._fill_filter(number)

    def check_writable(self) -> None:
        """Renew the lease; what was sent before is not written any more after this."""
        if self.failure:  # the next renewal of the lease finds out whether it still cannot be reached
            raise JournalError(self.failure)
        self.database.submit(self.lease.beat(again=True)).result()

    # --- snapshots and old events ------------------------------------------------------------------------------------

    def write_snapshot(self, snapshot: NewSnapshot, *, considerate: bool = False) -> bool:
        number, seq = snapshot.allocator, snapshot.seq
        fence = self.lease.fence(number)
        query = """
            SELECT checksum FROM events WHERE allocator = $1 AND seq = $2
            UNION ALL SELECT anchor FROM chains WHERE allocator = $1 AND first = $2 + 1
        """
        found = self.database.fetch("background", query, number, seq)
        if not found:
            raise JournalError(f"{self.place}: event {seq} of allocator {number} is not there")
        chain = found[0][0]
        new = self.database.fetch("background", "SELECT nextval('snapshot_numbers')")[0][0]

        def store(part: int, data: bytes) -> None:
            self._check_epoch(snapshot)
            insert = "INSERT INTO snapshot_parts VALUES ($1, $2, $3, $4)"
            self._call("background", lambda connection: connection.execute(insert, number, new, part, data))

        parts = SnapshotParts(snapshot, chain, store, considerate)

        async def replace(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("SET LOCAL synchronous_commit TO on")
                await self._check_fence(connection, number, fence)
                self._check_epoch(snapshot)
                row = (number, seq, chain, new, parts.state.size, parts.state.checksum)
                await connection.execute(
                    "INSERT INTO snapshots VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (allocator) DO UPDATE SET"
                    " seq = $2, chain = $3, snapshot = $4, size = $5, checksum = $6",
                    *row,
                )

        try:
            snapshot.write_to(parts)  # type: ignore[arg-type]
            parts.finish()
            self._call("background", replace)
            self._chains[number].snapshot = seq
        except _Cancelled:
            return False
        finally:
            with contextlib.suppress(JournalError):
                self._delete_unused_parts(number, new, considerate)
        return True

    def _delete_unused_parts(self, allocator: int, newest: int, considerate: bool) -> None:
        """Delete the parts of snapshots that were replaced or not completed, but not those of a later owner."""
        unused = """
            SELECT snapshot, part FROM snapshot_parts WHERE allocator = $1 AND snapshot <= $2
            AND snapshot NOT IN (SELECT snapshot FROM snapshots WHERE allocator = $1) LIMIT $3
        """
        query = f"DELETE FROM snapshot_parts WHERE (snapshot, part) IN ({unused})"
        deleted = ""
        while deleted != "DELETE 0":
            began = time.monotonic()
            deleted = self._call("background", lambda one: one.execute(query, allocator, newest, DELETED_PARTS))
            pause(began, considerate)

    def _check_epoch(self, snapshot: NewSnapshot) -> None:
        if snapshot.epoch != self.epoch:
            raise _Cancelled

    async def _check_fence(self, connection: Any, allocator: int, fence: int) -> None:
        query = "SELECT FROM chains WHERE allocator = $1 AND fence = $2 FOR SHARE"
        if await connection.fetchrow(query, allocator, fence) is None:
            raise JournalError(f"{self.place}: {_NOT_OWNED}")

    def cancel_snapshots(self) -> None:
        self.epoch += 1  # a snapshot whose last transaction has begun is of a state that is durable

    def record_snapshots(self, begun: int) -> None:
        if not self.database.failure:
            self.database.submit(self.lease.record_snapshots(begun)).add_done_callback(_ignore_failure)

    def prune(self, allocator: int, keep: int) -> bool:
        chain = self._chains.get(allocator)
        fence = self.lease.fence(allocator)
        end = None if chain is None or not fence else chain.first_to_keep(keep)
        if chain is None or end is None:
            return False

        async def delete(connection: Any) -> int:
            async with connection.transaction():
                query = """
                    SELECT seq, kind, request, length(body), checksum FROM events WHERE allocator = $1 AND seq < $2
                    ORDER BY seq LIMIT $3
                """
                rows = await connection.fetch(query, allocator, end, PRUNED_EVENTS)
                pruned = choose_pruned((*row[:2], (row[2] or b"").decode(), *row[3:]) for row in rows)
                query = "DELETE FROM events WHERE allocator = $1 AND seq <= $2"
                await connection.execute(query, allocator, pruned.last)
                await connection.executemany(
                    "INSERT INTO expired VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                    [(allocator, *one) for one in pruned.fingerprints],
                )
                await connection.execute(
                    "DELETE FROM expired WHERE (allocator, generation, fingerprint) IN (SELECT allocator, generation,"
                    " fingerprint FROM expired WHERE allocator = $1 AND generation < $2 LIMIT $3)",
                    allocator, pruned.oldest_generation, 2 * PRUNED_EVENTS,
                )  # fmt: skip
                query = "UPDATE chains SET first = $2, anchor = $3 WHERE allocator = $1 AND fence = $4"
                if await connection.execute(query, allocator, pruned.last + 1, pruned.anchor, fence) != "UPDATE 1":
                    raise JournalError(f"{self.place}: {_NOT_OWNED}")
            return pruned.last

        chain.first = 1 + int(self._call("background", delete))
        return True

    def maintain(self) -> None:
        """Do nothing: PostgreSQL does such work itself."""

    def check_in_place(self) -> None:
        """Do nothing: whether the database can be reached is found out when the lease is renewed."""

    def close(self) -> None:
        self._renewing.cancel()
        with contextlib.suppress(JournalError):
            self.database.submit(self.lease.release()).result()
        self.database.close()


def _ignore_failure(done: Future[Any]) -> None:
    """Read the exception of work that nothing depends on."""
    if not done.cancelled():
        done.exception()


_NOT_OWNED = "another process has taken over an allocator of this one, which does not write to it any more"


class PostgresRows(Rows):
    """The rows that a function fetches."""

    def __init__(self, fetch: Any) -> None:
        self._fetch = fetch

    def allocators(self) -> Iterable[tuple[Any, ...]]:
        rows = self._fetch("SELECT number, name, settings, checksum FROM allocators ORDER BY number")
        return [tuple(row) for row in rows]

    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT first, anchor, last, head FROM chains WHERE allocator = $1", allocator)

    def snapshot(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT seq, chain, snapshot, size, checksum FROM snapshots WHERE allocator = $1", allocator)

    def parts(self, snapshot: int) -> Iterable[Any]:
        part, query = 0, "SELECT data FROM snapshot_parts WHERE snapshot = $1 AND part = $2"
        while rows := self._fetch(query, snapshot, part):
            yield rows[0][0]
            part += 1

    def events(self, allocator: int, after: int) -> Iterable[tuple[Any, ...]]:
        query = "SELECT allocator, seq, kind, request, body, checksum FROM events WHERE allocator = $1 AND seq > $2"
        while rows := self._fetch(f"{query} ORDER BY seq LIMIT {PAGE}", allocator, after):
            for number, after, kind, request, body, checksum in rows:
                yield number, after, kind, None if request is None else request.decode(), body, checksum

    def mentioned(self, table: str) -> Iterable[int]:
        return [number for (number,) in self._fetch(f"SELECT DISTINCT allocator FROM {table}")]

    def base(self) -> int:
        return int(self._fetch("SELECT base FROM about")[0][0])

    def _row(self, query: str, *arguments: Any) -> tuple[Any, ...] | None:
        rows = self._fetch(query, *arguments)
        return tuple(rows[0]) if rows else None


async def prepared(connection: Any) -> str:
    """Create the tables if there are none; return why the database cannot be used, empty if it can."""
    fault = await server_fault(connection)
    if fault:
        return fault
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", SCHEMA):
            await connection.execute(TABLES)
            await connection.execute(f"INSERT INTO about VALUES ({FORMAT}, 0)")
    return await format_fault(connection)
