"""One policy at work: its memory, and the two compiled halves of a slot."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from idleband.allocator import slot_kernels
from idleband.binding import Bindings, Kernel, bind_policy, kernel_name, policy_errors
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.packed_state import PackedState, pack, unpacked
from idleband.kernels.rng import POLICY, stream
from idleband.policies.protocol import PARAMETERS, Setup, Truth
from idleband.policies.registry import ConfiguredPolicy


class Learner:
    """A policy on one allocator."""

    def __init__(
        self, configured: ConfiguredPolicy, setup: Setup, truth: Truth | None, seed: int, replication: int
    ) -> None:
        policy = configured.policy
        if PARAMETERS in policy.knows and truth is None:
            raise InputError(f"policy {policy.name}: knows the parameters, and needs a scenario= to know them from")
        self.configured = configured
        setup = setup._replace(params=configured.params)
        given = (truth,) if PARAMETERS in policy.knows else ()
        with policy_errors(policy):
            self.state = policy.init(setup, *given)
        self.rng = stream(seed, replication, POLICY)
        self.room = slot_kernels.new_room(setup.K)
        self.words = ("", "") if policy.terms is None else policy.terms(setup)
        choose, learn, frozen = _kernels(configured, (setup, self.state, self.rng, self.room))
        self.block = frozen.block
        self.choose, self.learn = choose.run, learn.run  # to be called with the block first
        self.note = choose.reason or learn.reason  # why it is not compiled, if it is not
        self._frozen = frozen  # keeps alive what the block points to

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """All that changes as it works, by name."""
        yield "rng", self.rng
        yield "indices", self.room.indices
        yield from leaves("state", self.state, f"policy {self.configured.policy.name}")

    def finite(self) -> bool:
        """Whether there is no nan in what it has learned; in what a user's own policy keeps it may mean something."""
        if self.configured.policy.source is not None:
            return True
        return not any(np.isnan(array).any() for _, array in self.arrays() if array.dtype == np.float64)


def leaves(name: str, part: Any, whose: str) -> Iterator[tuple[str, Any]]:
    """The arrays in nested NamedTuples, by the way that leads to each."""
    if isinstance(part, np.ndarray) and part.dtype != object:
        yield name, part
    elif isinstance(part, tuple):
        fields = getattr(part, "_fields", range(len(part)))
        for field, inner in zip(fields, part, strict=True):
            yield from leaves(f"{name}.{field}", inner, whose)
    elif not isinstance(part, bool | int | float | str | None):
        raise InputError(f"{whose}: {name} is a {type(part).__name__}; must be an array to be saved")


def _kernels(configured: ConfiguredPolicy, values: tuple[Any, ...]) -> tuple[Kernel, Kernel, PackedState]:
    """Both halves, compiled if they can be, and the memory as they take it."""
    try:
        frozen = pack(values)
    except Exception as error:
        if configured.policy.source is None:
            raise
        frozen = unpacked(values)  # a user's own policy may keep its memory in what cannot be compiled
        note = compile.reason(error)
        return (*(_interpreted(configured, half, note) for half in HALVES), frozen)  # type: ignore[return-value]
    setup = values[0]
    ready = [_kernel(configured, half, frozen, setup.K, setup.d) for half in HALVES]
    if not all(kernel.compiled for kernel in ready):
        note = "".join(kernel.reason for kernel in ready)
        return (*(_interpreted(configured, half, note) for half in HALVES), unpacked(values))  # type: ignore[return-value]
    return ready[0], ready[1], frozen


HALVES = ("choose", "learn")
_compiled: dict[str, Kernel] = {}


def _functions(configured: ConfiguredPolicy, half: str) -> dict[str, Callable[..., Any]]:
    policy = configured.policy
    if half == "learn":
        return {"update": policy.update}
    return {"select": policy.select, "explain": policy.explain or slot_kernels.explain_nothing}


def _kernel(configured: ConfiguredPolicy, half: str, frozen: PackedState, K: int, d: int) -> Kernel:
    name = kernel_name(half, configured.policy, frozen.kind)
    if name not in _compiled:
        x, flags, ints, floats = np.zeros((K, d)), np.zeros(K, np.bool_), np.zeros(K, np.int64), np.zeros(K)
        sees = (frozen.block, 0, 0, x, flags, ints, floats)
        trial: tuple[Any, ...] = (*sees, ints, np.zeros((K, slot_kernels.TERMS)))
        if half == "learn":
            trial = (*sees, ints, flags, np.zeros((3, K)))
        bindings = Bindings({"unpack": frozen.unpack})
        _compiled[name] = bind_policy(
            getattr(slot_kernels, half), name, configured.policy, _functions(configured, half), bindings, trial
        )
    return _compiled[name]


def _interpreted(configured: ConfiguredPolicy, half: str, reason: str) -> Kernel:
    plain = {key: getattr(f, "py_func", f) for key, f in _functions(configured, half).items()}
    bindings = plain | {"unpack": unpacked(()).unpack}
    return Kernel(compile.interpreted(getattr(slot_kernels, half), half, bindings), False, reason)
