"""Upgrade a service under load: stop one of an earlier version and start the present one on its folder.

    python studies/upgrade.py SOURCES     a minute; writes studies/upgrade.md

SOURCES is a checkout of the earlier version, such as `git worktree add ../earlier e283da2` makes. Both versions use
the packages of this environment. Four clients of the earlier version decide and report; each repeats what is not
answered, with the same request_id. The earlier service is stopped with SIGTERM, a backup is made, and the present one
is started on the same folder and port. Then one service of the present version replaces another three times. At the end
every acknowledged request is repeated, and the journal is verified.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
K, M, D = 6, 3, 4
CLIENTS, SECONDS, RESTARTS = 4, 4.0, 3
SERVE = [
    "-m", "idleband", "serve", "--policy", "mp-lucb", "--channels", str(K), "--users", str(M), "--dimension", str(D),
    "--set", "patience=20000", "--rate", "1000000",
]  # fmt: skip

# A client of the earlier version: its package is imported from the earlier sources.
CLIENT = """
import json, os, sys, time
from idleband.service.client import Client
url, number, stop, K, D = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
client, done, longest = Client(url, patience=60.0, timeout=5.0), [], 0.0
i = 0
while not os.path.exists(stop):
    i += 1
    request = f"c{number}-{i}"
    contexts = [[(7 * i + 3 * k + j) % 10 / 10 for j in range(D)] for k in range(K)]
    began = time.monotonic()
    decision = client.decide(contexts, request_id=request)
    states = {k: (i + k) % 2 for k in decision.channels}
    receipt = client.report(request, {k: (0.1, 1.0)[s] for k, s in states.items()}, states)
    longest = max(longest, time.monotonic() - began)
    done.append([request, list(decision.channels), decision.slot, receipt.late])
json.dump({"done": done, "longest": longest}, sys.stdout)
"""


def environment(sources: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(sources / "src"), "PYTHONSAFEPATH": "1"}


class Running:
    """A service of one version."""

    def __init__(self, sources: Path, data: Path, port: int, log: Path) -> None:
        self.began = time.monotonic()
        with log.open("ab") as lines:
            self.process = subprocess.Popen(
                [sys.executable, *SERVE, "--data", str(data), "--port", str(port)],
                env=environment(sources), stdout=subprocess.PIPE, stderr=lines, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        if "serving" not in self.process.stdout.readline():
            raise SystemExit(log.read_text())
        self.seconds = time.monotonic() - self.began

    def stop(self) -> float:
        """Stop the service as a service manager does; return how long it takes."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        return time.monotonic() - began


def idleband(*arguments: object) -> str:
    command = [sys.executable, "-m", "idleband", *map(str, arguments)]
    done = subprocess.run(command, env=environment(HERE.parent), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def main(sources: Path) -> None:
    with tempfile.TemporaryDirectory(dir=HERE.parent, prefix=".upgrade-") as name:
        folder = Path(name)
        data, log, stop, port = folder / "data", folder / "log", folder / "stop", free_port()
        url = f"http://127.0.0.1:{port}"
        service = Running(sources, data, port, log)
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", CLIENT, url, str(i), str(stop), str(K), str(D)],
                env=environment(sources), stdout=subprocess.PIPE, text=True,
            )
            for i in range(CLIENTS)
        ]  # fmt: skip
        time.sleep(SECONDS)
        stopped = [service.stop()]
        backup = idleband("journal", "backup", data, "--out", folder / "backup")
        service = Running(HERE.parent, data, port, log)
        started = [service.seconds]
        for _ in range(RESTARTS):
            time.sleep(SECONDS)
            stopped.append(service.stop())
            service = Running(HERE.parent, data, port, log)
            started.append(service.seconds)
        time.sleep(SECONDS)
        stop.touch()
        found = [json.loads(client.communicate(timeout=90)[0]) for client in clients]
        lost, changed, late = _repeat(url, found)
        service.stop()
        verified = idleband("journal", "verify", data)
        idleband("journal", "verify", folder / "backup")
        events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        errors = [line for line in events if line["level"] == "error"]
    slots = [slot for one in found for _, _, slot, _ in one["done"]]
    rows = {
        "requests acknowledged, each a decision and its report": len(slots),
        "of them lost": lost,
        "decided again, or otherwise": changed,
        "reports learned again": late,
        "slots that were decided twice or skipped": len(slots) - len(set(slots)) + max(slots) - len(slots),
        "errors in the logs": len(errors),
        "seconds to stop, at most": f"{max(stopped):.2f}",
        "seconds to start and convert the journal, the first time": f"{started[0]:.2f}",
        "seconds to start later, at most": f"{max(started[1:]):.2f}",
        "seconds that a decision and its report took, at most": f"{max(one['longest'] for one in found):.2f}",
    }
    revision = ["git", "-C", str(sources), "rev-parse", "--short", "HEAD"]
    version = subprocess.run(revision, capture_output=True, text=True).stdout.strip() or "the earlier version"
    table = "\n".join(f"| {what} | {count} |" for what, count in rows.items())
    text = (
        f"# Upgrade under load\n\n`python studies/upgrade.py SOURCES`, sources and clients of {version}; one upgrade"
        f" and {RESTARTS} restarts of the present version, {CLIENTS} clients, MP-LUCB with K = {K}, M = {M},"
        f" d = {D}.\n\n"
        f"| | |\n|---|---|\n{table}\n"
    )
    print(text, backup.partition("(")[2].rstrip(")"), verified.partition("(")[2].rstrip(")"), *errors[:5], sep="\n")
    faults = lost + changed + late + len(errors) + int(rows["slots that were decided twice or skipped"])
    if not faults:
        (HERE / "upgrade.md").write_text(text)
    sys.exit(1 if faults else 0)


def _repeat(url: str, found: list[dict[str, list[tuple[str, list[int], int, bool]]]]) -> tuple[int, int, int]:
    """Repeat all acknowledged requests; count those that are lost, decided otherwise, and learned again."""
    sys.path.insert(0, str(HERE.parent / "src"))
    from idleband.errors import UnknownRequestError
    from idleband.service.client import Client

    lost = changed = learned = 0
    with Client(url) as client:
        before = client.status()["counts"]
        lost += abs(int(before["decisions"]) - sum(len(one["done"]) for one in found))
        lost += abs(int(before["reported"]) - M * sum(len(one["done"]) for one in found))
        for one in found:
            for request, channels, slot, late in one["done"]:
                i = int(request.partition("-")[2])
                contexts = [[(7 * i + 3 * k + j) % 10 / 10 for j in range(D)] for k in range(K)]
                again = client.decide(contexts, request_id=request)
                changed += (list(again.channels), again.slot) != (channels, slot) or late
                states = {k: (i + k) % 2 for k in channels}
                try:
                    receipt = client.report(request, {k: (0.1, 1.0)[s] for k, s in states.items()}, states)
                except UnknownRequestError:
                    lost += 1
                else:
                    learned += bool(receipt.learned)
    return lost, changed, learned


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
