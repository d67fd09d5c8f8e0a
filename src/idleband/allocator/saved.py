"""An allocator as bytes, and back: arrays in npz, everything else in JSON inside it. No pickle."""

import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.allocator.events import Ask, Decision, Record
from idleband.errors import InputError

FORMAT = 1

Arrays = dict[str, npt.NDArray[Any]]

# What is kept of records, stacked: one entry each, or one for each of their channels.
OF_ASK = ("x", "available", "sensed")
OF_RECORD = ("allowed", "n", "terms")


def pack(head: dict[str, Any], arrays: Arrays, records: Sequence[Record]) -> bytes:
    asked = [
        {**record.decision._asdict(), "users": record.ask.users, "incumbent": record.ask.incumbent}
        for record in records
    ]
    arrays |= {f"ask.{name}": np.array([getattr(record.ask, name) for record in records]) for name in OF_ASK}
    arrays |= {f"record.{name}": np.array([getattr(record, name) for record in records]) for name in OF_RECORD}
    arrays["kept"] = np.concatenate([record.kept for record in records] or [np.empty((3, 0))], axis=1)
    head = {"format": FORMAT, **head, "records": asked}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    room = io.BytesIO()
    np.savez(room, allow_pickle=False, **arrays)
    return room.getvalue()


def unpack(data: bytes, place: str) -> tuple[dict[str, Any], Arrays, list[Record]]:
    """What was packed; `place` is what to call it where it is damaged."""
    with told(place):
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        head = json.loads(bytes(arrays.pop("head")))
        if head["format"] != FORMAT:
            raise InputError(f"{place}: has format {head['format']!r}; this version reads {FORMAT}")
        records, at = [], 0
        for i, kept in enumerate(head["records"]):
            users, incumbent = kept.pop("users"), kept.pop("incumbent")
            kept |= {name: tuple(kept[name]) for name in ("channels", "proposed")}
            decision = Decision(**kept)
            of_ask = {name: arrays[f"ask.{name}"][i] for name in OF_ASK}
            given = None if incumbent is None else tuple(incumbent)
            ask = Ask(decision.id, decision.slot, users, incumbent=given, **of_ask)
            of_record = {name: arrays[f"record.{name}"][i] for name in OF_RECORD}
            channels = np.array(decision.channels, np.int64)
            returned = np.ascontiguousarray(arrays["kept"][:, at : at + len(channels)])
            at += len(channels)
            records.append(Record(ask, decision, **of_record, channels=channels, kept=returned))
        return head, arrays, records
    raise AssertionError  # told() raises


def refill(mine: Arrays, stored: Arrays, place: str) -> None:
    """Put what was stored into arrays of the same kind."""
    for name, array in mine.items():
        if stored[name].shape != array.shape or stored[name].dtype != array.dtype:
            raise InputError(
                f"{place}: {name} is {stored[name].dtype}{stored[name].shape}; must be {array.dtype}{array.shape}"
            )
        array[...] = stored[name]


@contextlib.contextmanager
def told(place: str) -> Iterator[None]:
    """Whatever is wrong with a file is told in one line that names it."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{place}: is damaged, or was not written by idleband: {error}") from None
