"""Requests to other processes: connections are reused, and opened again after the other process was restarted."""

import asyncio
from pathlib import Path

import pytest

from idleband.service.http_forwarder import HttpForwarder, UnreachableError
from tests.service.running import V1, in_thread


def test_connection_is_reused_and_opened_again_after_a_restart(tmp_path: Path) -> None:
    forwarder = HttpForwarder()

    async def ask(port: int, path: str) -> tuple[int, bytes]:
        async with forwarder.send(f"http://127.0.0.1:{port}", "GET", path, (), b"") as response:
            return response.status, b"".join([part async for part in response.parts()])

    with asyncio.Runner() as runner:
        with in_thread(tmp_path / "data") as service:
            port = service.port
            for _ in range(3):
                assert runner.run(ask(port, V1)) == (200, b'{"allocators":["main"]}')
            assert runner.run(ask(port, f"{V1}/none"))[0] == 404
            assert [len(idle) for idle in forwarder._idle.values()] == [1]
        with in_thread(tmp_path / "data", port=port):
            assert runner.run(ask(port, V1))[0] == 200
        with pytest.raises(UnreachableError):
            runner.run(ask(port, V1))
        forwarder.close()
