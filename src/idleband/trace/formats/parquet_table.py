"""Parquet files: those of this package, and foreign tables with one row per slot."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import InputError
from idleband.trace.files import reading
from idleband.trace.parquet import TraceFile, is_trace_file
from idleband.trace.recording import Chunk, ImportOptions, Recording
from idleband.trace.tables import Batch, batch_size, interpret, read_table

DESCRIPTION = "Parquet table: a row per slot, a column per channel"

MAGIC = b"PAR1"


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file is a Parquet file."""
    return head.startswith(MAGIC)


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open one file."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: one Parquet file can be imported at a time")
    path = paths[0]
    if is_trace_file(path):
        return _own(TraceFile(path))
    return _foreign(path, options)


def _own(file: TraceFile) -> Recording:
    def chunks() -> Iterator[Chunk]:
        for chunk in file.chunks():
            yield {name: np.asarray(values, np.float32) for name, values in chunk.items()}

    return Recording("parquet", file.metadata, file.layers, chunks, file.dimension)


def _foreign(path: Path, options: ImportOptions) -> Recording:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{path}: is not a Parquet file that can be read: {error}") from None
    names = [str(name) for name in schema.names if not name.startswith("__index")]
    columns = interpret(names, options, str(path))
    wanted = sorted({i for layer in columns.layers.values() for i in layer})
    for i in wanted:
        kind = schema.field(names[i]).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{path}: column {names[i]!r} has type {kind}; channels must be columns of numbers")

    def batches(values: bool) -> Iterator[Batch]:
        row = 0
        picked = list(names) if values else [names[columns.time or 0]]
        with reading(path):
            try:
                for batch in pq.ParquetFile(path).iter_batches(batch_size(len(names)), columns=picked):
                    times = None if columns.time is None else _seconds(batch.column(names[columns.time]), path)
                    table = None
                    if values:
                        table = np.full((batch.num_rows, len(names)), np.nan)
                        for i in wanted:
                            table[:, i] = batch.column(names[i]).cast(pa.float64()).to_numpy(zero_copy_only=False)
                    yield Batch(range(row, row + batch.num_rows), times, table)
                    row += batch.num_rows
            except (pa.ArrowException, UnicodeDecodeError) as error:
                raise InputError(f"{path}: is damaged near row {row}: {error}") from None

    return read_table("parquet", columns, batches, options, str(path), "row")


def _seconds(column: Any, path: Path) -> Any:
    """Return times as seconds."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e6
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    raise InputError(f"{path}: the column of times has type {column.type}; expected a timestamp or seconds")
