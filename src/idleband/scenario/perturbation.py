"""Perturbation models n = f(x): the disturbance of the reward of a channel as a function of its context.

Models, with z = a . (x - 1/2): `none`, n = 0; `linear`, n = theta . x; `quadratic`, n = 0.5 + c z^2; `cosine`,
n = m + 0.5 cos(6 z). A linear function explains almost nothing of the last two. The strength of a model is given by
`clear` = P(n < 1): under the threshold reward a good channel pays low only where n >= 1. A norm does not determine the
strength: at norm 0.7, directions of the linear model give P(n < 1) from 0.57 to 0.99.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.kernels.compile import INTERPRETED, jit
from idleband.kernels.rng import Rng, normals, python_normals
from idleband.scenario import sampled_strength, strength_search
from idleband.scenario.halfspace_volume import below, estimate, within
from idleband.scenario.strength_search import Strength

NONE, LINEAR, QUADRATIC, COSINE = range(4)

_DRAWS = 20_000  # directions tried for a theta of norm at most 1


@jit
def perturb(model: int, theta: Floats, x: Floats, n: Floats, fault: Floats) -> None:
    """Write the perturbation of every channel into n; a row of theta holds all parameters of a channel.

    The models of the package never write into `fault`; `user_models.perturb` does.
    """
    if model >= QUADRATIC:  # a separate loop keeps the other one fast
        for k in range(n.size):
            z = 0.0
            for i in range(x.shape[1]):
                z += theta[k, i + 1] * (x[k, i] - 0.5)
            n[k] = 0.5 + theta[k, 0] * z * z if model == QUADRATIC else theta[k, 0] + 0.5 * math.cos(6.0 * z)
        return
    for k in range(n.size):
        value = 0.0
        if model == LINEAR:
            for i in range(x.shape[1]):
                value += theta[k, i] * x[k, i]
        n[k] = value


class PerturbationModel(ABC):
    """A perturbation model. `theta` is the row of one channel, d the dimension of the contexts."""

    name: str
    number: int  # in `perturb`
    formula: str
    scaled = False  # whether theta_norm may be given instead of clear
    bounded = True  # whether bounds are known
    max_entry = 1e6  # largest entry of a given theta
    source: str | None = None  # hash of the user's file; None for the models of this package

    @property
    def reference(self) -> str:
        """The value of `kind` that finds the model again."""
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PerturbationModel) and (self.name, self.source) == (other.name, other.source)

    def __hash__(self) -> int:
        return hash((self.name, self.source))

    def size(self, d: int) -> int | None:
        """Return the number of entries of a theta; None: any number."""
        return d

    def least_clear(self, d: int) -> tuple[float, str]:
        """Return the smallest P(n < 1) for which a theta is drawn, and the reason."""
        return 0.01, f"the smallest P(n < 1) that the {self.name} model is drawn for"

    @abstractmethod
    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        """Draw a theta with P(n < 1) = clear, or with a given norm for the linear model."""

    def draw_many(self, rngs: Rng, count: int, d: int, clear: float | None, norm: float | None) -> list[Floats]:
        """Return the thetas of `count` calls of `draw` with a copy of each generator, shape (count, size)."""
        return [np.array([self.draw(rng, d, clear, norm) for _ in range(count)]) for rng in rngs.copy()]

    @abstractmethod
    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        """Return P(n < level) and its standard error (0 if exact)."""

    @abstractmethod
    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        """Return E[n] and its standard error (0 if exact)."""

    @abstractmethod
    def values(self, theta: Floats, x: Floats) -> Floats:
        """Return n for contexts x of shape (N, d)."""

    @abstractmethod
    def bounds(self, theta: Floats) -> tuple[float, float]:
        """Return the smallest and the largest value of n."""

    @abstractmethod
    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        """Return the smallest and the largest value of n for any theta that may be drawn."""


class NoPerturbation(PerturbationModel):
    name, number, formula = "none", NONE, "n = 0"

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        return np.zeros(d)

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        return (1.0 if level > 0 else 0.0), 0.0

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        return 0.0, 0.0

    def values(self, theta: Floats, x: Floats) -> Floats:
        return np.zeros(len(x))

    def bounds(self, theta: Floats) -> tuple[float, float]:
        return 0.0, 0.0

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        return 0.0, 0.0


class DirectedModel(PerturbationModel):
    """A model whose theta is a direction and a strength: the largest strength with P(n < 1) >= clear."""

    @abstractmethod
    def theta(self, a: Floats, strength: float) -> Floats:
        """Return the theta of a direction and a strength."""

    def ends(self, a: Floats, clear: float) -> tuple[float, float]:
        """Return the range in which the strength is searched."""
        return strength_search.ends(self.number, float(a.sum()), clear)

    def clear_probability(self, a: Floats, strength: float) -> float:
        """Return P(n < 1), which decreases with the strength."""
        return self.probability_below(self.theta(a, strength), len(a), 1.0)[0]

    def fits(self, a: Floats, clear: float) -> bool:
        """Return whether a strength in the range fits a direction."""
        return True

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        assert clear is not None
        return self.with_clear(_direction(rng, d), clear)

    def with_clear(self, a: Floats, clear: float) -> Floats:
        """Return the theta of a direction with P(n < 1) = clear."""
        (found,) = self.quick_strengths(a[None], clear)
        if found is not None:
            return self.theta(a, found.value)
        return self.theta(a, _largest(lambda x: self.clear_probability(a, x), clear, self.ends(a, clear)))

    def quick_strengths(self, directions: Floats, clear: float) -> list[Strength | None]:
        """Return the strength of each direction; None: it must be found by bisection in Python."""
        if not strength_search.prepared():
            return [None] * len(directions)
        ends = [self.ends(a, clear) for a in directions]

        def reference(i: int, strength: float) -> float:
            return self.clear_probability(directions[i], strength)

        found = strength_search.strengths(self.number, directions, clear, np.array(ends), reference)
        for i, a in enumerate(directions):
            if found[i] is None and self.fits(a, clear):
                found[i] = sampled_strength.strength(self.number, a, clear, ends[i], partial(reference, i))
        return found

    def draw_many(self, rngs: Rng, count: int, d: int, clear: float | None, norm: float | None) -> list[Floats]:
        if clear is None or not strength_search.prepared():
            return super().draw_many(rngs, count, d, clear, norm)
        directions = np.abs(normals(rngs.copy(), count * d).reshape(-1, d))
        for a in directions:
            a /= math.sqrt(float(a @ a))
        strengths = self.quick_strengths(directions, clear)
        thetas = [
            None if one is None else self.theta(a, one.value) for a, one in zip(directions, strengths, strict=True)
        ]
        self.remember([row for row in thetas if row is not None], [one for one in strengths if one is not None])
        drawn: list[Floats] = []
        for i in range(len(rngs)):
            rows = [row for row in thetas[i * count : (i + 1) * count] if row is not None]
            drawn += (
                [np.array(rows)] if len(rows) == count else super().draw_many(rngs[i : i + 1], count, d, clear, norm)
            )
        return drawn

    def remember(self, thetas: list[Floats], strengths: list[Strength]) -> None:
        """Keep P(n < 1) of drawn thetas."""
        for theta, strength in zip(thetas, strengths, strict=True):
            _remember(self.number, theta, strength.probability)


class Linear(DirectedModel):
    name, number, formula = "linear", LINEAR, "n = theta . x"
    scaled = True

    def least_clear(self, d: int) -> tuple[float, str]:
        dimensions = "dimension" if d == 1 else "dimensions"
        return least_clear(d), f"the smallest P(n < 1) that a theta of norm at most 1 can have in {d} {dimensions}"

    def theta(self, a: Floats, strength: float) -> Floats:
        return a * strength

    def clear_probability(self, a: Floats, strength: float) -> float:
        return below(a, 1.0 / strength)[0]

    def fits(self, a: Floats, clear: float) -> bool:
        """Return whether a norm of at most 1 fits: P(n < 1) at norm 1 must be at most `clear`."""
        quick = self.quick_probabilities(a[None])[0] if strength_search.prepared() else None
        return (quick or below(a, 1.0))[0] <= clear

    def quick_probabilities(self, thetas: Floats) -> list[tuple[float, float] | None]:
        """Return P(n < 1) of each theta and its standard error; None: it must be found in Python."""
        found: list[tuple[float, float] | None] = []
        for row, p in zip(thetas, strength_search.probabilities(LINEAR, thetas, np.ones(len(thetas))), strict=True):
            count = sampled_strength.count_below(row, 1.0) if p is None else None
            found.append((p, 0.0) if p is not None else estimate(count) if count is not None else None)
        return found

    def remember(self, thetas: list[Floats], strengths: list[Strength]) -> None:
        if thetas:  # those of the strengths belong to the directions, and differ in the last bits
            for theta, p in zip(thetas, self.quick_probabilities(np.array(thetas)), strict=True):
                _remember(self.number, theta, p)

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        a = _direction(rng, d)
        if norm is not None:
            return a * norm
        assert clear is not None
        for _ in range(_DRAWS):
            if self.fits(a, clear):
                return self.with_clear(a, clear)
            a = _direction(rng, d)  # this direction would need a norm above 1, the bound of the paper
        raise InputError(
            f"scenario.perturbation.clear = {clear}: no theta of norm at most 1 reached it in {_DRAWS} draws;"
            f" in {d} dimensions choose a value well above {least_clear(d):.3g}"
        )

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        return _remembered(self.number, theta, level) or below(theta, level)

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        return float(theta.sum()) / 2, 0.0

    def values(self, theta: Floats, x: Floats) -> Floats:
        return np.asarray(x @ theta)

    def bounds(self, theta: Floats) -> tuple[float, float]:
        return float(theta.clip(max=0).sum()), float(theta.clip(min=0).sum())

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        return 0.0, (1.0 if norm is None else norm) * math.sqrt(d)


class Quadratic(DirectedModel):
    name, number, formula = "quadratic", QUADRATIC, "n = 0.5 + c z^2, z = a . (x - 1/2), theta = (c, a)"

    def size(self, d: int) -> int | None:
        return d + 1

    def theta(self, a: Floats, strength: float) -> Floats:
        return np.array([strength, *a])

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        if (known := _remembered(self.number, theta, level)) is not None:
            return known
        c, a, gap = float(theta[0]), theta[1:], level - 0.5
        if c == 0.0 or gap == 0.0 or not a.any():
            always = gap > 0 or (gap == 0 and c < 0 and bool(a.any()))
            return float(always), 0.0
        if gap / c < 0:
            return float(c < 0), 0.0
        half, middle = math.sqrt(gap / c), float(a.sum()) / 2
        p, error = within(a, np.array([middle - half]), np.array([middle + half]))
        return (p if c > 0 else 1 - p), error

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        return 0.5 + float(theta[0]) * float(theta[1:] @ theta[1:]) / 12, 0.0

    def values(self, theta: Floats, x: Floats) -> Floats:
        return np.asarray(0.5 + theta[0] * ((x - 0.5) @ theta[1:]) ** 2)

    def bounds(self, theta: Floats) -> tuple[float, float]:
        end = 0.5 + float(theta[0]) * (float(np.abs(theta[1:]).sum()) / 2) ** 2
        return min(0.5, end), max(0.5, end)

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        """Return bounds for any drawn theta.

        No slice through the middle of the unit cube is larger than sqrt(2) (Ball 1986), so clear = P(|z| < r) is at
        most r 2 sqrt(2) and c = 0.5 / r^2 at most 4 / clear^2; and |z| <= sqrt(d) / 2.
        """
        assert clear is not None
        return 0.5, 0.5 + d / clear**2


class Cosine(DirectedModel):
    name, number, formula = "cosine", COSINE, "n = m + 0.5 cos(6 z), z = a . (x - 1/2), theta = (m, a)"
    max_entry = 1e3  # bounds the number of periods

    def size(self, d: int) -> int | None:
        return d + 1

    def theta(self, a: Floats, strength: float) -> Floats:
        return np.array([strength, *a])

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        """Return P(n < level): cos(6 z) is below a height where 6 z is in (r, 2 pi - r), up to whole periods."""
        if (known := _remembered(self.number, theta, level)) is not None:
            return known
        a, height = theta[1:], 2 * (level - float(theta[0]))
        if height > 1 or height <= -1:
            return float(height > 1), 0.0
        r, middle = math.acos(height), float(a.sum()) / 2
        periods = math.ceil(6 * float(np.abs(a).sum()) / 2 / (2 * math.pi))
        start = 2 * math.pi * np.arange(-periods - 1, periods + 1)
        return within(a, middle + (start + r) / 6, middle + (start + 2 * math.pi - r) / 6)

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        return float(theta[0]) + 0.5 * float(np.prod(np.sinc(3 * theta[1:] / math.pi))), 0.0

    def values(self, theta: Floats, x: Floats) -> Floats:
        return np.asarray(theta[0] + 0.5 * np.cos(6.0 * ((x - 0.5) @ theta[1:])))

    def bounds(self, theta: Floats) -> tuple[float, float]:
        farthest = min(math.pi, 3 * float(np.abs(theta[1:]).sum()))
        return float(theta[0]) + 0.5 * math.cos(farthest), float(theta[0]) + 0.5

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        return 0.0, 2.0


PERTURBATION_MODELS: dict[str, PerturbationModel] = {
    model.name: model for model in (NoPerturbation(), Linear(), Quadratic(), Cosine())
}


def prepare_drawing() -> None:
    """Compile or load what draws thetas faster. They are the same without it."""
    if not INTERPRETED:
        sampled_strength.prepare()
        strength_search.prepare()


@cache
def least_clear(d: int) -> float:
    """Return the smallest P(n < 1) of the linear model for theta >= 0 of norm at most 1: that of equal entries."""
    return below(np.full(d, 1.0 / math.sqrt(d)), 1.0)[0]


_known: dict[tuple[int, bytes], tuple[float, float]] = {}
_MOST_KNOWN = 2**15


def _remember(number: int, theta: Floats, probability: tuple[float, float] | None) -> None:
    """Keep P(n < 1) of a theta that was drawn, in place of the oldest one."""
    if probability is not None:
        _known[number, theta.tobytes()] = probability
        if len(_known) > _MOST_KNOWN:
            _known.pop(next(iter(_known)), None)


def _remembered(number: int, theta: Floats, level: float) -> tuple[float, float] | None:
    """Return P(n < level) and its standard error if they were kept. Perturbations of drawn thetas are not negative."""
    if not _known or level not in (0.0, 1.0):
        return None
    found = _known.get((number, theta.tobytes()))
    return found if level == 1.0 or found is None else (0.0, 0.0)


def _direction(rng: Rng, d: int) -> Floats:
    """Return a direction of norm 1: absolute values of independent normals, scaled."""
    a = np.abs(np.array(python_normals(rng, d)))
    a /= math.sqrt(float(a @ a))
    return a


def _largest(probability: Callable[[float], float], clear: float, ends: tuple[float, float]) -> float:
    """Return the largest strength whose probability is at least `clear`, by bisection; the probability decreases."""
    low, high = ends
    for _ in range(strength_search.STEPS):
        middle = 0.5 * (low + high)
        if probability(middle) >= clear:
            low = middle
        else:
            high = middle
    return low
