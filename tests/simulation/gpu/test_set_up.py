"""Streams and thetas that are drawn on the GPU are those of the CPU: streams bit by bit, thetas to within 1e-9."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels import rng
from idleband.simulation.gpu.layout import Array
from idleband.simulation.gpu.replications import Simulation
from idleband.simulation.gpu.set_up import draws_on_gpu
from idleband.simulation.path import path_parameters

SEED, COUNT = 2**63 - 1, 12
COUNTED = {"cosine": 1e-2}  # where the CPU counts a sample of contexts


def set_up(
    scenario: ib.Scenario, which: list[int], seed: int = SEED, narrow: bool = False
) -> tuple[Simulation, list[Array]]:
    simulation = Simulation(scenario, ib.policy("mp-ucb"), 10, seed, narrow=narrow)
    memory = simulation._new_memory(len(which))
    simulation._set_up_batch(which, memory, 1)
    return simulation, [simulation._rows(memory, array) for array in (simulation.path.theta, simulation.path.state_rng)]


@pytest.mark.parametrize("kind", ["linear", "quadratic", "cosine"])
@pytest.mark.parametrize("d", [3, 8])
def test_thetas_are_those_of_the_cpu(kind: str, d: int) -> None:
    scenario = ib.scenario("S1", context={"dimension": d}, perturbation=kind)
    _, (theta, _) = set_up(scenario, list(range(COUNT)), seed=5)
    wanted = np.array([path_parameters(scenario, 5, i)[0][0] for i in range(COUNT)])
    errors = np.abs(theta - wanted).max(axis=1)
    assert np.sort(errors)[COUNT - 3] < 1e-9  # all but two
    assert errors.max() < COUNTED.get(kind, 1e-9)


@pytest.mark.parametrize("kind", ["linear", "quadratic"])
def test_each_channel_has_its_theta(kind: str) -> None:
    scenario = ib.scenario("S1", perturbation={"kind": kind, "per_channel": True})
    _, (theta, _) = set_up(scenario, [0, 7])
    wanted = np.array([path_parameters(scenario, SEED, i)[0] for i in (0, 7)])
    errors = np.abs(theta.reshape(wanted.shape) - wanted).max(axis=2)
    assert (errors < 1e-9).sum() == 19  # of 20; the CPU counts a sample for the other one
    assert errors.max() < 0.01


@pytest.mark.parametrize("seed", [0, 1, SEED])
def test_streams_are_equal_bit_by_bit(seed: int) -> None:
    which = [0, 1, 31, 999_999]
    simulation, (_, states) = set_up(ib.scenario("S1"), which, seed)
    for row, replication in zip(states, which, strict=True):
        assert np.array_equal(row, rng.streams(seed, replication)[rng.STATES])
    assert sum(leaf.type == "uint64" for leaf in simulation.layout.leaves.values()) >= 3


def test_thetas_in_float32_are_rounded() -> None:
    _, (wide, _) = set_up(ib.scenario("S1"), [0, 1])
    _, (narrow, _) = set_up(ib.scenario("S1"), [0, 1], narrow=True)
    assert narrow.dtype == np.float32
    assert np.array_equal(wide.astype(np.float32), narrow)


@pytest.mark.parametrize(
    ("changes", "drawn"),
    [
        ({}, True),
        ({"perturbation": {"noise": 0.1}}, False),
        ({"perturbation": {"drift": 100}}, False),
        ({"perturbation": {"theta_norm": 0.8}}, False),
        ({"perturbation": "none"}, False),
        ({"reward": "additive"}, False),
        ({"context": {"kind": "ar1", "correlation": 0.5}}, True),
        ({"context": {"kind": "ar1", "correlation": 0.5, "margin": "normal"}}, False),
        ({"context": {"dimension": 16}}, False),
    ],
)
def test_which_thetas_are_drawn_on_the_gpu(changes: dict[str, Any], drawn: bool) -> None:
    assert draws_on_gpu(ib.scenario("S1", **changes)) == drawn
