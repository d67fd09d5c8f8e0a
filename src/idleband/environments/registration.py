"""Register the environments with Gymnasium when it is imported, before or after this package.

Gymnasium has no plugins that it finds by itself. Importing it here would take a fifth of a second in every command.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

ID = "idleband/Channels-v1"
ENTRY_POINT = "idleband.environments.channels:ChannelsEnv"
VECTOR_ENTRY_POINT = "idleband.environments.channels:ChannelsVectorEnv"


def register_environments() -> None:
    """Register with Gymnasium now if it is loaded, else when it is imported."""
    if sys.modules.get("gymnasium") is not None:
        _register()
    else:
        sys.meta_path.insert(0, _WhenImported())


def _register() -> None:
    import gymnasium

    if ID not in gymnasium.registry:
        gymnasium.register(ID, ENTRY_POINT, order_enforce=False, vector_entry_point=VECTOR_ENTRY_POINT)


class _WhenImported(MetaPathFinder):
    """Finds gymnasium as the other finders do, and registers the environments after it has been executed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
