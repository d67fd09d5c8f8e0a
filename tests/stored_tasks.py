"""Tasks in results folders, for tests."""

import io
import json
from collections.abc import Collection
from pathlib import Path

import numpy as np

from idleband.experiments.store import LOG, Store
from idleband.experiments.task_log import TaskLog


def stored_tasks(folder: Path) -> dict[str, bytes]:
    """Return the content of all tasks in the log of a folder by key, also while it is written."""
    found = {}
    for _, content in TaskLog(folder / LOG).records():
        header = content[4 : 4 + int.from_bytes(content[:4], "little")]
        found[str(json.loads(header)["key"])] = content
    return found


def remove_tasks(folder: Path, keys: Collection[str]) -> None:
    """Remove tasks from the log of a folder."""
    kept = [content for key, content in stored_tasks(folder).items() if key not in keys]
    (folder / LOG).unlink()
    log = TaskLog(folder / LOG)
    for content in kept:
        log.append(content)
    log.close()


def as_files(folder: Path) -> None:
    """Store each task of a folder in a file, as before there was a log."""
    store = Store(folder)
    (folder / "tasks").mkdir()
    for key in stored_tasks(folder):
        task, buffer = store.load(key), io.BytesIO()
        header = np.frombuffer(json.dumps({"schema": 1, "key": key, "note": task.note}).encode(), np.uint8)
        np.savez(buffer, header=header, curves=task.curves, plays=task.plays)
        (folder / "tasks" / f"{key}.npz").write_bytes(buffer.getvalue())
    (folder / LOG).unlink()
