"""Search for the strengths of drawn perturbations: the bisection of `perturbation.py`, faster and equal bit for bit.

A theta is a direction and a strength. The strength is found by 60 steps of bisection on P(n < 1), a sum over the 2^d
corners of the unit cube (`halfspace_volume.py`), which is the reference here. Most steps are decided by a margin that
is far larger than any rounding error. A compiled kernel first finds an interval outside which every step is decided,
from sums with a bound on their error. Only the steps inside it, 15 to 25, are evaluated as the reference evaluates
them: with products and powers by NumPy, whose last bits differ from those of the C library, and correctly rounded
sums. So a theta does not depend on which of the two ways drew it. Several thetas are drawn together, because a call of
NumPy takes longer than the powers of one step.

The reference is within REFERENCE * U * size of the true probability, and the kernel's own sum within ROUGH * U * size,
where U is half the distance of 1 to the next number and size the sum of the absolute values of all terms. The true
probability decreases with the strength, and the size hardly changes within the interval.

Not found here are strengths for probabilities close to 0 or 1, for directions with zeros or with more than
MAX_DIMENSION entries, and where the reference counts a sample because its sum cancels too much.
"""

import math
from collections.abc import Callable
from functools import cache
from threading import local
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import compile
from idleband.kernels.compile import jit
from idleband.scenario.halfspace_volume import corners_of

LINEAR, QUADRATIC, COSINE = 1, 2, 3  # as in `perturbation.py`
STEPS = 60  # of the bisection
TOGETHER = 32  # searches in a batch
MAX_DIMENSION = 10
MAX_LEVELS = 64  # two for each slice of the cosine model; at most 32 slices, as in the reference
MAX_SIZE = 0.99e6  # the reference counts a sample above 1e6
U = 2.0**-53
ROUGH, REFERENCE = 22.0, 6.0
CERTAIN = 0.02  # more than the error of a probability that is estimated from a sample
CLOSE = 1e-4  # relative distance of the second pair of bounds from the root
SURE = 1e-7  # more than the largest possible error of a sum that the reference considers accurate
NAME = "strength_search"

LOW, HIGH, CERTAIN_LOW, CERTAIN_HIGH, CLEAR, NORM, TOTAL, MIDDLE, TRIED, FOUND, SIZE = range(11)
MODEL, PERIODS, PHASE, STEP, LEVELS, FIRST = range(6)
Parts = tuple[float, float, float]

BEGUN, EVALUATED, WAITING, IN_DOUBT, ENDED, FAILED = range(6)


class Searches(NamedTuple):
    """A batch of R searches in d dimensions."""

    d: int
    signs: Floats  # (2^d,) of the corners
    projected: Floats  # (R, 2^d) corners @ direction
    now: Floats  # (R, 11) numbers of each search, by the constants LOW to SIZE
    whole: Ints  # (R, 6) whole numbers, by the constants MODEL to FIRST
    level: Floats  # (R, MAX_LEVELS) ends of the slices in which n < 1: low and high in turn
    bases: Floats  # level - projected, where that is above 0, for each level within the range of direction . x
    terms: Floats  # their powers
    left: Ints  # (2,) number of searches that wait for powers, and that need a value of the reference
    sums: Floats  # (3, 2^d) working arrays


def ends(model: int, total: float, clear: float) -> tuple[float, float]:
    """Return the range in which the strength of a direction is searched; `total` is the sum of its entries."""
    if model == LINEAR:
        return min(1.0, 1.0 / total), 1.0  # at the first P(n < 1) = 1
    if model == QUADRATIC:
        return 2.0 / total**2, 4.0 / clear**2  # n <= 1 at the first; the last: see Quadratic.drawn_bounds
    return 0.5, 1.5  # n <= 1 at the first, n >= 1 at the last


# --- levels and sums -------------------------------------------------------------------------------------------------


@jit
def find_levels(s: Searches, r: int, x: float) -> int:
    """Write the ends of the slices for strength x, with the operations of `perturbation.py`, and return their number.

    -1: n < 1 always; -2: never.
    """
    middle = s.now[r, MIDDLE]
    if s.whole[r, MODEL] == LINEAR:
        s.level[r, 0], s.level[r, 1] = 0.0, 1.0 / x
        return 2
    if s.whole[r, MODEL] == QUADRATIC:
        half = math.sqrt(0.5 / x)
        s.level[r, 0], s.level[r, 1] = middle - half, middle + half
        return 2
    height = 2.0 * (1.0 - x)
    if height > 1.0 or height <= -1.0:
        return -1 if height > 1.0 else -2
    angle, periods = math.acos(height), s.whole[r, PERIODS]
    for j in range(2 * periods + 2):
        start = 2.0 * math.pi * float(j - periods - 1)
        s.level[r, 2 * j] = middle + (start + angle) / 6.0
        s.level[r, 2 * j + 1] = middle + (start + 2.0 * math.pi - angle) / 6.0
    return 4 * periods + 4


@jit
def rough_volume(s: Searches, r: int, level: float) -> float:
    """Return P(direction . x < level), and write the size of its terms into now[r, SIZE]."""
    s.now[r, SIZE] = 0.0
    if level <= 0.0 or level >= s.now[r, TOTAL]:
        return 0.0 if level <= 0.0 else 1.0
    n, d = s.signs.size, s.d
    for i in range(n):
        s.sums[1, i] = max(0.0, level - s.projected[r, i])
        s.sums[2, i] = 1.0
    while d > 0:
        if d % 2 == 1:
            for i in range(n):
                s.sums[2, i] *= s.sums[1, i]
        d //= 2
        if d > 0:
            for i in range(n):
                s.sums[1, i] *= s.sums[1, i]
    for i in range(n):
        s.sums[0, i] = s.signs[i] * s.sums[2, i]
    half = n // 2
    while half > 0:
        for i in range(half):
            s.sums[0, i] += s.sums[0, half + i]
            s.sums[2, i] += s.sums[2, half + i]
        half //= 2
    s.now[r, SIZE] = s.sums[2, 0] / s.now[r, NORM]
    return s.sums[0, 0] / s.now[r, NORM]


@jit
def rough_probability(s: Searches, r: int, x: float) -> tuple[float, float, float]:
    """Return P(n < 1) at strength x, the size of all terms, and that of the level with the largest ones."""
    count = find_levels(s, r, x)
    if count < 0:
        return (1.0 if count == -1 else 0.0), 0.0, 0.0
    total, size, largest = 0.0, 0.0, 0.0
    for j in range(count):
        volume = rough_volume(s, r, s.level[r, j])
        total += volume if j % 2 == 1 else -volume
        size += 1.0 + s.now[r, SIZE]
        largest = max(largest, s.now[r, SIZE])
    return total, size, largest


@jit
def exact_sum(s: Searches, r: int, level: float, terms: Floats, first: int) -> float:
    """Return the sum over the corners for a level, rounded as by `math.fsum`; nan where the last bit is in doubt."""
    n = s.signs.size
    for i in range(n):
        term = terms[first + i] if level - s.projected[r, i] > 0.0 else 0.0
        s.sums[0, i] = s.signs[i] * term
        s.sums[1, i] = 0.0
        s.sums[2, i] = term
    half = n // 2
    while half > 0:  # sums of two numbers and, in the second row, their rounding errors
        for i in range(half):
            a, b = s.sums[0, i], s.sums[0, half + i]
            together = a + b
            apart = together - a
            s.sums[0, i] = together
            s.sums[1, i] = (s.sums[1, i] + s.sums[1, half + i]) + ((a - (together - apart)) + (b - apart))
            s.sums[2, i] += s.sums[2, half + i]
        half //= 2
    s.now[r, SIZE] = s.sums[2, 0] / s.now[r, NORM]
    total = s.sums[0, 0] + s.sums[1, 0]
    rest, error = s.sums[1, 0] - (total - s.sums[0, 0]), 4.0 * n * U * U * s.sums[2, 0]
    if total + (rest + error) == total and total + (rest - error) == total:
        return total
    parts = (0.0, 0.0, 0.0)  # halfway between two numbers, usually because there are few terms
    for i in range(n):
        if level - s.projected[r, i] > 0.0:
            parts = add_to(parts, s.signs[i] * terms[first + i])
    return rounded(parts)


@jit
def add_to(parts: Parts, value: float) -> Parts:
    """Return a sum in three parts with a value added; the last part is nan if they cannot represent it exactly."""
    total, middle, last = parts
    together = total + value
    apart = together - total
    small = (total - (together - apart)) + (value - apart)
    total = together
    together = middle + small
    apart = together - middle
    least = (middle - (together - apart)) + (small - apart)
    return total, together, last + least if (last + least) - last == least else np.nan


@jit
def rounded(parts: Parts) -> float:
    """Return a sum in three parts, correctly rounded."""
    total, middle, last = parts
    found = total + middle
    middle -= found - total
    if middle * last > 0.0 and (found + 2.0 * middle) - found == 2.0 * middle:  # the last part decides
        found += 2.0 * middle
    return found if last == last else np.nan


# --- which steps are decided -----------------------------------------------------------------------------------------


@jit
def root(s: Searches, r: int, pa: float, pb: float) -> float:
    """Return the strength at which P(n < 1) is `clear`: by false position, with the Illinois rule.

    `pa` and `pb` are the probabilities at both ends, above and below it.
    """
    clear, a, b = s.now[r, CLEAR], s.now[r, LOW], s.now[r, HIGH]
    x, side, fa, fb = a, 0, pa - clear, pb - clear
    for _ in range(100):
        x = (a * fb - b * fa) / (fb - fa)
        if not a < x < b:
            x = 0.5 * (a + b)
        p, size, _ = rough_probability(s, r, x)
        if abs(p - clear) <= ROUGH * U * size or b - a <= 4.0 * U * b:
            break
        if p > clear:
            a, fa = x, p - clear
            fb *= 0.5 if side == 1 else 1.0
            side = 1
        else:
            b, fb = x, p - clear
            fa *= 0.5 if side == -1 else 1.0
            side = -1
    return x


@jit
def bound_steps(s: Searches, r: int) -> bool:
    """Write the strengths outside which all steps are decided; return False if the reference must search."""
    clear, first, last = s.now[r, CLEAR], s.now[r, LOW], s.now[r, HIGH]
    a, b = first, last
    pa, size_a, _ = rough_probability(s, r, a)
    pb, size_b, _ = rough_probability(s, r, b)
    doubt = (ROUGH + REFERENCE) * U * max(size_a, size_b)
    if not (pa > clear + doubt and clear - doubt > pb and CERTAIN < clear < 1.0 - CERTAIN):
        return False
    x = root(s, r, pa, pb)
    # Bounds at three distances. Beyond the outer ones the reference may count a sample; between them its error is at
    # most SURE; and within the next ones it is that at the root.
    a, b = max(first, x - CLOSE * x), min(last, x + CLOSE * x)
    pa, size_a, largest_a = rough_probability(s, r, a)
    pb, size_b, largest_b = rough_probability(s, r, b)
    if not (max(largest_a, largest_b) < MAX_SIZE and pa - clear > SURE and clear - pb > SURE):
        return False
    slope, size = (pa - pb) / (b - a), max(size_a, size_b)
    if not outer_bounds(s, r, x, 2.0 * CERTAIN / slope):
        return False
    doubt = (ROUGH + REFERENCE) * U * size
    inner = 1.1 * doubt / slope
    for _ in range(20):
        pa, _, _ = rough_probability(s, r, x - inner)
        pb, _, _ = rough_probability(s, r, x + inner)
        if pa - clear > doubt and clear - pb > doubt:
            s.now[r, CERTAIN_LOW], s.now[r, CERTAIN_HIGH] = x - inner, x + inner
            return True
        inner *= 2.0
    return False


@jit
def outer_bounds(s: Searches, r: int, x: float, distance: float) -> bool:
    """Return whether the reference does not count a sample unless that cannot change the step."""
    clear, first, last = s.now[r, CLEAR], s.now[r, LOW], s.now[r, HIGH]
    for _ in range(8):
        a, b = max(first, x - distance), min(last, x + distance)
        pa, _, largest_a = rough_probability(s, r, a)
        pb, _, largest_b = rough_probability(s, r, b)
        if max(largest_a, largest_b) >= MAX_SIZE:
            return False
        if (a == first or pa - clear > CERTAIN) and (b == last or clear - pb > CERTAIN):
            return True
        distance *= 2.0
    return False


# --- the bisection ---------------------------------------------------------------------------------------------------


def advance(s: Searches, searches: int, terms: Floats) -> int:
    """Continue all searches up to their next steps that are not decided; return the number of bases to be raised.

    `terms` are the powers of the bases of the steps before. Searches IN_DOUBT have the value of the reference at
    now[TRIED] in now[FOUND].
    """
    size = 0
    s.left[0], s.left[1] = 0, 0
    for r in range(searches):
        phase = s.whole[r, PHASE]
        if phase == BEGUN and not bound_steps(s, r):
            s.whole[r, PHASE] = FAILED
            continue
        if phase == EVALUATED:  # only the value at now[LOW] is wanted
            s.whole[r, STEP] = STEPS
            bisect(s, r)
        elif phase != ENDED and phase != FAILED:
            p = s.now[r, FOUND]
            if phase == WAITING:
                p = probability_of(s, r, terms)
            if phase != BEGUN and p != p and s.whole[r, STEP] < STEPS:
                s.whole[r, PHASE] = IN_DOUBT
                s.left[1] += 1
                continue
            if phase != BEGUN:
                decide(s, r, p)
            bisect(s, r)
        if s.whole[r, PHASE] == WAITING:
            size = lay_out(s, r, size)
        s.left[0] += s.whole[r, PHASE] == WAITING
        s.left[1] += s.whole[r, PHASE] == IN_DOUBT
    return size


@jit
def bisect(s: Searches, r: int) -> None:
    """Take all steps that are decided. In the end the value at now[LOW] is found."""
    while s.whole[r, STEP] < STEPS:
        x = 0.5 * (s.now[r, LOW] + s.now[r, HIGH])
        if x <= s.now[r, CERTAIN_LOW] or x == s.now[r, LOW]:
            s.now[r, LOW] = x
        elif x >= s.now[r, CERTAIN_HIGH] or x == s.now[r, HIGH]:
            s.now[r, HIGH] = x
        else:
            try_step(s, r, x)
            return
        s.whole[r, STEP] += 1
    if s.whole[r, STEP] == STEPS:
        try_step(s, r, s.now[r, LOW])
    else:
        s.whole[r, PHASE] = ENDED


@jit
def try_step(s: Searches, r: int, x: float) -> None:
    """Wait for the value of the reference at strength x."""
    s.now[r, TRIED] = x
    s.whole[r, LEVELS] = find_levels(s, r, x)
    s.whole[r, PHASE] = WAITING if s.whole[r, LEVELS] > 0 else IN_DOUBT


@jit
def decide(s: Searches, r: int, p: float) -> None:
    """Take the step at now[TRIED], where the reference probability is p."""
    s.now[r, FOUND] = p
    if s.whole[r, STEP] < STEPS:
        s.now[r, LOW if p >= s.now[r, CLEAR] else HIGH] = s.now[r, TRIED]
    s.whole[r, STEP] += 1


@jit
def lay_out(s: Searches, r: int, first: int) -> int:
    """Write the bases of a step to the place `first`, and return the place after them."""
    n = s.signs.size
    s.whole[r, FIRST] = first
    for j in range(s.whole[r, LEVELS]):
        level = s.level[r, j]
        if 0.0 < level < s.now[r, TOTAL]:
            for i in range(n):
                base = level - s.projected[r, i]
                s.bases[first + i] = base if base > 0.0 else 1.0  # powers of 0 take three times as long
            first += n
    return first


@jit
def probability_of(s: Searches, r: int, terms: Floats) -> float:
    """Return the reference probability from the powers of the bases; nan if its last bit is in doubt."""
    first, before, parts = s.whole[r, FIRST], 0.0, (0.0, 0.0, 0.0)
    for j in range(s.whole[r, LEVELS]):
        level = s.level[r, j]
        if 0.0 < level < s.now[r, TOTAL]:
            found = exact_sum(s, r, level, terms, first)
            if found != found or s.now[r, SIZE] >= MAX_SIZE:
                return np.nan
            volume = min(1.0, max(0.0, found / s.now[r, NORM]))
            first += s.signs.size
        else:
            volume = 0.0 if level <= 0.0 else 1.0
        if j % 2 == 0:
            before = volume
        else:
            parts = add_to(parts, volume - before)
    p = rounded(parts)
    return min(1.0, max(0.0, p)) if p == p else p


# --- from Python -----------------------------------------------------------------------------------------------------

_work = local()  # batches of this thread, by dimension and size
_prepared = False


@cache
def _compiled() -> Callable[..., int]:
    """Return the compiled `advance`."""
    run: Callable[..., int] = compile.specialise(advance, NAME, {})
    return run


def prepare() -> None:
    """Compile the search or load it; until then nothing is found here."""
    global _prepared
    if not _prepared:
        compile.call(_compiled(), new_searches(1, 1), 0, np.zeros(0))
        _prepared = True


def prepared() -> bool:
    return _prepared


def is_cached() -> bool:
    """Return whether `prepare` finds machine code on disk."""
    return compile.is_cached(NAME)


class Strength(NamedTuple):
    value: float
    probability: tuple[float, float] | None  # P(n < 1) for it and its standard error, if they were found


def strengths(
    model: int, directions: Floats, clear: float, ends: Floats, reference: Callable[[int, float], float]
) -> list[Strength | None]:
    """Return the largest strength for each direction at which P(n < 1) is at least `clear`.

    None: not found here. Otherwise P(n < 1) is above `clear` at the first end of the range, and below at the last.

    Parameters
    ----------
    model
        Number of the perturbation model.
    directions
        Directions as rows, of entries that are not negative, shape (R, d).
    clear
        The probability.
    ends
        Ranges of the strengths, in which the probability decreases, shape (R, 2).
    reference
        The probability for the direction of a row and a strength.
    """
    found: list[Strength | None] = []
    for first in range(0, len(directions), TOGETHER):
        part = slice(first, first + TOGETHER)

        def of_part(r: int, x: float, first: int = first) -> float:
            return reference(first + r, x)

        found += run_batch(model, directions[part], clear, ends[part], of_part, BEGUN)
    return found


def probabilities(model: int, directions: Floats, at: Floats) -> list[float | None]:
    """Return P(n < 1) for each direction at one strength, equal to the reference; None: not found here."""
    found: list[Strength | None] = []
    for first in range(0, len(directions), TOGETHER):
        part = slice(first, first + TOGETHER)
        found += run_batch(model, directions[part], 0.5, np.column_stack([at[part], at[part]]), _unknown, EVALUATED)
    return [None if one is None or one.probability is None else one.probability[0] for one in found]


def _unknown(r: int, x: float) -> float:
    return math.nan


def run_batch(
    model: int, directions: Floats, clear: float, ends: Floats, reference: Callable[[int, float], float], phase: int
) -> list[Strength | None]:
    """Run at most TOGETHER searches."""
    R, d = directions.shape
    if not _prepared or d > MAX_DIMENSION or not directions.all():
        return [None] * R
    s = begun(model, directions, clear, ends, phase)
    now, whole, run = s.now, s.whole, _compiled()
    terms = s.terms[:0]
    while True:
        size = run(s, R, terms)
        waiting, in_doubt = s.left.tolist()
        if not (waiting or in_doubt):
            break
        for r in np.flatnonzero(whole[:R, PHASE] == IN_DOUBT).tolist() if in_doubt else ():
            now[r, FOUND] = reference(r, float(now[r, TRIED]))
        # As NumPy raises an array to an integer.
        terms = np.power(s.bases[:size], d, out=s.terms[:size])
    return [
        Strength(x, None if math.isnan(p) else (p, 0.0)) if phase == ENDED else None
        for x, p, phase in zip(now[:R, LOW].tolist(), now[:R, FOUND].tolist(), whole[:R, PHASE].tolist(), strict=True)
    ]


def begun(model: int, directions: Floats, clear: float, ends: Floats, phase: int) -> Searches:
    """Return searches at their beginning, in memory that the next batch of this thread uses again."""
    R, d = directions.shape
    size = 1 if R == 1 else TOGETHER
    name = f"{size} in {d} dimensions"
    if not hasattr(_work, name):
        setattr(_work, name, new_searches(size, d))
    s: Searches = getattr(_work, name)
    corners, scale = corners_of(d)[1], math.factorial(d)
    now, whole = s.now, s.whole
    now[:R, LOW : HIGH + 1] = ends
    now[:R, CLEAR], now[:R, FOUND] = clear, np.nan
    whole[:R, MODEL], whole[:R, PHASE], whole[:R, STEP] = model, phase, 0
    for r, direction in enumerate(directions):
        np.matmul(corners, direction, out=s.projected[r])
        total, product = float(np.add.reduce(direction)), float(np.multiply.reduce(direction))
        now[r, TOTAL], now[r, MIDDLE], now[r, NORM] = total, total / 2, scale * product
        if model == COSINE:
            whole[r, PERIODS] = periods = math.ceil(6 * total / 2 / (2 * math.pi))
            if 4 * periods + 4 > MAX_LEVELS:
                whole[r, PHASE] = FAILED
        if not product > 0.0:
            whole[r, PHASE] = FAILED
    return s


def new_searches(R: int, d: int) -> Searches:
    """Return memory for R searches in d dimensions."""
    n = 2**d
    return Searches(
        d=d,
        signs=corners_of(d)[0],
        projected=np.zeros((R, n)),
        now=np.zeros((R, 11)),
        whole=np.zeros((R, 6), np.int64),
        level=np.zeros((R, MAX_LEVELS)),
        bases=np.zeros(R * MAX_LEVELS * n),
        terms=np.zeros(R * MAX_LEVELS * n),
        left=np.zeros(2, np.int64),
        sums=np.zeros((3, n)),
    )
