"""The log of tasks: what is left of it after a kill, a crash of the machine, damage, and a full disk."""

import os
import time
from pathlib import Path
from threading import Thread

import pytest

import idleband as ib
from idleband.experiments import task_log
from idleband.experiments.task_log import MAGIC, TaskLog, record

TASKS = [b"one", b"two" * 50, b"", b"SYNC" * 8]


def tasks(path: Path) -> list[bytes]:
    return [content for _, content in TaskLog(path).records()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a log of TASKS that is synced after the second and after the last one."""
    log = TaskLog(tmp_path / "log")
    for content in TASKS[:2]:
        log.append(content)
    log.close()
    for content in TASKS[2:]:
        log.append(content)
    log.close()
    return tmp_path / "log"


def test_tasks_are_read_back(path: Path) -> None:
    assert tasks(path) == TASKS
    log = TaskLog(path)
    assert [log.read(position) for position, _ in log.records()] == TASKS


def test_log_that_does_not_exist_is_empty_and_reading_creates_nothing(tmp_path: Path) -> None:
    assert tasks(tmp_path / "deep" / "log") == []
    assert not list(tmp_path.iterdir())


def test_task_is_in_the_file_before_append_returns(tmp_path: Path) -> None:
    """So a task is not lost if the process is killed."""
    log = TaskLog(tmp_path / "log")
    for i, content in enumerate(TASKS):
        log.append(content)
        assert tasks(tmp_path / "log") == TASKS[: i + 1]
    log.close()


def test_log_that_is_cut_anywhere_keeps_the_tasks_before_and_continues(path: Path) -> None:
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        left = tasks(path)
        assert left == TASKS[: len(left)]
        assert len(left) >= sum(size >= data.find(record(b"TASK", one)) + len(record(b"TASK", one)) for one in TASKS)
        if size % 10 == 0:
            log = TaskLog(path)
            log.append(b"new")
            log.close()
            assert tasks(path) == [*left, b"new"]


@pytest.mark.parametrize("garbage", [b"\0" * 100, bytes(range(256)), record(b"TASK", b"x")[:-1]])
def test_what_was_not_synced_may_be_anything(path: Path, garbage: bytes) -> None:
    """A crash of the machine can leave anything there."""
    whole = path.read_bytes()
    path.write_bytes(whole + garbage)
    assert tasks(path) == TASKS
    log = TaskLog(path)
    log.append(b"new")
    log.close()
    assert path.read_bytes().startswith(whole + record(b"TASK", b"new"))


def test_flipped_bit_is_named_or_harmless(path: Path) -> None:
    data = path.read_bytes()
    last = data.rfind(b"SYNC")  # the last record, which says that all others are on the disk
    for i in range(len(data)):
        for bit in (0, 5):
            path.write_bytes(data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :])
            if i < last:
                with pytest.raises(ib.InputError, match=f"{path}: damaged at byte [0-9]+; delete it to compute"):
                    tasks(path)
            else:
                assert tasks(path) == TASKS


def test_task_that_was_damaged_after_the_log_was_opened_is_named(path: Path) -> None:
    log = TaskLog(path)
    positions = [position for position, _ in log.records()]
    data = path.read_bytes()
    for changed in (data[: positions[1] + 20], data[: positions[1] + 30] + b"x" + data[positions[1] + 31 :], b""):
        path.write_bytes(changed)
        with pytest.raises(ib.InputError, match=f"damaged at byte {positions[1]}"):
            log.read(positions[1])


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("notes\n")
    with pytest.raises(ib.InputError, match="log: damaged at byte 0"):
        tasks(tmp_path / "log")
    with pytest.raises(ib.InputError, match="log: damaged at byte 0"):
        TaskLog(tmp_path / "log").append(b"new")
    assert (tmp_path / "log").read_text() == "notes\n"


def test_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = TaskLog(tmp_path / "log"), os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 5:
            return write(file, data[:5])
        raise OSError(28, "No space left on device")

    log.append(b"one")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ib.StorageError, match="log: cannot be written: No space left on device; what was finished is"):
        log.append(b"two")
    assert (tmp_path / "log").read_bytes() == MAGIC + record(b"TASK", b"one")
    monkeypatch.undo()
    log.append(b"three")
    log.close()
    assert tasks(tmp_path / "log") == [b"one", b"three"]


def test_tasks_are_synced_while_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "SYNC_DELAY", 0.0)
    log = TaskLog(tmp_path / "log")
    log.append(b"one")
    while b"SYNC" not in (tmp_path / "log").read_bytes():
        time.sleep(0.001)
    log.append(b"two")
    log.close()
    assert tasks(tmp_path / "log") == [b"one", b"two"]


def test_failed_sync_is_reported_by_the_next_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(task_log, "SYNC_DELAY", 0.0)
    log = TaskLog(tmp_path / "log")
    log.append(b"one")
    log.sync()
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ib.StorageError, match="log: cannot be written: Input/output error"):  # noqa: PT012
        while True:
            log.append(b"more")
            time.sleep(0.001)
    with pytest.raises(ib.StorageError):
        log.close()


def test_threads_append_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_log, "SYNC_DELAY", 0.001)
    log = TaskLog(tmp_path / "log")
    threads = [Thread(target=lambda i=i: [log.append(b"%d " % i * 40) for _ in range(100)]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(tasks(tmp_path / "log")) == sorted(b"%d " % i * 40 for i in range(4) for _ in range(100))
