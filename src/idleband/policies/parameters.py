"""Parameters of policies: types, bounds, and conversion of the values that users write."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from idleband.errors import InputError


class AtLeast(NamedTuple):
    """Bounds of a numeric parameter, for its annotation.

    Parameters
    ----------
    low, high : float
        Smallest and largest allowed value.

    Examples
    --------
    >>> print(AtLeast(0, 1))
    a finite number of at least 0, at most 1
    """

    low: float
    high: float = 1e100  # sums and differences of larger numbers overflow

    def __str__(self) -> str:
        return f"a finite number of at least {self.low:g}" + (f", at most {self.high:g}" if self.high < 1e100 else "")


class OneOf:
    """Words that a parameter may have as its value; kernels read the position of the word.

    Parameters
    ----------
    *words : str
        The allowed words.

    Examples
    --------
    >>> print(OneOf("low", "high"))
    one of low, high
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def __str__(self) -> str:
        return "one of " + ", ".join(self.words)


# Names that a parameter cannot have, because they have another meaning in a file, a call or a table.
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
    """Description of a parameter."""

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
        """Return the checked value as users write it. Text, as on the command line, is accepted too."""
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
        """Return the value as kernels read it."""
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
    """Return the name of the parameter of a field: `lambda_` stands for lambda, which is a keyword of Python."""
    return field_name.removesuffix("_")
