"""Clients of Dask, and what is refused."""

import subprocess
import sys
from typing import Any

import dask
import distributed  # noqa: F401  (the defaults of its settings)
import pytest

import idleband as ib
from idleband.cluster.connect import connected
from idleband.errors import ClusterError, InputError


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("somewhere", "--cluster = 'somewhere': must be the address of a Dask scheduler, such as tcp://HOST:8786, or"),
        ("tcp://:8786", "must be the address"),
        ("ftp://127.0.0.1:8786", "must be the address"),
        ("no.json", "--cluster = 'no.json': no such scheduler file"),
        ("tls://127.0.0.1:1", "needs certificates; set distributed.comm.tls"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(address: str, message: str) -> None:
    with pytest.raises(InputError) as raised, connected(address):
        pass
    assert message in str(raised.value)


def test_address_where_nothing_answers_is_reported() -> None:
    soon = dask.config.set({"distributed.comm.timeouts.connect": "200 ms"})
    message = r"^--cluster tcp://127.0.0.1:1: no Dask scheduler answers \("
    with soon, pytest.raises(ClusterError, match=message), connected("tcp://127.0.0.1:1"):
        pass


@pytest.mark.parametrize("client", ["tcp://127.0.0.1:8786", 3, object()])
def test_client_of_another_type_is_refused(client: Any) -> None:
    with pytest.raises(InputError, match=r"^client = .*: must be a dask.distributed.Client$"):
        ib.compare("S1", ["mp-random"], horizon=10, client=client)


def test_threads_and_client_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"^threads and client: only one of them can be given"):
        ib.compare("S1", ["mp-random"], horizon=10, threads=2, client=object())


WITHOUT_DASK = """
import sys
sys.modules["distributed"] = None
from idleband.cli import main
main(["run", "S1", "--policy", "mp-random", "--horizon", "10", "--workers", "2"])
"""


def test_missing_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DASK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'idleband: --workers: needs distributed; pip install "idleband[cluster]"\n'


def test_dask_is_imported_only_where_it_is_used() -> None:
    program = "import sys, idleband as ib, idleband.cli.experiments; ib.compare; print('distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
