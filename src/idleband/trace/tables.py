"""Interpret tables with one row per slot and one column per channel."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from idleband.channels import NAME, channel_text
from idleband.errors import InputError, counted, shown
from idleband.trace.clock import Clock, clock_of
from idleband.trace.metadata import MAX_CHANNELS, Metadata, describing, names_of_frequencies
from idleband.trace.recording import MAX_POWER, Chunk, ImportOptions, Recording, chunk_slots
from idleband.trace.selection import FREQUENCY, UNITS, select_channels

TIMES = ("time", "timestamp", "datetime", "date", "t", "seconds", "time_s", "unix_time", "epoch")
SLOTS = ("slot", "index", "i", "row", "")
PREFIX = re.compile(r"(busy|idle|power_dbm|power|reward)[ _:.]+(.+)", re.IGNORECASE)
BUSY_NOTE = "the numbers 0 and 1 are taken as 1 = busy; --values idle is the opposite"


class Batch(NamedTuple):
    """Consecutive rows of a table."""

    places: Sequence[int]  # line or row number of each row, for messages
    times: Any  # seconds or slot numbers, or None
    values: Any  # (n, columns), or None in a pass that reads times only


# Yields the batches of a table, without values in the first pass.
Batches = Callable[[bool], Iterator[Batch]]


@dataclass(frozen=True)
class Columns:
    """The meaning of the columns of a table."""

    layers: dict[str, tuple[int, ...]]  # column of each channel
    names: tuple[str, ...]
    edges: tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper in Hz, nan where unknown, or empty
    time: int | None  # column of times
    slots: bool = False  # times are slot numbers
    idle: bool = False  # the numbers of the layer busy are 1 = idle


def interpret(header: Sequence[str], options: ImportOptions, place: str, *, named: bool = True) -> Columns:
    """Return the meaning of columns from their names.

    Columns called busy_X, idle_X, power_X or reward_X belong to channel X. Without such names, every column except one
    of times belongs to a channel, and `options.values` or the numbers determine what they mean.
    """
    lowered = [str(name).strip().lower() for name in header] if named else []
    time = next((i for i, name in enumerate(lowered) if name in TIMES), None)
    slots = time is None and bool(lowered) and lowered[0] in SLOTS and len(lowered) > 1
    if slots:
        time = 0
    rest = [i for i in range(len(header)) if i != time]
    found = {i: match for i in rest if named and (match := PREFIX.fullmatch(str(header[i]).strip()))}
    if not rest or len(rest) > MAX_CHANNELS:
        raise InputError(f"{place}: {len(rest)} columns of values; there must be 1 to {MAX_CHANNELS}")
    if not found:
        names, frequencies = _names([str(header[i]) for i in rest], place) if named else ((), ())
        return select_columns(Columns({"": tuple(rest)}, names, _edges(frequencies), time, slots), options)
    labels = list(dict.fromkeys(match[2] for match in found.values()))
    layers: dict[str, tuple[int, ...]] = {}
    kinds = list(dict.fromkeys(match[1].lower() for match in found.values()))
    for one, other in (("busy", "idle"), ("power", "power_dbm")):
        if one in kinds and other in kinds:
            raise InputError(f"{place}: columns of {one} and of {other}; one of them is enough")
    for kind in kinds:
        of = {match[2]: i for i, match in found.items() if match[1].lower() == kind}
        absent = [label for label in labels if label not in of]
        if absent:
            raise InputError(f"{place}: no column {kind}_{absent[0]}, though other columns belong to this channel")
        if sum(match[1].lower() == kind for match in found.values()) != len(of):
            raise InputError(f"{place}: two columns have the same name")
        layers[{"power_dbm": "power", "idle": "busy"}.get(kind, kind)] = tuple(of[label] for label in labels)
    plain = labels == [str(k) for k in range(len(labels))]
    names, frequencies = ((), ()) if plain else _names(labels, place)
    return select_columns(Columns(layers, names, _edges(frequencies), time, slots, "idle" in kinds), options)


def select_columns(columns: Columns, options: ImportOptions) -> Columns:
    """Return the columns of the channels that are wanted; the others may contain anything."""
    if options.channels is None:
        return columns
    K, (low, high) = len(next(iter(columns.layers.values()))), columns.edges
    every = Metadata(K, channel_names=columns.names, freq_low_hz=low, freq_high_hz=high)
    wanted = select_channels(options.channels, every, "--channels")
    some = every.select(wanted)
    layers = {layer: tuple(of[k] for k in wanted) for layer, of in columns.layers.items()}
    return replace(columns, layers=layers, names=some.channel_names, edges=(some.freq_low_hz, some.freq_high_hz))


def _names(labels: Sequence[str], place: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return channel names, and frequencies: nan where a label is none, empty if none of them is."""
    centres = []
    for label in labels:
        centres.append(math.nan)
        if found := FREQUENCY.fullmatch(label.strip()):
            centres[-1] = float(found[1]) * UNITS[found[2].lower()]
        elif label.strip().replace(".", "", 1).isdecimal() and float(label) >= 1e5:  # a frequency in Hz
            centres[-1] = float(label)
    known = [centre for centre in centres if not math.isnan(centre)]
    for centre, count in Counter(known).items():
        if count > 1:
            raise InputError(f"{place}: {centre:.12g} Hz is the frequency of {count} channels; frequencies must differ")
    names = []
    for label in labels:
        text = re.sub(r"[^A-Za-z0-9 ._+/-]", "-", label.strip())[:40].strip(" ")
        text = f"ch{text}" if text.isdecimal() or not re.fullmatch(NAME, text) else text
        names.append(text[:40])
    if len(known) == len(labels) and all(label.strip().replace(".", "", 1).isdecimal() for label in labels):
        names = list(names_of_frequencies(centres)) or names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{place}: channel {shown(twice)} appears twice; channel names must differ")
    return tuple(names), tuple(centres) if known else ()


def read_table(
    form: str, columns: Columns, batches: Batches, options: ImportOptions, place: str, word: str
) -> Recording:
    """Return the recording of a table; `place` names the file and `word` what counts its rows, in messages."""
    first = next(batches(True), None)
    if first is None or not len(first.places):
        raise InputError(f"{place}: contains no row of values")
    layers, idle = dict(columns.layers), columns.idle
    notes = []
    if "" in layers:
        kind = options.values or guess_values(first.values[:, list(layers[""])], place)
        if options.values is None and kind == "busy":
            notes.append(BUSY_NOTE)
        idle = kind == "idle"
        layers = {"busy" if kind == "idle" else kind: layers[""]}
    clock = _clock(columns, batches, options, place, word)
    K = len(next(iter(layers.values())))
    low, high = columns.edges
    with describing(place):
        metadata = Metadata(
            K=K, slot_s=clock.slot_s if clock else options.slot_s or 1.0, channel_names=columns.names,
            freq_low_hz=low, freq_high_hz=high, start=clock.start if clock else None,
        )  # fmt: skip
    if clock is None and options.slot_s is None:
        notes.append("the file holds no times; the slot is taken as 1 s (--slot)")
    notes += clock.notes if clock else ()

    def chunks() -> Iterator[Chunk]:
        for batch in batches(True):
            chunk = {layer: batch.values[:, list(wanted)].astype(np.float32) for layer, wanted in layers.items()}
            for layer, values in chunk.items():
                check_values(layer, values, batch.places, f"{place}, {word}", columns.names)
            if idle:
                chunk["busy"] = 1 - chunk["busy"]
            yield chunk

    in_order = chunks if clock is None or len(clock.slots) == clock.T else lambda: on_grid(chunks(), clock)
    return Recording(form, metadata, tuple(layers), in_order, notes=notes, selected=options.channels is not None)


def on_grid(chunks: Iterator[Chunk], clock: Clock) -> Iterator[Chunk]:
    """Yield chunks with a row of nan in every slot that is missing."""
    row = 0
    before = -1  # slot of the last row
    for chunk in chunks:
        n = len(next(iter(chunk.values())))
        slots = clock.slots[row : row + n]
        size = int(slots[-1]) - before
        grid = {}
        for layer, values in chunk.items():
            grid[layer] = np.full((size, *values.shape[1:]), np.nan, np.float32)
            grid[layer][slots - before - 1] = values
        yield grid
        row, before = row + n, int(slots[-1])


def _clock(columns: Columns, batches: Batches, options: ImportOptions, place: str, word: str) -> Clock | None:
    if columns.time is None:
        return None
    times: list[float] = []
    places: list[int] = []
    for batch in batches(False):
        times += list(batch.times)
        places += list(batch.places)
    if columns.slots:
        steps = np.diff(times)
        for i in np.flatnonzero((steps < 1) | (steps % 1 != 0))[:1]:
            raise InputError(
                f"{place}, {word} {places[i + 1]}: slot {times[i + 1]:g} after slot {times[i]:g}; slots must go up"
            )
        missing = steps.astype(np.int64) - 1
        for i in np.flatnonzero(missing > options.fill)[:1]:
            raise InputError(
                f"{place}, {word} {places[i + 1]}: {missing[i]} slots are missing before this row, more than"
                f" {options.fill}; allow more with --fill, or cut the file here"
            )
        absent = int(missing.sum())
        note = (f"{counted(absent, 'slot')} missing by the numbers in the file",) if absent else ()
        return Clock(options.slot_s or 1.0, np.concatenate([[0], np.cumsum(missing + 1)]), None, note)
    whole = all(time % 1 == 0 for time in times[:1000])
    steps = np.diff(times[:1000])
    resolution = 1.0 if whole and len(steps) and np.median(steps) <= 5 else 0.0
    return clock_of(times, _Places(place, word, places), resolution, options.fill, options.slot_s)


class _Places(Sequence[str]):
    """The place of each row, made when it is needed."""

    def __init__(self, place: str, word: str, numbers: Sequence[int]) -> None:
        self.place, self.word, self.numbers = place, word, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: Any) -> Any:
        return f"{self.place}, {self.word} {self.numbers[i]}"


def _edges(frequencies: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return edges half a spacing beside each centre; empty where the spacing is not known."""
    known = np.sort([f for f in frequencies if not math.isnan(f)])
    if len(known) < 2:
        return (), ()
    half = float(np.min(np.diff(known))) / 2
    return tuple(f - half for f in frequencies), tuple(f + half for f in frequencies)


def guess_values(values: Any, place: str) -> str:
    """Return what numbers mean: busy where all are 0 or 1, power where some are outside 0 to 1."""
    known = values[~np.isnan(values)]
    if np.isin(known, (0, 1)).all():
        return "busy"
    if ((known < 0) | (known > 1)).any():
        return "power"
    raise InputError(
        f"{place}: numbers from 0 to 1 have several meanings; choose one: --values reward, power, busy or idle"
    )


def check_values(layer: str, values: Any, places: Sequence[int], place: str, names: Sequence[str] = ()) -> None:
    """Refuse numbers that a layer cannot have; -inf as a power is missing."""
    if layer == "power":
        values[np.isneginf(values)] = np.nan
        with np.errstate(invalid="ignore"):
            bad, expected = np.abs(values) > MAX_POWER, f"a power from -{MAX_POWER:.0f} to {MAX_POWER:.0f}"
    elif layer == "busy":
        bad, expected = ~(np.isnan(values) | np.isin(values, (0, 1))), "0 or 1"
    else:
        with np.errstate(invalid="ignore"):
            bad, expected = (values < 0) | (values > 1), "a reward from 0 to 1"
    for row, k in np.argwhere(bad)[:1]:
        of = channel_text(int(k), names)
        raise InputError(f"{place} {places[row]}: {values[row, k]:g} is not {expected} ({of}; --values, --channels)")


def batch_size(columns: int) -> int:
    """Return the number of rows of a batch."""
    return chunk_slots(max(1, columns))
