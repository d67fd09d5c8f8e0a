"""Upper bound on the long-run average reward of a scenario, and the levels of the perturbation that it needs."""

import hashlib
import json
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.arrays import Floats, Ints
from idleband.kernels import compile, whittle_lagrangian
from idleband.scenario.noise import all_below
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Perturbation, Scenario, once

STEPS = 64  # levels of the perturbation under the additive reward
NOISE_STEPS = 16  # levels with noise: equal steps of P(n < 0 | x), and as many of P(n < 1 | x)
NOISE_PARTS = 128  # into which these steps together are divided to find the mean of each level
TAILS = (2.8, 3.2, 3.7, 4.5, 6.0)  # beyond the first and the last part, in standard deviations
FAR = 1e300  # larger than any perturbation
MIN_AGES = 250  # ages that a bound must include, unless its chains need fewer
# Approximate limit of multiplications for one bound: a few seconds.
MAX_WORK = 10**5 if compile.INTERPRETED else 10**10


def padded(rows: tuple[npt.NDArray[Any], ...], fill: Any) -> npt.NDArray[Any]:
    """Return arrays of different length as rows of one array, at least two states wide."""
    width = max(2, max(map(len, rows)))
    table = np.full((len(rows), width), fill)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


def padded_transition(scenario: Scenario) -> Floats:
    """Return the transition matrices, shape (K, S, S); zero where a channel has no such state."""
    S = max(2, max(map(len, scenario.transition)))
    P = np.zeros((scenario.K, S, S))
    for k, matrix in enumerate(scenario.marginal_transition):
        P[k, : len(matrix), : len(matrix)] = matrix
    return P


def levels(scenario: Scenario, theta: Floats, steps: int = NOISE_STEPS) -> tuple[Floats, Floats, Floats]:
    """Return levels of the perturbation: upper ends (K, L), exclusive; probabilities (K, L); rewards (K, L, S).

    Rewards are those of a whole slot, without sensing time. With noise, levels are those of f(x), which is all that can
    be known before a play. The arrays must not be changed.

    The threshold reward has three levels: n < 0, where every state pays high; n < 1, where good states do; and the
    rest. With noise it has about 2 `steps` levels; see `_noisy_levels`. Under the additive reward the range of f is
    divided into STEPS equal levels. Each pays the value at its middle, shifted so that the mean is exact, because f
    need not be symmetric within a level.
    """
    K = scenario.K
    if scenario.reward == "threshold" and scenario.perturbation.noise:
        return _noisy_levels(scenario, theta, steps)
    if scenario.reward == "threshold":
        ends, pay = _threshold_levels(scenario)
    else:
        model = scenario.perturbation.model
        edges = np.array([np.linspace(*model.bounds(row), STEPS + 1) for row in theta])
        ends = np.concatenate([edges[:, 1:-1], np.full((K, 1), FAR)], axis=1)
        pay = padded(scenario.rewards, 0.0)[:, None, :] - (0.5 * (edges[:, 1:] + edges[:, :-1]))[:, :, None]
    reached = np.column_stack([np.zeros(K), _probabilities_below(scenario, theta, ends[:, :-1]), np.ones(K)])
    probability = np.diff(reached, axis=1).clip(0.0)
    if scenario.reward == "additive":
        means = scenario.mean_rewards(theta)[0] / scenario.reward_factor
        by_level = scenario.mean_h - np.einsum("kl,kl->k", probability, 0.5 * (edges[:, 1:] + edges[:, :-1]))
        pay = pay + (means - by_level)[:, None, None]
    return ends, probability, pay


@once
def _threshold_levels(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return ends and rewards of the levels under the threshold reward, which do not depend on theta."""
    good = padded(scenario.good, False)
    pay = np.full((scenario.K, 3, good.shape[1]), LOW)
    pay[:, 0] = HIGH
    pay[:, 1][good] = HIGH
    return np.tile([0.0, 1.0, FAR], (scenario.K, 1)), pay


def _noisy_levels(scenario: Scenario, theta: Floats, steps: int) -> tuple[Floats, Floats, Floats]:
    """Return levels of f under the threshold reward with noise.

    A level pays its mean reward, found from its parts and corrected so that P(n < 1) and P(n < 0) are exact. A policy
    that knew only the level would earn a little less than one that knows f; the bound is too low by as much, which is
    0.0004 in S1 and S4 with noise 0.1 and 0.2.
    """
    from scipy.special import ndtri  # slow to import, and not always needed

    K, sigma = scenario.K, scenario.perturbation.noise
    deviates = np.concatenate([ndtri(np.arange(1, NOISE_PARTS) / NOISE_PARTS), TAILS, np.negative(TAILS)])
    edges = np.unique(np.concatenate([sigma * deviates, 1.0 + sigma * deviates]))
    reached = _probabilities_below(scenario, theta, np.tile(edges, (K, 1)))
    parts = np.diff(np.column_stack([np.zeros(K), reached, np.ones(K)]), axis=1).clip(0.0)
    first = np.arange(0, parts.shape[1], NOISE_PARTS // steps)  # part of each level
    probability = np.add.reduceat(parts, first, axis=1)
    clear, negative = (_mean_of_levels(scenario, theta, at, edges, parts, first) for at in (1.0, 0.0))
    good = padded(scenario.good, False)
    pay = LOW + (HIGH - LOW) * np.where(good[:, None, :], clear[:, :, None], negative[:, :, None])
    ends = np.append(edges, FAR)[np.append(first[1:], parts.shape[1]) - 1]
    return np.tile(ends, (K, 1)), probability, pay


def _mean_of_levels(scenario: Scenario, theta: Floats, at: float, edges: Floats, parts: Floats, first: Ints) -> Floats:
    """Return the mean of P(n < at | x) in each level, shape (K, L)."""
    ends = np.concatenate([[1.0], all_below(at, edges, scenario.perturbation.noise), [0.0]])
    weights = parts + 1e-200  # gives a value to levels that f cannot reach
    probability = np.add.reduceat(weights, first, axis=1)
    means = np.add.reduceat(weights * 0.5 * (ends[1:] + ends[:-1]), first, axis=1) / probability
    # The correction is proportional to p (1 - p), so that no mean leaves [0, 1].
    missing = scenario.probabilities_below(theta, at)[0] - (probability * means).sum(axis=1)
    room = (probability * means * (1.0 - means)).sum(axis=1)
    share = (missing / np.maximum(room, 1e-12)).clip(-1.0, 1.0)
    return np.asarray(means + share[:, None] * means * (1.0 - means))


def _probabilities_below(scenario: Scenario, theta: Floats, at: Floats) -> Floats:
    """Return P(f(x) < at[k, l]), shape (K, L).

    Channels with the same theta are evaluated once, at all levels together, because a model may need a sample per
    theta.
    """
    if not scenario.contexts.uniform:
        values = [scenario.perturbation.model.values(row, scenario.contexts.sample(k)) for k, row in enumerate(theta)]
        return np.array([[np.mean(n < level) for level in row] for n, row in zip(values, at, strict=True)])
    model, d = scenario.perturbation.model, scenario.dimension
    if (theta == theta[0]).all() and (at == at[0]).all():
        return np.tile([model.probability_below(theta[0], d, level)[0] for level in at[0].tolist()], (len(theta), 1))
    known: dict[tuple[float, ...], list[float]] = {}
    questions = [(*row, *wanted) for row, wanted in zip(theta.tolist(), at.tolist(), strict=True)]
    for question, row, wanted in zip(questions, theta, at.tolist(), strict=True):
        if question not in known:
            known[question] = [model.probability_below(row, d, level)[0] for level in wanted]
    return np.array([known[question] for question in questions])


def bound(scenario: Scenario, theta: Floats | None = None) -> float | None:
    """Return an upper bound on the long-run average reward of policies that observe played channels only.

    With theta it includes the perturbation; without, it is that of the scenario without perturbation. See
    `kernels.whittle_lagrangian`. It holds in the long run only, and is loose where few channels are played: by 2 to 16%
    of the optimum in studies/optimum.md. None where every channel is sensed, or where the computation would take too
    long. Chains with memory of thousands of slots are followed for 4000 slots; the bound is then too low, by 0.0002 for
    three channels with transition probabilities of 1e-5. Under the additive reward the perturbation has 64 levels; with
    256 the bound of S4 under the cosine model is 0.002 larger. Unavailable channels count as available, so that the
    bound is loose with them. None also where channels are not independent Markov chains, contexts are not independent
    from slot to slot, or theta drifts: the bound would not hold. Sensing errors and a switching cost make it loose.
    """
    if scenario.sensing == "all" or not scenario.markov or not scenario.contexts.independent:
        return None
    if scenario.perturbation.drift:
        return None
    if theta is None:
        undisturbed = replace(scenario, perturbation=Perturbation(PERTURBATION_MODELS["none"], clear=None))
        found = _bound(undisturbed, np.zeros((scenario.K, 1)))
    else:
        found = _bound(scenario, theta)
    return found if found is None or scenario.reward_factor == 1.0 else scenario.reward_factor * found


def _bound(scenario: Scenario, theta: Floats) -> float | None:
    kept, key = _kept_bounds(scenario), _key_of(scenario, theta)
    if key is None:
        return _computed_bound(scenario, theta)
    if key not in kept:
        kept[key] = _computed_bound(scenario, theta)
    return kept[key]


@once
def _kept_bounds(scenario: Scenario) -> dict[bytes, float | None]:
    return {}


def _key_of(scenario: Scenario, theta: Floats) -> bytes | None:
    """Return the probabilities of the levels, rounded as for the bound, where nothing else depends on theta."""
    given = scenario.perturbation
    noise = getattr(given, "noise", 0.0)
    if scenario.reward != "threshold" or not scenario.contexts.uniform or noise or not (theta == theta[0]).all():
        return None
    negative, clear = (given.model.probability_below(theta[0], scenario.dimension, level)[0] for level in (0.0, 1.0))
    return np.array([negative, clear - negative, 1.0 - clear]).clip(0.0).round(10).tobytes()


def _computed_bound(scenario: Scenario, theta: Floats) -> float | None:
    P = padded_transition(scenario)
    _, probability, pay = levels(scenario, theta)
    K, L, S = pay.shape
    # As many ages as the slowest chain needs: fewer make the bound too low, by 0.0001 at probabilities of 0.01.
    ages = min(whittle_lagrangian.ages_to_forget(P), int(MAX_WORK / (500.0 * K * L * S**2)))
    if ages < min(MIN_AGES, whittle_lagrangian.ages_to_forget(P)):
        return None
    plays = float(np.minimum(scenario.available.sum(axis=1), scenario.users).mean())
    # Rounded, because a drawn theta has its probability to about 1e-15: replications then share one solution.
    return _solved(P.tobytes(), probability.round(10).tobytes(), pay.tobytes(), (K, L, S), plays, ages)


@cache
def preset_bounds() -> dict[str, float]:
    """Return precomputed upper bounds of the presets by `bound_key`, so that describing a preset needs no compiler."""
    data: dict[str, float] = json.loads(Path(__file__).with_name("preset_bounds.json").read_text())
    return data


def bound_key(*problem: object) -> str:
    """Return a hash of the arguments of `compute_bound`."""
    return hashlib.sha256(repr(problem).encode()).hexdigest()[:32]


def _solved(P: bytes, probability: bytes, pay: bytes, shape: tuple[int, int, int], plays: float, ages: int) -> float:
    known = preset_bounds().get(bound_key(P, probability, pay, shape, plays, ages))
    return compute_bound(P, probability, pay, shape, plays, ages) if known is None else known


@lru_cache(maxsize=256)  # with noise each replication has another problem
def compute_bound(
    P: bytes, probability: bytes, pay: bytes, shape: tuple[int, int, int], plays: float, ages: int
) -> float:
    K, L, S = shape
    paid = np.frombuffer(pay).reshape(K, L, S)
    probabilities = np.frombuffer(probability).reshape(K, L)
    relaxed = whittle_lagrangian.channels(np.frombuffer(P).reshape(K, S, S), paid, probabilities, ages)
    return whittle_lagrangian.bound(relaxed, plays, float(paid.min()), float(paid.max()))
