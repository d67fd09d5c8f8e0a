"""Where the memory of a replication lies on a GPU.

The memory of a loop is a tuple of nested NamedTuples of arrays and numbers, as on the CPU. Whole numbers, flags and the
shapes of arrays become constants of the kernel. So do fractions that are 0 or 1, which often switch something off; the
others are passed in a buffer, so that another value needs no other kernel. The number of checkpoints may vary, too.

Arrays are of these kinds:

- shared: only read and equal in all replications; one buffer for each type;
- local: local memory of the thread that runs the replication. The compiler unrolls loops over constant shapes, keeps
  elements in registers and knows that two of these arrays do not overlap. Between two launches they are kept in one
  buffer for each type, in which neighbouring threads have neighbouring elements;
- tiled: arrays too large for local memory, each in a buffer of its own. The rows of LANES replications lie next to
  each other, so that a thread that reads a row uses whole sectors of memory, whichever row its neighbours read. Arrays
  that other arrays are views of are one row;
- output: the curves at the checkpoints, which the loop only writes, one replication after the other. The slots of the
  checkpoints are an argument of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.errors import InputError, shown

Array = npt.NDArray[Any]

LANES = 32  # threads that run together
MAX_LOCAL_BYTES = 2**14  # of an array in local memory
MAX_LOCAL_TOTAL = 2**17  # of all of them; the driver reserves as much for every thread that a GPU can hold
SMALL_BYTES = 128  # of an array that is in local memory in any case

# Sums over many slots, and what is added to them, have 64 bits in any case.
WIDE = frozenset(["now", "carry", "curves", "table_mean", "table_best", "static_slot"])

# Arrays that are shared where code uses others instead, which replications have of their own: both must have one type.
INSTEAD = frozenset(["hidden_states", "own"])


class Kind(Enum):
    SHARED, LOCAL, TILED, OUTPUT, CHECKPOINTS = range(5)


@dataclass
class Leaf:
    """An array of the memory."""

    name: str  # in the source of the kernel
    kind: Kind
    value: Array  # before the first slot, in the first replication, in its type on the GPU
    first: int  # position of its first element in the buffer of its type
    stored: int  # elements that are stored: those of one row, if all rows are equal
    row: int  # elements that lie together, if it is tiled
    view_of: str = ""  # name of the array in whose memory it lies, with another shape
    given: bool = False  # whether the value before the first slot depends on the replication

    @property
    def type(self) -> str:
        return self.value.dtype.name

    @property
    def strides(self) -> tuple[int, ...]:
        """By how many elements of the buffer an index moves, by axis."""
        shape = self.value.shape
        strides = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
        if self.kind is Kind.TILED:
            strides = [stride if stride < self.row else stride * LANES for stride in strides]
        if self.stored < self.value.size:
            strides[0] = 0
        return tuple(strides)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        shape = self.value.shape
        return (1, *shape[1:]) if self.stored < self.value.size else shape


@dataclass
class Layout:
    """The arrays of a memory, and its NamedTuples by their name in the source of the kernel."""

    narrow: bool  # whether numbers that are not sums over many slots have 32 bits
    narrow_integers: bool = False  # whether whole numbers that a replication has of its own have 32 bits
    repeated: Sequence[Array] = ()  # arrays of the first replication whose rows are equal, of which one is stored
    leaves: dict[str, Leaf] = field(default_factory=dict)
    tuples: dict[str, type] = field(default_factory=dict)
    numbers: list[float] = field(default_factory=list)  # fractions that are passed in a buffer
    _sizes: dict[tuple[Kind, str], int] = field(default_factory=dict)  # elements in the buffer of a kind and a type
    _by_identity: dict[int, Leaf] = field(default_factory=dict)
    _arrays: list[Array] = field(default_factory=list)  # of the first replication, and so that identities stay unique
    _seconds: list[Any] = field(default_factory=list)  # for the same reason

    def add(self, first: Any, second: Any, *, results: bool = False, name: str = "") -> str:
        """Add a part of the memory of two replications, and return the source that builds it.

        Arrays that are the same object in both are shared. `results` are those of the loop, with fields t and curves.
        """
        if isinstance(first, tuple):
            names = getattr(first, "_fields", [name] * len(first))
            parts = [
                self.add(*pair, results=results, name=name) for name, *pair in zip(names, first, second, strict=True)
            ]
            if not hasattr(first, "_fields"):
                return f"({', '.join(parts)},)" if parts else "()"
            return f"{self._tuple(type(first))}({', '.join(parts)})"
        if not isinstance(first, np.ndarray):
            return self._number(first, second, name)
        if id(first) not in self._by_identity:
            leaf = self._leaf(first, second, name, results)
            self.leaves[leaf.name] = self._by_identity[id(first)] = leaf
            self._arrays.append(first)
            self._seconds.append(second)
        return self._by_identity[id(first)].name

    def _number(self, value: Any, second: Any, name: str) -> str:
        """Return the source of a number."""
        if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
            raise InputError(f"{name} = {shown(value)}: must be a number, an array of numbers or a tuple of them")
        if value != second and not (value != value and second != second):  # nan differs from itself
            raise InputError(f"{name} = {value} and {second} in two replications: must be an array to differ")
        if isinstance(value, bool | np.bool_):
            return repr(bool(value))
        if isinstance(value, int | np.integer):
            return repr(int(value))
        if np.isnan(value):
            return "np.nan"
        if np.isinf(value):
            return "np.inf" if value > 0.0 else "-np.inf"
        if value in (0.0, 1.0):
            return repr(float(value))
        self.numbers.append(float(value))
        return f"numbers[{len(self.numbers) - 1}]"

    def _tuple(self, kind: type) -> str:
        for name, known in self.tuples.items():
            if known is kind:
                return name
        name = f"{kind.__name__}{len(self.tuples)}"
        self.tuples[name] = kind
        return name

    def _leaf(self, first: Array, second: Array, field_name: str, results: bool) -> Leaf:
        if first.ndim == 0 or first.dtype.kind not in "biuf":
            raise InputError(f"{field_name}: must be an array of numbers with at least one dimension")
        if second.shape != first.shape:
            raise InputError(f"{field_name}: has another shape in another replication")
        shared = (first is second and field_name not in INSTEAD) or (results and field_name == "t")
        value = self._narrowed(first, field_name, shared=shared)
        repeated = any(first is array for array in self.repeated)
        leaf = Leaf(
            f"a{len(self.leaves)}", Kind.LOCAL, value, 0,
            stored=value[:1].size if repeated else value.size, row=value.shape[-1],
        )  # fmt: skip
        if results and field_name in ("t", "curves"):
            leaf.kind = Kind.CHECKPOINTS if field_name == "t" else Kind.OUTPUT
        elif first is second or first.size == 0:
            leaf.kind = Kind.SHARED
        elif (whole := self._whole(first, field_name)) is not None:
            whole.row = leaf.row = whole.value.size
            leaf.kind, leaf.first, leaf.view_of = whole.kind, whole.first, whole.name
            return leaf
        else:
            size = leaf.stored * value.itemsize
            used = sum(one.stored * one.value.itemsize for one in self.own(Kind.LOCAL))
            if size > SMALL_BYTES and (size > MAX_LOCAL_BYTES or used + size > MAX_LOCAL_TOTAL):
                leaf.kind = Kind.TILED
        leaf.first = self._sizes.get((leaf.kind, leaf.type), 0)
        self._sizes[leaf.kind, leaf.type] = leaf.first + leaf.stored
        return leaf

    def _narrowed(self, array: Array, field_name: str, *, shared: bool) -> Array:
        """Return the values of an array in its type on the GPU."""
        if self.narrow and array.dtype == np.float64 and field_name not in WIDE:
            return array.astype(np.float32)
        if self.narrow_integers and array.dtype == np.int64 and not shared:
            return array.astype(np.int32)
        return array

    def _whole(self, array: Array, field_name: str) -> Leaf | None:
        """Return the array that another one is a view of, from the first to the last element."""
        for kept in self._arrays:
            leaf = self._by_identity[id(kept)]
            if leaf.kind not in (Kind.LOCAL, Kind.TILED) or not np.may_share_memory(kept, array):
                continue
            same = kept.ctypes.data == array.ctypes.data and kept.nbytes == array.nbytes and kept.dtype == array.dtype
            if same and kept.flags.c_contiguous and array.flags.c_contiguous:
                return self.leaves[leaf.view_of] if leaf.view_of else leaf
            if np.shares_memory(kept, array):
                raise InputError(f"{field_name}: shares memory with another array, and not all of it in the same order")
        return None

    def find(self, array: Array) -> Leaf:
        """Return the leaf of an array of the first replication."""
        return self._by_identity[id(array)]

    def source_of(self, leaf: Leaf) -> Array:
        """Return the array of the first replication that a leaf stands for."""
        return next(array for array in self._arrays if self._by_identity[id(array)] is leaf)

    def own(self, *kinds: Kind) -> list[Leaf]:
        """Return the arrays of these kinds that have memory of their own."""
        return [leaf for leaf in self.leaves.values() if leaf.kind in kinds and not leaf.view_of]

    def types(self, kind: Kind) -> list[str]:
        return sorted({leaf.type for leaf in self.own(kind)})

    def buffer(self, kind: Kind, name: str) -> Array:
        """Return the values of all arrays of a kind and a type before the first slot, one after the other."""
        values = np.zeros(self._sizes[kind, name] + 1, name)  # never empty
        for leaf in self.own(kind):
            if leaf.type == name:
                values[leaf.first : leaf.first + leaf.stored] = leaf.value.ravel()[: leaf.stored]
        return values

    def bytes_per_replication(self) -> int:
        return sum(leaf.stored * leaf.value.itemsize for leaf in self.own(Kind.LOCAL, Kind.TILED, Kind.OUTPUT))
