"""Entry point of the command line: parse the arguments, call the command, report errors in one line."""

import importlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from idleband.cli.parser import build_parser
from idleband.errors import CompilationWarning, IdlebandError, InputError, unknown

# Status codes of the process.
SUCCESS, FAILURE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# The module below idleband.cli and the function that carry out each command. A module is imported when its command is
# called, so that commands which need no compiler, pandas or matplotlib start quickly.
COMMANDS = {
    "run": ("experiments", "run"),
    "compare": ("experiments", "compare"),
    "learned": ("experiments", "learned"),
    "plot": ("experiments", "plot"),
    "reproduce": ("paper", "reproduce"),
    "report": ("paper", "report"),
    "serve": ("service", "serve"),
    "trace import": ("trace", "import_recording"),
    "trace show": ("trace", "show"),
    "trace fit": ("trace", "fit"),
    "journal backup": ("journal", "backup"),
    "journal verify": ("journal", "verify"),
    "journal restore": ("journal", "restore"),
    "journal export": ("journal", "export"),
    "journal copy": ("journal", "copy"),
    "evaluate": ("evaluate", "evaluate"),
    "advise": ("advise", "advise"),
    "scenarios": ("information", "scenarios"),
    "policies": ("information", "policies"),
    "show": ("information", "show"),
    "cost": ("information", "cost"),
    "optimum": ("information", "optimum"),
    "bench": ("information", "bench"),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    The exit status is 0 on success, 2 for invalid input, 1 for other errors such as a full disk, and 130 after Ctrl-C.

    Parameters
    ----------
    arguments
        Command-line arguments without the program name; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character shows its code
            stream.reconfigure(errors="backslashreplace")
    warnings.simplefilter("ignore", CompilationWarning)  # results contain a note instead
    try:
        try:
            given = sys.argv[1:] if arguments is None else list(arguments)
            options = build_parser().parse_args(_with_command(given))
            name = " ".join([options.command, *([options.subcommand] if "subcommand" in options else [])])
            module, function = COMMANDS[name]
            getattr(importlib.import_module(f"idleband.cli.{module}"), function)(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
        sys.exit(SUCCESS)
    except InputError as error:
        _exit(str(error), BAD_INPUT)
    except IdlebandError as error:
        _exit(str(error), FAILURE)
    except BrokenPipeError:  # the reader of a pipe closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(SUCCESS)
    except OSError as error:  # for example a full disk while a figure is written
        _exit(f"{error.filename or 'output'}: {error.strerror or error}", FAILURE)
    except MemoryError as error:
        _exit(f"not enough memory: {error or 'fewer channels or threads need less'}", FAILURE)
    except KeyboardInterrupt:
        _exit("interrupted; finished work is kept, and the same command continues from there", INTERRUPTED)


def _with_command(given: list[str]) -> list[str]:
    """Return the arguments, or those of the help where no command is given; refuse an unknown command."""
    first = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    if given and not given[0].startswith("-") and given[0] not in first:
        raise unknown("command", given[0], first)
    second = [name.split()[1] for name in COMMANDS if given and name.startswith(f"{given[0]} ")]
    if not given or (second and len(given) == 1):
        return [*given, "--help"]
    if second and not given[1].startswith("-") and given[1] not in second:
        raise unknown(f"command of {given[0]}", given[1], second)
    return given


def _exit(message: str, status: int) -> NoReturn:
    print(f"idleband: {message}", file=sys.stderr)
    sys.exit(status)
