"""An allocator as bytes, and back: arrays in npz, everything else in JSON inside it. No pickle."""

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.allocator import inputs
from idleband.allocator.events import FALLBACK, INCUMBENT, POLICY, Ask, Decision, Record
from idleband.allocator.settings import Settings
from idleband.allocator.slot_kernels import STATUS, TERMS, WITHHELD
from idleband.errors import InputError

FORMAT = 1

Arrays = dict[str, npt.NDArray[Any]]

# What is kept of records, stacked: one entry each, or one for each of their channels.
OF_ASK = ("x", "available", "sensed")
OF_RECORD = ("allowed", "n", "terms")


def pack(head: dict[str, Any], arrays: Arrays, records: Sequence[Record]) -> bytes:
    asked = [
        {
            **record.decision._asdict(),
            "users": record.ask.users,
            "incumbent": record.ask.incumbent,
            "broken": record.broken,
        }
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


def unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """What was packed, to be looked at inside `told`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    head = json.loads(bytes(arrays.pop("head")))
    if head["format"] != FORMAT:
        raise InputError(f"has format {head['format']!r}; this version reads {FORMAT}")
    return head, arrays


def records(head: dict[str, Any], arrays: Arrays, settings: Settings) -> list[Record]:
    """The decisions that feedback may still come for. All of them is checked: kernels, which get to see it, do not."""
    known, count = settings.known, len(head["records"])
    K = known.K
    if count:
        _check(arrays, "ask.x", (count, K, known.d), np.float64)
        _check(arrays, "ask.available", (count, K), np.bool_)
        _check(arrays, "ask.sensed", (count, K), np.int64)
        _check(arrays, "record.allowed", (count, K), np.bool_)
        _check(arrays, "record.n", (count, K), np.float64)
        _check(arrays, "record.terms", (count, K, TERMS), np.float64)
        _check(arrays, "kept", (3, sum(len(one["channels"]) for one in head["records"])), np.float64)
        sensed, status = arrays["ask.sensed"], arrays["record.terms"][:, :, STATUS]
        _sound(np.isfinite(arrays["ask.x"]).all(), "ask.x")
        _sound((sensed >= -1).all() and (sensed < known.states).all(), "ask.sensed")
        _sound(np.isin(status, range(WITHHELD + 1)).all(), "record.terms")
    found: list[Record] = []
    at, slot = 0, 0
    for i, one in enumerate(head["records"]):
        slot = validation.whole(one["slot"], "slot", slot + 1, 2**53)
        channels = inputs.channels(one["channels"], K, "channels")
        proposed, given = (_perhaps_channels(one, name, K) for name in ("proposed", "incumbent"))
        decision = Decision(
            slot if one["id"] == slot else inputs.name(one["id"]), channels, slot,
            validation.choice(one["by"], "by", (POLICY, INCUMBENT, FALLBACK)), proposed,
        )  # fmt: skip
        users = validation.whole(one["users"], "users", 0, settings.users)
        ask = Ask(decision.id, slot, users, incumbent=given, **{name: arrays[f"ask.{name}"][i] for name in OF_ASK})
        of_record = {name: arrays[f"record.{name}"][i] for name in OF_RECORD}
        returned = np.ascontiguousarray(arrays["kept"][:, at : at + len(channels)])
        at += len(channels)
        found.append(
            Record(ask, decision, **of_record, channels=np.array(channels, np.int64), kept=returned,
                   broken=str(one["broken"]))
        )  # fmt: skip
    head["slot"] = validation.whole(head["slot"], "slot", slot, 2**53)
    return found


def _perhaps_channels(one: dict[str, Any], name: str, K: int) -> tuple[int, ...] | None:
    return None if one[name] is None else inputs.channels(one[name], K, name)


def refill(mine: Arrays, stored: Arrays) -> None:
    """Put what was stored into arrays of the same kind."""
    for name, array in mine.items():
        _check(stored, name, array.shape, array.dtype)
        array[...] = stored[name]


def _check(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    array, needed = arrays[name], np.dtype(dtype)
    if array.shape != shape or array.dtype != needed:
        raise InputError(f"{name} is {array.dtype}{array.shape}; must be {needed}{shape}")


def _sound(whether: Any, name: str) -> None:
    if not whether:
        raise InputError(f"{name} holds what cannot be")


@contextlib.contextmanager
def told(place: str) -> Iterator[None]:
    """Whatever is wrong with a file is told in one line that names it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except Exception as error:  # an archive can be damaged in as many ways as there are errors
        raise InputError(f"{place}: is damaged, or was not written by idleband ({type(error).__name__})") from None
