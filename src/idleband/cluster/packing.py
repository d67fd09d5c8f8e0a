"""Scenarios and policies as bytes, with the code that a user has written.

Code of the package is named, and found on the worker under its name. A user's file that was loaded through
`file.py:name` travels as text and is loaded there under the same module name, so that machine code in a cache that
both can read serves both. Classes that were registered in Python travel by value; their machine code is not cached.
"""

import contextlib
import hashlib
import pickle
import sys
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

from idleband import user_code
from idleband.errors import InputError
from idleband.policies.protocol import Policy
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.scenario import Scenario
from idleband.scenario.user_models import UserModel
from idleband.user_code import UserFile

Packable = Scenario | ConfiguredPolicy

KEPT = 64  # scenarios and policies that a process keeps


class Packed(NamedTuple):
    """A scenario or a configured policy as bytes."""

    digest: str
    data: bytes


class _Content(NamedTuple):
    name: str  # for messages
    file: UserFile | None  # the user's file that the object refers to
    by_value: bool  # whether a user's code is part of the object
    pickled: bytes


def pack(value: Packable) -> Packed:
    """Return a scenario or a configured policy as bytes."""
    import cloudpickle

    code = _user_code(value)
    module = None if code is None else code.__module__
    file = None if module is None else user_code.file_of_module(module)
    by_value = module is not None and file is None
    try:
        with _by_value(module if by_value else None):
            pickled = cloudpickle.dumps(value)
    except Exception as error:  # of an object that the user's code refers to
        raise InputError(f"{_name(value)}: cannot be sent to workers: {_one_line(error)}") from error
    data = pickle.dumps(_Content(_name(value), file, by_value, pickled))
    return Packed(hashlib.sha256(data).hexdigest(), data)


def _user_code(value: Packable) -> Any:
    """Return a function of the user that a scenario or a policy consists of, or None."""
    if isinstance(value, ConfiguredPolicy):
        return None if value.policy.source is None else value.policy.init
    model = value.perturbation.model
    return model.value if isinstance(model, UserModel) else None


def _name(value: Packable) -> str:
    if isinstance(value, ConfiguredPolicy):
        return f"policy {value.policy.name}"
    model = value.perturbation.model
    return f"perturbation model {model.name}" if isinstance(model, UserModel) else f"scenario {value.name}"


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _by_value(module: str | None) -> Iterator[None]:
    """Pickle what a module defines by value, although it could be imported here."""
    import cloudpickle

    found = None if module is None else sys.modules.get(module)
    if found is None or module in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(found)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(found)


# --- on a worker -----------------------------------------------------------------------------------------------------

_unpacked: OrderedDict[str, Any] = OrderedDict()  # by digest, the latest last
_models: dict[tuple[str, str | None], UserModel] = {}  # each is compiled once
_unpacking = Lock()


def unpack(packed: Packed) -> Any:
    """Return what was packed; the same object each time, because what is found for a scenario is kept with it."""
    with _unpacking:
        if packed.digest not in _unpacked:
            _unpacked[packed.digest] = _unpack(packed)
            while len(_unpacked) > KEPT:
                _unpacked.popitem(last=False)
        _unpacked.move_to_end(packed.digest)
        return _unpacked[packed.digest]


def _unpack(packed: Packed) -> Any:
    content: _Content = pickle.loads(packed.data)
    if content.file is not None:
        user_code.install(content.file)
    try:
        value = pickle.loads(content.pickled)
    except Exception as error:
        raise InputError(f"{content.name}: cannot be loaded on a worker: {_one_line(error)}") from error
    if isinstance(value, ConfiguredPolicy):
        _set_cacheable(value.policy, content.by_value)
    elif isinstance(model := value.perturbation.model, UserModel):
        _set_cacheable(model, content.by_value)
        object.__setattr__(value.perturbation, "model", _models.setdefault((model.name, model.source), model))
    return value


def _set_cacheable(code: Policy | UserModel, by_value: bool) -> None:
    """Do not cache machine code of classes that another process cannot find under the same name."""
    if by_value:
        object.__setattr__(code, "cacheable", False)
