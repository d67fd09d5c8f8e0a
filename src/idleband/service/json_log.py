"""The log: lines of JSON of bounded length on standard error, which never delay the service.

A pipe that is not read blocks its writer once it is full. Lines are therefore written by a thread of their
own. Beyond MAX_WAITING lines that wait, further ones are dropped and counted; the count is logged when there is space.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from queue import Full, Queue
from typing import Any, TextIO

from idleband.service.http_request_id import HTTP_REQUEST_ID

MAX_WAITING = 1000  # lines that wait to be written
MAX_TEXT = 500  # characters of a value in a line
MAX_ERROR = 4000  # characters of a traceback, counted from its end
FLUSH_TIMEOUT = 1.0  # seconds to wait for the last lines when the service ends
STANDARD_FIELDS = frozenset([*vars(logging.makeLogRecord({})), "message", "taskName", "color_message"])


class JsonFormatter(logging.Formatter):
    """Format log records as lines of JSON, with long values cut."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "event": _cut(record.getMessage()),
            **{key: _cut(value) for key, value in vars(record).items() if key not in STANDARD_FIELDS},
        }
        if identifier := HTTP_REQUEST_ID.get():
            fields["http_request_id"] = identifier.decode()
        if record.exc_info:
            error = self.formatException(record.exc_info)
            fields["error"] = error if len(error) <= MAX_ERROR else f"...{error[-MAX_ERROR:]}"
        return json.dumps(fields, default=lambda value: _cut(str(value)))


def _cut(value: Any) -> Any:
    """Return a value whose text is at most MAX_TEXT characters long."""
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."
    text = str(value)
    return value if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


class LogWriter(logging.Handler):
    """Write formatted records to a stream in a thread. `emit` does not wait."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: Queue[str] = Queue(MAX_WAITING)
        self._dropped = 0  # lines since the last one that was written
        threading.Thread(target=self._run, name="idleband-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # a record that cannot be formatted must not fail a request
            line = _line("error", "log record cannot be formatted", reason=_cut(repr(error)))
        try:
            self._lines.put_nowait(line)
        except Full:
            self._dropped += 1

    def flush(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Wait until all lines are written, but not longer than `timeout` seconds."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, timeout)

    def _run(self) -> None:
        while True:
            self._write(self._lines.get())
            if self._dropped:
                with self.lock or contextlib.nullcontext():  # not in the middle of `emit`
                    count, self._dropped = self._dropped, 0
                self._write(_line("warning", "log lines dropped", count=count))
            self._lines.task_done()

    def _write(self, line: str) -> None:
        """Write a line. Where it is not read, the thread waits here."""
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
            try:
                descriptor = self._stream.fileno()
            except (OSError, ValueError, AttributeError):  # not a file
                self._stream.write(f"{line}\n")
                return
            # Not through the buffer of the stream: a thread that waits in it would block the end of the process.
            left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
            while left:
                left = left[os.write(descriptor, left) :]


def _line(level: str, event: str, **fields: Any) -> str:
    return json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S"), "level": level, "event": event, **fields})


def log_as_json() -> LogWriter:
    """Write the log of this process as JSON to standard error; return the handler."""
    writer = LogWriter(sys.stderr)
    writer.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers, root.level = [writer], logging.INFO
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return writer
