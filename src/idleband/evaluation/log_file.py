"""The log file: a decision log as Parquet, one row per slot and channel, with metadata in the schema."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from idleband.durable import writing_durably
from idleband.errors import InputError
from idleband.evaluation.decision_log import DecisionLog
from idleband.trace.files import check_regular, reading
from idleband.trace.parquet import MAGIC

KEY = b"idleband_decisions"
VERSION_KEY = b"idleband_decisions_version"
VERSION = 1
GROUP_ROWS = 2**17  # in a row group, about


def _schema(d: int, metadata: dict[bytes, bytes] | None = None) -> Any:
    import pyarrow as pa

    context = [("context", pa.list_(pa.float64(), d))] if d else []
    return pa.schema(
        [
            ("slot", pa.int64()),
            ("time", pa.timestamp("us", "UTC")),
            ("request_id", pa.string()),
            ("users", pa.int32()),
            ("by", pa.string()),
            ("channel", pa.int32()),
            ("available", pa.bool_()),
            ("sensed", pa.int32()),
            *context,
            ("selected", pa.bool_()),
            ("propensity", pa.float64()),
            ("reported_after", pa.int64()),
            ("state", pa.int32()),
            ("reward", pa.float64()),
            ("perturbation", pa.float64()),
        ],
        metadata,
    )


def write_log(path: Path, log: DecisionLog) -> None:
    """Write a log to a file, atomically."""
    import pyarrow.parquet as pq

    about = {"settings": log.settings, "idleband": version("idleband")}
    schema = _schema(log.contexts.shape[2], {KEY: json.dumps(about).encode(), VERSION_KEY: str(VERSION).encode()})
    with writing_durably(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(log, schema):
            writer.write_batch(batch, row_group_size=GROUP_ROWS)


def _batches(log: DecisionLog, schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    T, K = log.selected.shape
    d, size = log.contexts.shape[2], max(1, GROUP_ROWS // K)

    def masked(values: Any, kind: Any, missing: Any) -> Any:
        return pa.array(np.asarray(values).ravel(), kind, mask=np.asarray(missing).ravel())

    for first in range(0, T, size):
        part = slice(first, min(first + size, T))
        n = part.stop - first
        time, reported = np.repeat(log.time[part], K), log.reported_after[part]
        columns = {
            "slot": pa.array(np.repeat(log.slot[part], K)),
            "time": masked(np.nan_to_num(1e6 * time).astype(np.int64), schema.field("time").type, np.isnan(time)),
            "request_id": pa.array(np.repeat(np.array(log.request_id[part], object), K), pa.string()),
            "users": pa.array(np.repeat(log.users[part], K), pa.int32()),
            "by": pa.array(np.repeat(np.array(log.by[part], object), K), pa.string()),
            "channel": pa.array(np.tile(np.arange(K), n), pa.int32()),
            "available": pa.array(log.available[part].ravel()),
            "sensed": masked(log.sensed[part], pa.int32(), log.sensed[part] < 0),
            "selected": pa.array(log.selected[part].ravel()),
            "propensity": masked(log.propensity[part], pa.float64(), np.isnan(log.propensity[part])),
            "reported_after": masked(reported, pa.int64(), reported == 0),
            "state": masked(log.state[part], pa.int32(), log.state[part] < 0),
            "reward": masked(log.reward[part], pa.float64(), np.isnan(log.reward[part])),
            "perturbation": masked(log.perturbation[part], pa.float64(), np.isnan(log.perturbation[part])),
        }
        if d:
            columns["context"] = pa.FixedSizeListArray.from_arrays(pa.array(log.contexts[part].ravel()), d)
        yield pa.record_batch([columns[name] for name in schema.names], schema=schema)


def read_log(path: Path) -> DecisionLog:
    """Read a log from a file and check it. Raises InputError if it is not one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        check_regular(path)
    with reading(path), path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise InputError(f"{path}: is not a Parquet file; must be one that `idleband journal export` wrote")
        try:
            table = pq.read_table(file)
        except pa.ArrowException as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: the Parquet file is damaged or ends early: {reason}") from None
    settings = _settings(path, table.schema.metadata or {})
    schema = _schema(settings["dimension"])
    for field in schema:
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise InputError(f"{path}: column {field.name} is missing or is not of type {field.type}")
    K = settings["channels"]
    T, rest = divmod(table.num_rows, K)
    if T == 0:
        raise InputError(f"{path}: contains no decision")
    channel = _numbers(table["channel"], -1)
    if rest or not np.array_equal(channel, np.tile(np.arange(K), T)):
        raise InputError(f"{path}: must have the rows of channels 0 to {K - 1}, in this order, for every slot")
    optional = {"time", "sensed", "propensity", "reported_after", "state", "reward", "perturbation"}
    for field in schema:
        if field.name not in optional and table[field.name].null_count:
            raise InputError(f"{path}: column {field.name} has missing values")
    integers = {"sensed": -1, "state": -1, "reported_after": 0}
    rows = {name: _numbers(table[name], missing).reshape(T, K) for name, missing in integers.items()}
    for name in ("available", "selected"):
        rows[name] = table[name].to_numpy().astype(np.bool_).reshape(T, K)
    for name in ("propensity", "reward", "perturbation"):
        rows[name] = table[name].to_numpy().astype(np.float64).reshape(T, K)
    heads = {}
    for name in ("slot", "users"):
        values = _numbers(table[name], -1).reshape(T, K)
        if (values != values[:, :1]).any():
            raise InputError(f"{path}: column {name} differs between the channels of a slot")
        heads[name] = values[:, 0].copy()
    time = table["time"].cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.float64)
    contexts = np.zeros((T, K, 0))
    if settings["dimension"]:
        flat = table["context"].combine_chunks().flatten()
        if flat.null_count or len(flat) != T * K * settings["dimension"]:
            raise InputError(f"{path}: column context has missing values")
        contexts = flat.to_numpy().reshape(T, K, -1)
    texts = {name: table[name].take(pa.array(np.arange(T) * K)).to_pylist() for name in ("request_id", "by")}
    return DecisionLog(
        place=str(path), settings=settings, time=time[::K] / 1e6, contexts=contexts, **heads, **rows, **texts
    ).check()


def _settings(path: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    """Return the settings of the allocator in the metadata."""
    if KEY not in metadata or VERSION_KEY not in metadata:
        raise InputError(f"{path}: is not a decision log; must be a file that `idleband journal export` wrote")
    found = metadata[VERSION_KEY].decode(errors="replace")
    if found != str(VERSION):
        raise InputError(f"{path}: has version {found[:20]!r} of the decision log; this version reads {VERSION}")
    try:
        settings: dict[str, Any] = json.loads(metadata[KEY])["settings"]
        sizes = [settings[key] for key in ("channels", "dimension", "users")]
    except (ValueError, KeyError, TypeError):
        sizes = []
    if not sizes or not all(isinstance(size, int) and 0 <= size <= 10_000 for size in sizes) or sizes[0] < 1:
        raise InputError(f"{path}: the settings in its metadata are damaged")
    return settings


def _numbers(column: Any, missing: int) -> Any:
    return column.fill_null(missing).to_numpy().astype(np.int64)
