"""A policy with its memory and its two compiled kernels, `choose` and `learn`."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from idleband.allocator import slot_kernels
from idleband.arrays import Floats
from idleband.binding import Bindings, Kernel, bind_policy, check_compiled, kernel_name, policy_errors
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.packed_state import PackedState, pack, unpacked
from idleband.kernels.rng import POLICY, stream
from idleband.policies.protocol import PARAMETERS, Setup, Truth
from idleband.policies.registry import ConfiguredPolicy
from idleband.policies.state_template import copied


class Learner:
    """The state of one policy in an allocator."""

    def __init__(
        self, configured: ConfiguredPolicy, setup: Setup, truth: Truth | None, seed: int, replication: int
    ) -> None:
        policy = configured.policy
        assert truth is not None or PARAMETERS not in policy.knows  # the settings of an oracle have a scenario
        self.configured = configured
        setup = setup._replace(params=configured.params)
        given = (truth,) if PARAMETERS in policy.knows else ()
        with policy_errors(policy):
            if policy.source is None:  # states may share arrays, and a snapshot is loaded into all of them
                self.state = copied(policy.init(setup, *given))
            else:  # a user's policy might write into the setup, which the scenario keeps
                setup = copied(setup)
                self.state = policy.init(setup, *given)
        self.rng = stream(seed, replication, POLICY)
        self.workspace = slot_kernels.new_workspace(setup.K)
        self.meanings = ("", "") if policy.terms is None else policy.terms(setup)  # of the estimate and the width
        choose, learn, packed = _kernels(configured, (setup, self.state, self.rng, self.workspace))
        self.block = packed.block
        self.choose, self.learn = choose.run, learn.run  # the block is their first argument
        self.interpreted_because = choose.reason or learn.reason  # empty if compiled
        self._packed = packed  # owns the memory that the block points to

    @property
    def propensities(self) -> Floats | None:
        """The probabilities with which channels were selected in the latest slot; None if the policy has none."""
        return None if self.configured.policy.propensities is None else self.workspace.propensities.copy()

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """Yield all arrays that change over time, with their names. The order is part of snapshot format 1."""
        yield "rng", self.rng
        yield "indices", self.workspace.indices
        yield from leaves("state", self.state, f"policy {self.configured.policy.name}")

    def finite(self) -> bool:
        """Return whether the state contains no nan. In a user's policy nan is allowed."""
        if self.configured.policy.source is not None:
            return True
        return not any(np.isnan(array).any() for _, array in self.arrays() if array.dtype == np.float64)


def leaves(name: str, part: Any, owner: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in nested tuples, named by the path to each."""
    if isinstance(part, np.ndarray) and part.dtype != object:
        yield name, part
    elif isinstance(part, tuple):
        fields = getattr(part, "_fields", range(len(part)))
        for field, inner in zip(fields, part, strict=True):
            yield from leaves(f"{name}.{field}", inner, owner)
    elif not isinstance(part, bool | int | float | str | None):
        raise InputError(f"{owner}: {name} is a {type(part).__name__}; must be an array to be saved")


KERNELS = ("choose", "learn")
_compiled: dict[str, Kernel] = {}


def _kernels(configured: ConfiguredPolicy, values: tuple[Any, ...]) -> tuple[Kernel, Kernel, PackedState]:
    """Return both kernels, compiled if possible, and the memory in the form that they take."""
    try:
        packed = pack(values)
    except Exception as error:
        if configured.policy.source is None:
            raise
        kernel = Kernel(pack, False, compile.reason(error), str(error))  # the state cannot be compiled
        check_compiled(configured.policy, kernel)
        return _interpreted_kernels(configured, values, kernel.reason)
    setup = values[0]
    choose, learn = (_kernel(configured, name, packed, setup.K, setup.d) for name in KERNELS)
    if choose.compiled and learn.compiled:
        return choose, learn, packed
    for kernel in (choose, learn):
        check_compiled(configured.policy, kernel)
    return _interpreted_kernels(configured, values, choose.reason + learn.reason)


def _kernel(configured: ConfiguredPolicy, kernel: str, packed: PackedState, K: int, d: int) -> Kernel:
    name = kernel_name(kernel, configured.policy, packed.kind)
    if name not in _compiled:
        x, flags, ints, floats = np.zeros((K, d)), np.zeros(K, np.bool_), np.zeros(K, np.int64), np.zeros(K)
        view = (packed.block, 0, 0, x, flags, ints, floats)
        trial: tuple[Any, ...] = (*view, ints, np.zeros((K, slot_kernels.TERMS)))
        if kernel == "learn":
            trial = (*view, ints, flags, np.zeros((3, K)))
        bindings = Bindings({"unpack": packed.unpack})
        _compiled[name] = bind_policy(
            getattr(slot_kernels, kernel), name, configured.policy, _functions(configured, kernel), bindings, trial
        )
    return _compiled[name]


def _interpreted_kernels(
    configured: ConfiguredPolicy, values: tuple[Any, ...], reason: str
) -> tuple[Kernel, Kernel, PackedState]:
    choose, learn = (_interpreted(configured, name, reason) for name in KERNELS)
    return choose, learn, unpacked(values)


def _interpreted(configured: ConfiguredPolicy, kernel: str, reason: str) -> Kernel:
    plain = {key: getattr(f, "py_func", f) for key, f in _functions(configured, kernel).items()}
    bindings = plain | {"unpack": unpacked(()).unpack}
    return Kernel(compile.interpreted(getattr(slot_kernels, kernel), kernel, bindings), False, reason)


def _functions(configured: ConfiguredPolicy, kernel: str) -> dict[str, Callable[..., Any]]:
    """Return the policy's functions that a kernel calls."""
    policy = configured.policy
    if kernel == "learn":
        return {"update": policy.update}
    return {
        "select": policy.select,
        "explain": policy.explain or slot_kernels.explain_nothing,
        "propensities": policy.propensities or slot_kernels.no_propensities,
    }
