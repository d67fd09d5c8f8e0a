"""k7 files of connectivity measurements in IEEE 802.15.4 networks: packet delivery ratio per link, channel and round.

The reward of a channel in a slot is the packet delivery ratio: of one link, or the mean over all links weighted by the
number of packets. A slot is one round over all channels.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import InputError, counted, shown
from idleband.trace.clock import iso_time, parse_time
from idleband.trace.files import lines_of
from idleband.trace.metadata import Metadata
from idleband.trace.recording import Chunk, ImportOptions, Recording

DESCRIPTION = "k7: packet delivery ratio per channel"

COLUMNS = ("datetime", "src", "dst", "pdr")
FIRST, SPACING_MHZ, LOWEST_MHZ, WIDTH_MHZ = 11, 5.0, 2405.0, 2.0  # channels 11 to 26 of IEEE 802.15.4 at 2.4 GHz


def matches(head: bytes, path: Path) -> bool:
    """Return whether a JSON line is followed by a header with the columns of k7."""
    lines = head.decode("utf-8-sig", "replace").splitlines()
    return len(lines) > 1 and lines[0].startswith("{") and "pdr" in lines[1].split(",") and "src" in lines[1].split(",")


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open one file."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: one k7 file can be imported at a time")
    path = paths[0]
    wanted = _link(options.link)
    lines = lines_of(path)
    header = _json_header(lines, path)
    columns = {name.strip(): i for i, name in enumerate(next(lines, (2, ""))[1].split(","))}
    column = next((columns[name] for name in ("channel", "channels") if name in columns), None)
    if column is None or any(name not in columns for name in COLUMNS):
        raise InputError(f"{path}, line 2: expected the columns datetime, src, dst, channel, mean_rssi, pdr, tx_count")
    sums: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    times: dict[int, float] = {}
    seen: set[int] = set()
    current, round_number, links = None, 0, 0
    for number, line in lines:
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        row = _fields(line, place)
        if len(row) != len(columns):
            raise InputError(f"{place}: has {counted(len(row), 'field')}, expected {len(columns)}")
        channel = _channel(row[column], place)
        if channel is None:
            continue
        if channel != current:
            if channel in seen:
                round_number, seen = round_number + 1, set()
            seen.add(channel)
            current = channel
        time = parse_time(row[columns["datetime"]])
        if time is None:
            raise InputError(f"{place}: {shown(row[columns['datetime']])} is not a time")
        if round_number not in times:
            if times and time < times[round_number - 1]:
                raise InputError(f"{place}: the time of a round is before that of the previous one")
            times[round_number] = time
        if wanted is not None and (row[columns["src"]].strip(), row[columns["dst"]].strip()) != wanted:
            continue
        links += 1
        ratio, packets = _numbers(row, columns, place)
        entry = sums[round_number, channel]
        entry[0] += ratio * packets
        entry[1] += packets
    if not links:
        what = f"no row of link {options.link}" if wanted else "no row of values"
        raise InputError(f"{path}: contains {what}")
    return _recording(header, sums, times, options)


def _recording(
    header: dict[str, Any],
    sums: dict[tuple[int, int], list[float]],
    times: dict[int, float],
    options: ImportOptions,
) -> Recording:
    channels = sorted({channel for _, channel in sums})
    values = np.full((max(times) + 1, len(channels)), np.nan, np.float32)
    for (at, channel), (total, packets) in sums.items():
        if packets:
            values[at, channels.index(channel)] = total / packets
    notes = [
        "packet delivery ratio of " + (f"link {options.link}" if options.link else "all links, weighted by packets")
    ]
    if len(values) > 1 and np.isnan(values[-1]).any():
        values = values[:-1]
        notes.append("the last round is incomplete and was left out")
    moments = [times[at] for at in sorted(times)]
    steps = np.diff(moments)
    slot_s = float(np.median(steps)) if len(steps) and np.median(steps) > 0 else options.slot_s or 1.0
    centres = [1e6 * (LOWEST_MHZ + SPACING_MHZ * (channel - FIRST)) for channel in channels]
    metadata = Metadata(
        K=len(channels), slot_s=slot_s, channel_names=tuple(f"ch{channel}" for channel in channels),
        freq_low_hz=tuple(c - 5e5 * WIDTH_MHZ for c in centres),
        freq_high_hz=tuple(c + 5e5 * WIDTH_MHZ for c in centres),
        start=iso_time(moments[0]), source=str(header.get("location", "")),
    )  # fmt: skip

    def chunks() -> Iterator[Chunk]:
        yield {"reward": values}

    return Recording("k7", metadata, ("reward",), chunks, notes=notes)


def _link(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    source, dash, destination = text.partition("-")
    if not dash or not source or not destination:
        raise InputError(f"--link = {shown(text)}: must be SRC-DST, such as 0-18")
    return source.strip(), destination.strip()


def _json_header(lines: Iterator[tuple[int, str]], path: Path) -> dict[str, Any]:
    try:
        found = json.loads(next(lines)[1])
    except (StopIteration, ValueError) as error:
        raise InputError(f"{path}, line 1: expected a JSON object: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}, line 1: expected a JSON object")
    return found


def _fields(line: str, place: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise InputError(f"{place}: is not a row of CSV: {error}") from None


def _channel(text: str, place: str) -> int | None:
    """Return the number of a channel, written as 11, 11.0 or [11]; None where it is not known."""
    text = text.strip().strip("[]")
    if not text:
        return None
    try:
        channel = float(text)
        if channel % 1 or not 0 <= channel <= 1000:
            raise ValueError
    except ValueError:
        raise InputError(f"{place}: {shown(text)} is not a channel") from None
    return int(channel)


def _numbers(row: list[str], columns: dict[str, int], place: str) -> tuple[float, float]:
    try:
        ratio = float(row[columns["pdr"]])
        packets = float(row[columns["tx_count"]]) if "tx_count" in columns else 1.0
    except ValueError:
        raise InputError(f"{place}: pdr and tx_count must be numbers") from None
    if not (0 <= ratio <= 1 and 0 <= packets < 1e12):
        raise InputError(f"{place}: pdr = {ratio:g}: must be from 0 to 1")
    return ratio, packets
