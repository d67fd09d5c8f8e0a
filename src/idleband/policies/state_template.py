"""New states of a policy by copying the arrays that `init` has returned once for a scenario, which is faster.

The `init` of a policy of this package depends on nothing but the setup, and returns arrays and numbers in NamedTuples.
It is called twice. An array that both calls return as the same object, because `init` keeps it, is only read by the
policy, and all states share it. A large state is not kept but made by `init` each time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.kernels.memory import aligned
from idleband.policies.knowledge import setup_of
from idleband.policies.protocol import Setup
from idleband.scenario.scenario import Scenario, once

MAX_BYTES = 2**20  # of the arrays that are copied
LARGE = 2**14  # bytes of an array of zeros that is allocated as such instead of copied

Array = npt.NDArray[Any]


@once
def state_maker(scenario: Scenario, init: Callable[[Setup], Any], params: Any) -> Callable[[], Any]:
    """Return a function that returns new states; `init` and the parameters are those of a policy of this package."""
    setup = setup_of(scenario, params)
    first, second = init(setup), init(setup)
    if _copied_bytes(first, second) > MAX_BYTES:
        return partial(init, setup)
    return _maker(first, second)


def copied(value: Any) -> Any:
    """Return a value with copies of the arrays in it and in its nested tuples."""
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return _copy(value) if isinstance(value, np.ndarray) else value


def _maker(first: Any, second: Any) -> Callable[[], Any]:
    """Return a function that returns values like `first`, which was made together with `second`."""
    if isinstance(first, tuple):
        makers = [_maker(a, b) for a, b in zip(first, second, strict=True)]
        kind = type(first)
        return lambda: kind(*[make() for make in makers])
    if not isinstance(first, np.ndarray) or first is second:
        return lambda: first
    if first.base is None and first.nbytes >= LARGE and not first.any():
        return partial(np.zeros, first.shape, first.dtype)
    return partial(_copy, first) if first.base is not None else first.copy


def _copy(array: Array) -> Array:
    """Return a copy that begins at a cache line if the array may do so."""
    if array.base is None or array.dtype != np.float64:
        return array.copy()
    copy = aligned(array.shape)
    copy[...] = array
    return copy


def _copied_bytes(first: Any, second: Any) -> int:
    """Return the size of the arrays that are copied."""
    if isinstance(first, tuple):
        return sum(_copied_bytes(a, b) for a, b in zip(first, second, strict=True))
    return first.nbytes if isinstance(first, np.ndarray) and first is not second else 0
