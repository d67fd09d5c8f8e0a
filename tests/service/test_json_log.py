"""The log of the service: lines of JSON of bounded length that never delay it."""

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idleband.service.json_log import MAX_ERROR, MAX_TEXT, MAX_WAITING, JsonFormatter, LogWriter
from tests.service.running import NEW, as_command


def record(message: str, **fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "levelname": "INFO", **fields})


def test_line_has_time_level_event_and_fields() -> None:
    line = json.loads(JsonFormatter().format(record("late report", allocator="main", slots={"main": 3})))
    assert (line["level"], line["event"], line["allocator"]) == ("info", "late report", "main")
    assert line["slots"] == {"main": 3}
    assert len(line["time"]) == len("2026-01-01T00:00:00.000")


def test_long_values_are_cut() -> None:
    long = "x" * 10**6
    try:
        raise ValueError(long)
    except ValueError:
        error = sys.exc_info()
    line = JsonFormatter().format(record(long, path=long, slots={"main": long}, number=5, exc_info=error))
    assert len(line) < 3 * (MAX_TEXT + 10) + MAX_ERROR + 200
    assert json.loads(line)["number"] == 5
    assert json.loads(line)["path"] == "x" * MAX_TEXT + "..."


@pytest.fixture
def pipe() -> Iterator[tuple[int, LogWriter]]:
    """A pipe that is not read, and a writer to it."""
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        yield reading, LogWriter(stream)
        os.close(reading)


def test_lines_beyond_the_bound_are_dropped_and_counted(pipe: tuple[int, LogWriter]) -> None:
    reading, writer = pipe
    writer.setFormatter(JsonFormatter())
    count = 2 * MAX_WAITING + 1000
    for number in range(count):  # returns, although the pipe is full
        writer.handle(record("event", number=number, text="x" * 200))
    writer.flush(0.01)
    lines = []
    with open(reading, closefd=False) as file:
        while sum(line.get("count", 1) for line in lines) < count:
            lines.append(json.loads(file.readline()))
    numbers = [line["number"] for line in lines if "number" in line]
    assert numbers == sorted(numbers)
    assert len(numbers) < count
    assert {line["event"] for line in lines if "count" in line} == {"log lines dropped"}


def test_record_that_cannot_be_formatted_is_logged() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.handle(record("%d", args=("no number",)))
    writer.flush()
    assert json.loads(stream.getvalue())["event"] == "log record cannot be formatted"


def test_standard_error_that_is_not_read_does_not_hang_the_service(tmp_path: Path) -> None:
    with as_command(tmp_path / "data", *NEW, read_log=False) as service:
        for _ in range(300):  # the lines of these refusals are larger than the pipe
            assert service.get("/nothing/" + "x" * 2000).status == 404
        assert service.end() == 0
