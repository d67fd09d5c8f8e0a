"""Perturbation models n = f(x): the disturbance of the reward of a channel as a function of its context.

Models, with z = a . (x - 1/2): `none`, n = 0; `linear`, n = theta . x; `quadratic`, n = 0.5 + c z^2; `cosine`,
n = m + 0.5 cos(6 z). A linear function explains almost nothing of the last two. The strength of a model is given by
`clear` = P(n < 1): under the threshold reward a good channel pays low only where n >= 1. A norm does not determine the
strength: at norm 0.7, directions of the linear model give P(n < 1) from 0.57 to 0.99.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import numpy as np

from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, python_normals
from idleband.scenario.halfspace_volume import below, within

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


class Linear(PerturbationModel):
    name, number, formula = "linear", LINEAR, "n = theta . x"
    scaled = True

    def least_clear(self, d: int) -> tuple[float, str]:
        dimensions = "dimension" if d == 1 else "dimensions"
        return least_clear(d), f"the smallest P(n < 1) that a theta of norm at most 1 can have in {d} {dimensions}"

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        a = _direction(rng, d)
        if norm is not None:
            return a * norm
        assert clear is not None
        for _ in range(_DRAWS):
            if below(a, 1.0)[0] <= clear:  # P(n < 1) at norm 1 is at most clear, so some norm <= 1 fits
                break
            a = _direction(rng, d)  # this direction would need a norm above 1, the bound of the paper
        else:
            raise InputError(
                f"scenario.perturbation.clear = {clear}: no theta of norm at most 1 reached it in {_DRAWS} draws;"
                f" in {d} dimensions choose a value well above {least_clear(d):.3g}"
            )
        ends = min(1.0, 1.0 / float(a.sum())), 1.0  # at the first P(n < 1) = 1
        return a * _largest(lambda scale: below(a, 1.0 / scale)[0], clear, ends)

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        return below(theta, level)

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        return float(theta.sum()) / 2, 0.0

    def values(self, theta: Floats, x: Floats) -> Floats:
        return np.asarray(x @ theta)

    def bounds(self, theta: Floats) -> tuple[float, float]:
        return float(theta.clip(max=0).sum()), float(theta.clip(min=0).sum())

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        return 0.0, (1.0 if norm is None else norm) * math.sqrt(d)


class Quadratic(PerturbationModel):
    name, number, formula = "quadratic", QUADRATIC, "n = 0.5 + c z^2, z = a . (x - 1/2), theta = (c, a)"

    def size(self, d: int) -> int | None:
        return d + 1

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        assert clear is not None
        a = _direction(rng, d)
        # At the first end n <= 1. The last: see drawn_bounds.
        ends = 2.0 / float(a.sum()) ** 2, 4.0 / clear**2
        return np.array([_largest(lambda c: self.probability_below(np.array([c, *a]), d, 1.0)[0], clear, ends), *a])

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
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


class Cosine(PerturbationModel):
    name, number, formula = "cosine", COSINE, "n = m + 0.5 cos(6 z), z = a . (x - 1/2), theta = (m, a)"
    max_entry = 1e3  # bounds the number of periods

    def size(self, d: int) -> int | None:
        return d + 1

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        assert clear is not None
        a = _direction(rng, d)
        ends = 0.5, 1.5  # n <= 1 at the first, n >= 1 at the last
        return np.array([_largest(lambda m: self.probability_below(np.array([m, *a]), d, 1.0)[0], clear, ends), *a])

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        """Return P(n < level): cos(6 z) is below a height where 6 z is in (r, 2 pi - r), up to whole periods."""
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


@cache
def least_clear(d: int) -> float:
    """Return the smallest P(n < 1) of the linear model for theta >= 0 of norm at most 1: that of equal entries."""
    return below(np.full(d, 1.0 / math.sqrt(d)), 1.0)[0]


def _direction(rng: Rng, d: int) -> Floats:
    """Return a direction of norm 1: absolute values of independent normals, scaled."""
    a = np.abs(np.array(python_normals(rng, d)))
    a /= math.sqrt(float(a @ a))
    return a


def _largest(probability: Callable[[float], float], clear: float, ends: tuple[float, float]) -> float:
    """Return the largest strength whose probability is at least `clear`, by bisection; the probability decreases."""
    low, high = ends
    for _ in range(60):
        middle = 0.5 * (low + high)
        if probability(middle) >= clear:
            low = middle
        else:
            high = middle
    return low
