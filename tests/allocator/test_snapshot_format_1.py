"""Snapshots of format 1, written by version 0.1."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idleband as ib
from tests.allocator.helpers import loaded, state_of
from tests.allocator.version_0_1 import NAMES, stored_snapshot


def contents(snapshot: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    with np.load(io.BytesIO(snapshot), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return json.loads(bytes(arrays.pop("head" if "head" in arrays else "header"))), arrays


def packed(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, head=np.frombuffer(json.dumps(header).encode(), np.uint8))
    return buffer.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_every_array_of_a_format_1_snapshot_is_restored_bit_for_bit(tmp_path: Path, name: str) -> None:
    snapshot = stored_snapshot(tmp_path, name)
    old_header, old = contents(snapshot)
    new_header, new = contents(state_of(loaded(snapshot)))
    assert (old_header["format"], new_header["format"]) == (1, 2)
    assert len(old) == len(new)
    for before, after in zip(old.values(), new.values(), strict=True):
        assert (before.dtype, before.shape, before.tobytes()) == (after.dtype, after.shape, after.tobytes())
    assert list(old_header["counts"].values()) == list(new_header["counts"].values())
    assert [record["id"] for record in old_header["records"]] == [one["request_id"] for one in new_header["records"]]
    assert new_header["settings"]["channel_names"] == []


def test_a_state_file_of_version_0_1_is_loaded_and_saved_in_format_2(tmp_path: Path) -> None:
    old, new = tmp_path / "old.idleband", tmp_path / "new.idleband"
    old.write_bytes(stored_snapshot(tmp_path, "lucb"))
    allocator = ib.Allocator.load(old)
    assert (allocator.slot, allocator.settings.policy, allocator.settings.incumbent) == (44, "mp-lucb", "mp-ucb")
    allocator.save(new)
    again = ib.Allocator.load(new)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.random((6, 3))
        decision = allocator.decide(x)
        assert decision == again.decide(x)
        for one in (allocator, again):
            one.report(decision.request_id, [1.0] * len(decision.channels))
    assert state_of(allocator) == state_of(again)


def test_a_format_1_snapshot_with_missing_extra_or_misshapen_arrays_is_refused(tmp_path: Path) -> None:
    header, arrays = contents(stored_snapshot(tmp_path, "rca"))
    without = {name: array for name, array in arrays.items() if name != "watch.seen"}
    swapped = {**arrays, "watch.seen": arrays["watch.pairs"]}
    for wrong, message in (
        (without, r"^here: has \d+ arrays; must have \d+$"),
        ({**arrays, "more": np.zeros(3)}, r"^here: has \d+ arrays; must have \d+$"),
        (swapped, r"^here: occupancy\.seen is float64\(6, .*; must be float64\(6,\)$"),
    ):
        with pytest.raises(ib.InputError, match=message):
            loaded(packed(header, wrong))
    for format in (0, 2, "1"):
        with pytest.raises(ib.InputError, match=r"^here: has format .*; this version reads 1 and 2$"):
            loaded(packed({**header, "format": format}, arrays))
