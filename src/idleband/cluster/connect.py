"""Clients of Dask: of a scheduler that exists, of a local cluster, or given by the user."""

import contextlib
import logging
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idleband import validation
from idleband.errors import ClusterError, InputError, shown
from idleband.simulation.devices import CPU, Device
from idleband.simulation.scheduler import Executor, ThreadExecutor
from idleband.validation import WholeNumber

if TYPE_CHECKING:
    from distributed import Client

MAX_WORKERS = 1024


def check_installed(what: str) -> None:
    """Raise InputError unless Dask can be imported; `what` needs it."""
    try:
        import cloudpickle  # noqa: F401
        import distributed  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(f'{what}: needs {error.name}; pip install "idleband[cluster]"') from None


def executor_for(threads: int | None, client: "Client | None", device: Device = CPU) -> Executor:
    """Return what runs tasks: threads of this process, the workers of a client's cluster, or a GPU."""
    if device.name == "cuda":
        if threads is not None or client is not None:
            other = "threads" if threads is not None else "client"
            raise InputError(f"device = cuda and {other}: only one of them can be given; a GPU runs all replications")
        from idleband.simulation.gpu.executor import CudaExecutor

        return CudaExecutor(narrow=device.precision == "float32")
    if client is None:
        return ThreadExecutor(threads)
    if threads is not None:
        raise InputError("threads and client: only one of them can be given; workers have their own threads")
    check_client(client)
    from idleband.cluster.executor import DaskExecutor

    return DaskExecutor(client)


def check_client(client: Any) -> None:
    """Raise an error unless it is a client of Dask that can be used."""
    check_installed("client")
    from distributed import Client

    if not isinstance(client, Client):
        raise InputError(f"client = {shown(client)}: must be a dask.distributed.Client")
    if client.asynchronous:
        raise InputError("client: must not be asynchronous")
    if client.status != "running":
        raise ClusterError(f"client: is not connected to a scheduler (status {client.status})")


@contextlib.contextmanager
def connected(address: str) -> Iterator["Client"]:
    """Yield a client of the scheduler at an address, or of the one that has written a scheduler file."""
    check_installed("--cluster")
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    where = _scheduler(address)
    with _silent():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VersionMismatchWarning)  # each worker is checked before it runs a task
                client = Client(**where, set_as_default=False)
        except Exception as error:  # OSError, and others where what answers is not a scheduler
            raise ClusterError(f"--cluster {address}: no Dask scheduler answers ({_first_line(error)})") from None
        try:
            yield client
        finally:
            with without_interrupts(), contextlib.suppress(Exception):  # the scheduler may be lost
                client.close(timeout=2)


def _scheduler(address: str) -> dict[str, str]:
    if address.endswith(".json"):
        if not Path(address).is_file():
            raise InputError(f"--cluster = {address!r}: no such scheduler file")
        return {"scheduler_file": address}
    from distributed import Security
    from distributed.comm import get_address_host

    _, _, port = address.rpartition(":")
    try:
        host = get_address_host(address)
    except (ValueError, ImportError):  # no such protocol, or it is not installed
        host = ""
    if not (host and port.isdecimal()):
        raise InputError(
            f"--cluster = {address!r}: must be the address of a Dask scheduler, such as tcp://HOST:8786, or its"
            " scheduler file (.json)"
        )
    if address.startswith(("tls://", "wss://")) and Security().get_connection_args("client")["ssl_context"] is None:
        raise InputError(
            f"--cluster = {address!r}: needs certificates; set distributed.comm.tls in Dask's configuration"
        )
    return {"address": address}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def local_workers(count: WholeNumber) -> Iterator["Client"]:
    """Yield a client of a new cluster on this machine, of processes with one thread each."""
    workers = validation.whole(count, "--workers", 1, MAX_WORKERS)
    check_installed("--workers")
    import dask
    from distributed import Client, LocalCluster

    with _silent():
        # Results may depend on the number of threads of BLAS, which Dask would set to 1.
        with dask.config.set({"distributed.nanny.pre-spawn-environ": {}}), _unreachable_by_interrupts():
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # without bokeh: only the state of the scheduler as text
                worker_dashboard_address=None,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
            client = Client(cluster, set_as_default=False)
        try:
            yield client
        finally:
            with without_interrupts(), contextlib.suppress(Exception):
                client.close(timeout=2)
                cluster.close(timeout=5)


@contextlib.contextmanager
def _unreachable_by_interrupts() -> Iterator[None]:
    """Start threads and processes that Ctrl-C does not reach: it is meant for the main thread of this process.

    They inherit the signals that are blocked here.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it would unblock the signals if it were started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C while everything is being ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the log of Dask from the terminal: what it reports is reported in one line, or repaired."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    before = {name: logging.getLogger(name).level for name in names}  # Dask sets the levels of single modules
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
