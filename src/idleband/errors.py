"""Errors that a user can act on. Each has a message of one line; the command line prints it without a traceback."""

import difflib
import re
from collections.abc import Iterable


class IdlebandError(Exception):
    """Base class of the package's errors."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # one line, whatever values it contains


class InputError(IdlebandError, ValueError):
    """Invalid input, or a file that cannot be used.

    The message names the field, the value and what is allowed.

    >>> raise InputError("scenario.users = 0: must be a whole number from 1 to 10")
    Traceback (most recent call last):
    idleband.errors.InputError: scenario.users = 0: must be a whole number from 1 to 10
    """


class ConflictError(IdlebandError):
    """A request contradicts an earlier one, such as another question under the same request_id."""


class UnknownRequestError(IdlebandError, LookupError):
    """No decision with this request_id is kept."""


class PolicyBusyError(IdlebandError):
    """A policy with a deadline has not finished its pending work; try again later."""


class StorageError(IdlebandError):
    """A file cannot be written or read back, for example because the disk is full."""


class ClusterError(IdlebandError):
    """A Dask cluster cannot be used: it cannot be reached, was lost, or its workers differ from this process."""


class CompilationWarning(UserWarning):
    """A user's policy does not compile and runs interpreted, which is several times slower.

    The message contains the file, the line and the compiler's reason.
    """


MAX_SHOWN = 80  # characters


def shown(value: object) -> str:
    """Return a short representation of any value for a message, without looking at more of it than is shown.

    >>> shown([0.5, None]), shown([[0] * 1000] * 1000)
    ('[0.5, None]', '[[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,...')
    """
    try:
        text = _beginning(value, MAX_SHOWN + 1)
    except ValueError:  # an integer of thousands of digits
        return "a number too long to print"
    return text if len(text) <= MAX_SHOWN else f"{text[:70]}..."


def _beginning(value: object, length: int) -> str:
    """Return repr(value), or a text that begins with at least `length` characters of it."""
    if length <= 0:
        return ""
    if type(value) in (str, bytes):
        return repr(value[:length])  # type: ignore[index]
    if type(value) is dict:
        text = "{"
        for key, one in value.items():
            text += ", " if len(text) > 1 else ""
            text += f"{_beginning(key, length - len(text))}: "
            text += _beginning(one, length - len(text))
            if len(text) > length:
                return text
        return text + "}"
    if type(value) in (list, tuple):
        text, end = ("[", "]") if type(value) is list else ("(", ")")
        for one in value:  # type: ignore[attr-defined]
            text += ", " if len(text) > 1 else ""
            text += _beginning(one, length - len(text))
            if len(text) > length:
                return text
        return text + ("," if type(value) is tuple and len(value) == 1 else "") + end
    return repr(value)


def counted(n: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural.

    >>> counted(1, "policy"), counted(2, "policy"), counted(20_000, "slot")
    ('1 policy', '2 policies', '20,000 slots')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def check_name(value: object, field: str) -> str:
    """Return a name that is safe in a table, a figure and a folder name."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,79}", value) and ".." not in value:
        return value
    raise InputError(f"{field} = {shown(value)}: must be 1 to 80 letters, digits, spaces or . _ + -, with no '..'")


def unknown(what: str, name: object, options: Iterable[str]) -> InputError:
    """Return the error for a name that is not among the options, with the closest option as a suggestion.

    In `what`, the words from "in" or "of" on follow the name.

    >>> print(unknown("policy", "mp-ubc", ["mp-ucb", "mp-ts"]))
    unknown policy 'mp-ubc': did you mean 'mp-ucb'? known: mp-ucb, mp-ts
    >>> print(unknown("key in scenario", "user", ["users", "name"]))
    unknown key 'user' in scenario: did you mean 'users'? known: users, name
    """
    known = list(options)
    spelt = {option.lower(): option for option in known}
    close = difflib.get_close_matches(str(name).lower(), spelt, n=1)
    hint = f"did you mean '{spelt[close[0]]}'? " if close else ""
    noun, *place = re.split(r" (?=in |of )", what, maxsplit=1)
    quoted = " ".join([noun, f"'{name}'", *place])
    return InputError(f"unknown {quoted}: {hint}known: {', '.join(known) or 'none'}")
