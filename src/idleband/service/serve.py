"""Running of the service: data folder, socket, logs, signals."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from idleband.allocator.settings import Settings
from idleband.errors import ConflictError, InputError
from idleband.scenario.scenario import Scenario
from idleband.service.app import LOOPBACK, Service
from idleband.service.client import Client
from idleband.service.connection import LimitedConnection
from idleband.service.garbage import SeldomCollection
from idleband.service.journal import Journal, JournalError, SharedJournal
from idleband.service.journaled_allocator import agree
from idleband.service.json_log import log_as_json
from idleband.service.limits import Limits
from idleband.service.manager import check_name
from idleband.service.playground_settings import offered_traces
from idleband.service.postgres_url import PostgresUrl
from idleband.service.simulated_station import Faults, SimulatedStation, station_scenario
from idleband.service.tokens import OPERATE, Tokens

if TYPE_CHECKING:
    from idleband.service.tracing import Tracing

if TYPE_CHECKING:
    from idleband.service.postgres_journal import PostgresJournal

DEFAULT_NAME = "main"  # of the allocator
MAX_NAMES = 20  # of allocators that are listed in a line
NO_ALLOCATOR = "has no allocator yet; give --policy, --channels and --users"


@dataclass(frozen=True)
class ServeOptions:
    """Where and how to serve."""

    data: Path | PostgresUrl  # folder or database of the journal
    host: str = "127.0.0.1"
    port: int = 8765
    tokens: Tokens | None = None
    limits: Limits = field(default_factory=Limits)
    station: str | None = None  # scenario or trace file that a simulated base station plays
    pace: float = 10.0  # slots per second of the simulated base station
    traces: tuple[str, ...] = ()  # trace files that the playground offers
    telemetry: str | None = None  # address of a collector of OpenTelemetry
    advertise: str | None = None  # address at which other processes with the same database reach this one
    lease: float | None = None  # seconds after which they take its allocators over when it does not answer


def serve(options: ServeOptions, name: str | None, settings: Settings | None) -> None:
    """Serve until a signal ends the process.

    `settings` None: serve the allocators that the data folder contains.
    """
    if options.host not in LOOPBACK and options.tokens is None:
        raise InputError(f"--host {options.host}: needs a token (--token-file), because other machines can connect")
    check_name(name or DEFAULT_NAME)
    if options.station is not None and settings is not None:
        station_scenario(options.station, settings)
    traces = offered_traces(options.traces)
    tracing = _tracing(options.telemetry)
    _check_database(options)
    if (
        settings is None
        and isinstance(options.data, Path)
        and not (options.data.is_dir() and any(options.data.iterdir()))
    ):  # perhaps a misspelt name
        raise InputError(f"{options.data}: {NO_ALLOCATOR}")
    log_writer = log_as_json()
    with contextlib.closing(listen(options.host, options.port)) as listening:  # before the data folder is created
        hosts: tuple[str, ...] = (*LOOPBACK, options.host)
        data: Path | Journal
        if isinstance(options.data, PostgresUrl):
            data = _shared_journal(options.data, options, _url(options.host, listening))
            hosts = (*hosts, urlsplit(data.address).hostname or "")
        else:
            data = options.data
        service = Service(
            data, tokens=options.tokens, limits=options.limits, hosts=hosts, traces=traces, tracing=tracing
        )
        try:
            played = _open_allocators(service, options, name, settings)
        except BaseException:
            service.manager.journal.close()
            raise
        try:
            _run(service, options, name or DEFAULT_NAME, played, listening)
        finally:
            log_writer.flush()


def _tracing(url: str | None) -> "Tracing | None":
    if url is None:
        return None
    if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", url):
        raise InputError(f"--telemetry {url}: must be like http://localhost:4318")
    try:
        from idleband.service.tracing import Tracing
    except ImportError:
        raise InputError("--telemetry: needs opentelemetry; pip install 'idleband[telemetry]'") from None
    return Tracing.to(url)


def _check_database(options: ServeOptions) -> None:
    """Refuse options that do not go with the kind of journal."""
    if not isinstance(options.data, PostgresUrl):
        for option in ("advertise", "lease"):
            if getattr(options, option) is not None:
                raise InputError(f"--{option}: must come with --data postgresql://..., which several processes share")
        return
    if options.advertise is None and options.host in ("0.0.0.0", "::"):
        raise InputError(
            f"--host {options.host}: needs --advertise http://ADDRESS:PORT, at which other processes reach this one"
        )
    if options.advertise is not None and not re.fullmatch(r"https?://[^/?#@\s]+", options.advertise):
        raise InputError(f"--advertise {options.advertise}: must be like http://10.0.0.5:8765")


def _shared_journal(url: PostgresUrl, options: ServeOptions, address: str) -> "PostgresJournal":
    from idleband.service.lease import LEASE
    from idleband.service.postgres_journal import PostgresJournal

    return PostgresJournal(url, options.advertise or address, options.lease or LEASE)


def _open_allocators(
    service: Service, options: ServeOptions, name: str | None, settings: Settings | None
) -> Scenario | None:
    """Create the allocator if there is none; return the scenario of the station, if there is one."""
    if isinstance(service.manager.journal, SharedJournal):
        return _open_shared(service, service.manager.journal, options, name, settings)
    allocators = service.manager.allocators  # by name; looking one up opens it
    wanted = name or DEFAULT_NAME
    if settings is not None:
        try:
            service.open(wanted, _with_names(settings, service, options, wanted))
        except ConflictError as error:
            raise InputError(str(error)) from None
    if not (allocators or service.manager.journal.total):  # all may have been deleted; new ones come over HTTP
        raise InputError(f"{options.data}: {NO_ALLOCATOR}")
    if name not in (None, *allocators) or (options.station is not None and wanted not in allocators):
        has = f"only {_names(service)}" if allocators else "no allocator"
        raise InputError(f"--name {wanted}: {options.data} has {has}; a new one needs --policy")
    if wanted in allocators and (name is not None or len(allocators) == 1):
        _ = allocators[wanted]  # a damaged one is refused now
    if options.station is None:
        return None
    return station_scenario(options.station, allocators[wanted].core.settings)


def _open_shared(
    service: Service, journal: SharedJournal, options: ServeOptions, name: str | None, settings: Settings | None
) -> Scenario | None:
    """As `_open_allocators`, where another process may have the allocator, or create it at the same time."""
    wanted = name or DEFAULT_NAME
    found, first = _stored_settings(journal, wanted)
    if settings is not None:
        if found is None:
            found = first = _with_names(settings, service, options, wanted)
            try:
                service.open(wanted, found)
            except JournalError:
                found, first = _stored_settings(journal, wanted)
                if found is None:
                    raise
        if not settings.channel_names:
            settings = replace(settings, channel_names=found.channel_names)
        if not agree(settings, found, first or found):
            raise InputError(f"allocator {wanted}: exists with {found.difference(settings)}; choose another name")
    elif found is None and (name is not None or options.station is not None):
        raise InputError(f"--name {wanted}: {options.data} has no allocator of this name; a new one needs --policy")
    elif found is None and not asyncio.run(journal.names()):
        raise InputError(f"{options.data}: {NO_ALLOCATOR}")
    return None if options.station is None or found is None else station_scenario(options.station, found)


def _stored_settings(journal: SharedJournal, name: str) -> tuple[Settings | None, Settings | None]:
    """Return the settings of an allocator at present and when it was created."""
    stored = asyncio.run(journal.find_settings(name))
    if stored is None:
        return None, None
    present, first = (Settings.restored(json.loads(one)) for one in stored)
    return present, first


def _names(service: Service) -> str:
    """Return the names of the allocators as text; their number if they are many."""
    names = list(service.manager.allocators)
    if not names:
        return "allocators of other processes" if isinstance(service.manager.journal, SharedJournal) else "no allocator"
    return ", ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} allocators"


def _with_names(settings: Settings, service: Service, options: ServeOptions, name: str) -> Settings:
    """Return the settings with names, if none are given: the stored ones or those of the station's scenario."""
    if settings.channel_names:
        return settings
    if name in service.manager.allocators:
        return replace(settings, channel_names=service.manager.allocators[name].core.settings.channel_names)
    if options.station is not None:
        return replace(settings, channel_names=station_scenario(options.station, settings).channel_names)
    return settings


def _run(service: Service, options: ServeOptions, name: str, played: Scenario | None, listening: socket.socket) -> None:
    url = _url(options.host, listening)
    server = new_server(service)
    stop = threading.Event()
    if played is not None:
        tokens, shared = options.tokens, isinstance(service.manager.journal, SharedJournal)
        # Other processes, to which requests are forwarded, do not know a token of this one's own.
        token = None if tokens is None else (shared and tokens.plain(OPERATE)) or tokens.add_own("station", OPERATE)
        client = Client(url, name, token=token, patience=5.0)
        station = SimulatedStation(client, played, faults=Faults())
        threading.Thread(target=station.run, args=(options.pace, stop), daemon=True).start()

    def end(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        # Until uvicorn sets handlers of its own. It raises a signal again at the end, when nothing is left to do.
        signal.signal(number, end)
    listening.listen(2048)  # clients may connect as soon as the next line is printed
    print(f"idleband: serving {_names(service)} at {url}", flush=True)
    try:
        server.run(sockets=[listening])
    finally:
        stop.set()
    if not server.started:
        raise InputError(f"{url}: the service could not be started; see the log")


def _url(host: str, listening: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def new_server(service: Service) -> uvicorn.Server:
    """Return the server of a service; its method `run` takes the sockets."""
    return _Server(
        uvicorn.Config(
            service.app,
            http=partial(LimitedConnection, service.connections, service.direct),  # type: ignore[arg-type]  # called like the class
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=5,
            proxy_headers=bool(service.limits.proxies),
            forwarded_allow_ips=list(service.limits.proxies),
            lifespan="on",
        ),
        service,
    )


class _Server(uvicorn.Server):
    """A server that ends its streams first, so that it does not wait for their clients."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal ends the process, whose garbage is collected when no requests come."""
        with SeldomCollection(lambda: self._service.request_metrics.total):
            super().run(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.end_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to this address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only for sockets whose protocol is given.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"{host}:{port}: cannot listen: {error.strerror or error}; choose another port with --port"
        ) from None
    return listening
