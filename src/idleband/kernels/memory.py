"""Arrays for kernels that are limited by memory bandwidth."""

import math

import numpy as np
import numpy.typing as npt

LINE = 64  # bytes of a cache line


def aligned(shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return an array of zeros that begins at a cache line.

    Otherwise every other load of a vector register needs two lines, and products with large matrices take up to 1.4
    times as long.

    >>> aligned((3, 5)).ctypes.data % LINE
    0
    """
    size = math.prod(shape)
    room = np.zeros(size + LINE // 8)
    first = -room.ctypes.data % LINE // 8
    return room[first : first + size].reshape(shape)
