"""The trace file: Parquet, one row per slot, with metadata in the schema.

Columns are `slot` (from 1) and, per channel k from 0, `busy_k` (true where a primary user is present), and where they
are known `power_k`, `reward_k` and `context_k_i`. The metadata are JSON under the key `idleband_trace` of the schema.
"""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from idleband.durable import writing_durably
from idleband.errors import InputError
from idleband.trace.files import check_regular, reading
from idleband.trace.metadata import Metadata
from idleband.trace.recording import Chunk

KEY = b"idleband_trace"
VERSION_KEY = b"idleband_trace_version"
VERSION = 1
MAGIC = b"PAR1"
GROUP_VALUES = 2**22  # values in a row group, about
ORDER = ("busy", "power", "reward", "contexts")


def columns_of(layer: str, K: int, dimension: int = 0) -> list[str]:
    """Return the names of the columns of a layer."""
    if layer == "contexts":
        return [f"context_{k}_{i}" for k in range(K) for i in range(dimension)]
    return [f"{layer}_{k}" for k in range(K)]


def write_trace(
    path: Path, metadata: Metadata, layers: Iterable[str], chunks: Iterable[Chunk], dimension: int = 0
) -> int:
    """Write chunks to a file, atomically; return the number of slots."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    layers = [layer for layer in ORDER if layer in layers]
    fields = [pa.field("slot", pa.int64())]
    for layer in layers:
        kind = pa.bool_() if layer == "busy" else pa.float32()
        fields += [pa.field(name, kind) for name in columns_of(layer, metadata.K, dimension)]
    schema = pa.schema(fields, {KEY: metadata.to_json(), VERSION_KEY: str(VERSION)})
    width = len(fields) - 1
    size = max(256, min(2**17, GROUP_VALUES // width))
    T = 0
    with writing_durably(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _regrouped(chunks, size):
            n = len(rows[layers[0]])
            columns: list[Any] = [pa.array(np.arange(T + 1, T + n + 1))]
            for layer in layers:
                values = np.asarray(rows[layer]).reshape(n, -1)
                values = values.astype(np.bool_ if layer == "busy" else np.float32, copy=False)
                columns += [pa.array(np.ascontiguousarray(values[:, i])) for i in range(values.shape[1])]
            writer.write_batch(pa.record_batch(columns, schema=schema), row_group_size=size)
            T += n
    return T


def _regrouped(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Yield the same slots in chunks of `size`."""
    kept: list[Chunk] = []
    count = 0
    for chunk in chunks:
        kept.append(chunk)
        count += len(next(iter(chunk.values())))
        if count >= size:
            whole = _joined(kept)
            for start in range(0, count - count % size, size):
                yield {name: values[start : start + size] for name, values in whole.items()}
            kept = [{name: values[count - count % size :] for name, values in whole.items()}]
            count %= size
    if count:
        yield _joined(kept)


def _joined(chunks: list[Chunk]) -> Chunk:
    return chunks[0] if len(chunks) == 1 else {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}


def is_trace_file(path: Path) -> bool:
    """Return whether a file is a trace of this package."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        check_regular(path)
    with reading(path), path.open("rb") as file:
        if file.read(4) != MAGIC:
            return False
    with reading(path):
        try:
            return KEY in (pq.read_schema(path).metadata or {})
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{path}: the Parquet file is damaged or ends early: {error}") from None


class TraceFile:
    """A trace file that has been opened: its metadata, and its slots in chunks."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self.path = path
        with reading(path):
            check_regular(path)
            if path.exists() and not path.stat().st_size:
                raise InputError(f"{path}: is empty")
        if not is_trace_file(path):
            raise InputError(f"{path}: is not a trace file; `idleband trace import` makes one from a recording")
        with self._checked():
            self.file = pq.ParquetFile(path)
            schema = self.file.schema_arrow
            stored = schema.metadata
            version = stored.get(VERSION_KEY, b"0").decode()
            if not version.isdecimal() or int(version) > VERSION:
                raise InputError(
                    f"{path}: has version {version} of the trace format; this version of idleband reads up to {VERSION}"
                )
            self.metadata = self._metadata(stored[KEY])
        self.T: int = self.file.metadata.num_rows
        names, K = set(schema.names), self.metadata.K
        self.dimension = sum(name.startswith("context_0_") for name in names)
        self.layers = tuple(layer for layer in ORDER if names & set(columns_of(layer, 1, self.dimension)))
        for layer in self.layers:
            absent = [name for name in columns_of(layer, K, self.dimension) if name not in names]
            if absent:
                raise InputError(f"{path}: column {absent[0]} is missing, for a trace of {K} channels")
        if "busy" not in self.layers or not self.T:
            raise InputError(f"{path}: {'contains no slot' if 'busy' in self.layers else 'has no columns busy_0, ...'}")

    def _metadata(self, text: bytes) -> Metadata:
        try:
            return Metadata.from_json(text)
        except InputError as error:
            raise InputError(f"{self.path}: the metadata are damaged: {error}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.path}: the metadata are damaged: {error}") from None

    def chunks(self, layers: Iterable[str] | None = None) -> Iterator[Chunk]:
        """Yield the slots of one row group after the other; missing values are refused."""
        wanted = [layer for layer in self.layers if layers is None or layer in layers]
        columns = {layer: columns_of(layer, self.metadata.K, self.dimension) for layer in wanted}
        for group in range(self.file.num_row_groups):
            with self._checked(f" in row group {group}"):
                table = self.file.read_row_group(group, columns=[name for names in columns.values() for name in names])
            chunk = {}
            for layer, names in columns.items():
                kind = np.bool_ if layer == "busy" else np.float32
                values = np.empty((table.num_rows, len(names)), kind)
                for i, name in enumerate(names):
                    column = table.column(name)
                    if column.null_count:
                        raise InputError(f"{self.path}: column {name} has missing values in row group {group}")
                    values[:, i] = column.to_numpy()
                chunk[layer] = (
                    values.reshape(table.num_rows, self.metadata.K, self.dimension) if layer == "contexts" else values
                )
            yield chunk

    @contextlib.contextmanager
    def _checked(self, where: str = "") -> Iterator[None]:
        import pyarrow as pa

        with reading(self.path):
            try:
                yield
            except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
                raise InputError(f"{self.path}: the trace file is damaged{where}: {error}") from None
