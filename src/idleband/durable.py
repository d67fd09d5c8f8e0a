"""Write files atomically: a file is complete or does not exist."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from idleband.errors import StorageError

TEMPORARY = ".tmp-"  # prefix of the names of unfinished files


def write_durably(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in the same folder, sync it and rename it."""
    with writing_durably(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing_durably(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file in the folder of `path`; sync and rename it at the end, remove it after an exception."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}; what was finished is kept") from None


def sync_folder(path: Path) -> None:
    """Sync the names of the files in a folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
