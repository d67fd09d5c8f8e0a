"""What an allocator has learned, as its file has it."""

from typing import Any

import numpy as np
import numpy.typing as npt

import idleband as ib
from idleband.allocator import serialization


def arrays(allocator: ib.Allocator) -> dict[str, npt.NDArray[Any]]:
    """Every array, by name: learner.state.plays, watch.belief, ..."""
    return serialization.unpack(allocator.to_bytes())[1]


def differ(one: ib.Allocator, other: ib.Allocator, *, whose: str = "") -> list[str]:
    """The names of arrays that are not bitwise the same; only of those whose name begins so."""
    ours, theirs = arrays(one), arrays(other)
    assert ours.keys() == theirs.keys()
    names = [name for name in ours if name.startswith(whose)]
    assert names
    return [name for name in names if ours[name].tobytes() != theirs[name].tobytes()]


def contexts(rng: np.random.Generator, allocator: ib.Allocator) -> npt.NDArray[np.float64]:
    return rng.random((allocator.settings.channels, allocator.settings.dimension))


def plain(spoil: Any, spoil_lesson: Any = None, memory: Any = lambda: np.zeros(1, np.longdouble)) -> type:
    """A user's own policy; `spoil` and `spoil_lesson` are called with the slot and may spoil what it does. It ranks
    channels by what it earned on them, the most first. No compiler knows the second array of its memory, so that no
    test waits for one."""

    class Plain:
        def init(setup: Any) -> Any:
            return np.zeros(setup.K), memory()

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            slot.indices[:] = state[0]
            count = ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)
            spoilt = spoil(slot, picks)
            return count if spoilt is None else spoilt

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            state[0][feedback.channel] += feedback.reward
            if spoil_lesson is not None:
                spoil_lesson(slot, feedback.channel)

    return ib.register(name="plain")(Plain)


def station(policy: Any = "mp-ucb", **more: Any) -> ib.Allocator:
    """A small one, of five channels."""
    return ib.Allocator(policy, **{"channels": 5, "users": 2, "dimension": 2, **more})


def raising(slot: Any, picks: Any) -> None:
    """What spoils a `plain` policy in slot 3."""
    if slot.t == 3:
        raise RuntimeError("no idea")
