"""Reading of request headers from an ASGI scope."""

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name, which must be lower-case; None if there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None
