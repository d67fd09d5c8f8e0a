"""Parameters of policies: their types, bounds and the conversion of what users write."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from idleband.errors import InputError


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
        "compiled",
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


def public_name(field_name: str) -> str:
    """The parameter that a field holds: `lambda_` is lambda, which no field can be called."""
    return field_name.removesuffix("_")
