"""Compile the loop of a policy in a second process while this process is busy.

Within a process the compiler uses one core. Code that another process has compiled is loaded from the cache on disk.
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
    """Compile the loop of a built-in policy, for all built-in perturbation models."""
    PolicyRun.start(scenario("S1"), policy(name), 1, 0, 0)


@contextlib.contextmanager
def compiled_ahead(name: str) -> Iterator[Callable[[], None]]:
    """Compile the loop of a policy in a second process; yield a function that waits until it is compiled.

    If the second process fails, the loop is compiled here when it is needed.
    """
    if cache_folder() is None:  # without a cache the compiled code could not be passed on
        yield lambda: None
        return
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-P", "-c", PROGRAM, name]  # -P: files in the user's folder are not imported as modules
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
