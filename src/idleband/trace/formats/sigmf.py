"""SigMF recordings: busy from annotations, or power from short Fourier transforms of the samples.

The bandwidth is divided into equal channels. With annotations, a channel is busy in a slot if an annotation covers its
centre (or has its own centre in the channel) at any time in the slot. Otherwise the power of a slot is the mean over
the transforms in it, in dB relative to one digit of the samples. Interleaved streams of a recording with several
channels become channels side by side.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import InputError, shown
from idleband.trace.clock import iso_time, parse_time
from idleband.trace.files import reading
from idleband.trace.metadata import Metadata, describing, names_of_frequencies
from idleband.trace.recording import Chunk, ImportOptions, Recording, chunk_slots

DESCRIPTION = "SigMF: annotations, or power of the samples (needs the package sigmf)"

BINS = 64  # channels
TRANSFORMS = 32  # per slot; the mean of 32 has a standard deviation of 0.8 dB in noise
MIN_POWER = 1e-20  # of samples that are all zero
META, DATA, ARCHIVE = ".sigmf-meta", ".sigmf-data", ".sigmf"


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file is the metadata of a recording, an archive, or samples with metadata beside them."""
    if path.name.endswith(DATA):
        return path.with_name(path.name.removesuffix(DATA) + META).exists()
    if path.suffix == ARCHIVE:
        return True
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return begin.startswith(b"{") and b'"global"' in head and b'"core:' in head


@dataclass(frozen=True)
class _Signal:
    """A recording and its division into slots and channels."""

    handle: Any
    path: Path
    rate: float
    low: float  # lower edge of the band, Hz
    band: float  # width of the band, Hz
    count: int  # samples per stream
    streams: int
    complex: bool
    middle: float  # of unsigned samples
    bins: int
    samples: int  # per slot

    @property
    def slots(self) -> int:
        return self.count // self.samples


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open one recording."""
    if len(paths) > 1:
        raise InputError(f"{paths[1]}: one SigMF recording can be imported at a time")
    path = paths[0]
    signal = _signal(_open(path), path, options)
    annotations = list(signal.handle.get_annotations())
    kind = options.values or ("busy" if annotations else "power")
    if kind not in ("busy", "power"):
        raise InputError(f"--values = {kind}: a SigMF recording gives busy (annotations) or power")
    if kind == "busy" and not annotations:
        raise InputError(f"{path}: has no annotations; --values power computes the power of the samples")
    edges = signal.low + signal.band / signal.bins * np.arange(signal.bins + 1)
    names = names_of_frequencies((edges[:-1] + edges[1:]) / 2)
    if signal.streams > 1:
        names = tuple(f"rx{stream} {name}" for stream in range(signal.streams) for name in names)
    about = signal.handle.get_global_info()
    moment = _capture(signal.handle, "core:datetime")
    time = parse_time(moment) if isinstance(moment, str) else None
    with describing(path):
        metadata = Metadata(
            K=signal.streams * signal.bins, slot_s=signal.samples / signal.rate, channel_names=names,
            freq_low_hz=tuple(edges[:-1].tolist()) * signal.streams,
            freq_high_hz=tuple(edges[1:].tolist()) * signal.streams,
            power_unit="dB", start=None if time is None else iso_time(time),
            source=str(about.get("core:description", "")), license=str(about.get("core:license", "")),
        )  # fmt: skip
    if kind == "power":
        return Recording("sigmf", metadata, ("power",), lambda: _powers(signal))
    busy = _annotated(signal, annotations)
    notes = [f"busy by {len(annotations)} annotations, not by power"]
    return Recording("sigmf", metadata, ("busy",), lambda: iter([{"busy": busy}]), notes=notes)


def _open(path: Path) -> Any:
    try:
        import sigmf
        from sigmf.error import SigMFError
    except ImportError as error:
        raise InputError(f"{path}: SigMF needs {error.name}; pip install 'idleband[sigmf]'") from None
    _check_metadata(path)
    with reading(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "Data source")  # fewer samples than the metadata require
        try:
            handle = sigmf.fromfile(path, autoscale=False)
        except (UserWarning, SigMFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: is not a SigMF recording that can be read: {error}") from None
    if not hasattr(handle, "read_samples"):
        raise InputError(f"{path}: is a SigMF collection; import one of its recordings")
    return handle


def _check_metadata(path: Path) -> None:
    """Refuse metadata that are not JSON, with the line; the package sigmf would leave the file open."""
    meta = path.with_name(path.name.removesuffix(DATA) + META) if path.name.endswith(DATA) else path
    if not meta.name.endswith(META):
        return
    with reading(meta):
        try:
            found = json.loads(meta.read_bytes().decode())
        except ValueError as error:
            raise InputError(f"{meta}: the metadata are damaged: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("global"), dict):
        raise InputError(f"{meta}: the metadata have no object 'global'")
    for key in ("captures", "annotations"):
        entries = found.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise InputError(f"{meta}: {key} must be a list of objects")


def _signal(handle: Any, path: Path, options: ImportOptions) -> _Signal:
    about = handle.get_global_info()
    kind = about.get("core:datatype")
    rate = about.get("core:sample_rate")
    if not isinstance(kind, str) or kind[:1] not in ("c", "r"):
        raise InputError(f"{path}: core:datatype = {shown(kind)} is not a type of samples")
    if not isinstance(rate, int | float) or not 0 < rate < 1e12:
        raise InputError(f"{path}: core:sample_rate = {shown(rate)}: must be above 0")
    streams = about.get("core:num_channels", 1)
    if not isinstance(streams, int) or not 1 <= streams <= 1000:
        raise InputError(f"{path}: core:num_channels = {shown(streams)}: must be from 1 to 1000")
    frequencies = {capture.get("core:frequency") for capture in handle.get_captures()} - {None}
    if len(frequencies) > 1:
        raise InputError(f"{path}: captures at {len(frequencies)} frequencies; split the recording")
    centre = _hz(frequencies.pop(), "core:frequency", path) if frequencies else 0.0
    bins = options.bins or BINS
    transform = bins if kind[0] == "c" else 2 * bins
    samples = TRANSFORMS * transform if options.slot_s is None else round(options.slot_s * rate)
    if samples < transform:
        raise InputError(
            f"--slot = {options.slot_s:g}: {samples} samples are fewer than a transform of {transform} needs"
        )
    count = int(handle.sample_count or 0)
    if count == 0:
        raise InputError(f"{path}: no samples were found; they must be in a file {DATA} beside the metadata")
    if count < samples:
        raise InputError(f"{path}: {count} samples are fewer than the {samples} of a slot")
    band = float(rate) if kind[0] == "c" else rate / 2
    low = centre - band / 2 if kind[0] == "c" else centre
    width = {"8": 8, "1": 16, "3": 32, "6": 64}[kind[2:3]] if kind[2:3] in "8136" else 0
    middle = float(2 ** (width - 1)) if kind[1:2] == "u" else 0.0
    return _Signal(
        handle, path, float(rate), low, band, count, streams, kind[0] == "c", middle, bins, samples
    )  # fmt: skip


def _hz(value: Any, field: str, path: Path) -> float:
    if isinstance(value, int | float) and abs(value) < 1e13:
        return float(value)
    raise InputError(f"{path}: {field} = {shown(value)}: must be a frequency in Hz")


def _capture(handle: Any, key: str) -> Any:
    captures = handle.get_captures()
    return captures[0].get(key) if captures else None


def _annotated(signal: _Signal, annotations: Sequence[dict[str, Any]]) -> Any:
    """Return busy, of shape (slots, channels), from annotations."""
    busy = np.zeros((signal.slots, signal.bins), np.float32)
    width = signal.band / signal.bins
    centres = signal.low + width * (np.arange(signal.bins) + 0.5)
    for number, annotation in enumerate(annotations):
        start: Any = annotation.get("core:sample_start")
        length: Any = annotation.get("core:sample_count", signal.count)
        if not all(isinstance(value, int) and value >= 0 for value in (start, length)):
            raise InputError(f"{signal.path}: annotation {number} has no valid core:sample_start and core:sample_count")
        low = _hz(annotation.get("core:freq_lower_edge", signal.low), "core:freq_lower_edge", signal.path)
        high = annotation.get("core:freq_upper_edge", signal.low + signal.band)
        high = _hz(high, "core:freq_upper_edge", signal.path)
        if not low <= high:
            raise InputError(f"{signal.path}: annotation {number} goes from {low:g} to {high:g} Hz")
        covered = (centres >= low) & (centres <= high) | (np.abs(centres - (low + high) / 2) <= width / 2)
        first, last = start // signal.samples, -(-(start + length) // signal.samples)
        busy[first:last, covered] = 1
    return np.tile(busy, signal.streams)


def _powers(signal: _Signal) -> Iterator[Chunk]:
    """Yield powers in dB, of shape (slots, channels)."""
    transform = signal.bins if signal.complex else 2 * signal.bins
    window = np.hanning(transform + 1)[:-1] if transform > 1 else np.ones(1)
    scale = 1 / float((window**2).sum() * transform)
    per_slot = signal.samples // transform
    size = max(1, min(chunk_slots(signal.bins * signal.streams), 2**22 // (signal.samples * signal.streams)))
    for start in range(0, signal.slots, size):
        n = min(size, signal.slots - start)
        with reading(signal.path):
            data = signal.handle.read_samples(start * signal.samples, n * signal.samples)
        data = data.reshape(n, signal.samples, signal.streams)[:, : per_slot * transform]
        if signal.middle:
            data = data - (signal.middle + 1j * signal.middle if signal.complex else signal.middle)
        pieces = data.reshape(n, per_slot, transform, signal.streams) * window[:, None].astype(np.float32)
        if signal.complex:
            spectrum = np.fft.fftshift(np.fft.fft(pieces, axis=2), axes=2)
        else:
            spectrum = np.fft.rfft(pieces, axis=2)[:, :, : signal.bins]
        power = scale * (spectrum.real**2 + spectrum.imag**2).mean(axis=1)  # (slots, bins, streams)
        level = 10 * np.log10(np.maximum(power, MIN_POWER))
        yield {"power": level.transpose(0, 2, 1).reshape(n, -1).astype(np.float32)}
