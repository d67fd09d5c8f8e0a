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
    CHANGE,
    DECIDE,
    DELETE,
    Event,
    JournalError,
    NewSnapshot,
    Owner,
    SharedJournal,
    Snapshot,
    Stored,
    digest,
    read_change,
)
from idleband.service.journal_chain import (
    DELETED_PARTS,
    PRUNED_EVENTS,
    ChainEnds,
    SnapshotParts,
    choose_pruned,
    pause,
)
from idleband.service.journal_check import ChangeRow, NameRow, Rows
from idleband.service.lease import Lease
from idleband.service.postgres_database import FORMAT, SCHEMA, TIMEOUT, Database, format_fault, server_fault
from idleband.service.postgres_url import PostgresUrl
from idleband.service.request_filter import RequestFilter

SWEPT_TRANSACTIONS = 100  # in which events of a deleted allocator are deleted, before other work is done
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
    name text NOT NULL,           -- when it was created, as are the settings
    settings text NOT NULL,
    checksum bigint NOT NULL
);
CREATE TABLE changes (            -- allocators that have another name or other settings now, or were deleted
    allocator bigint PRIMARY KEY,
    name text,                    -- NULL: it was deleted
    settings text NOT NULL,
    seq bigint NOT NULL,          -- number of the event
    checksum bigint NOT NULL
);
CREATE TABLE names (              -- that allocators have or had
    name text NOT NULL,
    allocator bigint NOT NULL,
    until bigint NOT NULL,        -- number of the event that took the name away; 0 while the allocator has it
    checksum bigint NOT NULL,
    PRIMARY KEY (name, allocator)
);
CREATE UNIQUE INDEX present_names ON names (name) WHERE until = 0;
CREATE INDEX names_of_allocators ON names (allocator);
CREATE VIEW present AS            -- allocators that were not deleted, with their present names and settings
    SELECT number, n.name, coalesce(c.settings, a.settings) AS settings, a.settings AS first_settings
    FROM names AS n JOIN allocators AS a ON number = n.allocator LEFT JOIN changes AS c ON c.allocator = number
    WHERE until = 0;
CREATE TABLE chains (
    allocator bigint PRIMARY KEY,
    first bigint NOT NULL,        -- number of the oldest event that is kept
    anchor bigint NOT NULL,       -- checksum of the event before it
    last bigint NOT NULL,         -- number of the last event
    head bigint NOT NULL,         -- its checksum
    owner bigint,                 -- process that owns the allocator
    fence bigint NOT NULL,        -- increased with every owner
    changed bigint NOT NULL DEFAULT 0 -- number of the last event that is in `changes`
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


# Other allocators that had the name of an allocator, and until which of their events.
_EARLIER = """
SELECT other.allocator, other.until FROM names AS own JOIN names AS other ON other.name = own.name
WHERE own.allocator = $1 AND own.until = 0 AND other.until > 0
"""
_PARTS = "SELECT snapshot, part FROM snapshot_parts WHERE allocator = $1 LIMIT $2"


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
        self._deleted: set[int] = set()  # allocators of which events are left
        self._earlier: dict[int, list[tuple[int, int]]] = {}  # see `_EARLIER`
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

    async def find_settings(self, name: str) -> tuple[str, str] | None:
        query = "SELECT settings, first_settings FROM present WHERE name = $1"
        found = self.database.submit(self.database.use("reader", lambda connection: connection.fetchrow(query, name)))
        row = await asyncio.wrap_future(found)
        return None if row is None else (row[0], row[1])

    async def names(self) -> list[str]:
        query = "SELECT name FROM present ORDER BY number"
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
            found = [one for one in journal_check.all_allocators(self._rows, self._refuse) if one.number in owned]
        for one in found:
            if one.deleted:
                self._note_deletion(one.number)
        return [one for one in found if not one.deleted]

    def _note_deletion(self, allocator: int) -> None:
        chain = self._chains.get(allocator)
        if chain is not None:
            chain.snapshot = chain.last
            self._deleted.add(allocator)

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

        self._earlier[allocator.number] = [(row[0], row[1]) for row in rows.fetch(_EARLIER, allocator.number)]
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
        chain, earlier = self._chains[allocator], self._earlier.get(allocator)
        own = chain.first > 1 and not self._is_new(allocator, request_id)
        if own and self._has_fingerprint(allocator, chain, request_id):
            return True
        return any(self._was_used(number, until, request_id) for number, until in earlier or ())

    def _was_used(self, allocator: int, until: int, request_id: str) -> bool:
        """Return whether another allocator used a request_id, in its events up to a number."""
        query = "SELECT count(*) FROM events WHERE allocator = $1 AND request = $2 AND kind = 0 AND seq <= $3"
        if self.database.fetch("reader", query, allocator, request_id.encode(), until)[0][0]:
            return True
        rows = self.database.fetch("reader", "SELECT first FROM chains WHERE allocator = $1", allocator)
        first = rows[0][0] if rows else until + 1
        return self._has_fingerprint(allocator, ChainEnds(first, until, 0), request_id)

    def _has_fingerprint(self, allocator: int, chain: ChainEnds, request_id: str) -> bool:
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
        async def insert(connection: Any) -> tuple[Stored, list[Any]]:
            async with connection.transaction():
                await connection.execute("LOCK TABLE allocators IN SHARE ROW EXCLUSIVE MODE")
                number = 1 + (await connection.fetchval("SELECT max(number) FROM allocators") or 0)
                stored = Stored(number, name, settings)
                query = "INSERT INTO allocators VALUES ($1, $2, $3, $4)"
                await connection.execute(query, number, name, settings, stored.checksum)
                try:
                    await _write_name(connection, NameRow(name, number, 0))
                except asyncpg.UniqueViolationError:
                    raise JournalError(f"allocator {name}: another process has just created it") from None
                query = "INSERT INTO chains VALUES ($1, 1, $2, 0, $2, $3, 1)"
                await connection.execute(query, number, stored.checksum, self.lease.process)
                earlier = await connection.fetch(_EARLIER, number)
            return stored, earlier

        try:
            stored, earlier = self._call("writer", insert)
        except JournalError:  # perhaps after the allocator was added
            self.lease.doubt()
            raise
        self.lease.add(stored.number, ChainEnds(1, 0, stored.checksum))
        self._earlier[stored.number] = [(row[0], row[1]) for row in earlier]
        self._add_filter(stored.number, 0).is_complete = True
        return Stored(stored.number, name, settings)

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

        changes = [event for event in events if event.kind in (CHANGE, DELETE)]

        async def insert(connection: Any) -> None:
            try:
                await connection.execute(_WRITE, *columns)
            except asyncpg.NotNullViolationError:
                raise JournalError(f"{self.place}: {_NOT_OWNED}") from None

        async def insert_with_changes(connection: Any) -> dict[int, list[tuple[int, int]]]:
            async with connection.transaction():
                await insert(connection)
                found = {}
                for event in changes:
                    await _write_change(connection, event)
                    earlier = await connection.fetch(_EARLIER, event.allocator)
                    found[event.allocator] = [(row[0], row[1]) for row in earlier]
                return found

        if changes:
            self._earlier.update(self._call("writer", insert_with_changes))
        else:
            self._call("writer", insert)
        self._chains.note(heads)
        for event in changes:
            if event.kind == DELETE:
                self._note_deletion(event.allocator)
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
        if number in self._deleted:
            return False
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
                if number in self._deleted:
                    raise _Cancelled
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
        """Delete what deleted allocators left. PostgreSQL does other such work itself."""
        for number in list(self._deleted):
            if not self.lease.fence(number):
                self._deleted.discard(number)  # its owner does that
                continue
            for _ in range(SWEPT_TRANSACTIONS):
                if not self.prune(number, 0):
                    self._delete_chain(number)
                    break

    def _delete_chain(self, allocator: int) -> None:
        """Delete the chain of a deleted allocator, of which no events are left, and the parts of its snapshot."""
        fence = self.lease.fence(allocator)
        query = f"DELETE FROM snapshot_parts WHERE (snapshot, part) IN ({_PARTS})"
        while self._call("background", lambda one: one.execute(query, allocator, DELETED_PARTS)) != "DELETE 0":
            pass

        async def delete(connection: Any) -> int | None:
            async with connection.transaction():
                query = "DELETE FROM chains WHERE allocator = $1 AND fence = $2 RETURNING last"
                last: int | None = await connection.fetchval(query, allocator, fence)
                if last is not None:
                    await connection.execute("UPDATE about SET base = base + $1", last)
            return last

        last = self._call("background", delete)
        self._deleted.discard(allocator)
        if last is not None:
            del self._chains[allocator]
            self._base += last

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
        self.fetch = fetch

    def allocators(self) -> Iterable[tuple[Any, ...]]:
        rows = self.fetch("SELECT number, name, settings, checksum FROM allocators ORDER BY number")
        return [tuple(row) for row in rows]

    def changes(self) -> Iterable[tuple[Any, ...]]:
        return [tuple(row) for row in self.fetch("SELECT allocator, name, settings, seq, checksum FROM changes")]

    def names(self) -> Iterable[tuple[Any, ...]]:
        return [tuple(row) for row in self.fetch("SELECT name, allocator, until, checksum FROM names")]

    def chain(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT first, anchor, last, head, changed FROM chains WHERE allocator = $1", allocator)

    def snapshot(self, allocator: int) -> tuple[Any, ...] | None:
        return self._row("SELECT seq, chain, snapshot, size, checksum FROM snapshots WHERE allocator = $1", allocator)

    def parts(self, snapshot: int) -> Iterable[Any]:
        part, query = 0, "SELECT data FROM snapshot_parts WHERE snapshot = $1 AND part = $2"
        while rows := self.fetch(query, snapshot, part):
            yield rows[0][0]
            part += 1

    def events(self, allocator: int, after: int) -> Iterable[tuple[Any, ...]]:
        query = "SELECT allocator, seq, kind, request, body, checksum FROM events WHERE allocator = $1 AND seq > $2"
        while rows := self.fetch(f"{query} ORDER BY seq LIMIT {PAGE}", allocator, after):
            for number, after, kind, request, body, checksum in rows:
                yield number, after, kind, None if request is None else request.decode(), body, checksum

    def mentioned(self, table: str) -> Iterable[int]:
        return [number for (number,) in self.fetch(f"SELECT DISTINCT allocator FROM {table}")]

    def base(self) -> int:
        return int(self.fetch("SELECT base FROM about")[0][0])

    def _row(self, query: str, *arguments: Any) -> tuple[Any, ...] | None:
        rows = self.fetch(query, *arguments)
        return tuple(rows[0]) if rows else None


async def _write_change(connection: Any, event: Event) -> None:
    """Change the name and the settings of an allocator, or delete it, as an event says."""
    number, seq = event.allocator, event.seq
    name, settings = (None, "") if event.kind == DELETE else read_change(event.body)
    change = ChangeRow(number, name, settings, seq)
    await connection.execute(
        "INSERT INTO changes VALUES ($1, $2, $3, $4, $5) ON CONFLICT (allocator) DO UPDATE SET name = $2,"
        " settings = $3, seq = $4, checksum = $5",
        *change, change.checksum,
    )  # fmt: skip
    await connection.execute("UPDATE chains SET changed = $2 WHERE allocator = $1", number, seq)
    for (had,) in await connection.fetch("SELECT name FROM names WHERE allocator = $1 AND until = 0", number):
        if had != name:
            await _write_name(connection, NameRow(had, number, seq))
    if name is None:
        await connection.execute("DELETE FROM snapshots WHERE allocator = $1", number)
    else:
        await _write_name(connection, NameRow(name, number, 0))


async def _write_name(connection: Any, row: NameRow) -> None:
    """Write a name that an allocator has or had."""
    await connection.execute(
        "INSERT INTO names VALUES ($1, $2, $3, $4) ON CONFLICT (name, allocator) DO UPDATE SET until = $3,"
        " checksum = $4",
        *row, row.checksum,
    )  # fmt: skip


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
