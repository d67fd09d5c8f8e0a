"""Random numbers for kernels.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): the
state advances by an odd step `gamma`, which differs between streams, and each output is a mix of the state. Draws are
independent of each other, so `fill_uniform` computes several at a time in vector registers; it is three times as fast
as xoroshiro128+. NumPy's generators do not run inside a CUDA kernel; these do. A generator is an array `rng` of shape
(2,): state and gamma.

A stream is identified by seed, replication and name, not by worker or order.
"""

import math
import warnings

import numpy as np
import numpy.typing as npt

from idleband.kernels.compile import INTERPRETED, jit

Rng = npt.NDArray[np.uint64]

# The streams of a replication. PERTURBATION: the parameters of the perturbation model; NOISE: the noise of the
# perturbation. FRESH: contexts that are not shown to policies.
STATES, CONTEXTS, PERTURBATION, POLICY, FRESH, REGIMES, SHOCKS, SENSING, NOISE = range(9)

_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ULP = 2.0**-53

if INTERPRETED:  # NumPy warns of the intended overflow of these sums
    warnings.filterwarnings("ignore", "overflow encountered in scalar", RuntimeWarning, r"idleband\.kernels\.rng")


def stream(seed: int, replication: int, name: int) -> Rng:
    """Return the generator of a stream.

    >>> stream(0, 0, STATES).shape
    (2,)
    """
    state, gamma = np.random.SeedSequence(seed, spawn_key=(replication, name)).generate_state(2, np.uint64)
    step = int(gamma) | 1
    if (step ^ (step >> 1)).bit_count() < 24:  # regular steps mix badly (section 5 of the paper)
        step ^= 0xAAAAAAAAAAAAAAAA
    return np.array([state, step], np.uint64)


@jit
def next_word(rng: Rng) -> np.uint64:
    """Return 64 random bits."""
    rng[0] += rng[1]
    z = rng[0]
    z = (z ^ (z >> _30)) * _MIX1
    z = (z ^ (z >> _27)) * _MIX2
    return z ^ (z >> _31)


@jit
def uniform(rng: Rng) -> float:
    """Draw from the uniform distribution on [0, 1), on a grid of 2^-53.

    >>> 0 <= uniform(stream(0, 0, POLICY)) < 1
    True
    """
    return np.int64(next_word(rng) >> _11) * _ULP


@jit
def fill_uniform(rng: Rng, out: npt.NDArray[np.float64]) -> None:
    """Write the next out.size draws of `uniform` into a one-dimensional array."""
    state, gamma = rng[0], rng[1]  # in registers: `out` may alias `rng` as far as the compiler can see
    for i in range(out.size):
        state += gamma
        z = (state ^ (state >> _30)) * _MIX1
        z = (z ^ (z >> _27)) * _MIX2
        out[i] = np.int64((z ^ (z >> _31)) >> _11) * _ULP
    rng[0] = state


@jit
def normal(rng: Rng) -> float:
    """Draw from the standard normal distribution (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(rng)))
    return radius * math.cos(2.0 * math.pi * uniform(rng))


def python_normals(rng: Rng, count: int) -> list[float]:
    """Return the next draws of `normal` without the compiler, which takes seconds to load.

    >>> rng = stream(0, 0, PERTURBATION)
    >>> python_normals(rng.copy(), 1) == [normal(rng)]
    True
    """
    mask = 2**64 - 1
    state, step = int(rng[0]), int(rng[1])
    draws = []
    for _ in range(2 * count):
        state = (state + step) & mask
        z = ((state ^ (state >> 30)) * int(_MIX1)) & mask
        z = ((z ^ (z >> 27)) * int(_MIX2)) & mask
        draws.append(((z ^ (z >> 31)) >> 11) * _ULP)
    rng[0] = state
    pairs = zip(draws[::2], draws[1::2], strict=True)
    return [math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v) for u, v in pairs]


@jit
def gamma(rng: Rng, shape: float) -> float:
    """Draw from the gamma distribution with shape > 0 and scale 1 (Marsaglia and Tsang 2000)."""
    boost = 1.0
    if shape < 1.0:
        boost = (1.0 - uniform(rng)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        z = normal(rng)
        v = 1.0 + c * z
        if v > 0.0:
            v = v * v * v
            if math.log(1.0 - uniform(rng)) < 0.5 * z * z + d - d * v + d * math.log(v):
                return boost * d * v


@jit
def beta(rng: Rng, a: float, b: float) -> float:
    """Draw from the beta distribution with parameters a > 0 and b > 0."""
    x = gamma(rng, a)
    return x / (x + gamma(rng, b))
