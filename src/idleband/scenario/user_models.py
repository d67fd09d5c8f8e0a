"""Perturbation models by name, and the decorator that registers a user's model."""

import hashlib
import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from idleband import user_code, validation
from idleband.arrays import Floats
from idleband.errors import InputError, check_name, shown, unknown
from idleband.kernels import compile
from idleband.kernels.rng import PERTURBATION, Rng, stream
from idleband.scenario.halfspace_volume import SAMPLES, estimate, sample
from idleband.scenario.perturbation import PERTURBATION_MODELS, PerturbationModel

C = TypeVar("C")

FAULT = 4  # entries of a record of faults: slots so far; slot, channel and value of the first fault, if any
_LARGEST = 1e100  # sums of larger numbers overflow

# Stand-ins: `compile.specialise` binds a user's model to these names.
value: Callable[[Floats, Floats], float] = NotImplemented
SMALLEST, LARGEST = -_LARGEST, _LARGEST


def perturb(model: int, theta: Floats, x: Floats, n: Floats, fault: Floats) -> None:
    """Write the perturbation of every channel into n.

    Out-of-range values are recorded in `fault`, reported after the segment, and replaced by 0, so that policies never
    receive nan.
    """
    fault[0] += 1.0
    for k in range(n.size):
        v = float(value(theta[k], x[k]))
        if not SMALLEST <= v <= LARGEST:
            if fault[1] == 0.0:
                fault[1], fault[2], fault[3] = fault[0], k, v
            v = 0.0
        n[k] = v


class Kernel(NamedTuple):
    alone: Callable[..., None]  # called from Python
    within: Callable[..., None]  # bound into a loop
    allocates: bool


class UserModel(PerturbationModel):
    """A model that a user has written. Probabilities and means come from a sample. Noise is added to its values."""

    number = -1

    def __init__(
        self,
        name: str,
        formula: str,
        draw: Callable[..., Any],
        value: Callable[..., Any],
        limits: tuple[float, float] | None,
        source: str,
        cacheable: bool,
        reference: str,
    ) -> None:
        self.name, self.formula, self.source, self.cacheable = name, formula, source, cacheable
        self.bounded = limits is not None
        self.value = value
        self._draw, self._limits, self._reference = draw, limits, reference
        self._sizes: dict[int, int] = {}
        # Identifies the compiled code, which depends on the module that it was made from.
        self.key = hashlib.sha256(f"{value.__module__}\0{name}\0{source}\0{limits}".encode()).hexdigest()[:16]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled; the kernel is compiled again where it is needed."""
        return {key: value for key, value in vars(self).items() if key != "kernel"}

    @property
    def reference(self) -> str:
        return self._reference

    def size(self, d: int) -> int:
        """Return the number of entries of a first draw; all other draws must have as many."""
        if d not in self._sizes:
            self._sizes[d] = len(self._checked(stream(0, 0, PERTURBATION), d, 0.7))
        return self._sizes[d]

    def least_clear(self, d: int) -> tuple[float, str]:
        return 0.0, ""

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        assert clear is not None
        theta = self._checked(rng, d, clear)
        if len(theta) != self.size(d):
            raise InputError(
                f"perturbation model {self.name}: draw returned {len(theta)} numbers, and {self.size(d)} before;"
                f" must be as many every time in {d} dimensions"
            )
        return theta

    def _checked(self, rng: Rng, d: int, clear: float) -> Floats:
        where = f"perturbation model {self.name}: draw"
        try:
            given = self._draw(rng, d, clear)
        except Exception as error:
            raise user_code.as_input_error(where, error) from error
        row = validation.sequence(given, where, "of numbers")
        if not row:
            raise InputError(f"{where} = []: must be a list of at least one number")
        return np.array([validation.number(t, f"{where}, entry {i + 1}", -1e100, 1e100) for i, t in enumerate(row)])

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        return estimate(int(np.searchsorted(_sampled(self, theta.tobytes(), d), level)))

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        values = _sampled(self, theta.tobytes(), d)
        return float(values.mean()), float(values.std()) / math.sqrt(SAMPLES)

    def values(self, theta: Floats, x: Floats) -> Floats:
        return _values(self, theta, x, np.zeros(FAULT))

    def bounds(self, theta: Floats) -> tuple[float, float]:
        assert self._limits is not None  # a scenario that needs them is not built without
        return self._limits

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        return self.bounds(np.zeros(0))

    @cached_property
    def kernel(self) -> Kernel:
        """`perturb` with the function of this model, compiled."""
        reason = ""
        low, high = self._limits or (-_LARGEST, _LARGEST)
        slack = 1e-9 * (1 + max(abs(low), abs(high)))  # tolerance for rounding
        for allocates in (False, True):
            name = f"perturb_{self.key}" + "_allocates" * allocates
            try:
                function = compile.jit_user(self.value, allocates=allocates)
                bindings = {"value": function, "SMALLEST": low - slack, "LARGEST": high + slack}
                alone = compile.specialise(perturb, name, bindings, cached=self.cacheable, allocates=allocates)
                compile.call(alone, self.number, np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(0), np.zeros(FAULT))
                return Kernel(alone, compile.bind(perturb, bindings, allocates=allocates), allocates)
            except Exception as error:  # called without channels: an error of the compiler
                reason = compile.reason(error)
        raise InputError(f"perturbation model {self.name}: value does not compile: {reason}")

    def faulty(self, v: float, where: str) -> InputError:
        """Return the error for a value that is not finite or not within the bounds."""
        allowed = "a finite number" if self._limits is None else "within bounds = ({:g}, {:g})".format(*self._limits)
        return InputError(f"perturbation model {self.name}: value = {v:g} {where}; must be {allowed}")


@lru_cache(maxsize=4)
def _sampled(model: UserModel, row: bytes, d: int) -> Floats:
    """Return the perturbations of the fixed sample of contexts, sorted."""
    theta, values = np.frombuffer(row), []
    fault = np.zeros(FAULT)
    for x in sample(d):
        values.append(_values(model, theta, x, fault))
    return np.sort(np.concatenate(values))


def _values(model: UserModel, theta: Floats, x: Floats, fault: Floats) -> Floats:
    """Return the perturbations of contexts x, shape (N, d); refuse values that are out of bounds."""
    n = np.zeros(len(x))
    try:
        model.kernel.alone(model.number, np.tile(theta, (len(x), 1)), x, n, fault)
    except InputError:
        raise
    except Exception as error:
        raise user_code.as_input_error(f"perturbation model {model.name}: value", error) from error
    if fault[1]:
        at = shown([round(float(entry), 3) for entry in x[int(fault[2])]])
        raise model.faulty(fault[3], f"where theta = {shown(theta.tolist())} and x = {at}")
    return n


class AbsentModel(PerturbationModel):
    """A user's model of which only the name is known, in a stored study."""

    number, formula, source = -1, "a user's model", ""

    def __init__(self, reference: str) -> None:
        self.name, self._reference = reference.rpartition(":")[2], reference

    @property
    def reference(self) -> str:
        return self._reference

    def size(self, d: int) -> None:
        return None

    def least_clear(self, d: int) -> tuple[float, str]:
        return 0.0, ""

    def draw(self, rng: Rng, d: int, clear: float | None, norm: float | None) -> Floats:
        raise self._unknown()

    def probability_below(self, theta: Floats, d: int, level: float) -> tuple[float, float]:
        raise self._unknown()

    def mean(self, theta: Floats, d: int) -> tuple[float, float]:
        raise self._unknown()

    def values(self, theta: Floats, x: Floats) -> Floats:
        raise self._unknown()

    def bounds(self, theta: Floats) -> tuple[float, float]:
        raise self._unknown()

    def drawn_bounds(self, d: int, clear: float | None, norm: float | None) -> tuple[float, float]:
        raise self._unknown()

    def _unknown(self) -> InputError:
        return InputError(
            f"perturbation model {self.name}: is not part of a stored study; build the scenario from its"
            " experiment.toml"
        )


# --- finding and adding ----------------------------------------------------------------------------------------------

KIND = "scenario.perturbation.kind"


def model(source: Any) -> PerturbationModel:
    """Return a model by its name, by file.py:NAME, or from the registered class."""
    if isinstance(source, PerturbationModel):
        return source
    if isinstance(source, type):
        registered: PerturbationModel | None = source.__dict__.get("_idleband_perturbation")
        if registered is None:
            raise InputError(
                f"perturbation model {source.__name__}: put @idleband.register_perturbation above the class"
            )
        return registered
    if not isinstance(source, str):
        raise InputError(
            f"{KIND} = {shown(source)}: must be a name, file.py:name, or a class under @idleband.register_perturbation"
        )
    if ".py:" in source:
        return cast(
            PerturbationModel,
            user_code.find(source, "perturbation model", "_idleband_perturbation", "register_perturbation"),
        )
    if source.endswith(".py"):
        raise InputError(f"{KIND} = {shown(source)}: must also name a model in the file: {source}:NAME")
    if source not in PERTURBATION_MODELS:
        raise unknown(KIND, source, PERTURBATION_MODELS)
    return PERTURBATION_MODELS[source]


def stored_model(source: Any) -> PerturbationModel:
    """Return a model of the package, or an `AbsentModel` for a user's model."""
    built_in = PERTURBATION_MODELS.get(source) if isinstance(source, str) else None
    if built_in is not None and built_in.source is None:
        return built_in
    return AbsentModel(source) if isinstance(source, str) else model(source)


ARGUMENTS = {"draw": "rng, dimension, clear", "value": "theta, x"}


def register_perturbation(cls: type[C] | None = None, /, *, name: str | None = None) -> Any:
    """Register a class as a perturbation model.

    The class is a namespace for functions without `self`:

    - `draw(rng, dimension, clear)` returns the parameters of one channel, a list of numbers. `rng` is for the functions
      of `idleband.random`; `clear` is the probability P(n < 1) that the scenario asks for, without its noise.
    - `value(theta, x)` returns the perturbation n of a channel with parameters `theta` in the context `x`. It is
      compiled.
    - `bounds = (low, high)`, the smallest and the largest n, is required by the additive reward.

    The first line of the docstring is the description of the model.

    Parameters
    ----------
    cls : class
        The class to register.
    name : str, optional
        Name of the model; by default the name of the class.

    Returns
    -------
    class
        The class itself. It can be given as `perturbation` of a scenario, as can the name.

    Raises
    ------
    InputError
        If a function is missing or takes other arguments, or the name belongs to a model of the package.

    Examples
    --------
    >>> import idleband as ib
    >>> @ib.register_perturbation(name="half")
    ... class Half:
    ...     "1 where the first entry is large, else 0."
    ...     def draw(rng, dimension, clear):
    ...         return [clear]
    ...     def value(theta, x):
    ...         return 1.0 if x[0] >= theta[0] else 0.0
    >>> ib.scenario("S1", perturbation="half").perturbation.kind
    'half'
    """

    def add(cls: type[C]) -> type[C]:
        public = check_name(name or cls.__name__, "model")
        functions = user_code.functions_of(cls, f"perturbation model {public}", ARGUMENTS)
        if public in PERTURBATION_MODELS and PERTURBATION_MODELS[public].source is None:
            raise InputError(f"perturbation model {public}: this name is taken by a model of the package")
        source, cacheable = user_code.source_of(cls, f"perturbation model {public}")
        file = user_code.place_of(cls)
        made = UserModel(
            public, user_code.description_of(cls, "a user's model"), functions["draw"],
            getattr(functions["value"], "py_func", functions["value"]), _limits(vars(cls).get("bounds"), public),
            source, cacheable, public if file is None else f"{file}:{public}",
        )  # fmt: skip
        cls._idleband_perturbation = made  # type: ignore[attr-defined]
        if file is None:  # models of files are not found by their names alone
            PERTURBATION_MODELS[public] = made
        return cls

    return add if cls is None else add(cls)


def _limits(given: Any, name: str) -> tuple[float, float] | None:
    if given is None:
        return None
    where = f"perturbation model {name}: bounds"
    ends = validation.sequence(given, where, "the smallest and the largest n")
    if len(ends) != 2:
        raise InputError(f"{where} = {shown(given)}: must be two numbers, the smallest and the largest n")
    low = validation.number(ends[0], where, -_LARGEST, _LARGEST)
    return low, validation.number(ends[1], where, low, _LARGEST)
