"""Sample paths slot by slot, and statistics of them with bounds from their own variance."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import idleband as ib
from idleband.kernels import compile
from idleband.simulation.environment import SamplePath, advance, enter
from idleband.simulation.path import new_path

BATCHES = 64
SLOTS = BATCHES * 4096
DEVIATIONS = 5.5  # of a Student t variable with 63 degrees of freedom: exceeded with probability 8e-7

Array = npt.NDArray[Any]


class Walk(NamedTuple):
    """What happened in every slot."""

    states: Array  # (T, K)
    observed: Array  # (T, K)
    hit: Array  # (T, K) whether a shock hits a channel
    regime: Array  # (T,)
    theta: Array  # (T, K, size)
    contexts: Array  # (T, K, d)
    perturbation: Array  # (T, K)


def record(path: SamplePath, walk: Walk) -> None:
    """Record every slot of a path from its start."""
    enter(path)
    for t in range(walk.states.shape[0]):
        advance(path)
        walk.regime[t] = path.process.regime.current[0]
        for k in range(path.s.size):
            walk.states[t, k] = path.s[k]
            walk.observed[t, k] = path.observed[k]
            walk.hit[t, k] = path.process.shock.hit[k]
            walk.perturbation[t, k] = path.n[k]
            for i in range(path.x.shape[1]):
                walk.contexts[t, k, i] = path.x[k, i]
            for i in range(path.theta.shape[1]):
                walk.theta[t, k, i] = path.theta[k, i]


compiled = compile.specialise(record, "tests_record", {})


def walk(scenario: ib.Scenario, slots: int = SLOTS, seed: int = 0, replication: int = 0) -> Walk:
    """Return a sample path of a scenario."""
    theta = scenario.theta(seed, replication)
    K = scenario.K
    found = Walk(
        np.zeros((slots, K), np.int8), np.zeros((slots, K), np.int8), np.zeros((slots, K), np.bool_),
        np.zeros(slots, np.int8), np.zeros((slots, *theta.shape)), np.zeros((slots, K, scenario.dimension)),
        np.zeros((slots, K)),
    )  # fmt: skip
    compiled(new_path(scenario, seed, replication, theta), found)
    return found


def check_mean(values: Array, expected: Any, largest_error: float) -> None:
    """Check the mean over slots by batch means; its standard error must be small enough for the check to mean much."""
    batches = (
        values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1, *values.shape[1:]).mean(axis=1, dtype=float)
    )
    error = batches.std(axis=0, ddof=1) / np.sqrt(BATCHES)
    assert np.all(error < largest_error), error
    deviation = np.abs(batches.mean(axis=0) - expected)
    assert np.all(deviation <= DEVIATIONS * error + 1e-12), (deviation, error)


def check_channels(scenario: ib.Scenario, states: Array, largest_error: float) -> None:
    """Check the shares of good slots and of transitions against those that the scenario states."""
    check_mean(states, scenario.good_shares, largest_error)
    P = np.array(scenario.marginal_transition)
    before, after = states[:-1] == 1, states[1:] == 1
    check_mean((before & ~after) - P[:, 1, 0] * before, 0.0, largest_error)
    check_mean((~before & after) - P[:, 0, 1] * ~before, 0.0, largest_error)


def refused(table: dict[str, Any]) -> str:
    """Return the message, one line, with which a scenario is refused."""
    with pytest.raises(ib.InputError) as caught:
        ib.scenario(table)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message


def check_round_trip(scenario: ib.Scenario) -> None:
    """Check that a scenario is the same after it was written as a dictionary."""
    again = ib.scenario(scenario.to_dict())
    assert again == scenario
    assert hash(again) == hash(scenario)
    assert again.to_dict() == scenario.to_dict()
    for a, b in zip(again.marginal_transition, scenario.marginal_transition, strict=True):
        np.testing.assert_array_equal(a, b)
