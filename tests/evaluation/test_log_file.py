"""A log file contains the log exactly, and a file that contradicts itself is refused in one line."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idleband.errors import InputError
from idleband.evaluation import log_file
from idleband.evaluation.decision_log import DecisionLog, logging_policy
from idleband.evaluation.log_file import read_log, write_log
from tests.evaluation.simulated import simulated

PATH = Path("log.parquet")


@pytest.fixture(scope="module")
def log() -> DecisionLog:
    return simulated("S4", "exp3-m:gamma=0.1", 40, 0, reported=0.7, delay=1).log


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: DecisionLog) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(PATH, log)


@pytest.mark.parametrize("rows", [7, 2**17])
def test_round_trip(log: DecisionLog, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(log_file, "GROUP_ROWS", rows)
    write_log(PATH, log)
    found = read_log(PATH)
    for field in dataclasses.fields(log):
        if field.name not in ("place", "settings"):
            ours, theirs = getattr(log, field.name), getattr(found, field.name)
            assert np.array_equal(ours, theirs, equal_nan=np.asarray(ours).dtype.kind == "f"), field.name
    assert found.settings == json.loads(json.dumps(log.settings))
    assert logging_policy(found) == "exp3-m gamma=0.1"
    assert found.problem.setup.K == 10


def changed(change: Any) -> None:
    """Change the table of the file."""
    pq.write_table(change(pq.read_table(PATH)), PATH)


def with_values(name: str, place: int, value: Any) -> Any:
    def change(table: Any) -> Any:
        values = table[name].to_pylist()
        values[place] = value
        at = table.column_names.index(name)
        return table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))

    return change


def with_metadata(key: bytes, value: bytes) -> Any:
    return lambda table: table.replace_schema_metadata({**table.schema.metadata, key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.replace_schema_metadata(None), "is not a decision log"),
        (with_metadata(log_file.VERSION_KEY, b"2"), "has version '2' of the decision log; this version reads 1"),
        (with_metadata(log_file.KEY, b"{"), "the settings in its metadata are damaged"),
        (with_metadata(log_file.KEY, b'{"settings": {"channels": 10}}'), "the settings in its metadata are damaged"),
        (with_metadata(log_file.KEY, b'{"settings": {"channels": 10, "dimension": 8, "users": 5}}'), "have no seed"),
        (lambda table: table.drop_columns(["reward"]), "column reward is missing or is not of type double"),
        (lambda table: table.slice(0, 25), "must have the rows of channels 0 to 9"),
        (lambda table: table.slice(0, 0), "contains no decision"),
        (with_values("slot", 3, 2), "column slot differs between the channels of a slot"),
        (with_values("selected", 3, None), "column selected has missing values"),
        (with_values("propensity", 3, 0.9999), "must add up to the number of selected channels"),
        (with_values("propensity", 3, 1.5), "slot 1: propensity must be a probability from 0 to 1"),
        (with_values("propensity", 3, None), "slot 1: propensity is given for some channels and not for others"),
        (with_values("reported_after", 0, -1), "slot 1"),
        (with_values("sensed", 0, 9), "slot 1: a state is not one of the channel's"),
    ],
)
def test_contradictions_are_refused(change: Any, message: str) -> None:
    changed(change)
    with pytest.raises(InputError, match=message) as error:
        read_log(PATH)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("log.parquet: ")


def test_feedback_that_contradicts_the_selection_is_refused(log: DecisionLog) -> None:
    unselected = int(np.flatnonzero(~log.selected[0])[0])
    for field, value, message in (
        ("reported_after", 1, "feedback of a channel that is not selected"),
        ("selected", True, "more channels are selected than there are users"),
    ):
        array = getattr(log, field).copy()
        array[0, unselected] = value
        with pytest.raises(InputError, match=message):
            dataclasses.replace(log, **{field: array}).check()
    chosen = int(np.flatnonzero(log.selected[0])[0])
    available = log.available.copy()
    available[0, chosen] = False
    with pytest.raises(InputError, match="a channel is selected that is not available"):
        dataclasses.replace(log, available=available).check()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is not a Parquet file"), (b"slot,channel\n", "is not a Parquet file"), (b"PAR1....", "is damaged")],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    PATH.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_log(PATH)
    for missing in ("missing.parquet", "."):
        with pytest.raises(InputError, match=r"cannot be read: No such file|is a folder, not a file"):
            read_log(Path(missing))
