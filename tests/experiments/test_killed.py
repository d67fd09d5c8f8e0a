"""Kill a run (SIGKILL) at random points of its progress: no finished task is lost or repeated, and every restart works.

With more kills: python tests/experiments/test_killed.py 200
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet

import idleband
from tests.stored_tasks import stored_tasks

POLICIES = ("mp-random", "mp-ucb")
HORIZON = 10_000  # about 5 ms per task
MORE = 24  # replications at first, and replications added whenever all tasks are finished


class Report(NamedTuple):
    kills: int
    progress: int  # kills between the first and the last task of a run
    tasks: int  # stored at the end
    seconds: float


def start(folder: Path, replications: int) -> subprocess.Popen[bytes]:
    """Start a run that stores its results in the folder."""
    policies = [word for name in POLICIES for word in ("--policy", name)]
    size = ["--horizon", str(HORIZON), "--replications", str(replications), "--out", str(folder)]
    command = [sys.executable, "-m", "idleband", "run", "S1", *policies, *size]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a run that is not killed; it must succeed without output."""
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, b"")


def wait_for_tasks(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a number of tasks are stored or the process ends."""
    while process.poll() is None and len(stored_tasks(folder)) < count:
        time.sleep(0.002)


def kill_and_restart(place: Path, kills: int, seed: int = 0) -> Report:
    """Kill and restart a run in one folder repeatedly, and compare with a run that was not killed."""
    began = time.monotonic()
    rng = random.Random(seed)
    idleband.compare("S1", POLICIES, horizon=10, replications=1)  # compiles where necessary
    folder = place / "killed"
    replications, done, progress = MORE, 0, 0
    kept: dict[str, bytes] = {}
    # Some kills must happen between the first and the last task. On a busy machine more kills may be needed for that.
    while done < kills or (progress < 2 and done < 3 * kills):
        process = start(folder, replications)
        all_tasks = replications * (len(POLICIES) + 1)
        try:
            if done % 4 == 3:  # sometimes before the first task
                time.sleep(rng.uniform(0, 0.5))
            elif done % 4 == 2:  # sometimes while the tables are written
                wait_for_tasks(folder, all_tasks, process)
                time.sleep(rng.uniform(0, 0.1))
            else:
                wait_for_tasks(folder, rng.randint(len(kept) + 1, all_tasks - 1), process)
        finally:
            process.kill()
        _, errors = process.communicate()
        assert errors == b""
        assert process.returncode in (0, -signal.SIGKILL)  # 0: the run ended before the kill
        done += process.returncode != 0

        now = stored_tasks(folder)
        assert kept.items() <= now.items(), "a finished task was lost or changed"
        progress += process.returncode != 0 and len(kept) < len(now) < all_tasks
        kept = now
        if len(now) > all_tasks - 2:
            replications += MORE

    finish(start(folder, replications))
    assert kept.items() <= stored_tasks(folder).items()
    finish(start(place / "whole", replications))
    assert stored_tasks(folder) == stored_tasks(place / "whole")
    assert len(stored_tasks(folder)) == replications * (len(POLICIES) + 1)
    for name in ("results.parquet", "plays.parquet"):
        one, other = (pyarrow.parquet.read_table(path / name) for path in (folder, place / "whole"))
        assert one.equals(other, check_metadata=True), name
    rows = pyarrow.parquet.read_table(folder / "results.parquet").select(["label", "replication", "t"]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert not list(folder.rglob(".tmp-*"))
    return Report(done, progress, len(stored_tasks(folder)), time.monotonic() - began)


def test_killed_run_continues_with_equal_results(tmp_path: Path) -> None:
    report = kill_and_restart(tmp_path, kills=4)
    assert report.kills >= 4
    assert report.progress >= 2


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        report = kill_and_restart(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    print(f"{report.kills} kills, {report.progress} of them between the first and the last task of a run")
    print(f"{report.tasks} tasks survived, {report.seconds:.0f} s")
    print("no task was lost or repeated; every restart worked; results equal those of a run that was not killed")
