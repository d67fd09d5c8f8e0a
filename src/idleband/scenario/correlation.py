"""Correlation between channels: the draws that move channels depend on each other (Gaussian copula).

Channel k moves by the uniform variable Phi(z_k), where z_k = sqrt(common) z + sqrt(1 - common) w_k, with one z for all
channels and w_k = neighbours w_(k-1) + sqrt(1 - neighbours^2) e_k. Each channel alone keeps its distribution; the
correlation of states is smaller than that of the draws, because channels start from different states.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from idleband import validation
from idleband.arrays import Floats
from idleband.errors import InputError
from idleband.kernels.compile import jit
from idleband.kernels.rng import Rng, normal

BELOW_ONE = 1.0 - 2.0**-53


@dataclass(frozen=True)
class Correlation:
    """Correlation of the draws of channels: with all others, and with neighbours."""

    common: float = 0.0
    neighbours: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return {"common": self.common, "neighbours": self.neighbours}


def read_correlation(value: Any) -> Correlation | None:
    """Return the correlation that the table [scenario.correlation] describes; None if it is zero."""
    where = "scenario.correlation"
    table = validation.table(value, where)
    validation.check_keys(table, ("common", "neighbours"), where)
    if not table:
        raise InputError(f"{where}: give common, neighbours, or both")
    numbers = {key: validation.number(table.get(key, 0.0), f"{where}.{key}", 0, 1) for key in ("common", "neighbours")}
    return Correlation(**numbers) if any(numbers.values()) else None


class CorrelationFactors(NamedTuple):
    """Factors of the normal variables; `shared` and `neighbours` are 0 if channels are independent."""

    shared: float
    own: float
    neighbours: float
    innovation: float


def correlation_factors(correlation: Correlation | None) -> CorrelationFactors:
    """Return the factors of a correlation."""
    given = correlation or Correlation()
    return CorrelationFactors(
        math.sqrt(given.common), math.sqrt(1.0 - given.common), given.neighbours, math.sqrt(1.0 - given.neighbours**2)
    )


@jit
def fill_correlated(factors: CorrelationFactors, rng: Rng, u: Floats) -> None:
    """Write one uniform draw per channel, correlated between channels."""
    z = normal(rng)
    w = normal(rng)
    for k in range(u.size):
        if k > 0:
            w = factors.neighbours * w + factors.innovation * normal(rng)
        value = 0.5 * math.erfc(-0.7071067811865476 * (factors.shared * z + factors.own * w))
        u[k] = min(value, BELOW_ONE)
