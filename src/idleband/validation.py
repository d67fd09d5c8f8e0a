"""Validate single values of settings; errors name the field, the value and what is allowed."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from idleband.errors import InputError, shown, unknown

WholeNumber: TypeAlias = int | float | str | np.integer[Any]
"""What is accepted as a whole number: 100000, 1e5 or "1e5"."""


def check_keys(table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    """Refuse a key that is not allowed and suggest the closest one."""
    allowed = list(allowed)
    for key in table:
        if key not in allowed:
            raise unknown(f"key in {where}", key, allowed)


def table(value: Any, field: str) -> Mapping[str, Any]:
    """Return a mapping, or refuse the value."""
    if not isinstance(value, Mapping):
        raise InputError(f"{field} = {shown(value)}: must be a table of settings")
    return value


def number(value: Any, field: str, low: float, high: float, *, above: bool = False) -> float:
    """Return a finite number from low to high; `above` excludes low itself."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        try:
            x = float(value)
        except OverflowError:
            x = math.inf
        if math.isfinite(x) and low <= x <= high and not (above and x == low):
            return x
    limits = f"above {low:g}" if above else f"of at least {low:g}"
    if math.isfinite(high):
        limits += f" and at most {high:g}"
    elif math.isinf(low):
        limits = "that is finite"
    raise InputError(f"{field} = {shown(value)}: must be a number {limits}")


def decimal(text: str, field: str) -> float:
    """Return a number that is given as text."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{field} = {text}: must be a number") from None


def whole(value: Any, field: str, low: int, high: int) -> int:
    """Return a whole number from low to high, given as a number, as text, or as a float such as 1e5."""
    try:
        if not isinstance(value, bool | np.bool_):
            digits = isinstance(value, str) and value.strip().lstrip("+-").isdecimal()
            x = int(value) if digits or isinstance(value, int | np.integer) else float(value)
            if math.isfinite(x) and x == int(x) and low <= x <= high:
                return int(x)
    except (TypeError, ValueError, OverflowError):
        pass
    text = value if isinstance(value, str) else shown(value)
    raise InputError(f"{field} = {text}: must be a whole number from {low} to {_short(high)}")


def _short(n: int) -> str:
    power = round(math.log10(n)) if n > 0 else 0
    return f"10^{power}" if power >= 6 and 10**power == n else str(n)


def choice(value: Any, field: str, options: Iterable[str]) -> str:
    """Return one of the options."""
    options = list(options)
    if isinstance(value, str) and value in options:
        return value
    raise InputError(f"{field} = {shown(value)}: must be one of {', '.join(options)}")


def flag(value: Any, field: str) -> bool:
    """Return a truth value."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(f"{field} = {shown(value)}: must be true or false")


def path(value: Any, field: str, what: str) -> Path:
    """Return a path; `what` is "file" or "folder".

    >>> path("results/mine", "out", "folder").name
    'mine'
    """
    if isinstance(value, str | os.PathLike) and os.fspath(value) != "":
        return Path(value)
    raise InputError(f"{field} = {shown(value)}: must be the name of a {what}")


def sequence(value: Any, field: str, what: str) -> list[Any]:
    """Return a list from a list, tuple or array."""
    if isinstance(value, list | tuple | np.ndarray):
        return list(value)
    raise InputError(f"{field} = {shown(value)}: must be a list, {what}")
