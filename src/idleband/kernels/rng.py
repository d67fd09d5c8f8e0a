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
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.kernels.compile import INTERPRETED, call, jit, specialise

Rng = npt.NDArray[np.uint64]

# The streams of a replication. PERTURBATION: the parameters of the perturbation model; NOISE: the noise of the
# perturbation. FRESH: contexts that are not shown to policies. COLLISIONS: who wins a collision; PRESENCE: when users
# arrive and leave; USERS: the policy of a user without a base station, one stream per user and stay.
STATES, CONTEXTS, PERTURBATION, POLICY, FRESH, REGIMES, SHOCKS, SENSING, NOISE, COLLISIONS, PRESENCE, USERS = range(12)
EVALUATION = 12  # of a policy that is replayed on a log; independent of POLICY, by which the log was made

_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ULP = 2.0**-53

if INTERPRETED:  # NumPy warns of the intended overflow of these sums
    warnings.filterwarnings("ignore", "overflow encountered in scalar", RuntimeWarning, r"idleband\.kernels\.rng")


def stream(seed: int, replication: int, name: int, *member: int) -> Rng:
    """Return the generator of a stream, or of a member of it.

    >>> stream(0, 0, STATES).shape
    (2,)
    """
    state, gamma = np.random.SeedSequence(seed, spawn_key=(replication, name, *member)).generate_state(2, np.uint64)
    step = int(gamma) | 1
    if (step ^ (step >> 1)).bit_count() < 24:  # regular steps mix badly (section 5 of the paper)
        step ^= 0xAAAAAAAAAAAAAAAA
    return np.array([state, step], np.uint64)


def streams(seed: int, replication: int) -> Rng:
    """Return all generators of a replication; row NAME is `stream(seed, replication, NAME)`. Compiled.

    >>> bool((streams(7, 3)[POLICY] == stream(7, 3, POLICY)).all())
    True
    """
    if INTERPRETED or seed >= 2**63 or replication >= 2**32:
        return np.array([stream(seed, replication, name) for name in range(STREAMS)])
    rngs = np.empty((STREAMS, 2), np.uint64)
    call(_stream_filler(), seed, replication, np.empty(4, np.uint64), rngs)
    return rngs


@cache
def _stream_filler() -> Any:
    return specialise(fill_streams, "fill_streams", {})


# NumPy's SeedSequence, after O'Neill, "Developing a seed_seq alternative", 2015 (constants from NumPy's source): a pool
# of four 32-bit words, into which the words of seed, replication and name are mixed.
STREAMS = 16  # at least the number of names above
_WORD = np.uint64(0xFFFFFFFF)
_32, _16, _1 = np.uint64(32), np.uint64(16), np.uint64(1)
_A, _A_STEP = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_B, _B_STEP = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_LEFT, _RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
_ALTERNATING = np.uint64(0xAAAAAAAAAAAAAAAA)


def fill_streams(seed: int, replication: int, pool: Rng, rngs: Rng) -> None:
    """Write the generators of the streams 0, 1, 2, ... of a replication into the rows of `rngs`."""
    factor = _A
    for i in range(4):  # the words of the seed, filled up with zeros
        word = (np.uint64(seed) >> (_32 * np.uint64(i))) & _WORD if i < 2 else np.uint64(0)
        pool[i], factor = hashed(word, factor, _A_STEP)
    for i in range(4):
        for j in range(4):
            if i != j:
                word, factor = hashed(pool[i], factor, _A_STEP)
                pool[j] = mixed(pool[j], word)
    for j in range(4):
        word, factor = hashed(np.uint64(replication), factor, _A_STEP)
        pool[j] = mixed(pool[j], word)
    p0, p1, p2, p3 = pool[0], pool[1], pool[2], pool[3]
    before = factor
    for name in range(rngs.shape[0]):
        pool[0], pool[1], pool[2], pool[3] = p0, p1, p2, p3
        factor = before
        for j in range(4):
            word, factor = hashed(np.uint64(name), factor, _A_STEP)
            pool[j] = mixed(pool[j], word)
        factor = _B
        for i in range(2):
            low, factor = hashed(pool[2 * i], factor, _B_STEP)
            high, factor = hashed(pool[2 * i + 1], factor, _B_STEP)
            rngs[name, i] = low | (high << _32)
        step = rngs[name, 1] | _1
        changes, count = step ^ (step >> _1), 0
        while changes != np.uint64(0):
            changes &= changes - _1
            count += 1
        rngs[name, 1] = step ^ _ALTERNATING if count < 24 else step


@jit
def hashed(word: np.uint64, factor: np.uint64, step: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return a hashed 32-bit word and the next factor."""
    word ^= factor
    factor = (factor * step) & _WORD
    word = (word * factor) & _WORD
    return word ^ (word >> _16), factor


@jit
def mixed(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return two 32-bit words mixed into one."""
    word = (_LEFT * a - _RIGHT * b) & _WORD
    return word ^ (word >> _16)


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


def normals(rngs: Rng, count: int) -> npt.NDArray[np.float64]:
    """Return the next draws of `normal` of several generators, shape (len(rngs), count). Compiled.

    >>> normals(np.array([stream(0, 0, POLICY)]), 3)[0].tolist() == python_normals(stream(0, 0, POLICY), 3)
    True
    """
    draws = np.empty((len(rngs), count))
    call(_normal_filler(), rngs, draws)
    return draws


@cache
def _normal_filler() -> Any:
    return specialise(fill_normals, "fill_normals", {})


def fill_normals(rngs: Rng, draws: npt.NDArray[np.float64]) -> None:
    """Write the next draws of each generator into a row of `draws`."""
    for i in range(draws.shape[0]):
        for j in range(draws.shape[1]):
            draws[i, j] = normal(rngs[i])


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
