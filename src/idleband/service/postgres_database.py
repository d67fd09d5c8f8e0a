"""Connections to a PostgreSQL database, used from threads.

asyncpg needs an event loop. One that runs in a thread of its own has all connections, and the methods here wait for it.
It is not the loop that serves requests, so that a lease is renewed while that one is busy. A connection that broke is
opened again with its next use.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import asyncpg

from idleband.errors import InputError
from idleband.service.journal import JournalError
from idleband.service.postgres_url import PostgresUrl

SCHEMA = "idleband"
FORMAT = 1  # of the tables
MIN_VERSION = 13  # of PostgreSQL
CONNECT_TIMEOUT, TIMEOUT = 3.0, 10.0  # seconds; of a connection, and of what is done over it
# Connections by name, with their setting of synchronous_commit. What the background writes becomes durable with the
# next commit of another connection.
CONNECTIONS = {"writer": "on", "reader": "on", "loader": "on", "lease": "on", "filter": "on", "background": "off"}

T = TypeVar("T")


class Database:
    """The connections to one database."""

    def __init__(self, url: PostgresUrl) -> None:
        self.url, self.place = url, str(url)
        self.failure = ""  # why the database could not be reached lately; requests do not wait for it then
        self._connections: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._locks = {name: asyncio.Lock() for name in CONNECTIONS}
        self._thread = threading.Thread(target=self._run, name="idleband-postgres", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine in the loop of the connections."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, name: str, work: Callable[[Any], Awaitable[T]], timeout: float = TIMEOUT) -> T:
        """Return what `work` returns, called with the connection of this name. Raises JournalError."""
        if self.failure and name != "lease":
            raise JournalError(f"{self.place}: {self.failure}")
        return self.submit(self.use(name, work, timeout)).result()

    def fetch(self, name: str, query: str, *arguments: Any) -> list[Any]:
        """Return the rows of a query."""
        return self.call(name, lambda connection: connection.fetch(query, *arguments), 6 * TIMEOUT)

    async def use(self, name: str, work: Callable[[Any], Awaitable[T]], timeout: float = TIMEOUT) -> T:
        """As `call`, in the loop of the connections."""
        async with self._locks[name]:
            connection = None
            try:
                connection = await self._connected(name)
                return await asyncio.wait_for(work(connection), timeout)
            except JournalError:
                raise
            except BaseException as error:
                if connection is not None and not isinstance(error, asyncpg.PostgresError):
                    connection.terminate()  # its state is not known
                if not isinstance(error, Exception):
                    raise
                raise JournalError(f"{self.place}: {self.reason(error)}") from None

    async def _connected(self, name: str) -> Any:
        found = self._connections.get(name)
        if found is None or found.is_closed():
            found = self._connections[name] = await self.connect(CONNECTIONS[name])
        return found

    async def connect(self, synchronous_commit: str = "on") -> Any:
        """Return a new connection."""
        return await asyncpg.connect(
            self.url.dsn,
            timeout=CONNECT_TIMEOUT,
            server_settings={
                "application_name": "idleband",
                "search_path": SCHEMA,
                "synchronous_commit": synchronous_commit,
            },
        )

    def reason(self, error: BaseException) -> str:
        """Return why something failed, in one line and without the password."""
        if isinstance(error, TimeoutError):
            text = "did not answer in time"
        elif isinstance(error, asyncpg.PostgresError):
            text = str(error)
        else:
            text = f"cannot be reached: {getattr(error, 'strerror', None) or error or type(error).__name__}"
        return self.url.without_secrets(text)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Callable[..., list[Any]]]:
        """Yield a function that returns the rows of a query. All queries see the database at one moment.

        Raises InputError where it cannot be read, or has no journal of this version.
        """
        with self.refusing():
            connection = self.submit(self.connect()).result()

            def fetch(query: str, *arguments: Any) -> list[Any]:
                found: list[Any] = self.submit(connection.fetch(query, *arguments)).result()
                return found

            try:
                fault = self.submit(server_fault(connection)).result()
                fault = fault or self.submit(format_fault(connection)).result()
                if fault:
                    raise InputError(f"{self.place}: {fault}")
                fetch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield fetch
            finally:
                self._loop.call_soon_threadsafe(connection.terminate)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Turn errors of the database into an InputError of one line."""
        try:
            yield
        except InputError:  # which is a ValueError, too
            raise
        except (JournalError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
            text = str(error) if isinstance(error, JournalError) else f"{self.place}: {self.reason(error)}"
            raise InputError(text) from None

    def close(self) -> None:
        """Close all connections and end the thread."""
        if self._thread.is_alive():
            self.submit(self._close_all()).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close_all(self) -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:  # which might connect again
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for connection in self._connections.values():
            with contextlib.suppress(Exception):  # it is gone then
                await connection.close(timeout=1.0)


async def server_fault(connection: Any) -> str:
    """Return why this server or database cannot be used; empty if it can."""
    if connection.get_server_version().major < MIN_VERSION:
        return f"is PostgreSQL {connection.get_server_version().major}; must be {MIN_VERSION} or newer"
    encoding = await connection.fetchval("SHOW server_encoding")
    return "" if encoding == "UTF8" else f"has the encoding {encoding}; must be UTF8"


async def format_fault(connection: Any) -> str:
    """Return why the tables cannot be used; empty if they can."""
    if await connection.fetchval(f"SELECT to_regclass('{SCHEMA}.about')") is None:
        if await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", SCHEMA):
            return f"has a schema {SCHEMA} that was not written by idleband"
        return "has no journal; must be the database of a service"
    found = await connection.fetchval("SELECT format FROM about")
    return "" if found == FORMAT else f"has tables of format {found}; this version reads {FORMAT}"
