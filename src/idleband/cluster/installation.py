"""What must be equal in two processes so that they compute the same numbers to the last bit."""

import hashlib
import math
import platform
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version

import numpy as np

from idleband.kernels.compile import source_hash
from idleband.scenario.halfspace_volume import corners_of

SOURCES, ARITHMETIC = "the sources of idleband", "last bits"

# Functions that are not correctly rounded: their last bits depend on the C library and the processor.
_C_LIBRARY: tuple[Callable[[float], float], ...] = (
    math.exp, math.log, math.sin, math.cos, math.acos, math.erfc, math.lgamma, math.log1p,
)  # fmt: skip
_NUMPY = (np.exp, np.log, np.sin, np.cos, np.sinc)


@cache
def installation() -> Mapping[str, str]:
    """Return the versions of what computes results, and a hash of the last bits of its arithmetic."""
    packages = {name: version(name) for name in ("idleband", "numpy", "numba", "llvmlite", "scipy")}
    own = {SOURCES: source_hash("cluster")[:12], ARITHMETIC: _last_bits()}
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **packages, **own}


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return in words what differs between two installations; empty if nothing does.

    >>> difference({"numpy": "2.4"}, {"numpy": "2.3"})
    'numpy is 2.3, and 2.4 here'
    """
    found = [f"{name} is {there.get(name)}, and {text} here" for name, text in here.items() if there.get(name) != text]
    if len(found) == 1 and ARITHMETIC in found[0]:
        return "its processor, C library or BLAS gives other last bits than here"
    return "; ".join(text for text in found if ARITHMETIC not in text)


def _last_bits() -> str:
    """Return a hash of values that depend on the processor, the C library, NumPy and BLAS."""
    x = 0.01 + 0.99 * np.modf(np.arange(1.0, 2001.0) * (math.sqrt(5.0) - 1.0) / 2.0)[0]
    digest = hashlib.sha256()
    for function in _NUMPY:
        digest.update(function(3.0 * x).tobytes())
    for exponent in (0.3, 4, 7, 8, 10):
        digest.update(np.power(x, exponent).tobytes())
    for scalar in _C_LIBRARY:
        digest.update(np.array([scalar(value) for value in x.tolist()]).tobytes())
    digest.update(np.array([math.pow(value, 0.3) for value in x.tolist()]).tobytes())
    digest.update(np.fft.rfft(x).tobytes())
    for d in (3, 8, 10):  # projections of the corners of a cube, as theta is drawn
        digest.update(np.matmul(corners_of(d)[1], x[-d:]).tobytes())
    digest.update(np.array([x @ x, x[:7] @ x[:7]]).tobytes() + np.matmul(x[:1600].reshape(40, 40), x[:40]).tobytes())
    return digest.hexdigest()[:12]
