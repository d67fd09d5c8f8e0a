"""NumPy files: .npz with arrays by name, or .npy with one array of shape (slots, channels)."""

import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from idleband.errors import InputError
from idleband.trace.files import opened, reading
from idleband.trace.metadata import Metadata, describing
from idleband.trace.recording import Chunk, ImportOptions, Recording, chunk_slots
from idleband.trace.tables import BUSY_NOTE, check_values, guess_values

DESCRIPTION = "NumPy: arrays busy, idle, power_dbm, power, reward or contexts"

ZIP, NPY = b"PK\x03\x04", b"\x93NUMPY"
ARRAYS = {
    "busy": "busy",
    "idle": "busy",
    "power_dbm": "power",
    "power": "power",
    "reward": "reward",
    "contexts": "contexts",
}
SCALARS = ("slot_s", "channel_names", "freq_low_hz", "freq_high_hz", "power_unit", "source", "license", "start")
MAX_SMALL = 2**24  # bytes of an array of metadata


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file has the signature of a zip archive or of an array."""
    return head.startswith((ZIP, NPY))


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open one file."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: one NumPy file can be imported at a time")
    path = paths[0]
    arrays = [_Array(path, name) for name in _members(path)]
    given: dict[str, Any] = {}
    layers: dict[str, _Array] = {}
    for array in arrays:
        if array.name in SCALARS:
            given[array.name] = array.small()
        elif array.name in ARRAYS or len(arrays) == 1 or array.name == "arr_0":
            layer = ARRAYS.get(array.name, "")
            if layer in layers:
                raise InputError(f"{path}: two arrays for {layer}, {layers[layer].name} and {array.name}")
            layers[layer] = array
    if not layers or set(layers) == {"contexts"}:
        raise InputError(f"{path}: no array called {', '.join(ARRAYS)}")
    K = _channels(layers, path)
    with describing(path):
        metadata = Metadata(
            K=K, slot_s=next(iter(_floats(given, "slot_s")), options.slot_s or 1.0),
            channel_names=tuple(map(str, np.atleast_1d(given.get("channel_names", [])))),
            freq_low_hz=_floats(given, "freq_low_hz"), freq_high_hz=_floats(given, "freq_high_hz"),
            power_unit=str(given.get("power_unit", "dBm")), source=str(given.get("source", "")),
            license=str(given.get("license", "")), start=str(given["start"]) if "start" in given else None,
        )  # fmt: skip
    notes: list[str] = []
    idle = "busy" in layers and layers["busy"].name == "idle"
    if "" in layers:
        array = layers.pop("")
        kind = options.values or guess_values(next(array.chunks(chunk_slots(K)))[0], str(path))
        notes += [BUSY_NOTE] if options.values is None and kind == "busy" else []
        idle = kind == "idle"
        layers["busy" if idle else kind] = array
    if "slot_s" not in given and options.slot_s is None:
        notes.append("the file holds no slot_s; the slot is taken as 1 s (--slot)")
    dimension = layers["contexts"].shape[2] if "contexts" in layers else 0

    def chunks() -> Iterator[Chunk]:
        parts = [array.chunks(chunk_slots(K * max(1, dimension))) for array in layers.values()]
        for pieces in zip(*parts, strict=True):
            chunk = {name: values for name, (values, _) in zip(layers, pieces, strict=True)}
            rows = range(pieces[0][1], pieces[0][1] + len(pieces[0][0]))
            for name, values in chunk.items():
                if name != "contexts":
                    check_values(name, values, rows, f"{path}, {layers[name].name}, row")
            if idle:
                chunk["busy"] = 1 - chunk["busy"]
            yield chunk

    return Recording("npz", metadata, tuple(layers), chunks, dimension, notes)


def _floats(given: dict[str, Any], name: str) -> tuple[float, ...]:
    """Return the numbers of an array of metadata; none if it is absent."""
    try:
        return tuple(np.ravel(given.get(name, [])).astype(float).tolist())
    except (TypeError, ValueError):
        raise InputError(f"array {name} is not of numbers") from None


def _channels(layers: dict[str, "_Array"], path: Path) -> int:
    first = next(array for name, array in layers.items() if name != "contexts")
    for name, array in layers.items():
        if len(array.shape) != (3 if name == "contexts" else 2):
            expected = "(slots, channels, d)" if name == "contexts" else "(slots, channels)"
            raise InputError(f"{path}: {array} has shape {array.shape}; expected {expected}")
    T, K = first.shape[:2]
    if T == 0 or K == 0:
        raise InputError(f"{path}: {first} is empty")
    for array in layers.values():
        if array.shape[:2] != (T, K):
            raise InputError(f"{path}: {array} has shape {array.shape}, {first.name} has {first.shape}")
    return int(K)


def _members(path: Path) -> list[str]:
    with opened(path) as file:
        if file.read(len(NPY)) == NPY:
            return [""]
    with reading(path):
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        except zipfile.BadZipFile as error:
            raise InputError(f"{path}: the zip archive is damaged or ends early: {error}") from None
    if not names:
        raise InputError(f"{path}: the zip archive contains no .npy array")
    return names


class _Array:
    """An array in a file, read in pieces."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        with self._open() as file:
            self.shape, self.fortran, self.dtype = self._header(file)
        if len(self.shape) == 1 and name not in SCALARS:
            self.shape = (self.shape[0], 1)
        if self.dtype.hasobject or self.dtype.kind not in "biufUS":
            raise InputError(f"{path}: {self} has type {self.dtype}; expected numbers")

    def __str__(self) -> str:
        return f"array {self.name}" if self.name else "the array"

    def _open(self) -> Any:
        return _member(self.path, self.name)

    def _header(self, file: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
        try:
            version = np.lib.format.read_magic(file)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            return read_header(file)
        except (ValueError, SyntaxError, EOFError) as error:
            raise InputError(f"{self.path}: {self} has no valid header: {error}") from None

    def small(self) -> Any:
        """Return a whole array of metadata."""
        if int(np.prod(self.shape)) * self.dtype.itemsize > MAX_SMALL:
            raise InputError(f"{self.path}: {self} of shape {self.shape} is too large for metadata")
        with self._open() as file:
            data = file.read(MAX_SMALL)
        try:
            value = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"{self.path}: {self} cannot be read: {error}") from None
        return value.item() if value.ndim == 0 else value

    def chunks(self, size: int) -> Iterator[tuple[Any, int]]:
        """Yield rows as float32 with the number of the first one."""
        width = int(np.prod(self.shape[1:]))
        with self._open() as file:
            self._header(file)
            if self.fortran:  # rows are not consecutive; the array must fit into the memory
                whole = self._rows(file, self.shape[0], width, 0).reshape(self.shape[::-1]).T
                for start in range(0, self.shape[0], size):
                    yield np.ascontiguousarray(whole[start : start + size], np.float32), start
                return
            for start in range(0, self.shape[0], size):
                n = min(size, self.shape[0] - start)
                yield self._rows(file, n, width, start).reshape(n, *self.shape[1:]).astype(np.float32), start

    def _rows(self, file: IO[bytes], n: int, width: int, start: int) -> Any:
        wanted = n * width * self.dtype.itemsize
        data = file.read(wanted)
        if len(data) < wanted:
            raise InputError(f"{self.path}: {self} ends early, near row {start + len(data) // max(1, width)}")
        return np.frombuffer(data, self.dtype)


class _member:
    """Open an array of an archive, or the file itself."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def __enter__(self) -> IO[bytes]:
        with reading(self.path):
            if not self.name:
                self.file: Any = self.path.open("rb")
                return self.file
            try:
                self.archive = zipfile.ZipFile(self.path)
                self.file = self.archive.open(f"{self.name}.npy")
            except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError) as error:
                raise InputError(f"{self.path}: array {self.name} cannot be read: {error}") from None
            return self.file

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:
        self.file.close()
        if self.name:
            self.archive.close()
        if isinstance(error, zipfile.BadZipFile | EOFError | zlib.error):
            raise InputError(f"{self.path}: array {self.name} is damaged: {error}") from None
