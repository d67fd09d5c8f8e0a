"""Kill a service under load many times and check that no acknowledged request is lost and no report learned twice.

    python studies/kills.py [KILLS]             500 kills by default, about ten minutes; writes studies/kills.md

Eight clients send requests to a service, which is killed (SIGKILL) after a random time of up to half a second, while
it is reading, learning, writing, syncing or responding. One in four restarted services is killed again while it
starts. The service is started again on the same folder and the clients continue: they repeat requests that were not
acknowledged, with the same request_id. After every restart a sample of the acknowledged requests is repeated, and at
the end the last 2,000. One start in ten is a new process; the others are forked from a process that has imported and
compiled everything, which is faster.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from idleband.allocator.settings import Settings
from idleband.service.client import Client
from idleband.service.limits import Limits
from idleband.service.serve import ServeOptions, serve

HERE = Path(__file__).parent
K, M, D = 6, 3, 4
CLIENTS = 8
# Another one in each run, so that two runs do not meet. Below those that the system gives to clients.
PORT = random.SystemRandom().randrange(20_000, 30_000)
MAX_DELAY, MAX_START_DELAY = 0.5, 0.15  # seconds until a kill; and until a kill of a starting service
# While one client waits for its next attempt, others are thousands of slots ahead; late reports are not studied here.
PATIENCE = 20_000
SETTINGS = {"policy": "mp-belief-lucb", "channels": K, "users": M, "dimension": D, "patience": PATIENCE}
COMMAND = [
    sys.executable, "-m", "idleband", "serve", "--policy", "mp-belief-lucb", "--channels", str(K), "--users", str(M),
    "--dimension", str(D), "--set", f"patience={PATIENCE}", "--port", str(PORT), "--rate", "1000000", "--data",
]  # fmt: skip


class Acknowledged:
    """Acknowledged requests, recorded by several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.decided: dict[str, tuple[int, ...]] = {}  # request_id -> channels
        self.reported: dict[str, int] = {}  # request_id -> number of channels


def contexts_of(request: str) -> list[list[float]]:
    """Return contexts that are a function of the request_id, so that a request can be repeated."""
    return np.random.default_rng(list(request.encode())).random((K, D)).round(6).tolist()


def outcome_of(request: str, channel: int) -> int:
    """Return the state of a channel as a function of the request_id."""
    return (sum(request.encode()) + channel) % 2


def rewards_of(request: str, channels: tuple[int, ...]) -> tuple[dict[int, float], dict[int, int]]:
    """Return rewards and states by channel."""
    states = {k: outcome_of(request, k) for k in channels}
    return {k: (0.1, 1.0)[s] for k, s in states.items()}, states


def work(number: int, acknowledged: Acknowledged, stop: threading.Event, faults: list[str]) -> None:
    """Run one client: decide and report; each request is repeated until it is acknowledged."""
    client = Client(f"http://127.0.0.1:{PORT}", patience=120.0)
    count = 0
    try:
        while not stop.is_set():
            count += 1
            request = f"c{number}-{count}"
            decision = client.decide(contexts_of(request), request_id=request)
            with acknowledged.lock:
                acknowledged.decided[request] = decision.channels
            receipt = client.report(request, *rewards_of(request, decision.channels))
            if receipt.late:
                faults.append(f"{request}: the report was late")
            with acknowledged.lock:
                acknowledged.reported[request] = len(decision.channels)
    except Exception as error:  # printed at the end
        faults.append(f"client {number}: {type(error).__name__}: {error}")


def start(folder: Path, fresh: bool) -> int:
    """Start a service; return its process id."""
    log = os.open(folder.parent / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if fresh:
        return subprocess.Popen([*COMMAND, str(folder)], stdout=log, stderr=log).pid
    child = os.fork()
    if child == 0:
        os.dup2(log, 1)
        os.dup2(log, 2)
        options = ServeOptions(folder, port=PORT, limits=Limits(rate=1e6))
        serve(options, "main", Settings.checked(SETTINGS))
        os._exit(0)
    os.close(log)
    return child


def check(client: Client, acknowledged: Acknowledged, requests: list[str], faults: list[str]) -> None:
    """Check that acknowledged decisions are returned again and that acknowledged reports are not learned again."""
    for request in requests:
        with acknowledged.lock:
            channels, reported = acknowledged.decided[request], request in acknowledged.reported
        again = client.decide(contexts_of(request), request_id=request)
        if again.channels != channels:
            faults.append(f"{request}: {channels} was acknowledged, {again.channels} was returned later")
        if reported:
            receipt = client.report(request, *rewards_of(request, channels))
            if receipt.learned:
                faults.append(f"{request}: an acknowledged report was learned again: {receipt}")


def main(kills: int) -> None:
    rng, acknowledged, faults = random.Random(1), Acknowledged(), list[str]()
    folder = Path(tempfile.mkdtemp(dir=HERE.parent, prefix=".kills-")) / "data"
    forker = Forker(folder)
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(i, acknowledged, stop, faults)) for i in range(CLIENTS)]
    client = Client(f"http://127.0.0.1:{PORT}", patience=120.0)
    began, starts, checked = time.monotonic(), [], 0
    process = forker.start(fresh=True)
    client.health()
    for thread in threads:
        thread.start()
    early = 0
    for i in range(kills):
        time.sleep(rng.uniform(0.0, MAX_DELAY))
        forker.kill(process)
        at = time.monotonic()
        process = forker.start(fresh=i % 10 == 9)
        if rng.random() < 0.25:
            early += 1
            time.sleep(rng.uniform(0.0, MAX_START_DELAY))
            forker.kill(process)
            process = forker.start(fresh=False)
        client.close()
        client.health()
        starts.append(time.monotonic() - at)
        with acknowledged.lock:
            recent = list(acknowledged.decided)[-20_000:]  # decisions that are still kept
        sample = rng.sample(recent, min(20, len(recent)))
        check(client, acknowledged, sample, faults)
        checked += len(sample)
        if faults:
            break
        if i % 25 == 24:
            print(f"{i + 1} kills, {len(acknowledged.decided)} decisions acknowledged, no fault", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    check(client, acknowledged, list(acknowledged.decided)[-2000:], faults)
    counts: dict[str, Any] = client.status()["counts"]
    learned = sum(acknowledged.reported.values())
    if counts["decisions"] != len(acknowledged.decided):
        faults.append(
            f"{len(acknowledged.decided)} decisions were acknowledged, {counts['decisions']} are in the state"
        )
    if counts["reported"] != learned:
        faults.append(f"feedback for {learned} channels was acknowledged, for {counts['reported']} it was learned")
    forker.kill(process)
    forker.end()
    shutil.rmtree(folder.parent)
    minutes = (time.monotonic() - began) / 60
    rows = {
        "kills under load": len(starts),
        "kills of a starting service": early,
        "successful starts after a kill under load": len(starts),
        "decisions acknowledged": len(acknowledged.decided),
        "channels with acknowledged feedback": learned,
        "acknowledged requests repeated after a restart": checked,
        "acknowledged requests repeated at the end": min(2000, len(acknowledged.decided)),
        "decisions in the state at the end": counts["decisions"],
        "channels learned in the state at the end": counts["reported"],
        "acknowledged requests lost, changed or learned twice": len(faults),
    }
    table = "\n".join(f"| {what} | {count:,} |" for what, count in rows.items())
    text = (
        f"# kill -9 under load\n\n`python studies/kills.py {kills}`, {minutes:.0f} minutes, {CLIENTS} clients,"
        f" MP-Belief-LUCB with K = {K}, M = {M}, d = {D}.\n\n| | count |\n|---|---|\n{table}\n\nFrom a kill to"
        f" the first response it took {np.median(starts):.2f} s (median), at most {max(starts):.1f} s.\n"
    )
    if not faults and kills >= 500:
        (HERE / "kills.md").write_text(text)
    print(text, *faults, sep="\n")
    sys.exit(1 if faults else 0)


class Forker:
    """A process without threads that forks and kills services. Commands and results are sent through pipes."""

    def __init__(self, folder: Path) -> None:
        ask, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            from idleband.allocator.core import AllocatorCore

            os.close(self._ask)
            AllocatorCore(Settings.checked(SETTINGS))
            folder.mkdir(parents=True)
            for line in os.fdopen(ask):
                name, value = line.split()
                if name == "start":
                    found = start(folder, value == "True")
                else:
                    os.kill(int(value), signal.SIGKILL)
                    found = os.waitpid(int(value), 0)[0]
                os.write(answer, f"{found}\n".encode())
            os._exit(0)
        os.close(ask)
        self._answers = os.fdopen(self._answer)

    def _command(self, name: str, value: Any) -> int:
        os.write(self._ask, f"{name} {value}\n".encode())
        return int(self._answers.readline())

    def start(self, fresh: bool) -> int:
        return self._command("start", fresh)

    def kill(self, process: int) -> None:
        self._command("kill", process)

    def end(self) -> None:
        os.close(self._ask)
        os.waitpid(self.pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
