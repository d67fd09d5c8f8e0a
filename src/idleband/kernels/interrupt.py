"""Keep Ctrl-C working while the compiler runs.

This module relies on a private interface: the names of the functions through which llvmlite calls back into Python.
tests/test_private_interfaces.py notices when they change.
"""

import contextlib
import signal
import threading
import types
from collections.abc import Iterator

CALLBACK_PREFIX = "_raw_object_cache_"  # of the names of llvmlite's callbacks


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Deliver Ctrl-C during a compilation inside this context.

    A KeyboardInterrupt raised in a callback from C would be printed and ignored. It is deferred there until the
    compilation ends. Everywhere else it is raised at once, as usual.
    """
    deferred = []

    def handle(number: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_name.startswith(CALLBACK_PREFIX):
                deferred.append(number)
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    replaced = threading.current_thread() is threading.main_thread() and previous is signal.default_int_handler
    if replaced:
        signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if replaced:
            signal.signal(signal.SIGINT, previous)
    if deferred:
        raise KeyboardInterrupt
