"""One policy at work: its memory, and the two compiled halves of a slot."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from idleband.allocator import step
from idleband.errors import InputError
from idleband.kernels import compile
from idleband.kernels.frozen import Frozen, as_they_are, freeze
from idleband.kernels.rng import POLICY, stream
from idleband.policies.base import PARAMETERS, Known, Truth
from idleband.policies.registry import Case
from idleband.simulation.engine import Engine, Setting, build, name_for, named


class Learner:
    """A policy on one allocator."""

    def __init__(self, case: Case, known: Known, truth: Truth | None, seed: int, replication: int) -> None:
        policy = case.policy
        if PARAMETERS in policy.knows and truth is None:
            raise InputError(f"policy {policy.name}: knows the parameters, and needs a scenario= to know them from")
        self.case = case
        params = policy.compiled_params(case.values)
        told = (truth,) if PARAMETERS in policy.knows else ()
        with named(policy):
            self.state = policy.init(params, known, *told)
        self.rng = stream(seed, replication, POLICY)
        self.room = step.new_room(known.K)
        self.words = ("", "") if policy.terms is None else policy.terms(case.values, known)
        values = (known, params, self.state, self.rng, self.room)
        choose, learn, frozen = _kernels(case, values)
        self.block = frozen.block
        self.choose, self.learn = choose.run, learn.run  # to be called with the block first
        self.note = choose.reason or learn.reason  # why it is not compiled, if it is not
        self._frozen = frozen  # keeps alive what the block points to

    def arrays(self) -> Iterator[tuple[str, Any]]:
        """All that changes as it works, by name."""
        yield "rng", self.rng
        yield "indices", self.room.indices
        yield from leaves("state", self.state, f"policy {self.case.policy.name}")

    def finite(self) -> bool:
        """Whether there is no nan in what it has learned; in what a user's own policy keeps it may mean something."""
        if self.case.policy.source is not None:
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


def _kernels(case: Case, values: tuple[Any, ...]) -> tuple[Engine, Engine, Frozen]:
    """Both halves, compiled if they can be, and the memory as they take it."""
    try:
        frozen = freeze(values)
    except Exception as error:
        if case.policy.source is None:
            raise
        frozen = as_they_are(values)  # a user's own policy may keep its memory in what cannot be compiled
        note = compile.reason(error)
        return (*(_interpreted(case, half, note) for half in HALVES), frozen)  # type: ignore[return-value]
    known = values[0]
    ready = [_engine(case, half, frozen, known.K, known.d) for half in HALVES]
    if not all(engine.compiled for engine in ready):
        note = "".join(engine.reason for engine in ready)
        return (*(_interpreted(case, half, note) for half in HALVES), as_they_are(values))  # type: ignore[return-value]
    return ready[0], ready[1], frozen


HALVES = ("choose", "learn")
_engines: dict[str, Engine] = {}


def _functions(case: Case, half: str) -> dict[str, Callable[..., Any]]:
    policy = case.policy
    if half == "learn":
        return {"update": policy.update}
    return {"select": policy.select, "explain": policy.explain or step.explain_nothing}


def _engine(case: Case, half: str, frozen: Frozen, K: int, d: int) -> Engine:
    name = name_for(half, case.policy, frozen.kind)
    if name not in _engines:
        x, flags, ints, floats = np.zeros((K, d)), np.zeros(K, np.bool_), np.zeros(K, np.int64), np.zeros(K)
        sees = (frozen.block, 0, 0, x, flags, ints, floats)
        trial: tuple[Any, ...] = (*sees, ints, np.zeros((K, step.TERMS)))
        if half == "learn":
            trial = (*sees, ints, flags, np.zeros((3, K)))
        setting = Setting({"thaw": frozen.thaw})
        _engines[name] = build(getattr(step, half), name, case.policy, _functions(case, half), setting, trial)
    return _engines[name]


def _interpreted(case: Case, half: str, reason: str) -> Engine:
    plain = {key: getattr(f, "py_func", f) for key, f in _functions(case, half).items()}
    bindings = plain | {"thaw": as_they_are(()).thaw}
    return Engine(compile.interpreted(getattr(step, half), half, bindings), False, reason)
