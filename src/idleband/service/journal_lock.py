"""The lock file of a journal: one process per folder, and a record of what the journal must contain."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from idleband.errors import InputError

IN_USE, CLOSED = "in use\n", "closed\n"
FILE_NAME = "lock"
MAX_COUNT = 9999  # of interrupted snapshots


class JournalLock:
    """A file that is locked for as long as the process runs.

    Two processes that write the same journal would each miss the events of the other. The file also records whether the
    journal was closed, the number of all events and of all allocators, so that a damaged or missing log is noticed, and
    how many processes in a row ended while they took a snapshot.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._record_lock = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise InputError(f"{folder}: is in use by another process; choose another folder") from None
        found = os.pread(self._descriptor, 100, 0)
        self.status = found[: len(IN_USE)].decode(errors="replace")
        self.last, self.allocators, self.snapshots = recorded_numbers(found)

    def set_status(self, status: str) -> None:
        """Write the status durably. A failure is ignored; the next call writes it."""
        if self.status != status:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, status.encode(), 0)
                os.fsync(self._descriptor)
                self.status = status

    def record(self, last: int = 0, allocators: int = 0, snapshots: int | None = None) -> None:
        """Record the number of all events, of allocators, and of snapshots that were begun and not ended.

        It is not synced: after a crash of the system the numbers may be too small, which refuses nothing.
        """
        with self._record_lock, contextlib.suppress(OSError):
            self.last, self.allocators = max(self.last, last), max(self.allocators, allocators)
            self.snapshots = self.snapshots if snapshots is None else min(snapshots, MAX_COUNT)
            os.pwrite(self._descriptor, lines(self.last, self.allocators, self.snapshots), len(IN_USE))

    @property
    def is_in_place(self) -> bool:
        """Whether the file has not been deleted, moved or replaced."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except OSError:
            return False

    def close(self) -> None:
        os.close(self._descriptor)


def lines(last: int, allocators: int, snapshots: int = 0) -> bytes:
    """Return the numbers as they are written after the status."""
    return f"{last:020d}\n{allocators:010d}\n{snapshots:04d}\n".encode()


def recorded_numbers(content: bytes) -> tuple[int, int, int]:
    """Return the numbers in a lock file: events, allocators, interrupted snapshots; 0 where there is none."""
    found = [int(one) if one.isdecimal() else 0 for one in (*content.decode(errors="replace").split("\n"), "", "", "")]
    return found[1], found[2], found[3]
