"""Starting the service: the folder, the socket, the logs."""

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from idleband.allocator.settings import Settings
from idleband.errors import InputError
from idleband.service.app import Service
from idleband.service.client import Client
from idleband.service.connection import Connection
from idleband.service.http import LOOPBACK, Limits
from idleband.service.manager import check_name
from idleband.service.simulated_station import Faults, Station, check_fits

MAIN = "main"  # the name of an allocator that nobody has named
SHORTEST_TOKEN = 16
_USUAL = frozenset([*vars(logging.makeLogRecord({})), "message", "taskName", "color_message"])


class JsonLines(logging.Formatter):
    """One line of JSON for every record."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _USUAL},
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


@dataclass(frozen=True)
class Place:
    """Where to serve, and to whom."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    limits: Limits = field(default_factory=Limits)
    station: str | None = None  # a scenario that a simulated base station plays
    pace: float = 10.0  # its slots a second


def serve(place: Place, name: str | None, settings: Settings | None) -> None:
    """Serve until told to stop; `settings` None: the allocators that the folder has."""
    if place.host not in LOOPBACK and place.token is None:
        raise InputError(f"--host {place.host}: must have a token (--token-file), because others can reach it")
    check_name(name or MAIN)
    if place.station is not None and settings is not None:
        check_fits(place.station, settings)
    _log_as_json()
    with contextlib.closing(listen(place.host, place.port)) as listening:  # before anything is kept in the folder
        service = Service(place.data, token=place.token, limits=place.limits, hosts=(*LOOPBACK, place.host))
        try:
            _prepare(service, place, name, settings)
        except BaseException:
            service.office.journal.close()
            raise
        _run(service, place, name or MAIN, listening)


def _prepare(service: Service, place: Place, name: str | None, settings: Settings | None) -> None:
    """Have the allocators that are asked for."""
    desks = service.office.desks
    if settings is not None:
        service.open(name or MAIN, settings)
    if not desks:
        raise InputError(f"{place.data}: has no allocator yet; give --policy, --channels, --users and --dimension")
    if name not in (None, *desks) or (place.station is not None and (name or MAIN) not in desks):
        raise InputError(f"--name {name or MAIN}: {place.data} has only {', '.join(desks)}; a new one needs --policy")
    if place.station is not None:
        check_fits(place.station, desks[name or MAIN].allocator.settings)


def _run(service: Service, place: Place, name: str, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    url = f"http://{f'[{place.host}]' if ':' in place.host else place.host}:{port}"
    server = server_of(service)
    stop = threading.Event()
    if place.station is not None:
        station = Station(Client(url, name, token=place.token, patience=5.0), place.station, faults=Faults())
        threading.Thread(target=station.run, args=(place.pace, stop), daemon=True).start()
    listening.listen(2048)  # whoever reads the next line may connect at once
    print(f"idleband: serving {', '.join(service.office.desks)} at {url}", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server ends when it is told to, and then tells us again: there is nothing left to do, and no failure.
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[listening])
    finally:
        stop.set()
    if not server.started:
        raise InputError(f"{url}: the service could not be started; see the log")


def server_of(service: Service) -> uvicorn.Server:
    """What runs the service; it is told by `run` where to listen."""
    return _Server(
        uvicorn.Config(
            service.app,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=5,
            limit_concurrency=service.limits.connections,
            lifespan="on",
        ),
        service,
    )


class _Server(uvicorn.Server):
    """Ends its streams first, or it would wait for whoever looks at them."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.end_streams()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because asyncio turns off delays on connections only where it is.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"{host}:{port}: cannot be listened at: {error.strerror or error}; --port takes another"
        ) from None
    return listening


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def read_token(path: str | None) -> str | None:
    """The token from a file, or from IDLEBAND_TOKEN; not from the command line, where every user of the machine could
    see it."""
    if path is None:
        token = os.environ.get("IDLEBAND_TOKEN")
        if token is None:
            return None
        source = "IDLEBAND_TOKEN"
    else:
        try:
            token, source = Path(path).read_text().strip(), path
        except (OSError, ValueError) as error:
            raise InputError(f"--token-file {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{source}: a token must have at least {SHORTEST_TOKEN} letters, digits or signs, no space")
    return token
