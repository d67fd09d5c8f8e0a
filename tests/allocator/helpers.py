"""Small allocators, their complete state, and a user's policy whose behaviour a test chooses."""

from typing import Any

import numpy as np
import numpy.typing as npt

import idleband as ib
from idleband.allocator import serialization
from idleband.allocator.core import AllocatorCore


def state_of(allocator: ib.Allocator) -> bytes:
    """Return the complete state, as `save` writes it."""
    return allocator._core.snapshot()()


def loaded(data: bytes, place: str = "here") -> ib.Allocator:
    """Return an allocator with a state from `state_of`."""
    return ib.Allocator._around(AllocatorCore.from_bytes(data, place))


def arrays(allocator: ib.Allocator) -> dict[str, npt.NDArray[Any]]:
    """Return every array of the state by name: policy.state.plays, occupancy.belief, ..."""
    return serialization.unpack(state_of(allocator))[1]


def differ(one: ib.Allocator, other: ib.Allocator, *, part: str = "") -> list[str]:
    """Return the names of arrays that are not bitwise equal, among those whose names begin with `part`."""
    ours, theirs = arrays(one), arrays(other)
    assert ours.keys() == theirs.keys()
    names = [name for name in ours if name.startswith(part)]
    assert names
    return [name for name in names if ours[name].tobytes() != theirs[name].tobytes()]


def contexts(rng: np.random.Generator, allocator: ib.Allocator) -> npt.NDArray[np.float64]:
    return rng.random((allocator.settings.channels, allocator.settings.dimension))


def plain(on_select: Any, on_update: Any = None, memory: Any = lambda: np.zeros(1, np.longdouble)) -> type:
    """Register a user's policy that ranks channels by the sum of their rewards.

    `on_select` and `on_update` are called in `select` and `update` and may do anything. The second array of the state
    cannot be compiled, so that no test waits for the compiler.
    """

    class Plain:
        def init(setup: Any) -> Any:
            return np.zeros(setup.K), memory()

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            slot.indices[:] = state[0]
            count = ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
            chosen = on_select(slot, picks)
            return count if chosen is None else chosen

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            state[0][feedback.channel] += feedback.reward
            if on_update is not None:
                on_update(slot, feedback.channel)

    return ib.register(name="plain")(Plain)


def station(policy: Any = "mp-ucb", **more: Any) -> ib.Allocator:
    """Return an allocator of five channels and two users."""
    return ib.Allocator(policy, **{"channels": 5, "users": 2, "dimension": 2, **more})


def raising(slot: Any, picks: Any) -> None:
    """Make a `plain` policy fail in slot 3."""
    if slot.t == 3:
        raise RuntimeError("no idea")
