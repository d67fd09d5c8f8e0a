"""Snapshots of an allocator as bytes: an npz archive of arrays with a JSON header, without pickles.

Format 2 names arrays after the fields of the present version. Format 1 was written by version 0.1, whose fields had
other names; its arrays are matched by their position.
"""

import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.allocator import inputs
from idleband.allocator.events import FALLBACK, INCUMBENT, POLICY, DecideRequest, Decision, DecisionRecord
from idleband.allocator.settings import Settings
from idleband.allocator.slot_kernels import STATUS, TERMS, WITHHELD
from idleband.channels import channel_indices
from idleband.errors import IdlebandError, InputError

FORMAT = 2

Arrays = dict[str, npt.NDArray[Any]]

# Arrays of the records, each stacked over all records.
REQUEST_ARRAYS = ("contexts", "available", "sensed")
RECORD_ARRAYS = ("allowed", "perturbations", "terms")

# Names in format 1 and what they are called now.
FORMAT_1_ARRAYS = {
    "ask.x": "request.contexts",
    "ask.available": "request.available",
    "ask.sensed": "request.sensed",
    "record.allowed": "record.allowed",
    "record.n": "record.perturbations",
    "record.terms": "record.terms",
    "kept": "feedback",
}
FORMAT_1_KEYS = {
    "broken": "policy_failure",
    "id": "request_id",
    "asked_for": "requested",
    "handed_out": "assigned",
    "too_late": "missed_deadlines",
}


class StateCopy:
    """A copy of the state of an allocator, to be serialized in any thread.

    Nothing of it changes: the allocator copies the feedback of a record before it writes into it, for as long as the
    copy is not `released`.
    """

    def __init__(self, header: dict[str, Any], arrays: Arrays, records: Sequence[DecisionRecord]) -> None:
        self.released = False
        self._contents = header, arrays, records

    def __call__(self) -> bytes:
        """Return the state as bytes."""
        buffer = io.BytesIO()
        self.write_to(buffer)
        return buffer.getvalue()

    def write_to(self, file: IO[bytes]) -> None:
        """Write the state into a file, which may be one that can only be written forwards."""
        try:
            _write(file, *self._contents)
        finally:
            self.released = True
            del self._contents


def _write(file: IO[bytes], header: dict[str, Any], arrays: Arrays, records: Sequence[DecisionRecord]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with _member(archive, name) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        for name in REQUEST_ARRAYS:
            _write_stacked(archive, f"request.{name}", [getattr(one.request, name) for one in records])
        for name in RECORD_ARRAYS:
            _write_stacked(archive, f"record.{name}", [getattr(one, name) for one in records])
        with _member(archive, "feedback") as member:  # rewards of all records, then states, then perturbations
            _write_head(member, np.dtype(np.float64), (3, sum(len(one.channels) for one in records)))
            for row in range(3):
                for one in records:
                    member.write(one.feedback[row].tobytes())
        start = json.dumps({"format": FORMAT, **header}).encode().removesuffix(b"}")
        text = [start, b', "records": [', *_record_lines(records), b"]}"]
        with _member(archive, "header") as member:
            _write_head(member, np.dtype(np.uint8), (sum(map(len, text)),))
            for line in text:
                member.write(line)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(f"{name}.npy", "w", force_zip64=True)


def _write_head(member: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    head = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, head)


def _write_stacked(archive: zipfile.ZipFile, name: str, rows: Sequence[npt.NDArray[Any]]) -> None:
    """Write arrays of equal shape as one array, without joining them in memory."""
    with _member(archive, name) as member:
        if not rows:
            np.lib.format.write_array(member, np.empty(0), allow_pickle=False)
            return
        _write_head(member, rows[0].dtype, (len(rows), *rows[0].shape))
        for row in rows:
            member.write(row.tobytes())


def _record_lines(records: Sequence[DecisionRecord]) -> Iterator[bytes]:
    """Yield the decisions of the records as JSON, one by one: other threads can run in between."""
    for i, record in enumerate(records):
        decision = {
            **record.decision._asdict(),
            "users": record.request.users,
            "incumbent": record.request.incumbent,
            "policy_failure": record.policy_failure,
        }
        yield (", " if i else "").encode() + json.dumps(decision).encode()


def unpack(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a snapshot, with the present names except for the policies' arrays."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if "head" in arrays:
        header = json.loads(bytes(arrays.pop("head")))
        if header["format"] != 1:
            raise InputError(f"has format {header['format']!r}; this version reads 1 and {FORMAT}")
        return _format_1_header(header), {FORMAT_1_ARRAYS.get(name, name): array for name, array in arrays.items()}
    header = json.loads(bytes(arrays.pop("header")))
    if header["format"] != FORMAT:
        raise InputError(f"has format {header['format']!r}; this version reads 1 and {FORMAT}")
    return header, arrays


def _format_1_header(header: dict[str, Any]) -> dict[str, Any]:
    def renamed(table: dict[str, Any]) -> dict[str, Any]:
        return {FORMAT_1_KEYS.get(key, key): value for key, value in table.items()}

    header = renamed(header)
    return {**header, "counts": renamed(header["counts"]), "records": [renamed(one) for one in header["records"]]}


def records(header: dict[str, Any], arrays: Arrays, settings: Settings) -> list[DecisionRecord]:
    """Return the decisions that are kept. All values are checked, because compiled code does not check them."""
    setup, stored = settings.setup, header["records"]
    K, count = setup.K, len(stored)
    if count:
        _check(arrays, "request.contexts", (count, K, setup.d), np.float64)
        _check(arrays, "request.available", (count, K), np.bool_)
        _check(arrays, "request.sensed", (count, K), np.int64)
        _check(arrays, "record.allowed", (count, K), np.bool_)
        _check(arrays, "record.perturbations", (count, K), np.float64)
        _check(arrays, "record.terms", (count, K, TERMS), np.float64)
        _check(arrays, "feedback", (3, sum(len(one["channels"]) for one in stored)), np.float64)
        sensed, status = arrays["request.sensed"], arrays["record.terms"][:, :, STATUS]
        _check_values(np.isfinite(arrays["request.contexts"]).all(), "request.contexts")
        _check_values((sensed >= -1).all() and (sensed < setup.states).all(), "request.sensed")
        _check_values(np.isin(status, range(WITHHELD + 1)).all(), "record.terms")
    found: list[DecisionRecord] = []
    position, slot = 0, 0
    for i, one in enumerate(stored):
        slot = validation.whole(one["slot"], "slot", slot + 1, 2**53)
        channels = channel_indices(one["channels"], K, (), "channels")
        proposed, incumbent = (_optional_channels(one, name, K) for name in ("proposed", "incumbent"))
        decision = Decision(
            slot if one["request_id"] == slot else inputs.request_name(one["request_id"]), channels, slot,
            validation.choice(one["by"], "by", (POLICY, INCUMBENT, FALLBACK)), proposed,
        )  # fmt: skip
        users = validation.whole(one["users"], "users", 0, settings.users)
        request = DecideRequest(
            decision.request_id, slot, users, incumbent=incumbent,
            **{name: arrays[f"request.{name}"][i] for name in REQUEST_ARRAYS},
        )  # fmt: skip
        end = position + len(channels)
        found.append(
            DecisionRecord(
                request, decision, **{name: arrays[f"record.{name}"][i] for name in RECORD_ARRAYS},
                channels=np.array(channels, np.int64),
                feedback=np.ascontiguousarray(arrays["feedback"][:, position:end]),
                policy_failure=str(one["policy_failure"]),
            )
        )  # fmt: skip
        position = end
    header["slot"] = validation.whole(header["slot"], "slot", slot, 2**53)
    return found


def _optional_channels(one: dict[str, Any], name: str, K: int) -> tuple[int, ...] | None:
    return None if one[name] is None else channel_indices(one[name], K, (), name)


def refill(own: Arrays, header: dict[str, Any], stored: Arrays) -> None:
    """Copy stored arrays into the arrays of a new allocator."""
    if header["format"] == 1:
        present = [array for name, array in stored.items() if name not in FORMAT_1_ARRAYS.values()]
        if len(present) != len(own):
            raise InputError(f"has {len(present)} arrays; must have {len(own)}")
        stored = dict(zip(own, present, strict=True))
    for name, array in own.items():
        _check(stored, name, array.shape, array.dtype)
        array[...] = stored[name]


def _check(arrays: Arrays, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    array, needed = arrays[name], np.dtype(dtype)
    if array.shape != shape or array.dtype != needed:
        raise InputError(f"{name} is {array.dtype}{array.shape}; must be {needed}{shape}")


def _check_values(valid: Any, name: str) -> None:
    if not valid:
        raise InputError(f"{name} has invalid values")


@contextlib.contextmanager
def errors_named(place: str) -> Iterator[None]:
    """Turn every error into an InputError whose one-line message begins with the name of the file."""
    try:
        yield
    except IdlebandError as error:
        raise InputError(f"{place}: {error}") from None
    except Exception as error:  # a damaged archive can raise almost any exception
        raise InputError(f"{place}: is damaged, or was not written by idleband ({type(error).__name__})") from None
