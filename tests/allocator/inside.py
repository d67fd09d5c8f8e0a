"""What an allocator has learned, as its file has it."""

from typing import Any

import numpy as np
import numpy.typing as npt

import idleband as ib
from idleband.allocator import saved


def arrays(allocator: ib.Allocator) -> dict[str, npt.NDArray[Any]]:
    """Every array, by name: learner.state.plays, watch.belief, ..."""
    return saved.unpack(allocator.to_bytes())[1]


def differ(one: ib.Allocator, other: ib.Allocator, *, whose: str = "") -> list[str]:
    """The names of arrays that are not bitwise the same; only of those whose name begins so."""
    ours, theirs = arrays(one), arrays(other)
    assert ours.keys() == theirs.keys()
    names = [name for name in ours if name.startswith(whose)]
    assert names
    return [name for name in names if ours[name].tobytes() != theirs[name].tobytes()]


def contexts(rng: np.random.Generator, allocator: ib.Allocator) -> npt.NDArray[np.float64]:
    return rng.random((allocator.settings.channels, allocator.settings.dimension))
