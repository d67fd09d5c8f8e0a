"""The kernel that runs a loop on a GPU, one replication per thread.

It is generated as source, because compiled code cannot loop over the fields of a tuple. Each thread builds the memory
of its replication, runs the loop, and keeps the memory for the next launch.
"""

import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from idleband.kernels.compile import INTERPRETED, cache_folder
from idleband.simulation.gpu.device import cuda_module
from idleband.simulation.gpu.layout import LANES, Kind, Layout, Leaf

THREADS = 64  # per block
# Registers of a thread. Twice as many threads run at a time as with all 255 of them, which hides the latency of memory
# but takes registers from each. Measured on one H200 in float64: mp-ucb 131 ms with 128 and 161 ms with 255,
# mp-belief-lucb 5.2 and 8.7 s; mp-lucb, whose loop over a matrix needs them, 0.94 and 0.82 s.
REGISTERS = 128
ALL_REGISTERS = 255
RAISED = -1


def build_kernel(
    layout: Layout,
    arguments: str,
    loop: Callable[..., Any],
    name: str,
    *,
    registers: int = REGISTERS,
    cached: bool = True,
) -> Any:
    """Return the kernel for a loop.

    Parameters
    ----------
    layout
        The memory of the loop.
    arguments
        Source of the arguments of the loop before the slots.
    loop
        The loop, as a function for the GPU.
    name
        What identifies the loop and everything that it calls, for the cache of compiled code.
    registers
        Number of registers that a thread may use.
    cached
        Whether machine code is kept on disk.
    """
    source = source_of(layout, arguments)
    constant = (Kind.SHARED, Kind.LOCAL, Kind.TILED)
    views = {f"at_{leaf.name}": leaf for leaf in layout.leaves.values() if leaf.kind in constant}
    shapes = repr([(leaf.value.shape, leaf.strides, leaf.type) for leaf in views.values()])
    namespace: dict[str, Any] = {"cuda": cuda_module(), "np": np, "loop": loop, **layout.tuples}
    namespace |= {key: _view(leaf.value.shape, leaf.strides) for key, leaf in views.items()}
    # The cache of the compiler needs a file that exists.
    exec(compile(source, __file__, "exec"), namespace)
    return compiled_kernel(namespace["kernel"], "\0".join((name, source, shapes)), registers=registers, cached=cached)


def compiled_kernel(
    function: Callable[..., None], identity: str, *, registers: int | None = None, cached: bool = True
) -> Any:
    """Return a function as a kernel; its machine code is kept on disk if `cached` and if that is possible.

    `identity` identifies everything that the function refers to: the cache does not notice that it changed.
    """
    cuda = cuda_module()
    function.__name__ = function.__qualname__ = f"kernel_{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    if INTERPRETED:
        return cuda.jit(function)
    config: Any = importlib.import_module("numba.cuda.core.config")
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # of runs with few replications
    folder = cache_folder() if cached else None
    if folder is None:
        return cuda.jit(function, max_registers=registers)

    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return cuda.jit(function, max_registers=registers, cache=True)
    finally:
        config.CACHE_DIR = before


def source_of(layout: Layout, arguments: str) -> str:
    """Return the source of the kernel.

    Its parameters are buffers: shared arrays by type; local arrays before the first slot by type, and as they are kept
    between launches, with the replication as the last axis; for each tiled array its buffer and its value before the
    first slot; the curves of all replications. Then the checkpoints, the fractions, the slots between which it runs,
    and for each replication 0, the slot in which its policy selected invalid channels, or RAISED if its code raised an
    exception, which ends a thread without a message.
    """
    local, tiled = layout.own(Kind.LOCAL), layout.own(Kind.TILED)
    types = layout.types(Kind.LOCAL)
    parameters = [f"shared_{name}" for name in layout.types(Kind.SHARED)]
    parameters += [f"begin_{name}" for name in types] + [f"kept_{name}" for name in types]
    parameters += [f"{part}_{leaf.name}" for leaf in tiled for part in ("buffer", "begin")]
    lines = [
        f"def kernel({', '.join(parameters)}, curves, checkpoints, numbers, first, last, broken):",
        "    i = cuda.grid(1)",
        "    if i >= broken.size or broken[i] != 0:",
        "        return",
        *(line for leaf in layout.leaves.values() for line in _array(leaf)),
        "    if first == 0:",
    ]
    for leaf in local:
        kept = f"kept_{leaf.type}[{{at}}, i]"
        lines += _copies(leaf, f"{leaf.name}[{{place}}] = " + (kept if leaf.given else f"begin_{leaf.type}[{{at}}]"))
    for leaf in tiled:
        if not leaf.given:
            lines += _copies(leaf, f"{leaf.name}[{{place}}] = begin_{leaf.name}[{{place}}]")
    lines += ["        pass", "    else:"]
    for leaf in local:
        lines += _copies(leaf, f"{leaf.name}[{{place}}] = kept_{leaf.type}[{{at}}, i]")
    lines += ["        pass", f"    broken[i] = {RAISED}", f"    result = loop({arguments}, first, last)"]
    for leaf in local:
        lines += _copies(leaf, f"kept_{leaf.type}[{{at}}, i] = {leaf.name}[{{place}}]", indent=4)
    return "\n".join([*lines, "    broken[i] = result"]) + "\n"


def _array(leaf: Leaf) -> list[str]:
    """Return the lines that build an array."""
    name, at = leaf.name, f"    {leaf.name} = at_{leaf.name}"
    if leaf.kind is Kind.SHARED:
        return [f"{at}(shared_{leaf.type}, {leaf.first})"]
    owner = leaf.view_of or name
    if leaf.kind is Kind.TILED:
        return [f"{at}(buffer_{owner}, i // {LANES} * {LANES * leaf.stored} + i % {LANES} * {leaf.row})"]
    if leaf.kind is Kind.LOCAL:
        number_type = "np.bool_" if leaf.type == "bool" else f"np.{leaf.type}"
        memory = [] if leaf.view_of else [f"    memory_{name} = cuda.local.array({leaf.stored}, {number_type})"]
        return [*memory, f"{at}(memory_{owner}, 0)"]
    return [f"    {name} = checkpoints" if leaf.kind is Kind.CHECKPOINTS else f"    {name} = curves[i]"]


def _copies(leaf: Leaf, copy: str, indent: int = 8) -> list[str]:
    """Return lines that copy every element of an array: {place} is its index, {at} its position in a buffer."""
    lines, position, step = [], [str(leaf.first)], leaf.stored
    for axis, length in enumerate(leaf.stored_shape):
        step //= length
        lines.append(f"{' ' * indent}for j{axis} in range({length}):")
        position.append(f"j{axis} * {step}")
        indent += 4
    place = ", ".join(f"j{axis}" for axis in range(leaf.value.ndim))
    return [*lines, " " * indent + copy.format(place=place, at=" + ".join(position))]


def _view(shape: tuple[int, ...], strides: tuple[int, ...]) -> Callable[[Any, int], Any]:
    """Return a function (buffer, first) for kernels that returns an array in a buffer, of constant shape."""
    if INTERPRETED:

        def view(buffer: Any, first: int) -> Any:
            return as_strided(buffer[first:], shape, [stride * buffer.itemsize for stride in strides])

        return view
    return _compiled_view(shape, strides)


def _compiled_view(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Return such a function for compiled kernels."""
    from llvmlite import ir

    cgutils: Any = importlib.import_module("numba.cuda.cgutils")
    types: Any = importlib.import_module("numba.cuda.types")
    intrinsic: Any = importlib.import_module("numba.cuda.extending").intrinsic
    populate_array: Any = importlib.import_module("numba.cuda.np.arrayobj").populate_array
    in_order = np.empty(shape, np.int8).strides == strides or 0 in shape
    word = ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator]
    def view(typing: Any, buffer: Any, first: Any) -> Any:
        kind = types.Array(buffer.dtype, len(shape), "C" if in_order else "A")

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            whole = context.make_array(signature.args[0])(context, builder, arguments[0])
            array = context.make_array(kind)(context, builder)
            itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            populate_array(
                array,
                data=builder.gep(whole.data, [arguments[1]]),
                shape=cgutils.pack_array(builder, [ir.Constant(word, length) for length in shape]),
                strides=cgutils.pack_array(builder, [ir.Constant(word, stride * itemsize) for stride in strides]),
                itemsize=ir.Constant(word, itemsize),
                meminfo=None,
            )
            return array._getvalue()

        return kind(buffer, first), build

    return view
