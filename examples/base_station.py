"""A base station and the service, with a radio whose reports get lost, late and doubled; and the service is killed.

    python examples/base_station.py

The service hands out channels over HTTP and keeps a journal. A simulated base station plays scenario S1 against it:
two reports in a hundred never come, five come up to twenty slots late, five come twice. Half way the service is killed
(kill -9) and started again on the same folder: the station just goes on.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from idleband.service.client import Client
from idleband.service.simulated_station import Faults, Station

SLOTS = 300


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The service on a free port; it says where it is in its first line."""
    command = [sys.executable, "-m", "idleband", "serve", "--data", str(folder), "--port", "0"]
    allocator = ["--policy", "mp-belief-lucb", "--channels", "10", "--users", "5", "--dimension", "8"]
    with (folder.parent / "log").open("a") as log:
        process = subprocess.Popen([*command, *allocator], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "journal"
        process, url = serve(folder)
        try:
            station = Station(Client(url), "S1", faults=Faults(lost=0.02, late=0.05, doubled=0.05, longest=20))
            for t in range(1, SLOTS + 1):
                station.step()
                if t == SLOTS // 2:
                    process.kill()
                    process.wait()
                    print(f"slot {t}: the service was killed; it starts again from its journal")
                    process, url = serve(folder)
                    station.move(Client(url))
            station.flush()
            with Client(url) as client:
                counts = client.snapshot()["counts"]
                earned = counts["reward"] / (counts["reported"] / 5)
                last = client.decide([[0.1] * 8] * 10, request="the last one")
                print(client.explain(str(last.id))["text"])
        finally:
            process.terminate()
            process.wait()
    print(f"reports: {', '.join(f'{n} {what}' for what, n in station.counts.items())}")
    print(f"the allocator: {SLOTS} decisions, {counts['reported']} of {5 * SLOTS} channels learned of, none twice")
    print(f"    {earned:.2f} earned a slot")


if __name__ == "__main__":
    main()
