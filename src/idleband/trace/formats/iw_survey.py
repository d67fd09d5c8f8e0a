"""Repeated output of `iw dev ... survey dump`: cumulative active and busy times per channel.

The share of busy time between two dumps is d(busy) / d(active). The reward is the idle share, and a channel is busy
in a slot if its idle share is below a half (or below the given threshold).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from idleband.errors import InputError, shown
from idleband.trace.clock import clock_of, parse_time
from idleband.trace.files import lines_of
from idleband.trace.metadata import Metadata
from idleband.trace.recording import Chunk, ImportOptions, Recording

DESCRIPTION = "repeated dumps of iw survey"

FREQUENCY = re.compile(r"\s+frequency:\s+([0-9.]+) MHz.*")
COUNTER = re.compile(r"\s+channel (active|busy) time:\s+([0-9]+) ms")
WIDTH_MHZ = 20.0


class Dump(NamedTuple):
    """Counters in ms per frequency in MHz, with the time of the dump if it is known."""

    place: str
    time: float | None
    counters: dict[float, tuple[int, int]]  # active, busy


def matches(head: bytes, path: Path) -> bool:
    """Return whether a text contains survey blocks."""
    return b"Survey data from " in head[:100_000] and b"frequency:" in head[:100_000]


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open dumps: one file with a line of time before each dump, or one file per dump."""
    dumps = [dump for path in paths for dump in _dumps(path)]
    if len(dumps) < 2:
        raise InputError(
            f"{paths[0]}: holds one survey; the counters of two are needed. Give several files, or one with a line of"
            " time (`date +%s`) before each dump"
        )
    timed = [dump.time for dump in dumps if dump.time is not None]
    if len(timed) == len(dumps):
        clock = clock_of(timed, [dump.place for dump in dumps], 1.0, options.fill, options.slot_s)
        slot_s, start, ends, notes = clock.slot_s, clock.start, clock.slots[1:] - 1, list(clock.notes)
    elif options.slot_s is None:
        raise InputError(f"{dumps[0].place}: the dumps have no times; give the seconds between them with --slot")
    else:
        slot_s, start, ends, notes = options.slot_s, None, np.arange(len(dumps) - 1), []
    frequencies = sorted({frequency for dump in dumps for frequency in dump.counters})
    share = np.full((int(ends[-1]) + 1, len(frequencies)), np.nan)
    resets = 0
    for at, before, after in zip(ends, dumps[:-1], dumps[1:], strict=True):
        for k, frequency in enumerate(frequencies):
            if frequency in after.counters:
                (active, busy), (was_active, was_busy) = (
                    after.counters[frequency],
                    before.counters.get(frequency, (0, 0)),
                )
                if active < was_active or busy < was_busy:  # the counters began again
                    was_active = was_busy = 0
                    resets += 1
                if frequency in before.counters and active > was_active:
                    share[at, k] = min(1.0, (busy - was_busy) / (active - was_active))
    visited = [k for k in range(len(frequencies)) if not np.isnan(share[:, k]).all()]
    if not visited:
        raise InputError(f"{dumps[-1].place}: no channel was active between the dumps")
    if len(visited) < len(frequencies):
        notes.append(f"{len(frequencies) - len(visited)} channels that were not active between dumps were left out")
    if resets:
        notes.append(f"counters began again {resets} times")
    low = tuple(1e6 * (frequencies[k] - WIDTH_MHZ / 2) for k in visited)
    metadata = Metadata(
        K=len(visited), slot_s=slot_s, channel_names=tuple(f"{frequencies[k]:g} MHz" for k in visited),
        freq_low_hz=low, freq_high_hz=tuple(edge + 1e6 * WIDTH_MHZ for edge in low), start=start,
    )  # fmt: skip

    def chunks() -> Iterator[Chunk]:
        yield {"reward": (1 - share[:, visited]).astype(np.float32)}

    return Recording("iw_survey", metadata, ("reward",), chunks, notes=notes)


def _dumps(path: Path) -> Iterator[Dump]:
    """Yield the dumps of a file. A line of time begins a new one."""
    time: float | None = None
    place = f"{path}, line 1"
    found: dict[float, list[int]] = {}
    active: dict[float, tuple[int, int]] = {}
    frequency = None
    some = False
    for number, line in lines_of(path):
        here = f"{path}, line {number}"
        if match := FREQUENCY.fullmatch(line):
            frequency = float(match[1])
            found[frequency] = [0, 0]
        elif match := COUNTER.fullmatch(line):
            if frequency is None:
                raise InputError(f"{here}: a time before any frequency")
            found[frequency][["active", "busy"].index(match[1])] = int(match[2])
            _keep(active, frequency, found[frequency])
        elif re.match(r"\s+channel (active|busy) time:", line):
            raise InputError(f"{here}: {shown(line.strip())}: expected a time in ms")
        elif line.startswith("Survey data from ") or re.match(r"\s+[A-Za-z][\w ]*:", line):  # fields that are not used
            some = True
        elif (moment := parse_time(re.sub(r"^(#|time:|date:)\s*", "", line.strip(), flags=re.IGNORECASE))) is not None:
            if some:
                yield Dump(place, time, active)
            time, place, found, active, frequency, some = moment, here, {}, {}, None, False
        elif line.strip():
            raise InputError(f"{here}: {shown(line)} does not belong to a survey")
    if some:
        yield Dump(place, time, active)


def _keep(active: dict[float, tuple[int, int]], frequency: float, counters: list[int]) -> None:
    """Keep the entry with the larger active time where a frequency appears twice."""
    if frequency not in active or counters[0] >= active[frequency][0]:
        active[frequency] = (counters[0], counters[1])
