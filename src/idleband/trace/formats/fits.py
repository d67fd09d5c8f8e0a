"""FITS images of the e-CALLISTO network: digits of a logarithmic detector by frequency and time."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from idleband.errors import InputError, counted, shown
from idleband.trace.clock import iso_time, parse_time
from idleband.trace.files import exactly, opened
from idleband.trace.metadata import MAX_CHANNELS, Metadata, describing, names_of_frequencies
from idleband.trace.recording import Chunk, ImportOptions, Recording

DESCRIPTION = "FITS image of e-CALLISTO"

BLOCK, CARD = 2880, 80
TYPES = {8: "u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}
MAX_IMAGE = 2**31
BANDWIDTH_HZ = 300e3  # of the receiver
OVERLAP_S = 2.0  # by which the clocks of consecutive files may differ


def matches(head: bytes, path: Path) -> bool:
    """Return whether a file begins as FITS files do."""
    return head.startswith(b"SIMPLE  =")


@dataclass(frozen=True)
class _Image:
    """The header of a file and the frequencies of its rows."""

    path: Path
    cards: dict[str, str]
    offset: int
    T: int
    order: Any  # rows in ascending frequency
    frequencies: Any  # ascending, Hz
    slot_s: float
    start: float | None


def read(paths: Sequence[Path], options: ImportOptions) -> Recording:
    """Open a recording; files are consecutive in time and have the same frequencies."""
    images = [_open(path) for path in paths]
    first = images[0]
    gaps = [0]
    for before, image in itertools.pairwise(images):
        if len(image.frequencies) != len(first.frequencies) or not np.allclose(image.frequencies, first.frequencies):
            raise InputError(f"{image.path}: has other frequencies than {first.path}")
        gaps.append(_gap(before, image, options.fill))
    low, high = first.frequencies - BANDWIDTH_HZ / 2, first.frequencies + BANDWIDTH_HZ / 2
    with describing(first.path):
        metadata = Metadata(
            K=len(first.frequencies), slot_s=first.slot_s, channel_names=names_of_frequencies(first.frequencies),
            freq_low_hz=tuple(low.tolist()), freq_high_hz=tuple(high.tolist()), power_unit="digits",
            start=None if first.start is None else iso_time(first.start), source=_text(first.cards.get("CONTENT", "")),
        )  # fmt: skip

    def chunks() -> Iterator[Chunk]:
        for image, gap in zip(images, gaps, strict=True):
            if gap:
                yield {"power": np.full((gap, len(image.frequencies)), np.nan, np.float32)}
            yield {"power": _values(image)}

    absent = sum(gaps)
    notes = ["powers are digits of a logarithmic detector, not dBm"]
    notes += [f"{counted(absent, 'slot')} missing between files"] if absent else []
    return Recording("ecallisto", metadata, ("power",), chunks, notes=notes)


def _gap(before: _Image, image: _Image, fill: int) -> int:
    if before.start is None or image.start is None:
        return 0
    gap = image.start - (before.start + before.T * before.slot_s)
    if gap < -OVERLAP_S:
        raise InputError(f"{image.path}: begins {-gap:g} s before the end of {before.path}")
    missing = round(max(0.0, gap - OVERLAP_S / 2) / image.slot_s)
    if missing > fill:
        raise InputError(f"{image.path}: begins {gap:g} s after the end of {before.path}; {missing} slots are missing")
    return missing


def _open(path: Path) -> _Image:
    with opened(path) as file:
        cards, offset = _header(file, path, 0)
        kind, axes = _number(cards, "BITPIX", path), _number(cards, "NAXIS", path)
        if kind not in TYPES or axes != 2:
            raise InputError(f"{path}: BITPIX = {kind:g} and NAXIS = {axes:g}; expected an image with two axes")
        T, K = int(_number(cards, "NAXIS1", path)), int(_number(cards, "NAXIS2", path))
        size = T * K * np.dtype(TYPES[int(kind)]).itemsize
        if not (T > 0 and 0 < K <= MAX_CHANNELS and size <= MAX_IMAGE):
            raise InputError(f"{path}: an image of {T} times and {K} frequencies cannot be read")
        slot_s = _number(cards, "CDELT1", path)
        if slot_s <= 0:
            raise InputError(f"{path}: CDELT1 = {slot_s:g}: the time step must be above 0")
        exactly(file, size, path, offset, "the image")
        file.read(-size % BLOCK)
        frequencies = _frequencies(file, path, offset + size + -size % BLOCK, K)
        if frequencies is None:
            reference, first, step = (_number(cards, key, path) for key in ("CRVAL2", "CRPIX2", "CDELT2"))
            frequencies = 1e6 * (reference + (np.arange(1, K + 1) - first) * step)
    if len(np.unique(frequencies)) < K or not (np.isfinite(frequencies) & (frequencies > 0)).all():
        raise InputError(f"{path}: the frequencies are not positive and different")
    order = np.argsort(frequencies)
    day = _text(cards.get("DATE-OBS", "")).replace("/", "-")
    start = parse_time(f"{day} {_text(cards.get('TIME-OBS', ''))}") if day else None
    return _Image(path, cards, offset, T, order, frequencies[order], slot_s, start)


def _header(file: IO[bytes], path: Path, offset: int) -> tuple[dict[str, str], int]:
    """Read a header; return its cards and the offset of the data."""
    cards: dict[str, str] = {}
    for _ in range(100):
        block = exactly(file, BLOCK, path, offset, "a header")
        offset += BLOCK
        for at in range(0, BLOCK, CARD):
            card = block[at : at + CARD].decode("ascii", "replace")
            key = card[:8].strip()
            if key == "END":
                return cards, offset
            if card[8:10] == "= ":
                cards[key] = card[10:]
    raise InputError(f"{path}, byte {offset}: the header has no END")


def _text(value: str) -> str:
    """Return the text between the quotes of a card."""
    parts = value.split("'")
    return parts[1].strip() if len(parts) > 2 else value.partition("/")[0].strip()


def _number(cards: dict[str, str], key: str, path: Path) -> float:
    if key not in cards:
        raise InputError(f"{path}: the header has no {key}")
    try:
        value = float(_text(cards[key]))
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"{path}: {key} = {shown(cards[key].strip())} is not a number")
    return value


def _frequencies(file: IO[bytes], path: Path, offset: int, K: int) -> Any:
    """Return the frequencies in Hz of the binary table that follows the image, or None without a table."""
    begin = file.read(BLOCK)
    if len(begin) < BLOCK or not begin.startswith(b"XTENSION= 'BINTABLE'"):
        return None
    blocks = begin
    while b"END" + b" " * 77 not in [blocks[at : at + CARD] for at in range(0, len(blocks), CARD)]:
        blocks += exactly(file, BLOCK, path, offset, "the header of the table")
    lines = [blocks[at : at + CARD].decode("ascii", "replace") for at in range(0, len(blocks), CARD)]
    cards = {line[:8].strip(): line[10:] for line in lines}
    at = 0
    for column in range(1, int(_number(cards, "TFIELDS", path)) + 1):
        form = _text(cards.get(f"TFORM{column}", ""))
        digits, kind = _form(form)
        width = digits * {"D": 8, "E": 4}.get(kind, 0)
        if kind not in ("D", "E"):
            return None
        if _text(cards.get(f"TTYPE{column}", "")).upper().startswith("FREQ") and digits == K:
            file.read(at)
            data = exactly(file, width, path, offset + len(blocks) + at, "the table of frequencies")
            return 1e6 * np.frombuffer(data, ">f8" if kind == "D" else ">f4").astype(float)
        at += width
    return None


def _form(form: str) -> tuple[int, str]:
    """Split the format of a column, such as 200D8.3, into count and type."""
    digits = form[: len(form) - len(form.lstrip("0123456789"))]
    rest = form[len(digits) :]
    return int(digits or 1), rest[:1]


def _values(image: _Image) -> Any:
    kind = np.dtype(TYPES[int(_number(image.cards, "BITPIX", image.path))])
    with opened(image.path) as file:
        file.read(image.offset)
        size = image.T * len(image.order) * kind.itemsize
        data = exactly(file, size, image.path, image.offset, "the image")
    table = np.frombuffer(data, kind).reshape(len(image.order), image.T)[image.order].T
    scale = _number(image.cards, "BSCALE", image.path) if "BSCALE" in image.cards else 1.0
    zero = _number(image.cards, "BZERO", image.path) if "BZERO" in image.cards else 0.0
    return np.ascontiguousarray(scale * table + zero, np.float32)
