"""A simulated base station uses the service over HTTP, and the service is killed and started again.

    python examples/base_station.py

The service assigns channels and keeps a journal. The station plays scenario S1: 2% of its reports are lost, 5% are up
to 20 slots late and 5% are sent twice. After half of the slots the service is killed (SIGKILL) and started again on the
same folder. The station continues, and no acknowledged report is lost or learned twice.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from idleband.service.client import Client
from idleband.service.simulated_station import Faults, SimulatedStation

SLOTS = 300


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the service on a free port; return the process and the URL that it prints."""
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
            station = SimulatedStation(
                Client(url), "S1", faults=Faults(lost=0.02, late=0.05, repeated=0.05, max_delay=20)
            )
            for t in range(1, SLOTS + 1):
                station.step()
                if t == SLOTS // 2:
                    process.kill()
                    process.wait()
                    print(f"slot {t}: the service was killed; it is started again from its journal")
                    process, url = serve(folder)
                    station.use_client(Client(url))
            station.flush()
            with Client(url) as client:
                counts = client.status()["counts"]
                reward = counts["reward"] / (counts["reported"] / 5)
                last = client.decide([[0.1] * 8] * 10, request_id="the last one")
                print(client.explain(str(last.request_id))["text"])
        finally:
            process.terminate()
            process.wait()
    print(f"reports: {', '.join(f'{n} {what}' for what, n in station.counts.items())}")
    print(f"allocator: {SLOTS} decisions, feedback for {counts['reported']} of {5 * SLOTS} plays, none learned twice")
    print(f"    reward {reward:.2f} per slot")


if __name__ == "__main__":
    main()
