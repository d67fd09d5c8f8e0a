"""Packed state: compiled code reads and writes the same arrays as Python."""

import gc
from typing import Any, NamedTuple

import numpy as np
import pytest

from idleband.kernels.compile import INTERPRETED, specialise
from idleband.kernels.packed_state import PackedState, pack, unpacked


class Inner(NamedTuple):
    counts: Any  # (2,) whole numbers
    flags: Any  # (3,)


class Outer(NamedTuple):
    table: Any  # (2, 3)
    inner: Inner
    factor: float
    whole: int
    yes: bool


unpack: Any = NotImplemented


def touch(block: Any, by: float) -> float:
    """Read scalars, and read and write arrays of every kind."""
    outer, stream = unpack(block)
    total = outer.factor * by + outer.whole + (100.0 if outer.yes else 0.0)
    for i in range(outer.table.shape[0]):
        for j in range(outer.table.shape[1]):
            total += outer.table[i, j]
            outer.table[i, j] += by
    outer.inner.counts[1] += 1
    outer.inner.flags[2] = not outer.inner.flags[2]
    stream[0] += np.uint64(7)
    return total


def values(start: float = 0.0) -> tuple[Any, ...]:
    """Return a state and a stream; the table counts from `start`."""
    inner = Inner(np.zeros(2, np.int64), np.zeros(3, np.bool_))
    table = start + np.arange(6.0).reshape(2, 3)
    return Outer(table, inner, 0.5, 3, True), np.array([2**63], np.uint64)


def kernel(packed: PackedState, name: str) -> Any:
    """Return `touch`, compiled for a kind of packed state."""
    return specialise(touch, f"{name}_{packed.kind}", {"unpack": packed.unpack}, cached=False)


def test_python_and_compiled_code_see_the_same_arrays() -> None:
    given = values()
    outer, stream = given
    packed = pack(given)
    run = kernel(packed, "touch")
    assert run(packed.block, 2.0) == 0.5 * 2.0 + 3 + 100 + 15
    assert outer.table.tolist() == [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    assert outer.inner.counts.tolist() == [0, 1]
    assert outer.inner.flags.tolist() == [False, False, True]
    assert stream.tolist() == [2**63 + 7]
    outer.table[:] = 0.0  # a change from Python
    assert run(packed.block, 1.0) == 0.5 + 3 + 100
    assert outer.table.tolist() == [[1.0] * 3] * 2


def test_one_kernel_serves_all_values_of_a_kind() -> None:
    """Sizes and scalars are stored in the block, not in the compiled code."""
    one, other = pack(values()), pack(values(10.0))
    larger = values()
    larger = (larger[0]._replace(table=np.ones((5, 7)), factor=2.0), larger[1])
    third = pack(larger)
    assert one.kind == other.kind == third.kind
    run = kernel(one, "shared")
    assert run(other.block, 0.0) == 3 + 100 + 75
    assert run(third.block, 1.0) == 2.0 + 3 + 100 + 35
    assert run(one.block, 0.0) == 3 + 100 + 15
    assert len(run.signatures) == 1 if not INTERPRETED else True


def test_kind_differs_for_other_types() -> None:
    outer, stream = values()
    kinds = {
        pack(changed).kind
        for changed in (
            (outer, stream),
            (outer._replace(table=np.zeros(3)), stream),  # fewer dimensions
            (outer._replace(table=np.zeros((2, 3), np.float32)), stream),
            (outer._replace(whole=1.5), stream),
            (outer._replace(table=np.zeros((3, 2)).T), stream),  # another order in memory
            (outer, stream, stream),
        )
    }
    assert len(kinds) == (1 if INTERPRETED else 6)


def test_arrays_stay_alive_while_the_packed_state_is_kept() -> None:
    """Arrays stay valid although only the packed state refers to them."""
    packed = [pack(values(float(i))) for i in range(50)]
    gc.collect()
    garbage = [np.full(6, np.nan) for _ in range(1000)]
    run = kernel(packed[0], "alive")
    assert [run(one.block, 0.0) for one in packed] == [118.0 + 6.0 * i for i in range(50)]
    del garbage


def test_unpacked_values_are_passed_through() -> None:
    given = ({"any": "thing"}, [1])
    packed = unpacked(given)
    assert packed.unpack(packed.block) is given
    if not INTERPRETED:
        with pytest.raises(Exception, match=r"(?i)cannot determine|dict"):
            pack(given)
