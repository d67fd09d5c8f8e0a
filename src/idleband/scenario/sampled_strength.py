"""Search for the strengths of drawn perturbations where the reference counts a sample, equal to it bit for bit.

Where the sum over the corners of the unit cube cancels too much, `halfspace_volume.py` counts how many of 10^6 fixed
contexts have n < 1, which takes a tenth of a second. It is the case for 0.3% of the directions of the linear model in 8
dimensions, 0.7% of those of the quadratic and 8% of those of the cosine model. The bisection then ends where a single
context, the critical one, changes sides. It is found here from the same contexts rounded to 16 bits, and then from the
few whose order is not certain. Its projection is computed as the reference computes it, because the last steps of the
bisection depend on its last bit.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.arrays import Floats, Ints
from idleband.kernels import compile
from idleband.kernels.compile import jit
from idleband.scenario.halfspace_volume import PART, SAMPLES, contexts_from, corners_of, estimate, sample
from idleband.scenario.strength_search import (
    BEGUN,
    CERTAIN,
    CERTAIN_HIGH,
    CERTAIN_LOW,
    CLEAR,
    COSINE,
    FAILED,
    FOUND,
    HIGH,
    LINEAR,
    LOW,
    MAX_DIMENSION,
    MIDDLE,
    MODEL,
    PHASE,
    QUADRATIC,
    ROUGH,
    STEP,
    STEPS,
    SURE,
    TOTAL,
    TRIED,
    Searches,
    Strength,
    U,
    begun,
    find_levels,
    new_searches,
    rough_probability,
)

NAME = "sampled_strength"
SPREAD = 0.006  # 12 standard errors of a probability from the sample, and more
ACCURATE, INACCURATE = 0.999e6, 1.001e6  # sizes of terms at which the reference certainly sums, or counts
BLOCK = 2000  # contexts that `gather` projects together
ROUNDING = 1e-12  # more than the rounding error of a projection
ENDED, ASK, SAMPLE, HOPELESS = range(4)  # how `take_steps` ends

Coarse = npt.NDArray[np.uint16]
Singles = npt.NDArray[np.float32]


# --- the order of contexts -------------------------------------------------------------------------------------------


def order_of(model: int, projections: Floats, middle: float) -> Floats:
    """Return numbers that are below `threshold` for contexts if and only if n < 1 (but for rounding)."""
    if model == LINEAR:
        return projections
    if model == QUADRATIC:
        return np.abs(projections - middle)
    turns = (projections - middle) * 6.0 / (2.0 * math.pi)
    return -np.abs(turns - np.floor(turns + 0.5))


@jit
def threshold(model: int, x: float) -> float:
    """Return the limit of the order of contexts with n < 1 at strength x; it decreases with the strength."""
    if model == LINEAR:
        return 1.0 / x
    if model == QUADRATIC:
        return math.sqrt(0.5 / x)
    return -math.acos(min(1.0, max(-1.0, 2.0 * (1.0 - x)))) / (2.0 * math.pi)


@jit
def strength_for(s: Searches, r: int, target: float) -> float:
    """Return a strength with P(n < 1) close to a target, or an end of the range."""
    a, b = s.now[r, CERTAIN_LOW], s.now[r, CERTAIN_HIGH]
    for _ in range(40):
        x = 0.5 * (a + b)
        p, _, _ = rough_probability(s, r, x)
        if p > target:
            a = x
        else:
            b = x
    return 0.5 * (a + b)


def limits(s: Searches, r: int, found: Floats) -> None:
    """Write limits of the order of the critical context into `found`."""
    model, clear = s.whole[r, MODEL], s.now[r, CLEAR]
    found[0] = threshold(model, strength_for(s, r, clear - SPREAD))
    found[1] = threshold(model, strength_for(s, r, clear + SPREAD))


def gather(
    model: int, coarse: Coarse, weights: Singles, middle: float, low: float, high: float, block: Singles, index: Ints,
    order: Singles,
) -> tuple[int, int]:  # fmt: skip
    """Write the contexts with an order in [low, high] into index and order; return how many are below, and these."""
    below, count, size = 0, 0, coarse.shape[2]
    least, most = np.float32(low), np.float32(high)
    centre, turn, half = np.float32(middle), np.float32(6.0 / (2.0 * math.pi)), np.float32(0.5)
    first_bin = np.float32(0.5) * weights.sum()
    for b in range(coarse.shape[0]):
        for i in range(size):
            block[i] = first_bin
        for k in range(coarse.shape[1]):
            w = weights[k]
            for i in range(size):
                block[i] += w * np.float32(coarse[b, k, i])
        if model == QUADRATIC:
            for i in range(size):
                block[i] = abs(block[i] - centre)
        elif model == COSINE:
            for i in range(size):
                turns = (block[i] - centre) * turn
                block[i] = -abs(turns - np.float32(math.floor(turns + half)))
        for i in range(size):
            below += block[i] < least
        if count + size > index.size:
            return below, -1
        for i in range(size):
            index[count], order[count] = b * size + i, block[i]
            count += least <= block[i] <= most
    return below, count


# --- the bisection ---------------------------------------------------------------------------------------------------


def take_steps(s: Searches, r: int, critical: float) -> int:
    """Take steps of the bisection up to the end, or to one that needs a value of the reference or the critical context.

    `critical` is the projection of the critical context, nan if it is not known. now[FOUND] is 1 if the critical
    context is the last one with n < 1 at now[LOW], else 0.
    """
    now, clear = s.now, s.now[r, CLEAR]
    while s.whole[r, STEP] < STEPS:
        x = 0.5 * (now[r, LOW] + now[r, HIGH])
        p, size, largest = rough_probability(s, r, x)
        if ROUGH * U * size > 0.001:
            return HOPELESS
        accurate, known = largest < ACCURATE, 0.0
        if abs(p - clear) > CERTAIN or (accurate and abs(p - clear) > SURE):
            clear_enough = p > clear
        elif accurate or largest < INACCURATE:
            now[r, TRIED] = x
            return ASK
        elif critical == critical:
            clear_enough, known = inside(s, r, x, critical), 1.0
        else:
            return SAMPLE
        now[r, LOW if clear_enough else HIGH] = x
        if clear_enough:
            now[r, FOUND] = known
        s.whole[r, STEP] += 1
    return ENDED


@jit
def inside(s: Searches, r: int, x: float, projection: float) -> bool:
    """Return whether n < 1 for a context, as the reference counts it."""
    count = find_levels(s, r, x)
    if count < 0:
        return count == -1
    found = 0
    for j in range(count):
        if projection < s.level[r, j]:
            found += 1 if j % 2 == 1 else -1
    return found > 0


# --- from Python -----------------------------------------------------------------------------------------------------


@cache
def _compiled() -> tuple[Callable[..., Any], ...]:
    return tuple(compile.specialise(f, f"{NAME}_{f.__name__}", {}) for f in (limits, gather, take_steps))


def prepare() -> None:
    """Compile the kernels or load them."""
    for_limits, for_gather, for_steps = _compiled()
    s, none = new_searches(1, 1), np.zeros(0, np.int64)
    s.whole[0, STEP] = STEPS
    compile.call(for_steps, s, 0, 0.0)
    s.now[0, TOTAL] = s.now[0, CERTAIN_LOW] = s.now[0, CERTAIN_HIGH] = 1.0
    s.whole[0, MODEL] = LINEAR
    compile.call(for_limits, s, 0, np.zeros(2))
    singles = np.zeros(1, np.float32)
    coarse = np.zeros((0, 1, BLOCK), np.uint16)
    compile.call(for_gather, LINEAR, coarse, singles, 0.0, 0.0, 0.0, np.zeros(BLOCK, np.float32), none, singles[:0])


@lru_cache(maxsize=1)
def _coarse(d: int) -> Coarse:
    """Return the contexts of the sample, rounded down to 16 bits, shape (SAMPLES / BLOCK, d, BLOCK)."""
    rounded = [(x * 65536.0).astype(np.uint16).reshape(-1, BLOCK, d) for x in sample(d)]
    return np.ascontiguousarray(np.concatenate(rounded).transpose(0, 2, 1))


def _contexts(d: int, index: Ints) -> Floats:
    """Return contexts of the sample by their numbers, in ascending order."""
    take, at, found = contexts_from(d, 0), 0, []
    for i in index.tolist():
        found.append(take(i - at, 1))
        at = i + 1
    return np.concatenate(found)


def _projection(direction: Floats, i: int) -> float:
    """Return the projection of a context of the sample, as the reference computes it."""
    part = i - i % PART
    return float((contexts_from(len(direction), part)(0, PART) @ direction)[i - part])


def _gathered(
    model: int, direction: Floats, middle: float, low: float, high: float, most: int
) -> tuple[int, Ints, Floats] | None:
    """Return the number of contexts with an order below `low`, and the numbers and orders of those up to `high`."""
    index, order = np.empty(most, np.int64), np.empty(most, np.float32)
    weights = (direction / 65536.0).astype(np.float32)
    _, run, _ = _compiled()
    below, count = run(
        model, _coarse(len(direction)), weights, middle, low, high, np.empty(BLOCK, np.float32), index, order
    )
    return None if count < 0 else (below, index[:count], order[:count].astype(np.float64))


def critical_projection(s: Searches, r: int, direction: Floats) -> float | None:
    """Return the projection of the context with which the share of contexts with n < 1 reaches `clear`.

    None if it is not certain which one it is.
    """
    model, middle = int(s.whole[r, MODEL]), float(s.now[r, MIDDLE])
    found = np.zeros(2)
    _compiled()[0](s, r, found)
    tolerance = _tolerance(model, direction)
    gathered = _gathered(model, direction, middle, float(found[0]), float(found[1]), SAMPLES // 10)
    if gathered is None:
        return None
    below, index, order = gathered
    rank = contexts_needed(float(s.now[r, CLEAR])) - below - 1  # among the gathered ones, from 0
    if not 0 <= rank < len(order):
        return None
    at = float(np.partition(order, rank)[rank])
    if not float(found[0]) + 3 * tolerance < at < float(found[1]) - 3 * tolerance:
        return None
    close = np.flatnonzero((order >= at - 2 * tolerance) & (order <= at + 2 * tolerance))
    rank -= int(np.count_nonzero(order < at - 2 * tolerance))
    numbers = index[close]
    exact = order_of(model, _contexts(len(direction), numbers) @ direction, middle)
    ranked = np.argsort(exact)
    apart = exact[ranked]
    if not 0 < rank < len(apart) - 1 or min(np.diff(apart[rank - 1 : rank + 2])) < ROUNDING:
        return None
    return _projection(direction, int(numbers[ranked[rank]]))


def contexts_needed(clear: float) -> int:
    """Return the smallest number of contexts whose share of the sample is at least `clear`."""
    needed = math.ceil(clear * SAMPLES)
    while (needed - 1) / SAMPLES >= clear:
        needed -= 1
    while needed / SAMPLES < clear:
        needed += 1
    return needed


def _tolerance(model: int, direction: Floats) -> float:
    """Return more than the difference between the order of a context and that of the rounded one."""
    error = float(direction.sum()) * (0.5 / 65536.0 + 2e-6)
    return 1.1 * (error * 6.0 / (2.0 * math.pi) + 1e-6) if model == COSINE else 1.1 * error


def count_below(weights: Floats, level: float) -> int | None:
    """Return the number of contexts with weights . x < level as the reference counts them, for weights above 0.

    None if that is in doubt, or if the reference does not count.
    """
    d = len(weights)
    if d > MAX_DIMENSION or not weights.all():
        return None
    size = float((np.maximum(0.0, level - corners_of(d)[1] @ weights) ** d).sum()) / math.factorial(d) / weights.prod()
    if not (size > INACCURATE and 0.0 < level < float(weights.sum())):
        return None
    tolerance = _tolerance(LINEAR, weights)
    gathered = _gathered(LINEAR, weights, 0.0, level - tolerance, level + tolerance, SAMPLES // 10)
    if gathered is None:
        return None
    below, index, _ = gathered
    if len(index) == 0:
        return below
    projections = _contexts(d, index) @ weights
    unsure = np.abs(projections - level) < ROUNDING  # such as the critical context of a theta that was searched here
    projections[unsure] = [_projection(weights, i) for i in index[unsure].tolist()]
    return below + int(np.count_nonzero(projections < level))


def strength(
    model: int, direction: Floats, clear: float, ends: tuple[float, float], reference: Callable[[float], float]
) -> Strength | None:
    """Return the strength for a direction; the arguments are those of `strength_search.strengths` for one direction."""
    if len(direction) > MAX_DIMENSION or not direction.all():
        return None
    s = begun(model, direction[None], clear, np.array([ends]), BEGUN)
    if s.whole[0, PHASE] == FAILED:
        return None
    s.now[0, CERTAIN_LOW], s.now[0, CERTAIN_HIGH] = ends
    s.now[0, FOUND], critical = 0.0, math.nan
    _, _, run = _compiled()
    while (left := run(s, 0, critical)) != ENDED:
        if left == HOPELESS:
            return None
        if left == SAMPLE:
            found = critical_projection(s, 0, direction)
            if found is None:
                return None
            critical = found
        else:
            x = float(s.now[0, TRIED])
            s.now[0, LOW if reference(x) >= clear else HIGH] = x
            s.whole[0, STEP] += 1
    probability = estimate(contexts_needed(clear)) if s.now[0, FOUND] == 1.0 else None
    return Strength(float(s.now[0, LOW]), probability)
