"""Compiling ahead: a second process compiles what will be needed later, while this one is busy with other things.

The compiler runs on one core at a time within a process. What another process has compiled lies in the cache on disk,
and is loaded from there in a moment.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from idleband.kernels.compile import cache_folder
from idleband.policies.registry import policy
from idleband.scenario.build import scenario
from idleband.simulation.run import PolicyRun

PROGRAM = f"import sys; from {__name__} import compile_loop; compile_loop(sys.argv[1])"


def compile_loop(name: str) -> None:
    """Compile the loop of a policy of the package, for all models of the package."""
    PolicyRun.start(scenario("S1"), policy(name), 1, 0, 0)


@contextlib.contextmanager
def compiled_ahead(name: str) -> Iterator[Callable[[], None]]:
    """Have the loop of a policy compiled meanwhile; gives a function that waits until it is.

    If the other process fails, nothing is lost but time: whoever needs the loop compiles it.
    """
    if cache_folder() is None:  # it could not hand over what it has compiled
        yield lambda: None
        return
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-P", "-c", PROGRAM, name]  # -P: no file of the user's folder is taken for a module
    try:
        process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:
        yield lambda: None
        return

    def wait() -> None:
        while process.poll() is None:
            time.sleep(0.05)

    try:
        yield wait
    finally:
        process.kill()
        process.wait()
