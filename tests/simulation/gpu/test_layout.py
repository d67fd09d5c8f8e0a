"""Where arrays and numbers of a memory lie on a GPU."""

from typing import NamedTuple

import numpy as np
import pytest

from idleband.errors import InputError
from idleband.simulation.gpu import layout
from idleband.simulation.gpu.layout import LANES, Kind, Layout


class Part(NamedTuple):
    a: np.ndarray
    b: np.ndarray
    number: float = 0.5


def test_arrays_that_are_the_same_object_in_both_are_shared() -> None:
    common = np.arange(3.0)
    found = Layout(narrow=False)
    found.add(Part(common, np.zeros(2)), Part(common, np.zeros(2)))
    assert [leaf.kind for leaf in found.leaves.values()] == [Kind.SHARED, Kind.LOCAL]
    assert found.buffer(Kind.SHARED, "float64")[:3].tolist() == [0.0, 1.0, 2.0]


def test_an_array_used_twice_has_one_name() -> None:
    a, b = np.zeros(3), np.zeros(3)
    found = Layout(narrow=False)
    assert found.add((a, a), (b, b)) == "(a0, a0,)"


@pytest.mark.parametrize(("most", "kind"), [(2**14, Kind.LOCAL), (0, Kind.TILED)])
def test_views_lie_in_the_memory_of_the_whole(monkeypatch: pytest.MonkeyPatch, most: int, kind: Kind) -> None:
    monkeypatch.setattr(layout, "MAX_LOCAL_BYTES", most)
    a, b = np.zeros(24), np.zeros(24)
    found = Layout(narrow=False)
    found.add((a, a.reshape(4, 6), a.reshape(2, 2, 6)), (b, b.reshape(4, 6), b.reshape(2, 2, 6)))
    whole, view, other = found.leaves.values()
    assert [leaf.kind for leaf in (whole, view, other)] == [kind] * 3
    assert (view.view_of, other.view_of, whole.view_of) == (whole.name, whole.name, "")
    assert (view.strides, other.strides) == ((6, 1), (12, 6, 1))
    assert found.own(kind) == [whole]
    assert found.bytes_per_replication() == 24 * 8


def test_rows_of_tiled_arrays_of_neighbours_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_LOCAL_BYTES", 0)
    found = Layout(narrow=False)
    found.add((np.zeros((3, 4, 5)), np.zeros((20, 1))), (np.zeros((3, 4, 5)), np.zeros((20, 1))))
    deep, thin = found.leaves.values()
    assert deep.strides == (20 * LANES, 5 * LANES, 1)
    assert thin.strides[0] == LANES


def test_small_arrays_stay_local_when_the_sum_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_LOCAL_TOTAL", 1000)
    found = Layout(narrow=False)
    sizes = (100, 100, 2)
    found.add(tuple(np.zeros(n) for n in sizes), tuple(np.zeros(n) for n in sizes))
    assert [leaf.kind for leaf in found.leaves.values()] == [Kind.LOCAL, Kind.TILED, Kind.LOCAL]


def test_of_equal_rows_one_is_stored() -> None:
    theta = np.tile([1.0, 2.0], (5, 1))
    found = Layout(narrow=False, repeated=[theta])
    found.add((theta, np.zeros(1)), (theta + 1.0, np.zeros(1)))
    leaf, after = found.leaves.values()
    assert (leaf.stored, leaf.stored_shape, leaf.strides) == (2, (1, 2), (0, 1))
    assert after.first == 2
    assert found.buffer(Kind.LOCAL, "float64").tolist() == [1.0, 2.0, 0.0, 0.0]


def test_whole_numbers_and_flags_are_constants_and_fractions_are_passed() -> None:
    values = (3, True, np.int64(4), 0.0, 1.0, 0.25, np.nan, np.inf, -np.inf)
    found = Layout(narrow=False)
    source = found.add(values, values)
    assert source == "(3, True, 4, 0.0, 1.0, numbers[0], np.nan, np.inf, -np.inf,)"
    assert found.numbers == [0.25]


def test_narrow_numbers_are_those_that_are_not_sums_over_many_slots() -> None:
    class Sums(NamedTuple):
        now: np.ndarray
        theta: np.ndarray
        counts: np.ndarray

    def sums() -> Sums:
        return Sums(np.zeros(2), np.zeros(2), np.zeros(2, np.int64))

    found = Layout(narrow=True)
    found.add(sums(), sums())
    assert [leaf.type for leaf in found.leaves.values()] == ["float64", "float32", "int64"]


def test_whole_numbers_are_narrowed_where_replications_have_their_own() -> None:
    class Counts(NamedTuple):
        own: np.ndarray  # shared by replications without shocks, where the loop uses s instead
        table: np.ndarray
        s: np.ndarray

    own, table = np.zeros(2, np.int64), np.arange(3)
    found = Layout(narrow=False, narrow_integers=True)
    found.add(*(Counts(own, table, np.arange(2)) for _ in range(2)))
    assert [leaf.type for leaf in found.leaves.values()] == ["int32", "int64", "int32"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("word", "word", "must be a number, an array of numbers or a tuple of them"),
        (0.5, 0.6, "number = 0.5 and 0.6 in two replications"),
        (np.zeros(()), np.zeros(()), "must be an array of numbers with at least one dimension"),
        (np.array(["a"]), np.array(["b"]), "must be an array of numbers"),
        (np.zeros(2), np.zeros(3), "has another shape"),
    ],
)
def test_what_has_no_place_is_refused(first: object, second: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Layout(narrow=False).add(
            Part(np.zeros(1), np.zeros(1), first), Part(np.zeros(1), np.zeros(1), second)  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.mark.parametrize("part", [lambda a: a[1:], lambda a: a.reshape(2, 3).T])
def test_arrays_that_share_memory_in_another_order_are_refused(part: object) -> None:
    a, b = np.zeros(6), np.zeros(6)
    with pytest.raises(InputError, match="b: shares memory with another array"):
        Layout(narrow=False).add(Part(a, part(a)), Part(b, part(b)))  # type: ignore[operator]
