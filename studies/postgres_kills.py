"""Kill one of two services on one PostgreSQL database many times and check every acknowledged request in the journal.

    python studies/postgres_kills.py [KILLS]    200 kills by default, about 15 minutes; writes studies/postgres_kills.md

Eight clients send requests for four allocators to two services, and ask the other one where one does not answer. A
random service is killed (SIGKILL); when the other one has taken its allocators over, it is started again. Ten times a
service is stopped (SIGSTOP) for longer than its lease and continued, with a request waiting for it; ten times
PostgreSQL itself is restarted, half of them without a shutdown (SIGQUIT). At the end every acknowledged decision and
report is looked up in the journal, and the states of the allocators are compared with what was acknowledged.

The lease is 1.5 s instead of 4 s, so that there is time for many kills. Five more kills measure the takeover with the
default lease. PostgreSQL runs with its default settings, so that its commits are durable.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from idleband.allocator.core import AllocatorCore  # noqa: E402
from idleband.allocator.settings import Settings  # noqa: E402
from idleband.service import postgres_files  # noqa: E402
from idleband.service.client import Client, ServiceError  # noqa: E402
from idleband.service.event_bodies import read_decision, read_report  # noqa: E402
from idleband.service.journal import DECIDE, REPORT  # noqa: E402
from idleband.service.journal_check import chain_of, checked_events, stored_allocators  # noqa: E402
from idleband.service.lease import LEASE  # noqa: E402
from idleband.service.limits import Limits  # noqa: E402
from idleband.service.postgres_journal import PostgresRows  # noqa: E402
from idleband.service.postgres_url import PostgresUrl  # noqa: E402
from idleband.service.serve import ServeOptions, serve  # noqa: E402
from tests.service.postgres_server import PostgresServer, postgres_server  # noqa: E402

K, M, D = 6, 3, 4
NAMES = [f"a{i}" for i in range(4)]
CLIENTS, PORTS = 8, (18771, 18772)
SHORT_LEASE = 1.5  # seconds
PAUSE = 0.004  # seconds between two pairs of a client, so that all events are kept until the end
SETTINGS = {"policy": "mp-ucb", "channels": K, "users": M, "dimension": D, "patience": 4000}


# --- clients ---------------------------------------------------------------------------------------------------------


class Acknowledged:
    """Acknowledged requests, recorded by several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.decided: dict[tuple[str, str], tuple[int, ...]] = {}  # allocator and request_id -> channels
        self.reported: dict[tuple[str, str], int] = {}  # allocator and request_id -> number of channels
        self.faults: list[str] = []


def contexts_of(request: str) -> list[list[float]]:
    """Return contexts that are a function of the request_id, so that a request can be repeated."""
    return np.random.default_rng(list(request.encode())).random((K, D)).round(6).tolist()


def feedback_of(request: str, channels: tuple[int, ...]) -> tuple[dict[int, float], dict[int, int]]:
    """Return rewards and states by channel, also functions of the request_id."""
    states = {k: (sum(request.encode()) + k) % 2 for k in channels}
    return {k: (0.1, 1.0)[s] for k, s in states.items()}, states


class AnyService:
    """A client that asks another service when one does not answer."""

    def __init__(self, name: str, first: int) -> None:
        self._clients = [Client(f"http://127.0.0.1:{port}", name, timeout=5.0, patience=0.0) for port in PORTS]
        self._first = first

    def __call__(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Repeat a request until it is acknowledged."""
        until = time.monotonic() + 120.0
        while True:
            try:
                return getattr(self._clients[self._first], operation)(*arguments, **options)
            except ServiceError:
                if time.monotonic() > until:
                    raise
                self._first = (self._first + 1) % len(PORTS)
                time.sleep(0.02)


def work(number: int, acknowledged: Acknowledged, stop: threading.Event) -> None:
    """Run one client: decide and report; each request is repeated until it is acknowledged."""
    name, count = NAMES[number % len(NAMES)], 0
    ask = AnyService(name, number // len(NAMES) % len(PORTS))
    try:
        while not stop.is_set():
            count += 1
            request = f"c{number}-{count}"
            decision = ask("decide", contexts_of(request), request_id=request)
            with acknowledged.lock:
                acknowledged.decided[name, request] = decision.channels
            receipt = ask("report", request, *feedback_of(request, decision.channels))
            if receipt.late:
                acknowledged.faults.append(f"{request}: the report was late")
            with acknowledged.lock:
                acknowledged.reported[name, request] = len(decision.channels)
            time.sleep(PAUSE)
    except Exception as error:  # printed at the end
        acknowledged.faults.append(f"client {number}: {type(error).__name__}: {error}")


# --- services --------------------------------------------------------------------------------------------------------


class Services:
    """Forks services from a process without threads that has imported and compiled everything."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        asked, self._ask = os.pipe()
        answered, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._ask)
                self._prepare()
                for line in os.fdopen(asked):
                    which, lease = line.split()
                    os.write(answer, f"{self._fork(url, int(which), float(lease))}\n".encode())
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answer)
        self._answers = os.fdopen(answered)
        self.running: dict[int, int] = {}  # process by the index of its port

    def _prepare(self) -> None:
        """Compile what the services use."""
        core = AllocatorCore(Settings.checked(SETTINGS))
        decision = core.decide(core.parse_decide(np.zeros((K, D))))
        core.learn(core.parse_report(decision.request_id, [1.0] * M))

    def _fork(self, url: str, which: int, lease: float) -> int:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed services are not waited for
        child = os.fork()
        if child == 0:
            log = os.open(self.folder / f"log{which}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            options = ServeOptions(PostgresUrl(url), port=PORTS[which], limits=Limits(rate=1e6), lease=lease)
            try:
                serve(options, NAMES[which], Settings.checked(SETTINGS))
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(0)
        return child

    def start(self, which: int, lease: float) -> None:
        os.write(self._ask, f"{which} {lease}\n".encode())
        self.running[which] = int(self._answers.readline())
        Client(f"http://127.0.0.1:{PORTS[which]}", patience=60.0).health()

    def send(self, which: int, number: int) -> None:
        os.kill(self.running[which], number)

    def runs(self, which: int) -> bool:
        return Path(f"/proc/{self.running[which]}").exists()

    def lines(self, which: int) -> list[dict[str, Any]]:
        text = (self.folder / f"log{which}").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def end(self) -> None:
        for which in self.running:
            try:
                self.send(which, signal.SIGKILL)
            except ProcessLookupError:
                print(f"service {which} has ended:", (self.folder / f"log{which}").read_text()[-1000:])
        os.close(self._ask)
        os.waitpid(self.pid, 0)


def time_to_takeover(survivor: int) -> float:
    """Return when the service has answered a request for each allocator that needs its owner."""
    began = time.monotonic()
    for name in NAMES:
        client = Client(f"http://127.0.0.1:{PORTS[survivor]}", name, patience=0.0)
        while True:
            try:
                client.status()
                break
            except ServiceError:
                time.sleep(0.02)
        client.close()
    return time.monotonic() - began


def kill(services: Services, which: int, lease: float) -> float:
    """Kill a service, wait for the takeover, and start it again; return how long the takeover took."""
    services.send(which, signal.SIGKILL)
    seconds = time_to_takeover(1 - which)
    while services.runs(which):  # its port is in use until it is gone
        time.sleep(0.01)
    services.start(which, lease)
    return seconds


def owner_of(server: PostgresServer, url: str, name: str) -> int:
    """Return the index of the service that owns an allocator."""
    query = (
        "SELECT address FROM processes JOIN chains ON owner = id JOIN allocators ON allocator = number"
        f" WHERE name = '{name}'"
    )
    return PORTS.index(int(server.execute(url, query)[0][0].rpartition(":")[2]))


def stop_beyond_lease(services: Services, server: PostgresServer, url: str, acknowledged: Acknowledged, i: int) -> None:
    """Stop the owner of an allocator, let the other service take over, and continue it with a request waiting."""
    name, request = NAMES[i % len(NAMES)], f"stopped-{i}"
    which = owner_of(server, url, name)
    fences = server.execute(url, "SELECT sum(fence) FROM chains")
    services.send(which, signal.SIGSTOP)
    answers: list[Any] = []

    def ask_stopped() -> None:
        client = Client(f"http://127.0.0.1:{PORTS[which]}", name, timeout=60.0, patience=60.0)
        answers.append(client.decide(contexts_of(request), request_id=request))

    waiting = threading.Thread(target=ask_stopped)
    waiting.start()
    time_to_takeover(1 - which)
    time.sleep(0.3)
    services.send(which, signal.SIGCONT)
    waiting.join()
    if server.execute(url, "SELECT sum(fence) FROM chains") == fences:
        acknowledged.faults.append(f"{request}: no allocator was taken over")
    if owner_of(server, url, name) == which:
        acknowledged.faults.append(f"{request}: the stopped service still owns {name}")
    receipt = AnyService(name, 0)("report", request, *feedback_of(request, answers[0].channels))
    with acknowledged.lock:
        acknowledged.decided[name, request] = answers[0].channels
        acknowledged.reported[name, request] = len(receipt.learned) + len(receipt.repeated)


def restart_postgres(server: PostgresServer, number: int) -> float:
    """Restart PostgreSQL; return how long it took from its start until both services answered for all allocators."""
    server.stop(number)
    time.sleep(0.2)
    server.start()
    began = time.monotonic()
    for survivor in range(len(PORTS)):
        time_to_takeover(survivor)
    return time.monotonic() - began


# --- the journal -----------------------------------------------------------------------------------------------------


def check(url: str, acknowledged: Acknowledged) -> dict[str, int]:
    """Look every acknowledged request up in the journal, one by one."""
    faults = acknowledged.faults
    decided: dict[tuple[str, str], tuple[int, ...]] = {}
    learned: Counter[tuple[str, str]] = Counter()
    reports: Counter[tuple[str, str]] = Counter()
    with postgres_files._reading(PostgresUrl(url)) as fetch:
        rows = PostgresRows(fetch)
        for stored in stored_allocators(rows, faults.append):
            settings = Settings.restored(json.loads(stored.settings))
            chain = chain_of(rows, stored, faults.append)
            if chain.first != 1:
                faults.append(f"{stored.name}: events were deleted; use fewer kills")
            for event in checked_events(rows, stored, chain, None, chain.first - 1, faults.append):
                key = stored.name, str(event.request_id)
                if event.kind == DECIDE:
                    if key in decided:
                        faults.append(f"{key}: was decided twice")
                    decided[key] = read_decision(event, settings)[1].decision.channels
                elif event.kind == REPORT:
                    reports[key] += 1
                    learned[key] += len(read_report(event).rewards)
    for key, channels in acknowledged.decided.items():
        if decided.get(key) != channels:
            faults.append(f"{key}: {channels} was acknowledged, {decided.get(key)} is in the journal")
    for key, count in acknowledged.reported.items():
        if learned[key] != count or reports[key] != 1:
            faults.append(f"{key}: feedback for {count} channels was acknowledged, for {learned[key]} it was learned")
    return {
        "decisions in the journal": len(decided),
        "reports in the journal": reports.total(),
        "channels learned in the journal": learned.total(),
    }


def main(kills: int) -> None:
    rng, acknowledged, stop = random.Random(1), Acknowledged(), threading.Event()
    times, default_times, recoveries = [], [], []
    began = time.monotonic()
    with postgres_server(durable=True) as server:
        url = server.new_database()
        services = Services(url, server.folder)
        try:
            for which in range(len(PORTS)):
                services.start(which, SHORT_LEASE)
            client = Client(f"http://127.0.0.1:{PORTS[0]}")
            for name in NAMES:
                client.call("POST", "/v1/allocators", {"name": name, **SETTINGS})
            threads = [threading.Thread(target=work, args=(i, acknowledged, stop)) for i in range(CLIENTS)]
            for thread in threads:
                thread.start()
            others = max(1, kills // 20)
            for i in range(kills):
                time.sleep(rng.uniform(0.1, 0.8))
                times.append(kill(services, rng.randrange(2), SHORT_LEASE))
                if i % 20 == 9 and len(recoveries) < others:
                    recoveries.append(restart_postgres(server, (signal.SIGINT, signal.SIGQUIT)[i // 20 % 2]))
                if i % 20 == 19:
                    stop_beyond_lease(services, server, url, acknowledged, i // 20)
                    minutes = (time.monotonic() - began) / 60
                    print(f"{i + 1} kills, {len(acknowledged.decided)} decisions, {minutes:.1f} minutes", flush=True)
                if acknowledged.faults:
                    break
            for which in range(len(PORTS)):
                kill(services, which, LEASE)
            for i in range(5):
                time.sleep(1.0)
                default_times.append(kill(services, i % 2, LEASE))
            stop.set()
            for thread in threads:
                thread.join()
            found = check(url, acknowledged)
            counts: Counter[str] = Counter()
            for name in NAMES:
                counts.update(AnyService(name, 0)("status")["counts"])
            if counts["decisions"] != found["decisions in the journal"]:
                acknowledged.faults.append(f"{counts['decisions']} decisions are in the states")
            if counts["reported"] != found["channels learned in the journal"]:
                acknowledged.faults.append(f"{counts['reported']} channels with feedback are in the states")
            lines = [line for which in range(len(PORTS)) for line in services.lines(which)]
        finally:
            stop.set()
            services.end()
    report(kills, acknowledged, times, default_times, recoveries, found, counts, lines, time.monotonic() - began)


def report(
    kills: int, acknowledged: Acknowledged, times: list[float], default_times: list[float], recoveries: list[float],
    found: dict[str, int], counts: Counter[str], lines: list[dict[str, Any]], seconds: float,
) -> None:  # fmt: skip
    stopped = sum(request.startswith("stopped") for _, request in acknowledged.decided)
    lost = [line for line in lines if line["event"].startswith("lease lost")]
    fenced = [line for line in lines if "taken over" in str(line.get("reason")) and line["level"] == "error"]
    rows = {
        "kills under load": len(times) + len(default_times) + 2,
        "services stopped beyond their lease and continued": stopped,
        "leases that were found lost": len(lost),
        "groups of events that PostgreSQL refused from a former owner": len(fenced),
        "restarts of PostgreSQL": len(recoveries),
        "decisions acknowledged, and found in the journal": len(acknowledged.decided),
        "reports acknowledged, and found in the journal": len(acknowledged.reported),
        **found,
        "decisions in the states at the end": int(counts["decisions"]),
        "channels learned in the states at the end": int(counts["reported"]),
        "acknowledged requests lost, changed or applied twice": len(acknowledged.faults),
    }
    table = "\n".join(f"| {what} | {count:,} |" for what, count in rows.items())
    text = (
        f"# kill -9 of one of two services on PostgreSQL\n\n`python studies/postgres_kills.py {kills}`,"
        f" {seconds / 60:.0f} minutes, {CLIENTS} clients, {len(NAMES)} allocators, MP-UCB with K = {K}, M = {M}.\n\n"
        f"| | count |\n|---|---|\n{table}\n\nFrom a kill until the other service answered for all allocators it took"
        f" {np.median(times):.1f} s (median) and at most {max(times):.1f} s with a lease of {SHORT_LEASE:g} s, and"
        f" {np.median(default_times):.1f} s and at most {max(default_times):.1f} s with the default of {LEASE:g} s."
        f" After PostgreSQL had started again, both services answered within {max(recoveries, default=0.0):.1f} s.\n"
    )
    if not acknowledged.faults and kills >= 200:
        (HERE / "postgres_kills.md").write_text(text)
    print(text, *acknowledged.faults[:50], sep="\n")
    sys.exit(1 if acknowledged.faults else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
