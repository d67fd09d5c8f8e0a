"""What goes wrong in a way the user can mend: one line, no traceback."""

import difflib
import re
from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in the input, or a file that cannot be used, told in one line.

    The line names the field, the value and what is allowed. The command line prints it and ends with status 2.

    >>> raise InputError("scenario.users = 0: must be a whole number from 1 to 10")
    Traceback (most recent call last):
    idleband.errors.InputError: scenario.users = 0: must be a whole number from 1 to 10
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # one line, whatever the value was


def shown(value: object) -> str:
    """A value as it stands in a message: short, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number too long to print"
    return text if len(text) <= 80 else f"{text[:70]}..."


def check_name(value: object, field: str) -> str:
    """A name that may stand in a table, a figure and the name of a folder."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,79}", value) and ".." not in value:
        return value
    raise InputError(f"{field} = {shown(value)}: must be 1 to 80 letters, digits, spaces or . _ + -, with no '..'")


def unknown(what: str, name: object, options: Iterable[str]) -> InputError:
    """The error for a name that is not among the options, with the one that was probably meant.

    >>> print(unknown("policy", "mp-ubc", ["mp-ucb", "mp-ts"]))
    unknown policy 'mp-ubc': did you mean 'mp-ucb'? Setup: mp-ucb, mp-ts
    """
    known = list(options)
    spelt = {option.lower(): option for option in known}
    close = difflib.get_close_matches(str(name).lower(), spelt, n=1)
    hint = f"did you mean '{spelt[close[0]]}'? " if close else ""
    return InputError(f"unknown {what} '{name}': {hint}Setup: {', '.join(known) or 'none'}")
