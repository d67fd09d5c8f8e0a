"""kill -9 under load, again and again: is anything lost that was acknowledged, or learned twice?

    python studies/kills.py [KILLS]             500 kills in about ten minutes; writes studies/kills.md

A service on a folder of its own is asked by eight clients at once and killed after a random time of up to half a
second, at whatever it is doing then: reading, learning, writing, syncing, answering. One in four is killed a second
time, while it starts. It is started anew on the same folder, and the clients go on: whatever was not acknowledged they
say again, under the same name. After every restart a sample of what was acknowledged before is asked again, and at the
end all of the last life's. One start in ten is a new process; the others are forked from one that has loaded
everything, which takes less time than to start Python.
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
from idleband.service.http import Limits
from idleband.service.serve import Place, serve

HERE = Path(__file__).parent
K, M, D = 6, 3, 4
CLIENTS, PORT = 8, 18766
LONGEST, STARTING = 0.5, 0.15  # seconds until a kill; and until one while it starts
# While one client waits for its next attempt, others are thousands of slots ahead: late is not what is studied here.
PATIENCE = 20_000
SETTINGS = {"policy": "mp-belief-lucb", "channels": K, "users": M, "dimension": D, "patience": PATIENCE}
COMMAND = [
    sys.executable, "-m", "idleband", "serve", "--policy", "mp-belief-lucb", "--channels", str(K), "--users", str(M),
    "--dimension", str(D), "--set", f"patience={PATIENCE}", "--port", str(PORT), "--rate", "1000000", "--data",
]  # fmt: skip


class Acknowledged:
    """What clients were told, from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.decided: dict[str, tuple[int, ...]] = {}  # request -> channels
        self.reported: dict[str, int] = {}  # request -> channels in it


def contexts_of(request: str) -> list[list[float]]:
    """The same for the same request, so that it can be said again."""
    return np.random.default_rng(list(request.encode())).random((K, D)).round(6).tolist()


def outcome_of(request: str, channel: int) -> int:
    return (sum(request.encode()) + channel) % 2


def rewards_of(request: str, channels: tuple[int, ...]) -> tuple[dict[int, float], dict[int, int]]:
    states = {k: outcome_of(request, k) for k in channels}
    return {k: (0.1, 1.0)[s] for k, s in states.items()}, states


def work(number: int, told: Acknowledged, stop: threading.Event, faults: list[str]) -> None:
    """One client: decide and report, and the same again until it is acknowledged."""
    client = Client(f"http://127.0.0.1:{PORT}", patience=120.0)
    count = 0
    try:
        while not stop.is_set():
            count += 1
            request = f"c{number}-{count}"
            decision = client.decide(contexts_of(request), request=request)
            with told.lock:
                told.decided[request] = decision.channels
            receipt = client.report(request, *rewards_of(request, decision.channels))
            if receipt.late:
                faults.append(f"{request}: its feedback came too late, which it should not")
            with told.lock:
                told.reported[request] = len(decision.channels)
    except Exception as error:  # told at the end, whatever it is
        faults.append(f"client {number}: {type(error).__name__}: {error}")


def start(folder: Path, fresh: bool) -> int:
    """A service; its process."""
    log = os.open(folder.parent / "log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if fresh:
        return subprocess.Popen([*COMMAND, str(folder)], stdout=log, stderr=log).pid
    child = os.fork()
    if child == 0:
        os.dup2(log, 1)
        os.dup2(log, 2)
        place = Place(folder, port=PORT, limits=Limits(rate=1e6))
        serve(place, "main", Settings.checked(SETTINGS))
        os._exit(0)
    os.close(log)
    return child


def check(client: Client, told: Acknowledged, requests: list[str], faults: list[str]) -> None:
    """What was acknowledged is there: the same answer, and feedback that is no news."""
    for request in requests:
        with told.lock:
            channels, reported = told.decided[request], request in told.reported
        again = client.decide(contexts_of(request), request=request)
        if again.channels != channels:
            faults.append(f"{request}: {channels} was answered, and {again.channels} when asked again")
        if reported:
            receipt = client.report(request, *rewards_of(request, channels))
            if receipt.learned:
                faults.append(f"{request}: feedback was acknowledged, and learned again: {receipt}")


def main(kills: int) -> None:
    chance, told, faults = random.Random(1), Acknowledged(), list[str]()
    folder = Path(tempfile.mkdtemp(dir=HERE.parent, prefix=".kills-")) / "data"
    # The forking process: everything is compiled or loaded, and there is no thread in it.
    forker = Forker(folder)
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(i, told, stop, faults)) for i in range(CLIENTS)]
    client = Client(f"http://127.0.0.1:{PORT}", patience=120.0)
    began, starts, checked = time.monotonic(), [], 0
    process = forker.start(fresh=True)
    client.health()
    for thread in threads:
        thread.start()
    early = 0
    for i in range(kills):
        time.sleep(chance.uniform(0.0, LONGEST))
        forker.kill(process)
        at = time.monotonic()
        process = forker.start(fresh=i % 10 == 9)
        if chance.random() < 0.25:
            early += 1
            time.sleep(chance.uniform(0.0, STARTING))
            forker.kill(process)
            process = forker.start(fresh=False)
        client.close()
        client.health()
        starts.append(time.monotonic() - at)
        with told.lock:
            recent = list(told.decided)[-20_000:]  # of what is kept for being asked again
        sample = chance.sample(recent, min(20, len(recent)))
        check(client, told, sample, faults)
        checked += len(sample)
        if faults:
            break
        if i % 25 == 24:
            print(f"{i + 1} kills, {len(told.decided)} decisions acknowledged, no fault", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    check(client, told, list(told.decided)[-2000:], faults)
    counts: dict[str, Any] = client.snapshot()["counts"]
    learned = sum(told.reported.values())
    if counts["decisions"] != len(told.decided):
        faults.append(f"{len(told.decided)} decisions were acknowledged, {counts['decisions']} are there")
    if counts["reported"] != learned:
        faults.append(f"feedback of {learned} channels was acknowledged, of {counts['reported']} it was learned")
    forker.kill(process)
    forker.end()
    shutil.rmtree(folder.parent)
    minutes = (time.monotonic() - began) / 60
    rows = {
        "kills under load": len(starts),
        "kills while it was starting": early,
        "starts after them that were waited for, and worked": len(starts),
        "decisions acknowledged": len(told.decided),
        "channels whose feedback was acknowledged": learned,
        "acknowledged decisions and reports said again after a restart": checked,
        "and the last ones at the end": min(2000, len(told.decided)),
        "decisions in the state at the end": counts["decisions"],
        "channels learned in the state at the end": counts["reported"],
        "acknowledged and lost, answered otherwise, or learned twice": len(faults),
    }
    table = "\n".join(f"| {what} | {count:,} |" for what, count in rows.items())
    text = (
        f"# kill -9 under load\n\n`python studies/kills.py {kills}`, {minutes:.0f} minutes, {CLIENTS} clients,"
        f" MP-Belief-LUCB with K = {K}, M = {M}, d = {D}.\n\n| what | how many |\n|---|---|\n{table}\n\nFrom a kill to"
        f" an answer it took {np.median(starts):.2f} s in the median, {max(starts):.1f} s at most.\n"
    )
    if not faults and kills >= 500:
        (HERE / "kills.md").write_text(text)
    print(text, *faults, sep="\n")
    sys.exit(1 if faults else 0)


class Forker:
    """A process that starts services and kills them, over a pipe: it has no threads, so it may fork."""

    def __init__(self, folder: Path) -> None:
        ask, self._ask = os.pipe()
        self._answer, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            from idleband.allocator.allocator import Allocator

            os.close(self._ask)
            Allocator.of(Settings.checked(SETTINGS))
            folder.mkdir(parents=True)
            for line in os.fdopen(ask):
                what, value = line.split()
                if what == "start":
                    found = start(folder, value == "True")
                else:
                    os.kill(int(value), signal.SIGKILL)
                    found = os.waitpid(int(value), 0)[0]
                os.write(answer, f"{found}\n".encode())
            os._exit(0)
        os.close(ask)
        self._answers = os.fdopen(self._answer)

    def _say(self, what: str, value: Any) -> int:
        os.write(self._ask, f"{what} {value}\n".encode())
        return int(self._answers.readline())

    def start(self, fresh: bool) -> int:
        return self._say("start", fresh)

    def kill(self, process: int) -> None:
        self._say("kill", process)

    def end(self) -> None:
        os.close(self._ask)
        os.waitpid(self.pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
