"""A Dask cluster of processes on this machine, shared by the tests of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401  (the defaults of its settings)
import pytest

from idleband.cluster.connect import local_workers


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of two workers. A batch is given up by Dask, and sent again, whenever its worker is lost."""
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), local_workers(2) as client:
        yield client


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in an empty folder."""
    monkeypatch.chdir(tmp_path)
