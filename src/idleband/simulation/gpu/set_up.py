"""Random streams and parameters of the perturbation model, drawn on the GPU.

Streams are those of the CPU, bit for bit. A theta is the solution of the same equation from the same draws: the root in
double precision, where the CPU takes 60 steps of bisection on correctly rounded sums. So it agrees to about 1e-12,
except where the sum cancels so much that the CPU counts a sample of contexts, which has an error of 5e-4 (one of 200
directions in eight dimensions). Here the sum is used there, too, as long as its error is below 1e-5. A replication
whose theta is not found gets that of the CPU.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import interpreted, jit
from idleband.kernels.rng import PERTURBATION, STREAMS, Rng, fill_streams, normal
from idleband.scenario.halfspace_volume import corners_of
from idleband.scenario.scenario import Scenario
from idleband.scenario.strength_search import (
    CERTAIN,
    CLEAR,
    COSINE,
    HIGH,
    LINEAR,
    LOW,
    MAX_DIMENSION,
    MAX_LEVELS,
    MIDDLE,
    MODEL,
    NORM,
    PERIODS,
    REFERENCE,
    ROUGH,
    TOTAL,
    Searches,
    U,
    ends,
    root,
    rough_probability,
)
from idleband.simulation.gpu.device import cuda_module
from idleband.simulation.gpu.device_code import DeviceCode
from idleband.simulation.gpu.kernel import compiled_kernel
from idleband.simulation.path import draws_together

MAX_SIZE = 1e9  # of the terms of a sum, which then is accurate to 3e-6
MAX_DRAWS = 1000  # directions that are tried for a theta of the linear model


def draws_on_gpu(scenario: Scenario) -> bool:
    """Return whether thetas can be drawn on the GPU: directed models, P(n < 1) given, contexts with uniform margins.

    The reward must be the threshold reward. The mean rewards then depend on P(n < 1) only, and are those of every
    replication.
    """
    return (
        draws_together(scenario)
        and scenario.contexts.uniform
        and scenario.reward == "threshold"
        and scenario.dimension <= MAX_DIMENSION
        and CERTAIN < (scenario.perturbation.clear or 0.0) < 1.0 - CERTAIN
    )


@jit
def draw_direction(rng: Rng, a: Floats) -> None:
    """Draw a direction of norm 1: absolute values of independent normals, scaled."""
    square = 0.0
    for i in range(a.size):
        a[i] = abs(normal(rng))
        square += a[i] * a[i]
    norm = math.sqrt(square)
    for i in range(a.size):
        a[i] /= norm


@jit
def begin(s: Searches, model: int, a: Floats, clear: float, factorial: float) -> bool:
    """Write a direction into the search 0; return False if it cannot be searched."""
    total, product = 0.0, 1.0
    for i in range(a.size):
        total += a[i]
        product *= a[i]
    for corner in range(s.signs.size):
        level, bits = 0.0, corner
        for i in range(a.size - 1, -1, -1):  # in `corners_of`, the last entry changes first
            level += a[i] * (bits % 2)
            bits //= 2
        s.projected[0, corner] = level
    s.now[0, LOW], s.now[0, HIGH] = ends(model, total, clear)
    s.now[0, CLEAR], s.now[0, TOTAL], s.now[0, MIDDLE] = clear, total, total / 2.0
    s.now[0, NORM] = factorial * product
    s.whole[0, MODEL] = model
    if model == COSINE:
        s.whole[0, PERIODS] = math.ceil(3.0 * total / (2.0 * math.pi))
        if 4 * s.whole[0, PERIODS] + 4 > MAX_LEVELS:
            return False
    return product > 0.0


@jit
def draw_strength(s: Searches, rng: Rng, model: int, a: Floats, clear: float, factorial: float) -> float:
    """Draw a direction into `a` and return its strength, or nan if it is not found here."""
    for _ in range(MAX_DRAWS):
        draw_direction(rng, a)
        if not begin(s, model, a, clear, factorial):
            return math.nan
        first, last = s.now[0, LOW], s.now[0, HIGH]
        above, size_a, largest_a = rough_probability(s, 0, first)
        below, size_b, largest_b = rough_probability(s, 0, last)
        doubt = (ROUGH + REFERENCE) * U * max(size_a, size_b)
        if max(largest_a, largest_b) >= MAX_SIZE:
            return math.nan
        if above > clear + doubt and clear - doubt > below:
            return root(s, 0, above, below)
        if model != LINEAR or below <= clear + doubt:  # otherwise it would need a norm above 1: the next direction
            return math.nan
    return math.nan


# Stand-ins: `set_up_kernel` binds values to these names, which are constants of the compiled kernel.
cuda: Any = NotImplemented
fill: Callable[..., None] = NotImplemented
draw: Callable[..., float] = NotImplemented
STREAMS_WANTED: tuple[tuple[int, int], ...] = ()
DIMENSION = CORNERS = MODEL_NUMBER = ROWS = THETA_AT = 0
CLEAR_WANTED = FACTORIAL = 0.0


def set_up(seed: int, replications: Ints, signs: Floats, kept_streams: Rng, kept: Floats, found: Ints) -> None:
    """Write streams and thetas of replications into the buffers of local arrays; found[i] = 0 if theta is not found."""
    i = cuda.grid(1)
    if i >= found.size:
        return
    pool, rngs = cuda.local.array(4, np.uint64), cuda.local.array((STREAMS, 2), np.uint64)
    fill(seed, replications[i], pool, rngs)
    for name, first in STREAMS_WANTED:
        kept_streams[first, i] = rngs[name, 0]
        kept_streams[first + 1, i] = rngs[name, 1]
    found[i] = 1
    if ROWS > 0:
        a, rng = cuda.local.array(DIMENSION, np.float64), rngs[PERTURBATION]
        search = Searches(
            DIMENSION,
            signs,
            cuda.local.array((1, CORNERS), np.float64),
            cuda.local.array((1, 11), np.float64),
            cuda.local.array((1, 6), np.int64),
            cuda.local.array((1, MAX_LEVELS), np.float64),
            a,
            a,
            cuda.local.array(2, np.int64),
            cuda.local.array((3, CORNERS), np.float64),
        )
        more = 0 if MODEL_NUMBER == LINEAR else 1  # entries of theta before the direction
        for row in range(ROWS):
            strength = draw(search, rng, MODEL_NUMBER, a, CLEAR_WANTED, FACTORIAL)
            if math.isnan(strength):
                found[i] = 0
            first = THETA_AT + row * (DIMENSION + more)
            if more == 1:
                kept[first, i] = strength
            for j in range(DIMENSION):
                kept[first + more + j, i] = a[j] if more == 1 else a[j] * strength


def set_up_kernel(scenario: Scenario, streams: list[tuple[int, int]], theta_at: int, rows: int) -> Any:
    """Return the kernel `set_up` for a scenario.

    Parameters
    ----------
    scenario
        The scenario.
    streams
        Names of random streams, and the position of each in the buffer.
    theta_at
        Position of theta in the buffer.
    rows
        Number of thetas that are drawn for a replication; 0: none.
    """
    d, code = scenario.dimension, DeviceCode()
    numbers = {
        "STREAMS_WANTED": tuple(streams),
        "DIMENSION": d,
        "CORNERS": 2 ** min(d, MAX_DIMENSION),
        "MODEL_NUMBER": scenario.perturbation.model.number,
        "ROWS": rows,
        "THETA_AT": theta_at,
        "CLEAR_WANTED": float(scenario.perturbation.clear or 0.0),
        "FACTORIAL": float(math.factorial(min(d, MAX_DIMENSION))),
    }
    functions = {"cuda": cuda_module(), "fill": code.function(fill_streams), "draw": code.function(draw_strength)}
    return compiled_kernel(interpreted(set_up, "set_up", {**functions, **numbers}), f"set up {numbers}")


def signs_of(scenario: Scenario) -> Floats:
    """Return the signs of the corners of the unit cube."""
    return corners_of(min(scenario.dimension, MAX_DIMENSION))[0]
