"""State for kernels that Python calls slot by slot.

Python passes each array of a state separately, which takes 6 µs for MP-LUCB, seven times the slot itself. `pack` stores
the whole state, as compiled code represents it, in one block of memory once. A kernel is called with the block (0.3 µs)
and begins with `unpack`, which costs nothing. The block contains the addresses of the arrays, not their elements:
arrays are changed in place, and both sides see the changes.

This module relies on Numba's interface for code generation, `numba.core`; tests/kernels/test_packed_state.py exercises
all of it.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from idleband.kernels.compile import INTERPRETED, call, compiler, specialise


class PackedState(NamedTuple):
    values: Any  # a tuple of NamedTuples of arrays; keeps the arrays alive
    block: Any  # the argument of the kernel
    unpack: Callable[[Any], Any]  # bound into the kernel: the values, from the block
    kind: str  # identifies the types of the values in the name of the kernel's machine code


def unpacked(values: tuple[Any, ...]) -> PackedState:
    """Return the same for a kernel that is not compiled."""
    return PackedState(values, values, lambda block: block, "interpreted")


def pack(values: tuple[Any, ...]) -> PackedState:
    """Store a tuple of NamedTuples of arrays and numbers in one block of memory."""
    if INTERPRETED:
        return unpacked(values)
    kind: Any = compiler().typeof(values)
    name = hashlib.sha256(str(kind).encode()).hexdigest()[:16]
    block = np.zeros(-(-_size(kind) // 8), np.uint64)
    call(_writer(name), values, block)
    return PackedState(values, block, _unpacker(kind), name)


def _size(kind: Any) -> int:
    """Return the number of bytes that a value of a type takes in memory."""
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    return int(context.get_abi_sizeof(context.get_value_type(kind)))


# Stand-in for the intrinsic function that stores values in a block.
store_in_memory: Callable[[Any, Any], None] = NotImplemented


def store(values: Any, block: Any) -> None:
    """Store values in a block."""
    store_in_memory(values, block)


@cache
def _writer(kind: str) -> Callable[[Any, Any], None]:
    """Return `store` for values of one kind; its machine code is cached on disk."""
    writer: Callable[[Any, Any], None] = specialise(store, f"store_{kind}", {"store_in_memory": _intrinsic_store()})
    return writer


@cache
def _intrinsic_store() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def store_in_memory(typing: Any, values: Any, block: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(block)(context, builder, arguments[1])
            builder.store(arguments[0], builder.bitcast(array.data, arguments[0].type.as_pointer()))
            return context.get_dummy_value()

        return types.void(values, block), build

    return store_in_memory


@cache
def _unpacker(kind: Any) -> Any:
    """Return the intrinsic function that reads values of a type from a block."""
    from numba.core.imputils import impl_ret_borrowed
    from numba.extending import intrinsic

    @intrinsic
    def unpack(typing: Any, block: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(block)(context, builder, arguments[0])
            value = builder.load(builder.bitcast(array.data, context.get_value_type(kind).as_pointer()))
            # Where references are counted (users' policies may allocate), Python keeps the references to the arrays.
            return impl_ret_borrowed(context, builder, kind, value)

        return kind(block), build

    return unpack
