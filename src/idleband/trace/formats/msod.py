"""Measured spectrum occupancy data (MSOD) of NIST and NTIA: JSON headers, each after its length, then powers in dBm."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from idleband.errors import InputError, shown
from idleband.trace.clock import iso_time
from idleband.trace.files import exactly, opened
from idleband.trace.metadata import MAX_CHANNELS, Metadata, describing, names_of_frequencies
from idleband.trace.recording import Chunk, ImportOptions, Recording, chunk_slots

DESCRIPTION = "MSOD of NIST and NTIA: JSON headers, then binary powers"

START = re.compile(rb"\s*[0-9]{1,7}\s*\{\s*\"")
TYPES: dict[str, Any] = {"int8": np.int8, "int16": np.dtype("<i2"), "float32": np.dtype("<f4")}
MAX_HEADER = 10**6


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file begins with a length and a JSON object that has a type of message."""
    return START.match(head) is not None and b'"Type"' in head[:100_000]


@dataclass(frozen=True)
class _Message:
    """A data message: its header and where its values begin."""

    header: dict[str, Any]
    offset: int
    channels: int
    slots: int | None  # None: as many as the file holds
    dtype: Any


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a recording; files are consecutive in time and have the same channels."""
    first = _first_message(paths[0])
    parameters = first.header["mPar"]
    low, high, K = float(parameters["fStart"]), float(parameters["fStop"]), first.channels
    edges = np.linspace(low, high, K + 1)
    durations: list[Any] = [first.header.get("Ta"), parameters.get("tm")]
    slot_s = next((float(s) for s in durations if _positive(s)), options.slot_s or 1.0)
    started: Any = first.header.get("t1", first.header.get("t"))
    with describing(paths[0]):
        metadata = Metadata(
            K=K, slot_s=slot_s, channel_names=names_of_frequencies((edges[:-1] + edges[1:]) / 2),
            freq_low_hz=tuple(edges[:-1].tolist()), freq_high_hz=tuple(edges[1:].tolist()), power_unit="dBm",
            start=iso_time(float(started)) if _positive(started) else None,
        )  # fmt: skip

    def chunks() -> Iterator[Chunk]:
        for path in paths:
            yield from _values(path, first)

    detector = str(parameters.get("Det", ""))
    notes = [f"detector: {detector}"] if detector else []
    return Recording("msod", metadata, ("power",), chunks, notes=notes)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _first_message(path: Path) -> _Message:
    with opened(path) as file:
        return _message(file, path, 0)


def _message(file: IO[bytes], path: Path, offset: int) -> _Message:
    """Read headers up to one that describes data."""
    for _ in range(10):
        place = f"{path}, byte {offset}"
        digits, skipped = b"", 0
        while (sign := file.read(1)) and (sign.isspace() or sign.isdigit()) and len(digits) < 8:
            digits += sign.strip()
            skipped += 1
        if sign != b"{" or not 2 <= int(digits or 0) <= MAX_HEADER:
            raise InputError(f"{place}: expected a length and a JSON header, found {shown(digits + sign)}")
        text = b"{" + exactly(file, int(digits) - 1, path, offset, "a JSON header")
        try:
            header = json.loads(text)
        except ValueError as error:
            raise InputError(f"{place}: the JSON header is damaged: {error}") from None
        offset += skipped + int(digits)
        if header.get("Type") == "Data":
            return _checked(header, offset, place)
    raise InputError(f"{path}, byte {offset}: ten headers and none of type Data")


def _checked(header: dict[str, Any], offset: int, place: str) -> _Message:
    parameters = header.get("mPar")
    if not isinstance(parameters, dict) or not all(_positive(parameters.get(key)) for key in ("n", "fStart", "fStop")):
        raise InputError(f"{place}: mPar must contain n, fStart and fStop")
    n, low, high = (parameters[key] for key in ("n", "fStart", "fStop"))
    if n != int(n) or n > MAX_CHANNELS or high <= low:
        raise InputError(f"{place}: n = {n:g} channels from {low:g} to {high:g} Hz")
    K = int(n)
    kind = str(header.get("DataType", "")).rpartition(" ")[2]
    if kind not in TYPES or str(header.get("Compression", "None")).lower() not in ("none", "nan"):
        raise InputError(
            f"{place}: DataType {shown(header.get('DataType'))} with Compression {shown(header.get('Compression'))};"
            f" only uncompressed {', '.join(TYPES)} can be read"
        )
    slots: Any = header.get("nM")
    return _Message(header, offset, K, int(slots) if _positive(slots) else None, np.dtype(TYPES[kind]))


def _values(path: Path, first: _Message) -> Iterator[Chunk]:
    """Read the data messages of a file."""
    with opened(path) as file:
        offset = 0
        while True:
            message = _message(file, path, offset)
            if message.header["mPar"]["n"] != first.header["mPar"]["n"] or any(
                message.header["mPar"][key] != first.header["mPar"][key] for key in ("fStart", "fStop")
            ):
                raise InputError(f"{path}, byte {offset}: other channels than those of the first message")
            offset = message.offset
            width = message.channels * message.dtype.itemsize
            left = message.slots
            while left is None or left > 0:
                n = chunk_slots(message.channels) if left is None else min(left, chunk_slots(message.channels))
                data = file.read(n * width)
                if not data and left is None:
                    if offset == message.offset:
                        raise InputError(f"{path}, byte {offset}: no values after the headers")
                    return
                if len(data) % width or (left is not None and len(data) < n * width):
                    at = offset + len(data) - len(data) % width
                    raise InputError(
                        f"{path}, byte {at}: the file ends within a slot; {message.channels} values per slot expected"
                    )
                yield {"power": np.frombuffer(data, message.dtype).reshape(-1, message.channels).astype(np.float32)}
                offset += len(data)
                left = None if left is None else left - n
            rest = file.read(1)
            if not rest:
                return
            file.seek(offset)
