"""The lock file of a journal: one process per folder, and a record of what the journal must contain."""

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from idleband.errors import InputError

IN_USE, CLOSED = "in use\n", "closed\n"


class JournalLock:
    """A file that is locked for as long as the process runs.

    Two processes that write the same journal would each miss the events of the other. The file also records whether the
    journal was closed, the number of the last event and the number of allocators, so that a damaged or missing log is
    noticed.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._record_lock = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise InputError(f"{folder}: is in use by another process; choose another folder") from None
        found = os.pread(self._descriptor, 100, 0).decode(errors="replace")
        self.status = found[: len(IN_USE)]
        self.last, self.allocators = (int(n) if n.isdecimal() else 0 for n in (*found.split("\n"), "", "")[1:3])

    def set_status(self, status: str) -> None:
        """Write the status durably. A failure is ignored; the next call writes it."""
        if self.status != status:
            with contextlib.suppress(OSError):
                os.pwrite(self._descriptor, status.encode(), 0)
                os.fsync(self._descriptor)
                self.status = status

    def record(self, last: int = 0, allocators: int = 0) -> None:
        """Record the number of the last event and of allocators.

        It is not synced: after a crash of the system the numbers may be too small, which refuses nothing.
        """
        with self._record_lock, contextlib.suppress(OSError):
            self.last, self.allocators = max(self.last, last), max(self.allocators, allocators)
            os.pwrite(self._descriptor, f"{self.last:020d}\n{self.allocators:010d}\n".encode(), len(IN_USE))

    def close(self) -> None:
        os.close(self._descriptor)
