"""Arrays that start at a cache line."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from idleband.kernels.memory import LINE, aligned


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_aligned_arrays_are_separate_zeros_at_cache_lines(shape: list[int]) -> None:
    """Arrays are zero, contiguous and writeable, start at a cache line, and do not share memory."""
    arrays = [aligned(tuple(shape)) for _ in range(3)]
    for number, array in enumerate(arrays, 1):
        assert array.shape == tuple(shape)
        assert array.dtype == np.float64
        assert array.ctypes.data % LINE == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not array.any()
        array[:] = number
    assert [float(array.sum()) for array in arrays] == [n * math.prod(shape) for n in (1, 2, 3)]


def test_alignment_wastes_at_most_one_cache_line() -> None:
    base = aligned((100, 10)).base
    assert base is not None
    assert base.nbytes <= 8 * 1000 + LINE
