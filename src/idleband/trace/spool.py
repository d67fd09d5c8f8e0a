"""Values between two passes over a recording, in temporary files without a name."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from idleband.errors import StorageError
from idleband.trace.recording import Chunk, chunk_slots


class Spool:
    """Chunks of a recording, kept on disk so that a recording may be larger than the memory.

    The files have no name, so nothing is left of them, even where the process is killed.
    """

    def __init__(self, folder: Path | None, widths: dict[str, int]) -> None:
        while folder is not None and not folder.is_dir():
            folder = folder.parent if folder.parent != folder else None
        self.folder, self.widths, self.T = folder, widths, 0
        self.files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for name in self.widths:
                self.files[name] = tempfile.TemporaryFile(dir=self.folder)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self.files.values():
            file.close()

    def append(self, chunk: Chunk) -> None:
        """Add consecutive slots."""
        for name, file in self.files.items():
            try:
                file.write(np.ascontiguousarray(chunk[name], np.float32).tobytes())
                file.flush()
            except OSError as error:
                raise StorageError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
            n = len(chunk[name])
        self.T += n

    def read(self, name: str, start: int, stop: int) -> Any:
        """Return the slots from `start` to `stop` as an array of shape (slots, width)."""
        file, width = self.files[name], self.widths[name]
        file.seek(4 * width * start)
        return np.frombuffer(file.read(4 * width * (stop - start)), np.float32).reshape(-1, width)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all values again."""
        size = chunk_slots(max(self.widths.values()))
        for start in range(0, self.T, size):
            yield {name: self.read(name, start, min(start + size, self.T)) for name in self.widths}

    def sample(self, name: str, step: int) -> Any:
        """Return every `step`-th slot."""
        size = chunk_slots(self.widths[name])
        size += -size % step
        found = np.empty((-(-self.T // step), self.widths[name]), np.float32)
        for start in range(0, self.T, size):
            part = self.read(name, start, min(start + size, self.T))[::step]
            found[start // step : start // step + len(part)] = part
        return found
