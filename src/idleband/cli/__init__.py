"""The command `idleband`."""

from idleband.cli.main import main

__all__ = ["main"]
