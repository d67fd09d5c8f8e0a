"""kill -9 at random moments: nothing finished is lost, nothing is there twice, every restart works.

By hand, with more kills: python tests/experiments/test_killed.py 200
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

POLICIES = ("mp-random", "mp-ucb")
HORIZON = 10_000  # some 5 ms a task
MORE = 24  # replications at first, and how many are added whenever nothing is left to do


class Report(NamedTuple):
    kills: int
    progress: int  # kills that fell between the first and the last task of a run
    tasks: int  # in the end
    seconds: float


def start(folder: Path, replications: int) -> subprocess.Popen[bytes]:
    policies = [word for name in POLICIES for word in ("--policy", name)]
    size = ["--horizon", str(HORIZON), "--replications", str(replications), "--out", str(folder)]
    command = [sys.executable, "-m", "idleband", "run", "S1", *policies, *size]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a run that is not killed; it must succeed without output."""
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, b"")


def tasks(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tasks").glob("*.npz")}


def stamp(path: Path) -> int:
    """When a file was last written; 0 if it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0


def wait_for_change(path: Path, before: int, process: subprocess.Popen[bytes]) -> None:
    while stamp(path) == before and process.poll() is None:
        time.sleep(0.002)


def durations(folder: Path) -> tuple[float, float]:
    """Seconds that a run needs to start, and then to do its work and write it down."""
    idleband.compare("S1", POLICIES, horizon=10, replications=1)  # compiles, if need be
    began = time.monotonic()
    process = start(folder, MORE)
    wait_for_change(folder / "experiment.toml", 0, process)
    claimed = time.monotonic()
    wait_for_change(folder / "manifest.json", 0, process)  # the last file of all but the figures
    written = time.monotonic()
    finish(process)
    return claimed - began, written - claimed


def kill_and_restart(place: Path, kills: int, seed: int = 0) -> Report:
    """Kill a run again and again, restarting it in the same folder, and compare with a run that was not killed."""
    began = time.monotonic()
    rng = random.Random(seed)
    starting, working = durations(place / "timed")
    folder = place / "killed"
    replications, done, progress = MORE, 0, 0
    kept: dict[str, bytes] = {}
    # Some kills must fall where there is something to lose; if a busy machine lets too few of them, more follow.
    while done < kills or (progress < 3 and done < 3 * kills):
        claimed = stamp(folder / "experiment.toml")
        process = start(folder, replications)
        try:
            if done % 8 == 3:  # now and then before it has begun to work
                time.sleep(rng.uniform(0, starting))
            else:
                wait_for_change(folder / "experiment.toml", claimed, process)
                time.sleep(rng.uniform(0, working))
        finally:
            process.kill()
        _, errors = process.communicate()
        assert errors == b""
        assert process.returncode in (0, -signal.SIGKILL)  # 0: it had ended before
        done += process.returncode != 0

        now, all_tasks = tasks(folder), replications * (len(POLICIES) + 1)
        assert kept.items() <= now.items(), "a finished task was lost or changed"
        progress += process.returncode != 0 and len(kept) < len(now) < all_tasks
        kept = now
        if len(now) == all_tasks:
            replications += MORE

    finish(start(folder, replications))
    assert kept.items() <= tasks(folder).items()
    finish(start(place / "whole", replications))
    assert tasks(folder) == tasks(place / "whole")
    assert len(tasks(folder)) == replications * (len(POLICIES) + 1)
    for name in ("results.parquet", "plays.parquet"):
        one, other = (pyarrow.parquet.read_table(path / name) for path in (folder, place / "whole"))
        assert one.equals(other, check_metadata=True), name
    rows = pyarrow.parquet.read_table(folder / "results.parquet").select(["label", "replication", "t"]).to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    assert not list(folder.rglob(".tmp-*"))
    return Report(done, progress, len(tasks(folder)), time.monotonic() - began)


def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    report = kill_and_restart(tmp_path, kills=8)
    assert report.kills >= 8
    assert report.progress >= 3


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        report = kill_and_restart(Path(place), int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    print(f"{report.kills} kills, {report.progress} of them between the first and the last task of a run")
    print(f"{report.tasks} tasks survived, {report.seconds:.0f} s")
    print("nothing lost, nothing twice, every restart worked; results equal those of a run that was not killed")
