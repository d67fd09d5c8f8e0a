"""What a policy is.

A policy is three functions on explicit memory, and nothing else:

    init(params, known) -> State                                     once, plain Python: allocate the memory
    select(known, params, state, rng, slot, picks) -> int            every slot: write channels into picks, how many
    update(known, params, state, rng, slot, k, s, r, n) -> None      for every picked channel: learn what it returned

An oracle, which `knows` the parameters, is told them: init(params, known, truth).

A policy with a model of the perturbation may say what it predicts, so that it can be compared with the truth:

    predict(known, params, state, x, n_hat) -> None                  write the prediction for contexts x (K, d)

And for whoever asks why, what stands behind the index of a channel, right after `select`:

    explain(known, params, state, slot, k, terms) -> None            estimate, width and belief into terms[k]
    terms(values, known) -> (str, str)                               plain Python: what estimate and width are

`Params` and `State` are NamedTuples; hyper-parameters are fields of `Params`, never closures, or a grid of six values
would be compiled six times. The functions run once per slot inside the compiled loop, so they allocate nothing: `slot`
lends them working arrays. Bounds of parameters stand in their annotations and are checked before anything runs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from idleband.errors import InputError, unknown
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_BYTES = 8 * 2**30  # that a policy's memory may take in one replication

__all__ = ["MOST_BYTES", "AtLeast", "Flags", "Floats", "Ints", "Known", "OneOf", "Policy", "Rng", "Slot", "to_unit"]


class Known(NamedTuple):
    """What every policy may know of the world before it starts."""

    K: int  # channels
    M: int  # channels to pick in a slot
    d: int  # entries of a context
    low: float  # rewards lie in [low, high]
    high: float
    span: float  # max(1, high - low), the scale of widths: the paper's world has the textbook widths
    h_span: float  # the same for the state reward h
    h: Floats  # (K, S) reward of a state, without perturbation
    states: Ints  # (K,) how many states a channel has
    good: Flags  # (K, S) whether a state counts as good: no primary user
    threshold: bool  # the reward is the threshold reward, else the additive one
    measured: bool  # update receives the measured perturbation n, else nan


class Truth(NamedTuple):
    """What only an oracle is told of the world before it starts."""

    P: Floats  # (K, S, S) transition matrices; the rows of states that a channel does not have are zero
    stationary: Floats  # (K, S)
    mean: Floats  # (K,) mean rewards, perturbation included
    pay: Floats  # (K, L, S) reward in a state, at L levels of the perturbation
    level_chance: Floats  # (K, L) how often the perturbation is at a level
    level_end: Floats  # (K, L) a level reaches up to this perturbation, not included


class Slot(NamedTuple):
    """What a policy sees before it picks, and arrays it may work in."""

    t: int  # number of the slot, from 1
    x: Floats  # (K, d) contexts
    available: Flags  # (K,) channels that may be picked
    sensed: Ints  # (K,) states, -1 where not sensed (all of them unless sensing = "all", or for the genie)
    n: Floats  # (K,) perturbations of the slot, for oracles; nan for all others
    indices: Floats  # (K,) free to use, for the index of each channel
    scratch: Floats  # (2K,) free to use, as top_m needs it


# The columns of `terms`, for one channel each row: nan where a policy has nothing to say. The belief is the chance that
# there is no primary user.
ESTIMATE, WIDTH, BELIEF = range(3)


@jit
def explain_mean(total: Floats, plays: Floats, slot: Slot, k: int, terms: Floats) -> None:
    """The index of channel k as a mean and what was added to it."""
    if plays[k] > 0.0:
        terms[k, ESTIMATE] = total[k] / plays[k]
        terms[k, WIDTH] = slot.indices[k] - terms[k, ESTIMATE]


@jit
def to_unit(known: Known, r: float) -> float:
    """A reward on [0, 1], by its place in the scenario's range; clipped."""
    width = known.high - known.low
    return min(1.0, max(0.0, (r - known.low) / width)) if width > 0.0 else 0.0


class AtLeast(NamedTuple):
    """The bound of a numeric parameter, for its annotation."""

    low: float
    high: float = 1e100  # sums and differences of larger numbers overflow

    def __str__(self) -> str:
        return f"a finite number of at least {self.low:g}" + (f", at most {self.high:g}" if self.high < 1e100 else "")


class OneOf:
    """The words a parameter may be; kernels see the position of the word."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __str__(self) -> str:
        return "one of " + ", ".join(self.words)


# Names that a parameter cannot have: they mean something else beside parameters, in a file, a call or a table.
RESERVED = frozenset(
    [
        "name",
        "scenario",
        "policy",
        "label",
        "replication",
        "t",
        "reward",
        "regret_static",
        "regret_contextual",
        "regret_genie",
        "regret_table",
        "regret_bound",
        "suboptimal_static",
        "suboptimal_contextual",
        "collisions",
        "horizon",
        "replications",
        "seed",
        "record",
        "threads",
    ]
)


@dataclass(frozen=True)
class Parameter:
    """A parameter as users meet it."""

    name: str
    kind: type  # float, int or bool; int with words for OneOf
    default: Any  # as users write it: a word for OneOf
    bound: AtLeast | OneOf | None
    meaning: str

    @property
    def allowed(self) -> str:
        if isinstance(self.bound, AtLeast) and self.kind is int:
            return str(self.bound).replace("finite", "whole")
        if self.bound is not None:
            return str(self.bound)
        return {bool: "true or false", int: "a whole number", float: "a finite number"}[self.kind]

    def public(self, value: Any) -> Any:
        """The value as users write it, checked. Accepts text too, as it comes from the command line."""
        if isinstance(self.bound, OneOf):
            if isinstance(value, str) and value in self.bound.words:
                return value
        elif self.kind is bool:
            if isinstance(value, bool | np.bool_):
                return bool(value)
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
        else:
            number = _number(value, self.kind)
            low, high = (self.bound.low, self.bound.high) if self.bound is not None else (-math.inf, math.inf)
            if number is not None and low <= number <= high:
                return number
        raise InputError(f"{self.name} = {value!r}: must be {self.allowed}")

    def internal(self, public: Any) -> Any:
        """The value as kernels see it."""
        return self.bound.words.index(public) if isinstance(self.bound, OneOf) else public


def _number(value: Any, kind: type) -> float | int | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    if kind is int:
        return int(number) if number == int(number) else None
    return number


def _public(field_name: str) -> str:
    """The parameter that a field holds: `lambda_` is lambda, which no field can be called."""
    return field_name.removesuffix("_")


CONTEXTS_SEEN, PARAMETERS, STATES_SEEN = "contexts", "parameters", "all states"
KNOWLEDGE = (CONTEXTS_SEEN, PARAMETERS, STATES_SEEN)


@dataclass(frozen=True)
class Policy:
    """A policy under its name: functions, parameters with defaults, and where it comes from."""

    name: str
    description: str
    reference: str
    params: type  # a NamedTuple class
    init: Callable[..., Any]
    select: Callable[..., int]
    update: Callable[..., None]
    predict: Callable[..., None] | None = None  # what it takes the perturbation to be, if it has a model of it
    explain: Callable[..., None] | None = None  # what stands behind its indices
    terms: Callable[..., tuple[str, str]] | None = None
    check: Callable[..., None] | None = None  # (params, known): refuses what `init` could not allocate
    knows: frozenset[str] = frozenset()  # of KNOWLEDGE, beside what it was told of the channels it played
    fixed: frozenset[str] = frozenset()  # parameters that cannot be set: they are what the name means
    preset: dict[str, Any] = field(default_factory=dict)  # defaults that differ from those of `params`, as users write
    source: str | None = None  # hash of the user's file; None for the policies of this package
    cacheable: bool = True  # false for what was typed into an interpreter

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells it from other policies, a user's own of the same name included."""
        return self.name, self.source

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters, by name, read from the annotations of `params`."""
        found = {}
        hints = get_type_hints(self.params, include_extras=True)
        defaults = {_public(name): default for name, default in self.params._field_defaults.items()}  # type: ignore[attr-defined]
        for field_name, hint in hints.items():
            name = _public(field_name)
            kind, bound, meaning = hint, None, ""
            if get_origin(hint) is Annotated:
                kind, *notes = get_args(hint)
                bound = next((note for note in notes if isinstance(note, AtLeast | OneOf)), None)
                meaning = next((note for note in notes if isinstance(note, str)), "")
            if kind not in (float, int, bool):
                raise InputError(f"policy '{self.name}': parameter {name} must be a float, an int or a bool")
            if name in RESERVED:
                raise InputError(f"policy '{self.name}': a parameter cannot be called {name}")
            if name not in defaults:
                raise InputError(f"policy '{self.name}': parameter {name} needs a default")
            default = self.preset.get(name, defaults[name])
            if isinstance(bound, OneOf) and not isinstance(default, str):
                default = bound.words[default]
            found[name] = Parameter(name, kind, default, bound, meaning)
        return found

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        """All parameters as users write them: the given ones, checked, over the defaults."""
        parameters = self.parameters
        given = {_public(name): value for name, value in given.items()}
        for name in given:
            if name not in parameters:
                raise unknown(f"parameter of policy {self.name}", name, parameters)
        try:
            values = {name: p.public(given.get(name, p.default)) for name, p in parameters.items()}
        except InputError as error:
            raise InputError(f"policy {self.name}: {error}") from None
        for name in self.fixed:
            if values[name] != parameters[name].default:
                raise InputError(
                    f"policy {self.name}: {name} = {values[name]}: is {parameters[name].default} in this policy"
                )
        return values

    def compiled_params(self, values: dict[str, Any]) -> Any:
        """The `Params` that kernels read."""
        kinds = self.parameters
        # In order: a field and its parameter may differ by an underscore.
        return self.params(*(p.kind(p.internal(values[name])) for name, p in kinds.items()))
