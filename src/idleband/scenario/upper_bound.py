"""What a scenario is worth to who knows it: levels of the perturbation, and the bound that nobody passes."""

import hashlib
import json
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband.arrays import Floats
from idleband.kernels import compile, whittle_lagrangian
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Perturbation, Scenario

STEPS = 64  # levels that the perturbation is cut into under the additive reward
FAR = 1e300  # beyond any perturbation
MIN_AGES = 250  # that a bound must look at, if its chains need so many
# Multiplications that a bound may take, about: some seconds.
MAX_WORK = 10**5 if compile.INTERPRETED else 10**10


def padded(rows: tuple[npt.NDArray[Any], ...], fill: Any) -> npt.NDArray[Any]:
    """Arrays of unlike length as rows of one; at least two states wide."""
    width = max(2, max(map(len, rows)))
    table = np.full((len(rows), width), fill)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


def padded_transition(scenario: Scenario) -> Floats:
    """(K, S, S) transition matrices; zero where a channel has no such state."""
    S = max(2, max(map(len, scenario.transition)))
    P = np.zeros((scenario.K, S, S))
    for k, matrix in enumerate(scenario.transition):
        P[k, : len(matrix), : len(matrix)] = matrix
    return P


def levels(scenario: Scenario, theta: Floats) -> tuple[Floats, Floats, Floats]:
    """Levels of the perturbation between which the reward of a state differs: (K, L) where each ends (not included; the
    last far beyond), (K, L) how often it comes, and (K, L, S) what a state pays there.

    The threshold reward has three: n < 0, where every state pays; n < 1, where good ones do; the rest. Under the
    additive reward the perturbation is cut into STEPS equal ones, each for the value in its middle, shifted by what the
    mean would be off: a model may pile up at one end of a level.
    """
    K = scenario.K
    if scenario.reward == "threshold":
        ends = np.tile([0.0, 1.0, FAR], (K, 1))
        good = padded(scenario.good, False)
        pay = np.full((K, 3, good.shape[1]), LOW)
        pay[:, 0] = HIGH
        pay[:, 1][good] = HIGH
    else:
        model = scenario.perturbation.model
        edges = np.array([np.linspace(*model.bounds(row), STEPS + 1) for row in theta])
        ends = np.concatenate([edges[:, 1:-1], np.full((K, 1), FAR)], axis=1)
        pay = padded(scenario.rewards, 0.0)[:, None, :] - (0.5 * (edges[:, 1:] + edges[:, :-1]))[:, :, None]
    reached = np.column_stack([np.zeros(K), _probabilities_below(scenario, theta, ends[:, :-1]), np.ones(K)])
    chance = np.diff(reached, axis=1).clip(0.0)
    if scenario.reward == "additive":
        means, _ = scenario.mean_rewards(theta)
        by_level = scenario.mean_h - np.einsum("kl,kl->k", chance, 0.5 * (edges[:, 1:] + edges[:, :-1]))
        pay = pay + (means - by_level)[:, None, None]
    return ends, chance, pay


def _probabilities_below(scenario: Scenario, theta: Floats, at: Floats) -> Floats:
    """(K, L) P(n < at[k, l]). Most channels have the same theta, and are asked once; those of another one after the
    other, at all levels, because a model may have to draw a sample for each."""
    model, d = scenario.perturbation.model, scenario.dimension
    known: dict[tuple[float, ...], list[float]] = {}
    questions = [(*row, *wanted) for row, wanted in zip(theta.tolist(), at.tolist(), strict=True)]
    for question, row, wanted in zip(questions, theta, at.tolist(), strict=True):
        if question not in known:
            known[question] = [model.probability_below(row, d, level)[0] for level in wanted]
    return np.array([known[question] for question in questions])


def bound(scenario: Scenario, theta: Floats | None = None) -> float | None:
    """The most that can be earned a slot in the long run by who sees only what is played, whatever it knows: with a
    theta, or without perturbation. See `kernels.subsidy`. None where every channel is sensed (then it holds for nobody)
    or where it would take too long. Chains that remember for thousands of slots are followed for 4000: then it is too
    low, by 0.0002 for three channels at chances of 1e-5.

    Channels that are not available count as if they were: a bound still, if not a close one.
    """
    if scenario.sensing == "all":
        return None
    if theta is None:
        clear = replace(scenario, perturbation=Perturbation(PERTURBATION_MODELS["none"], clear=None))
        return _bound(clear, np.zeros((scenario.K, 1)))
    return _bound(scenario, theta)


def _bound(scenario: Scenario, theta: Floats) -> float | None:
    P = padded_transition(scenario)
    _, chance, pay = levels(scenario, theta)
    K, L, S = pay.shape
    # As many ages as the slowest chain needs: with fewer the bound is too low, if only by 0.0001 for chances of 0.01.
    ages = min(whittle_lagrangian.ages_to_forget(P), int(MAX_WORK / (500.0 * K * L * S**2)))
    if ages < min(MIN_AGES, whittle_lagrangian.ages_to_forget(P)):
        return None
    plays = float(np.minimum(scenario.available.sum(axis=1), scenario.users).mean())
    # Rounded, because a drawn theta meets its chance to some 1e-15: replications then share one solution.
    return _solved(P.tobytes(), chance.round(10).tobytes(), pay.tobytes(), (K, L, S), plays, ages)


@cache
def preset_bounds() -> dict[str, float]:
    """Return precomputed upper bounds of the presets by `bound_key`, so that describing a preset needs no compiler."""
    data: dict[str, float] = json.loads(Path(__file__).with_name("preset_bounds.json").read_text())
    return data


def bound_key(*problem: object) -> str:
    """Return a hash of the arguments of `compute_bound`."""
    return hashlib.sha256(repr(problem).encode()).hexdigest()[:32]


def _solved(P: bytes, chance: bytes, pay: bytes, shape: tuple[int, int, int], plays: float, ages: int) -> float:
    known = preset_bounds().get(bound_key(P, chance, pay, shape, plays, ages))
    return compute_bound(P, chance, pay, shape, plays, ages) if known is None else known


@lru_cache(maxsize=64)
def compute_bound(P: bytes, chance: bytes, pay: bytes, shape: tuple[int, int, int], plays: float, ages: int) -> float:
    K, L, S = shape
    paid = np.frombuffer(pay).reshape(K, L, S)
    chances = np.frombuffer(chance).reshape(K, L)
    world = whittle_lagrangian.channels(np.frombuffer(P).reshape(K, S, S), paid, chances, ages)
    return whittle_lagrangian.bound(world, plays, float(paid.min()), float(paid.max()))
