"""The log of finished tasks: one file to which each task is appended as soon as it is finished.

    "idleband tasks 1\\n"
    then records: 4 bytes of kind, 8 bytes of length, 4 bytes of checksum of these, the content, 4 bytes of its checksum

The kinds are TASK, a finished task, and SYNC: everything before a position in the file has reached the disk. Numbers
are little-endian, checksums CRC-32.

A record is handed to the operating system before `append` returns, so that no finished task is lost if the process is
killed. If the machine stops, tasks of the last SYNC_DELAY seconds may be lost, and the end of the file may be anything:
what does not belong to a whole record after the last SYNC is ignored and overwritten, and its tasks are computed again.
A record before that which is not whole is damage, and the file is refused.
"""

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock, Timer

from idleband.durable import sync_folder
from idleband.errors import InputError, StorageError

SYNC_DELAY = 1.0  # seconds within which a finished task is synced
MAGIC = b"idleband tasks 1\n"
TASK, SYNC = b"TASK", b"SYNC"

_HEAD, _CHECKSUM, _POSITIONS = struct.Struct("<4sQ"), struct.Struct("<I"), struct.Struct("<QQ")
_BEFORE = _HEAD.size + _CHECKSUM.size


def record(kind: bytes, content: bytes) -> bytes:
    """Return a record as it is written."""
    head = _HEAD.pack(kind, len(content))
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(head)), content, _CHECKSUM.pack(zlib.crc32(content))))


class TaskLog:
    """The log in a file. The file is created by the first record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._syncing, self._lock = Lock(), Lock()  # the first is taken first
        self._file: int | None = None  # descriptor, once something is appended
        self._size = self._synced = 0  # bytes of the file, and how many have reached the disk
        self._timer: Timer | None = None  # until the next sync
        self._failed: StorageError | None = None  # of the timer

    # --- reading -----------------------------------------------------------------------------------------------------

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position and the content of each task; raise InputError if the file is damaged."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        at = self._whole(data)
        if at < len(data) and _synced_beyond(data, at):
            raise self._damaged(at)
        position = len(MAGIC)
        while position < at:
            kind, length = _HEAD.unpack_from(data, position)
            if kind == TASK:
                yield position, data[position + _BEFORE : position + _BEFORE + length]
            position += _BEFORE + length + _CHECKSUM.size

    def read(self, position: int) -> bytes:
        """Return the content of the task at a position that `records` or `append` has returned."""
        with self.path.open("rb") as file:
            file.seek(position)
            head = file.read(_BEFORE)
            length = _HEAD.unpack_from(head)[1] if len(head) == _BEFORE else 0
            data = head + file.read(length + _CHECKSUM.size)
        if _after(data, 0) != len(data):
            raise self._damaged(position)
        return data[_BEFORE : -_CHECKSUM.size]

    def _damaged(self, position: int) -> InputError:
        return InputError(f"{self.path}: damaged at byte {position}; delete it to compute its tasks again")

    def _whole(self, data: bytes) -> int:
        """Return the end of the last of the whole records at the beginning."""
        if not data.startswith(MAGIC):
            if not MAGIC.startswith(data):
                raise self._damaged(0)
            return 0
        at = len(MAGIC)
        while (after := _after(data, at)) is not None:
            at = after
        return at

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(self, content: bytes) -> int:
        """Append a task and return its position; raise StorageError if it cannot be written, or one before it."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            try:
                if self._file is None:
                    self._open()
                position = self._size
                self._write(record(TASK, content))
            except OSError as error:
                raise self._error(error) from None
            if self._timer is None:
                self._timer = Timer(SYNC_DELAY, self._sync_later)
                self._timer.daemon = True
                self._timer.start()
            return position

    def sync(self) -> None:
        """Sync what was appended."""
        with self._syncing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = None  # what is appended from here on needs another sync
                before = self._size
                if self._file is None or before == self._synced:
                    return
            try:
                os.fsync(self._file)
                with self._lock:
                    more = self._size > before
                    self._write(record(SYNC, _POSITIONS.pack(self._size, before)))
                    self._synced = before if more else self._size
            except OSError as error:
                raise self._error(error) from None

    def close(self) -> None:
        """Sync what was appended and close the file. Appending opens it again."""
        try:
            self.sync()
        finally:
            with self._syncing, self._lock:
                if self._file is not None:
                    os.close(self._file)
                    self._file = None

    def _sync_later(self) -> None:
        """Sync on the thread of the timer; an error is raised by the next call of `append`."""
        try:
            self.sync()
        except StorageError as error:
            self._failed = error

    def _open(self) -> None:
        """Open the file and remove what is not a whole record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = self._synced = self._whole(self.path.read_bytes())
        os.ftruncate(self._file, self._size)
        if self._size == 0:
            self._write(MAGIC)
            sync_folder(self.path.parent)

    def _write(self, data: bytes) -> None:
        """Append data, all or nothing."""
        assert self._file is not None
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _error(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path}: cannot be written: {error.strerror or error}; what was finished is kept")


def _after(data: bytes, at: int) -> int | None:
    """Return the position after the record at a position; None if there is no whole record."""
    if len(data) < at + _BEFORE:
        return None
    kind, length = _HEAD.unpack_from(data, at)
    (checksum,) = _CHECKSUM.unpack_from(data, at + _HEAD.size)
    after: int = at + _BEFORE + length + _CHECKSUM.size
    if kind not in (TASK, SYNC) or zlib.crc32(data[at : at + _HEAD.size]) != checksum or after > len(data):
        return None
    content = memoryview(data)[at + _BEFORE : at + _BEFORE + length]
    (checksum,) = _CHECKSUM.unpack_from(data, after - _CHECKSUM.size)
    return after if zlib.crc32(content) == checksum else None


def _synced_beyond(data: bytes, at: int) -> bool:
    """Return whether a whole SYNC record after a position says that more than up to there has reached the disk."""
    found = data.find(SYNC, at)
    while found >= 0:
        if _after(data, found) is not None:
            own, before = _POSITIONS.unpack_from(data, found + _BEFORE)
            if own == found and before > at:
                return True
        found = data.find(SYNC, found + 1)
    return False
