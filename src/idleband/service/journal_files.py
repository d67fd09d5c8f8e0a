"""Backup, verification and restoring of a journal in a folder, also while a service uses it."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from idleband.durable import TEMPORARY, sync_folder
from idleband.errors import InputError, StorageError, counted
from idleband.service import journal_check, journal_lock, journal_migration
from idleband.service.journal_check import Summary
from idleband.service.journal_lock import CLOSED, recorded_numbers
from idleband.service.sqlite_journal import FILE_NAME, connect_to_read, missing_file
from idleband.service.sqlite_rows import SqliteRows, file_faults

MAX_FAULTS = 20  # that are listed


def verify(folder: Path) -> Summary:
    """Check the journal of a folder completely and change nothing.

    Raises InputError if there is no journal, or none that can be read.
    """
    path = existing(folder)
    # The lock file comes first: what it records is in the journal then, also if a service is writing.
    lock = _lock_file(folder)
    status, recorded = lock[: len(CLOSED)].decode(errors="replace"), recorded_numbers(lock)
    missing = missing_file(folder, status, recorded[0])
    if missing is not None:
        return Summary(0, 0, 0, [missing])
    try:
        with contextlib.closing(connect_to_read(path)) as reader:
            reader.execute("BEGIN")  # everything is read as it is now
            return _summary(reader, recorded)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return Summary(0, 0, 0, [f"cannot be read ({error})"])


def _summary(reader: sqlite3.Connection, recorded: tuple[int, int, int]) -> Summary:
    faults = list(file_faults(reader, MAX_FAULTS))
    if faults:
        return Summary(0, 0, 0, faults)
    if reader.execute("SELECT format FROM about").fetchone()[0] == journal_check.FORMAT:
        return journal_check.summary(SqliteRows(reader), recorded)
    allocators, events, last = reader.execute(
        "SELECT (SELECT count(*) FROM allocators), (SELECT count(*) FROM events), (SELECT max(seq) FROM events)"
    ).fetchone()
    return Summary(allocators, events, last or 0, list(journal_migration.faults(reader, recorded)))


def copy(source: Path, target: Path) -> Summary:
    """Copy a journal into a new folder and check the copy. A service may use the source.

    Nothing is left in `target` unless the copy is whole. Raises InputError if it exists and is not empty, or if the
    journal is damaged.
    """
    path = existing(source)
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target}: exists and is not an empty folder; nothing was written")
    lock = _lock_file(source)
    recorded = recorded_numbers(lock)
    missing = missing_file(source, lock[: len(CLOSED)].decode(errors="replace"), recorded[0])
    if missing is not None:
        raise InputError(f"{missing}; nothing was written")
    with _new_folder(target) as folder:
        try:
            with (
                contextlib.closing(connect_to_read(path)) as reader,
                contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as writer,
            ):
                reader.backup(writer)  # in one step, so that the source may change meanwhile
                writer.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read anywhere
            with contextlib.closing(connect_to_read(folder / FILE_NAME)) as reader:
                found = _summary(reader, recorded)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be copied ({error}); nothing was written") from None
        if found.faults:
            raise InputError(
                f"{path}: {counted(len(found.faults), 'fault')}, the first: {found.faults[0]}; nothing was written"
            )
        content = CLOSED.encode() + journal_lock.lines(found.written, found.allocators)
        (folder / journal_lock.FILE_NAME).write_bytes(content)
    return found


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`; sync and rename it at the end, remove it after an exception."""
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=target.absolute().parent))
        try:
            yield folder
            for file in folder.iterdir():
                descriptor = os.open(file, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
            sync_folder(folder)
            folder.chmod(0o755)
            os.rename(folder, target)  # over an empty folder at most
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror or error}") from None


def existing(folder: Path) -> Path:
    """Return the file of the journal in a folder; raise InputError if there is none."""
    path = folder / FILE_NAME
    if not path.is_file() and not (folder / journal_lock.FILE_NAME).is_file():
        raise InputError(f"{folder}: has no {FILE_NAME}; must be the folder of a service, or a backup of one")
    return path


def _lock_file(folder: Path) -> bytes:
    try:
        return (folder / journal_lock.FILE_NAME).read_bytes()[:100]
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror or error}") from None
