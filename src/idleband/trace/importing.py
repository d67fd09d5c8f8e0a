"""Import recordings: detect the format, fill missing values, decide what is busy, and write a trace file.

Values pass through a spool on disk, because the noise floor of a channel is known after the whole recording has been
read. The memory that an import needs does not depend on the length of the recording.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from idleband import validation
from idleband.errors import InputError
from idleband.progress import SILENT, Progress
from idleband.trace.clock import slot_multiple
from idleband.trace.files import head_of
from idleband.trace.formats.registry import detect, format_of
from idleband.trace.metadata import MAX_SLOT_S, Metadata
from idleband.trace.missing import LIMIT, MAX_FILL, Filler
from idleband.trace.parquet import write_trace
from idleband.trace.recording import VALUES, Chunk, ImportOptions, Recording
from idleband.trace.selection import active_channels, select_channels
from idleband.trace.spool import Spool
from idleband.trace.threshold import ThresholdRule, notes_without_threshold, reward_rule, sample_step

MAX_BINS = 65536


@dataclass(frozen=True)
class Imported:
    """A recording with its threshold applied: chunks have the layer busy, and others where they are known."""

    format: str
    metadata: Metadata
    layers: tuple[str, ...]
    T: int
    chunks: Callable[[], Iterator[Chunk]]
    dimension: int


def import_trace(paths: Sequence[Path], out: Path, progress: Progress = SILENT, **options: Any) -> Imported:
    """Import recordings into a trace file; return what was imported. The options are those of `imported`."""
    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; give the name of the trace file")
    if any(out.exists() and path.exists() and os.path.samefile(out, path) for path in paths):
        raise InputError(f"--out {out}: is one of the files to import")
    with imported(paths, folder=out.parent, progress=progress, **options) as found:
        write_trace(out, found.metadata, found.layers, found.chunks(), found.dimension)
        return found


@contextmanager
def imported(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    threshold: Any = None,
    slot_s: Any = None,
    channels: Any = None,
    occupancy: Any = None,
    values: str | None = None,
    bins: Any = None,
    link: str | None = None,
    fill: Any = None,
    source: str | None = None,
    license: str | None = None,
    folder: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[Imported]:
    """Yield a recording with its threshold applied; its values lie in a temporary file while the context is open."""
    rule = ThresholdRule.parse(threshold, "--threshold")
    if values is not None:
        validation.choice(values, "--values", VALUES)
    options = ImportOptions(
        values=values,
        slot_s=None if slot_s is None else _number(slot_s, "--slot"),
        bins=None if bins is None else validation.whole(bins, "--bins", 1, MAX_BINS),
        link=link,
        channels=channels,
        fill=MAX_FILL if fill is None else validation.whole(fill, "--fill", 0, LIMIT),
    )
    if not paths:
        raise InputError("no file to import")
    name = _format(paths, format)
    progress.message(f"format: {name} ({format_of(name).DESCRIPTION}){'' if format else ', detected from the content'}")
    recording = format_of(name).read(paths, options)
    metadata = recording.metadata
    chosen = None if channels is None or recording.selected else select_channels(channels, metadata, "--channels")
    if chosen is not None:
        metadata = metadata.select(chosen)
    times = 1 if options.slot_s is None else slot_multiple(options.slot_s, metadata.slot_s)
    label = ", ".join(path.name for path in paths[:3]) + ", ..." * (len(paths) > 3)
    widths = {layer: metadata.K * (recording.dimension if layer == "contexts" else 1) for layer in recording.layers}
    names = {layer: () if layer == "contexts" else metadata.channel_names for layer in recording.layers}
    fillers = {layer: Filler(widths[layer], options.fill, names[layer], str(paths[0])) for layer in recording.layers}
    with Spool(folder, widths) as spool:
        for chunk in averaged(_filled(recording, chosen, fillers), times, metadata.power_unit):
            spool.append(chunk)
            progress.advance(len(next(iter(chunk.values()))))
        if not spool.T:
            raise InputError(f"{paths[0]}: contains no slot, or less than one of --slot")
        first = fillers[recording.layers[0]]
        metadata = replace(
            metadata,
            slot_s=metadata.slot_s * times,
            filled=sum(filler.filled for filler in fillers.values()),
            fill_rule=next((filler.rule for filler in fillers.values() if filler.filled), first.rule),
            source=source or f"{label} ({name})" + (f": {metadata.source}" if metadata.source else ""),
            license=license or metadata.license,
            notes=(*metadata.notes, *recording.notes),
        )
        decided, layers = decide(spool, metadata, recording.layers, rule, threshold, times)
        kept: Sequence[int] = range(decided.K)
        if occupancy is not None:
            share = sum(chunk["busy"].sum(axis=0) for chunk in with_busy(spool, decided, threshold)) / spool.T
            kept = active_channels(share, kept, occupancy, "--occupancy")

        def chunks() -> Iterator[Chunk]:
            every = with_busy(spool, decided, threshold)
            return every if occupancy is None else _columns(every, kept, recording.dimension)

        yield Imported(name, decided.select(kept), layers, spool.T, chunks, recording.dimension)


def _columns(chunks: Iterator[Chunk], channels: Sequence[int], dimension: int) -> Iterator[Chunk]:
    """Yield chunks of some channels."""
    for chunk in chunks:
        found = {}
        for name, values in chunk.items():
            shape = (len(values), -1, dimension) if name == "contexts" else values.shape
            found[name] = values.reshape(shape)[:, list(channels)]
        yield found


def _format(paths: Sequence[Path], given: str | None) -> str:
    """Return the format of all files."""
    if given is not None:
        format_of(given)
        for path in paths:
            head_of(path)  # refuses what cannot be read
        return given
    found = [detect(path) for path in paths]
    for path, other in zip(paths, found, strict=True):
        if other != found[0]:
            raise InputError(f"{path}: has the format {other}, but {paths[0]} has {found[0]}; import them one by one")
    return found[0]


def _number(value: Any, field: str) -> float:
    try:
        return validation.number(float(value), field, 0, MAX_SLOT_S, above=True)
    except (TypeError, ValueError):
        raise InputError(f"{field} = {value}: must be a number above 0, in seconds") from None


def _filled(recording: Recording, chosen: Sequence[int] | None, fillers: dict[str, Filler]) -> Iterator[Chunk]:
    """Yield the chunks of selected channels without missing values."""
    for chunk in recording.chunks():
        found = {}
        for layer in recording.layers:
            values = np.asarray(chunk[layer], np.float32)
            if chosen is not None:
                values = values[:, list(chosen)]
            found[layer] = fillers[layer].fill(values.reshape(len(values), -1))
        yield found


def averaged(chunks: Iterator[Chunk], times: int, unit: str) -> Iterator[Chunk]:
    """Yield slots that are `times` as long.

    Power is averaged in linear units (digits as they are); a slot is busy if a part of it is; rewards and contexts are
    averaged. An incomplete last slot is left out.
    """
    if times == 1:
        yield from chunks
        return
    rest: Chunk = {}
    for chunk in chunks:
        joined = {name: np.concatenate([rest[name], values]) if rest else values for name, values in chunk.items()}
        n = len(next(iter(joined.values()))) // times * times
        rest = {name: values[n:] for name, values in joined.items()}
        if n:
            yield {name: _merged(name, values[:n], times, unit) for name, values in joined.items()}


def _merged(name: str, values: Any, times: int, unit: str) -> Any:
    groups = np.asarray(values, float).reshape(-1, times, values.shape[1])
    if name == "busy":
        return groups.max(axis=1)
    if name == "power" and unit != "digits":
        return 10 * np.log10((10 ** (groups / 10)).mean(axis=1))
    return groups.mean(axis=1)


def decide(
    spool: Spool, metadata: Metadata, layers: tuple[str, ...], rule: ThresholdRule, given: Any, times: int
) -> tuple[Metadata, tuple[str, ...]]:
    """Return the metadata with threshold and rule, and the layers of the trace; a slot is `times` recorded ones."""
    if "busy" in layers and (given is None or "power" not in layers):
        if given is not None:
            raise InputError("--threshold: the recording contains busy and idle, not power")
        sentence = metadata.threshold_rule or "busy as recorded, without a threshold"
        if times > 1:
            sentence += f", in a part of the slot ({times} recorded slots)"
        return replace(metadata, threshold_rule=sentence), layers
    others = tuple(layer for layer in layers if layer != "busy")
    if "power" in layers:
        sample = spool.sample("power", sample_step(spool.T, metadata.K))
        level, sentence, notes = rule.apply(sample, metadata.power_unit, metadata.channel_names)
        kept = notes_without_threshold(metadata.notes)
        decided = replace(metadata, threshold=tuple(level.tolist()), threshold_rule=sentence, notes=(*kept, *notes))
        return decided, ("busy", *others)
    low = reward_rule(given, "--threshold")
    return replace(metadata, threshold_rule=f"busy where the reward is below {low:g}"), ("busy", *others)


def with_busy(spool: Spool, metadata: Metadata, given: Any) -> Iterator[Chunk]:
    """Yield the chunks of the spool with the layer busy."""
    threshold = np.array(metadata.threshold)
    for chunk in spool.chunks():
        if len(threshold) and "power" in chunk and ("busy" not in chunk or given is not None):
            chunk["busy"] = chunk["power"] > threshold
        elif "busy" in chunk:
            chunk["busy"] = chunk["busy"] > 0.5
        else:
            chunk["busy"] = chunk["reward"] < reward_rule(given)
        yield chunk
