"""The trace file: chunks, versions, damage."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import idleband as ib
from idleband.trace import parquet, recording
from idleband.trace.importing import import_trace
from tests.trace import recordings as make


def rewritten(path: Path, **changes: str) -> None:
    """Change the metadata of a trace file."""
    table = pq.read_table(path)
    stored = {**table.schema.metadata, **{key.encode(): value.encode() for key, value in changes.items()}}
    pq.write_table(table.replace_schema_metadata(stored), path)


def test_a_newer_version_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ib.Trace.from_arrays(busy=[[0], [1]]).save(path)
    rewritten(path, idleband_trace_version="2")
    with pytest.raises(ib.InputError, match=r"has version 2 of the trace format; .* reads up to 1"):
        ib.Trace.load(path)


@pytest.mark.parametrize("text", ["{", "[]", '{"channels": 0}', '{"channels": 1, "slot_s": "x"}', '{"channels": 7}'])
def test_damaged_metadata_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.parquet"
    ib.Trace.from_arrays(busy=[[0], [1]]).save(path)
    rewritten(path, idleband_trace=text)
    with pytest.raises(ib.InputError, match=r"metadata are damaged|column busy_1 is missing"):
        ib.Trace.load(path)


def test_other_files_are_not_traces(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for content, message in ((b"", "is empty"), (b"hello", "is not a trace file")):
        path.write_bytes(content)
        with pytest.raises(ib.InputError, match=message):
            ib.Trace.load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ib.InputError, match="is not a trace file"):
        ib.Trace.load(path)


def test_missing_values_in_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    ib.Trace.from_arrays(busy=[[0], [1]]).save(path)
    schema = pq.read_schema(path)
    pq.write_table(pa.table({"slot": [1, 2], "busy_0": [True, None]}).cast(schema), path)
    with pytest.raises(ib.InputError, match="column busy_0 has missing values"):
        ib.Trace.load(path)


MAKERS = {
    "rtl_power": make.rtl_power,
    "soapy_bin": make.soapy_bin,
    "soapy_fftw": make.soapy_fftw,
    "msod": make.msod,
    "csv": make.csv_table,
    "csv with times": lambda path, values: make.csv_table(path, values, list("abcdef"), times=True),
    "npy": lambda path, values: _npy(path, values),
}


def _npy(path: Path, values: Any) -> Path:
    np.save(path.with_suffix(".npy"), values)
    return path.with_suffix(".npy").rename(path)


@pytest.mark.parametrize("name", MAKERS)
def test_chunks_give_the_same_trace_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With chunks of seven slots, one of which has values missing across their border."""
    values = make.powers(T=100).round()
    path = MAKERS[name](tmp_path / "recording", values)
    if name == "csv":
        lines = path.read_text().splitlines()
        lines[6:8] = ["nan,-90,-90,-90,-90,-90"] * 2
        path.write_text("\n".join(lines))
    whole = ib.Trace.read(path, slot_s=None)
    for module in ("recording", "sweeps", "tables", "spool", "formats.msod", "formats.npz", "formats.csv"):
        target = f"idleband.trace.{module}"
        monkeypatch.setattr(f"{target}.chunk_slots", lambda K: 7, raising=False)
        monkeypatch.setattr(f"{target}.batch_size", lambda K: 7, raising=False)
    monkeypatch.setattr(parquet, "GROUP_VALUES", 1)
    assert recording.chunk_slots(3) == 7
    out = tmp_path / "out.parquet"
    import_trace([path], out)
    small = ib.Trace.load(out)
    assert small.metadata == whole.metadata
    assert np.array_equal(small.busy, whole.busy)
    assert np.array_equal(small.power, whole.power)


def test_row_groups_are_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_VALUES", 1)
    path = tmp_path / "t.parquet"
    trace = ib.Trace.from_arrays(busy=np.arange(1000)[:, None] % 2)
    trace.save(path)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [256, 256, 256, 232]
    assert np.array_equal(ib.Trace.load(path).busy, trace.busy)
