"""MP-UCB and MP-LUCB in JAX: float64, jit, and one lax.scan over slots; a vmap runs many replications at once.

Used for comparison by benchmarks/peers.py; JAX is not a dependency of the package. Policies are pairs of pure functions
on a tuple of arrays, and the same pairs run in two loops: `simulate` draws its own channels and contexts, `replay`
takes recorded ones, so that selections can be compared with those of the package slot by slot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

jax.config.update("jax_enable_x64", True)

CHUNK = 100  # slots whose random numbers are drawn together


class JaxPolicy(NamedTuple):
    """A policy of M picks: its first state, its selection, and its update with the feedback of the picks."""

    init: Callable[[int, int], Any]
    select: Callable[..., tuple[Array, Any]]
    learn: Callable[..., Any]


def top(index: Array, M: int) -> Array:
    """Return the M channels with the largest index, in ascending order; lower channels first among equal ones."""
    return jnp.sort(lax.top_k(index, M)[1])


# --- mp-ucb ----------------------------------------------------------------------------------------------------------


def ucb_init(K: int, d: int) -> tuple[Array, Array]:
    return jnp.zeros(K), jnp.zeros(K)


def ucb_select(state: Any, t: Array, x: Array, M: int) -> tuple[Array, Any]:
    total, plays = state
    index = total / plays + jnp.sqrt(1.5 * jnp.log(t) / plays)
    return top(jnp.where(plays > 0, index, jnp.inf), M), ()


def ucb_learn(state: Any, kept: Any, picks: Array, x: Array, h: Array, r: Array, n: Array) -> Any:
    total, plays = state
    return total.at[picks].add(r), plays.at[picks].add(1.0)


# --- mp-lucb ---------------------------------------------------------------------------------------------------------


def lucb_init(K: int, d: int) -> tuple[Array, ...]:
    return jnp.tile(jnp.eye(d), (K, 1, 1)), jnp.zeros((K, d)), jnp.zeros(K), jnp.zeros(K)


def lucb_select(state: Any, t: Array, x: Array, M: int) -> tuple[Array, Any]:
    A_inv, theta, total_h, plays = state
    v = jnp.einsum("kij,kj->ki", A_inv, x)
    n_hat = jnp.einsum("ki,ki->k", theta, x)
    q = jnp.einsum("ki,ki->k", v, x)
    mean = total_h / jnp.maximum(plays, 1.0)
    picks = top(mean - n_hat + jnp.sqrt(q), M)
    return replace(picks, jnp.where(plays > 0, mean, 1.0) - n_hat), (v, q, n_hat)


def replace(picks: Array, margin: Array) -> Array:
    """Let each other channel with margin >= 0 replace the first pick whose margin is <= 0 and smaller."""
    K = margin.size
    outside = jnp.ones(K, bool).at[picks].set(False)

    def one(j: int, picks: Array) -> Array:
        weak = (margin[picks] <= 0) & (margin[picks] < margin[j]) & outside[j] & (margin[j] >= 0)
        first = weak & (jnp.cumsum(weak) == 1)
        return jnp.where(first, j, picks)

    return lax.fori_loop(0, K, one, picks)


def lucb_learn(state: Any, kept: Any, picks: Array, x: Array, h: Array, r: Array, n: Array) -> Any:
    A_inv, theta, total_h, plays = state
    v, q, n_hat = (array[picks] for array in kept)
    gain = 1.0 / (1.0 + q)
    A_inv = A_inv.at[picks].add(-v[:, :, None] * v[:, None, :] * gain[:, None, None])
    theta = theta.at[picks].add(v * ((n - n_hat) * gain)[:, None])
    return A_inv, theta, total_h.at[picks].add(h), plays.at[picks].add(1.0)


POLICIES = {
    "mp-ucb": JaxPolicy(ucb_init, ucb_select, ucb_learn),
    "mp-lucb": JaxPolicy(lucb_init, lucb_select, lucb_learn),
}

# --- loops -----------------------------------------------------------------------------------------------------------


def play(policy: JaxPolicy, state: Any, t: Array, x: Array, good: Array, n: Array, M: int) -> tuple[Any, Array, Array]:
    """Run one slot of a policy under the threshold reward; return its state, the picks and their rewards."""
    picks, kept = policy.select(state, t, x, M)
    h = jnp.where(good[picks], 1.0, 0.1)
    r = jnp.where(good[picks] - n[picks] > 0, 1.0, 0.1)
    return policy.learn(state, kept, picks, x, h, r, n[picks]), picks, r


@partial(jax.jit, static_argnames=("name", "M", "T"))
def simulate(name: str, key: Array, p01: Array, p10: Array, theta: Array, M: int, T: int) -> Array:
    """Simulate T slots, a multiple of CHUNK, with a linear perturbation model; return the total reward."""
    policy, K, d = POLICIES[name], p01.size, theta.size

    def slot(carry: Any, inputs: tuple[Array, Array]) -> tuple[Any, None]:
        good, state, total = carry
        t, u = inputs
        good = jnp.where(good, u[:, 0] >= p10, u[:, 0] < p01)
        x = u[:, 1:]
        state, _, r = play(policy, state, t, x, good, x @ theta, M)
        return (good, state, total + r.sum()), None

    def chunk(carry: Any, inputs: tuple[Array, Array]) -> tuple[Any, None]:
        first, key = inputs
        slots = first + jnp.arange(1.0, CHUNK + 1)
        return lax.scan(slot, carry, (slots, jax.random.uniform(key, (CHUNK, K, d + 1), jnp.float64)))

    start, key = jax.random.split(key)
    good = jax.random.uniform(start, (K,), jnp.float64) < p01 / (p01 + p10)
    chunks = (jnp.arange(0.0, T, CHUNK), jax.random.split(key, T // CHUNK))
    (_, _, total), _ = lax.scan(chunk, (good, policy.init(K, d), jnp.float64(0.0)), chunks)
    return total


@partial(jax.jit, static_argnames=("name", "M", "T"))
def simulate_many(name: str, keys: Array, p01: Array, p10: Array, theta: Array, M: int, T: int) -> Array:
    """Simulate one replication per key; return the total rewards."""
    return jax.vmap(lambda key: simulate(name, key, p01, p10, theta, M, T))(keys)


@partial(jax.jit, static_argnames=("name", "M"))
def replay(name: str, x: Array, good: Array, n: Array, M: int) -> Array:
    """Return the picks (T, M) on a recorded path: x (T, K, d), good and n (T, K)."""
    policy = POLICIES[name]

    def slot(state: Any, inputs: tuple[Array, ...]) -> tuple[Any, Array]:
        t, x, good, n = inputs
        state, picks, _ = play(policy, state, t, x, good, n, M)
        return state, picks

    slots = jnp.arange(1.0, len(x) + 1)
    return lax.scan(slot, policy.init(x.shape[1], x.shape[2]), (slots, x, good, n))[1]
