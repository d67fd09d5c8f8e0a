"""What users write themselves, policies and perturbation models: bundles of functions in a class, in files of their
own. Their files are loaded here, their sources told apart, and their mistakes told in one line."""

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
    """The functions of a bundle, checked for the arguments they must take. `what` is "policy NAME" or "model NAME"."""
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
    """The first line of a docstring."""
    return (inspect.getdoc(cls) or otherwise).splitlines()[0]


def as_input_error(what: str, error: Exception) -> InputError:
    """Whatever a user's own code raised, in one line, with its place."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return InputError(f"{what}: {type(error).__name__}: {error} ({at.filename}, line {at.lineno})")


def passed(error: Exception, function: Callable[..., Any]) -> bool:
    """Whether an error came through a function; compiled code tells no more than the line that raised it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    lines = {line for _, _, line in code.co_lines()}
    return any(
        at.filename == code.co_filename and at.lineno in lines for at in traceback.extract_tb(error.__traceback__)
    )


# --- sources ---------------------------------------------------------------------------------------------------------


def source_of(cls: type, what: str) -> tuple[str, bool]:
    """What identifies the source of a user's class, and whether compiled code of it may be kept.

    A hash of its file. What was typed into an interpreter has none, and may depend on anything that was typed before:
    it is another one each time. So is what a file makes a second time under the same name.
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
    """The file that a class is being loaded from by `file.py:name`; None for any other."""
    return _loading[cls.__module__].path if cls.__module__ in _loading else None


def file_of(source: str | None) -> tuple[str, bytes] | None:
    """The name (without .py) and the text of the file with this source, if it was loaded by `file.py:name`."""
    return _texts.get(source)


class _Loaded(NamedTuple):
    source: str  # hash of the text
    module: Any


class _Loading(NamedTuple):
    source: str
    path: Path


_files: dict[Path, _Loaded] = {}
_texts: dict[str | None, tuple[str, bytes]] = {}  # of all that was loaded, also of what was changed since
_loading: dict[str, _Loading] = {}  # by the names of the modules


def find(source: str, what: str, mark: str, decorator: str) -> Any:
    """What a decorator left as the attribute `mark` on the class that `file.py:name` means."""
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
    """The module that a user's file makes. Not by the import system, whose byte code may be a second old."""
    try:
        path = shown.resolve()
        text = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise InputError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    source = hashlib.sha256(text).hexdigest()
    if path in _files and _files[path].source == source:
        return _files[path].module
    # A name of its own for every path and content: compiled code is found again by it.
    identity = hashlib.sha256(str(path).encode() + source.encode()).hexdigest()[:12]
    module = types.ModuleType(re.sub(r"\W", "_", f"idleband_user_{path.stem}_{identity}"))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    _loading[module.__name__] = _Loading(source, path)
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{shown}: cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        del _loading[module.__name__]
    _files[path] = _Loaded(source, module)
    _texts.setdefault(source, (path.stem, text))
    return module
