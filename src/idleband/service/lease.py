"""Which process owns which allocators of a database.

Each process has a lease, which it renews every second. An allocator has one owner and a fencing number, which increases
with every owner. Whatever a process writes carries the fencing numbers under which it owns the allocators; PostgreSQL
writes nothing if one of them is not current. A process that was stopped for longer than its lease, or was cut off,
therefore cannot write after another process has taken its allocators over, whatever it knows itself.

All times are those of the clock of the database.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from idleband.service.journal import JournalError, Owner
from idleband.service.journal_chain import ChainEnds, Chains
from idleband.service.postgres_database import TIMEOUT, Database

LEASE = 4.0  # seconds by default
BEATS = 5  # renewals per lease

log = logging.getLogger("idleband.service")

_CLAIM = """
    UPDATE chains SET owner = $1, fence = fence + 1
    WHERE owner IS NULL OR {mine} NOT EXISTS (SELECT FROM processes WHERE id = owner AND expires > now())
    RETURNING allocator, fence, first, last, head
"""
_FIND = """
    SELECT owner, p.address FROM present JOIN chains ON allocator = number
    LEFT JOIN processes AS p ON p.id = owner AND p.expires > now() WHERE name = $1
"""


class Lease:
    """The lease of this process.

    `changed` is called, in another thread, when the process owns other allocators than before.
    """

    def __init__(self, database: Database, address: str, seconds: float = LEASE) -> None:
        self.address, self.seconds = address, seconds
        self.owned: dict[int, int] = {}  # fencing number of each allocator of this process
        self.chains = Chains()  # of these allocators, and of earlier ones
        self.changed: Callable[[], object] = lambda: None
        self._database = database
        self._lock = threading.Lock()
        self._beating = asyncio.Lock()
        self._id: int | None = None
        self._is_certain = True  # whether `owned` has all that this process owns: no answer of the database was lost

    # --- in the loop of the connections ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the lease until the task is cancelled."""
        while True:
            await asyncio.sleep(self.seconds / BEATS)
            with contextlib.suppress(JournalError):  # recorded in `failure`
                await self.beat()

    async def beat(self, *, again: bool = False, timeout: float | None = None) -> None:
        """Renew the lease, and take over the allocators that have no owner.

        `again`: also those of this process, so that nothing that it sent before is written any more.
        """
        database = self._database
        async with self._beating:
            try:
                again, self._is_certain = again or not self._is_certain, True
                changed = await database.use("lease", lambda one: self._beat(one, again), timeout or self.seconds / 2)
            except JournalError as error:
                self._is_certain = False
                if not database.failure:
                    log.error("database cannot be reached", extra={"reason": str(error)})
                database.failure = str(error).removeprefix(f"{database.place}: ")
                raise
            database.failure = ""
        if changed:
            self.changed()

    async def _beat(self, connection: Any, again: bool) -> bool:
        """Return whether this process owns other allocators than before."""
        duration = timedelta(seconds=self.seconds)
        query = "UPDATE processes SET expires = now() + $2 WHERE id = $1 AND expires > now() RETURNING id"
        if self._id is None or await connection.fetchval(query, self._id, duration) is None:
            if self._id is not None:
                log.error("lease lost; allocators are restored from the database", extra={"address": self.address})
            again = True
            self._id = await connection.fetchval(
                "INSERT INTO processes (address, expires) VALUES ($1, now() + $2) RETURNING id", self.address, duration
            )
        rows = await connection.fetch(_CLAIM.format(mine="owner = $1 OR" if again else ""), self._id)
        found = {row[0]: row[1] for row in rows}
        with self._lock:
            self.chains.update({row[0]: ChainEnds(*row[2:]) for row in rows})
            before, kept = set(self.owned), {} if again else self.owned
            self.owned = {**kept, **found}
            return bool(found) or before != set(self.owned)

    async def first_beat(self, connection: Any) -> int:
        """Take the place of a process that had the same address, which has ended, because this one listens there.

        Returns how many snapshots it had begun and not ended.
        """
        snapshots = await connection.fetchval(
            """
            WITH gone AS (UPDATE processes SET expires = '-infinity' WHERE address = $1 RETURNING id, snapshots)
            SELECT coalesce((SELECT snapshots FROM gone ORDER BY id DESC LIMIT 1), 0)
            """,
            self.address,
        )
        await self.beat(timeout=TIMEOUT)
        await connection.execute(
            "DELETE FROM processes WHERE expires < now() - interval '1 day' AND NOT EXISTS"
            " (SELECT FROM chains WHERE owner = id)"
        )
        return int(snapshots)

    async def release(self) -> None:
        """Give all allocators up, so that other processes need not wait for the end of the lease."""

        async def give_up(connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("UPDATE chains SET owner = NULL WHERE owner = $1", self._id)
                await connection.execute("DELETE FROM processes WHERE id = $1", self._id)

        if self._id is not None:
            await self._database.use("lease", give_up)

    async def record_snapshots(self, begun: int) -> None:
        """Record how many snapshots were begun in a row and not ended."""
        query = "UPDATE processes SET snapshots = $2 WHERE id = $1"
        await self._database.use("lease", lambda connection: connection.execute(query, self._id, begun))

    async def find(self, name: str) -> Owner | None:
        """Return the owner of an allocator; None if there is no allocator of this name."""
        row = await self._database.use("reader", lambda connection: connection.fetchrow(_FIND, name))
        return None if row is None else Owner(row[0] == self._id, row[1])

    # --- in any thread -----------------------------------------------------------------------------------------------

    @property
    def process(self) -> int:
        """The number of this process."""
        assert self._id is not None
        return self._id

    def add(self, allocator: int, chain: ChainEnds) -> None:
        """Note that this process has added an allocator, with fencing number 1."""
        with self._lock:
            self.chains[allocator] = chain
            self.owned = {**self.owned, allocator: 1}

    def doubt(self) -> None:
        """Note that this process may own an allocator without knowing it; the next renewal finds out."""
        self._is_certain = False

    def fence(self, allocator: int) -> int:
        """Return the fencing number under which this process owns an allocator; 0, which is never current, if not."""
        return self.owned.get(allocator, 0)
