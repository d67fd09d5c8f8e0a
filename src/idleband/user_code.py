"""Policies and perturbation models of users: loading their files, identifying their sources, reporting their errors.

Both are classes that only group functions.
"""

import hashlib
import inspect
import re
import sys
import traceback
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idleband.errors import InputError, unknown


def functions_of(
    cls: type, what: str, arguments: Mapping[str, str], optional: Sequence[str] = ()
) -> dict[str, Callable[..., Any]]:
    """Return the functions of a class, checked for their arguments; `what` is "policy NAME" or "model NAME"."""
    functions: dict[str, Callable[..., Any]] = {}
    for part, expected in arguments.items():
        if part in optional and part not in vars(cls):
            continue
        member = vars(cls).get(part)
        function = getattr(member, "__func__", member)
        if not callable(function):
            *first, last = (needed for needed in arguments if needed not in optional)
            kind = "perturbation model" if what.startswith("perturbation model ") else what.partition(" ")[0]
            raise InputError(f"{what}: {part} is missing; a {kind} has {', '.join(first)} and {last}")
        if not _takes(function, len(expected.split(", "))):
            raise InputError(f"{what}: {part} must take ({expected})")
        functions[part] = function
    return functions


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def description_of(cls: type, otherwise: str) -> str:
    """Return the first line of the docstring of a class."""
    return (inspect.getdoc(cls) or otherwise).splitlines()[0]


def as_input_error(what: str, error: Exception) -> InputError:
    """Return an exception of user code as an InputError of one line with file and line number."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return InputError(f"{what}: {type(error).__name__}: {error} ({at.filename}, line {at.lineno})")


def passed(error: Exception, function: Callable[..., Any]) -> bool:
    """Return whether an error came from a function; compiled code only reports the line that raised it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    lines = {line for _, _, line in code.co_lines()}
    return any(
        at.filename == code.co_filename and at.lineno in lines for at in traceback.extract_tb(error.__traceback__)
    )


# --- sources ---------------------------------------------------------------------------------------------------------


def source_of(cls: type, what: str) -> tuple[str, bool]:
    """Return an identifier of the source of a class, and whether its machine code may be cached.

    The identifier is a hash of the file. A class that was defined interactively may depend on earlier input and gets a
    new identifier each time, and so does a second class of the same name in one file.
    """
    if cls.__module__ in _loading:
        return _loading[cls.__module__].source, True
    try:
        source = hashlib.sha256(Path(inspect.getfile(cls)).read_bytes()).hexdigest()
    except (TypeError, OSError):
        return uuid.uuid4().hex, False
    if (what, source) in _made:
        return uuid.uuid4().hex, False
    _made.add((what, source))
    return source, cls.__module__ != "__main__"


_made: set[tuple[str, str]] = set()


def place_of(cls: type) -> Path | None:
    """Return the file that a class is being loaded from through `file.py:name`, or None."""
    return _loading[cls.__module__].path if cls.__module__ in _loading else None


def file_of(source: str | None) -> tuple[str, bytes] | None:
    """Return name (without .py) and text of the file with this source, if it was loaded through `file.py:name`."""
    return _texts.get(source)


class _Loaded(NamedTuple):
    source: str  # hash of the text
    module: Any


class _Loading(NamedTuple):
    source: str
    path: Path


class UserFile(NamedTuple):
    """A user's file as it was loaded."""

    path: str
    text: bytes


_files: dict[Path, _Loaded] = {}
_modules: dict[str, UserFile] = {}  # by module name
_texts: dict[str | None, tuple[str, bytes]] = {}  # all loaded texts, including files that changed since
_loading: dict[str, _Loading] = {}  # by module name


def find(source: str, what: str, mark: str, decorator: str) -> Any:
    """Return what a decorator stored as the attribute `mark` of the class given as `file.py:name`."""
    file, _, name = source.rpartition(":")
    path = Path(file)
    candidates: dict[str, Any] = {}
    for attribute, value in vars(_load(path)).items():
        own = vars(value).get(mark) if isinstance(value, type) else None
        if own is not None:
            candidates[attribute] = own
            candidates[own.name] = own
    if name not in candidates:
        if not candidates:
            raise InputError(f"{path}: holds no class under @idleband.{decorator}")
        raise unknown(f"{what} in {path}", name, candidates)
    return candidates[name]


def _load(shown: Path) -> Any:
    """Load a user's file as a module, without the import system, whose byte code may be out of date."""
    try:
        path = shown.resolve()
        text = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: not a possible file name
        raise InputError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    source = hashlib.sha256(text).hexdigest()
    if path in _files and _files[path].source == source:
        return _files[path].module
    module = _execute(UserFile(str(path), text), shown)
    _files[path] = _Loaded(source, module)
    return module


def _execute(file: UserFile, shown: Path) -> Any:
    """Return the module that a user's file defines; errors name it as the user has."""
    path, source = Path(file.path), hashlib.sha256(file.text).hexdigest()
    # The name depends on path and content, because machine code is cached under it.
    identity = hashlib.sha256(file.path.encode() + source.encode()).hexdigest()[:12]
    module = types.ModuleType(re.sub(r"\W", "_", f"idleband_user_{path.stem}_{identity}"))
    module.__file__ = file.path
    sys.modules[module.__name__] = module
    _loading[module.__name__] = _Loading(source, path)
    try:
        exec(compile(file.text, file.path, "exec"), vars(module))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{shown}: cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        del _loading[module.__name__]
    _modules[module.__name__] = file
    _texts.setdefault(source, (path.stem, file.text))
    return module


def file_of_module(name: str) -> UserFile | None:
    """Return the file that a module was loaded from through `file.py:name`, or None."""
    return _modules.get(name)


def install(file: UserFile) -> None:
    """Load a file of another process, which this one may not be able to read, under the same module name."""
    if file not in _modules.values():
        _execute(file, Path(file.path))
