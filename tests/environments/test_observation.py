"""Observations of the environments of Gymnasium against a recount from `Environment`."""

import os
import re
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import idleband as ib
from idleband.environments import observation
from idleband.environments.observation import layout, limits
from tests.conftest import ROOT
from tests.contracts.configurations import EVERY

SLOTS = 30


class Recount:
    """Everything that an agent has observed, counted in plain Python."""

    def __init__(self, scenario: ib.Scenario) -> None:
        self.scenario = scenario
        self.low, self.high = scenario.reward_range()
        self.largest = [max(1, len(P) - 1) for P in scenario.transition]
        self.last: dict[int, tuple[int, int]] = {}  # state and slot
        self.rewards: dict[int, list[float]] = {}
        self.before: dict[int, float] = {}  # perturbation of channels played in the slot before

    def add(self, seen: ib.Observation, step: ib.Step) -> None:
        if self.scenario.sensing == "all":
            self.last = {k: (int(s), seen.t) for k, s in enumerate(seen.sensed)}
        for one in step.feedback:
            self.last[one.channel] = one.state, seen.t
            share = (one.reward - self.low) * (1.0 / (self.high - self.low))
            self.rewards.setdefault(one.channel, []).append(min(1.0, max(0.0, share)))
        self.before = {one.channel: one.perturbation for one in step.feedback}

    def row(self, seen: ib.Observation) -> np.ndarray:
        every = range(self.scenario.K)
        parts: list[Any] = [np.clip(seen.contexts, -3, 4).ravel(), seen.available]
        if self.scenario.sensing == "all":
            parts.append([s * (1 / m) for s, m in zip(seen.sensed, self.largest, strict=True)])
        parts.append([k in self.before for k in every])
        if self.scenario.feedback == "perturbation":
            parts.append([np.clip(self.before.get(k, 0.0), -10, 10) for k in every])
        parts.append([self.last[k][0] * (1 / self.largest[k]) if k in self.last else -1 for k in every])
        parts.append([1 / (seen.t - self.last[k][1]) if k in self.last else 0 for k in every])
        parts.append([self.rewards[k][-1] if k in self.rewards else -1 for k in every])
        parts.append([sum(self.rewards[k]) / len(self.rewards[k]) if k in self.rewards else -1 for k in every])
        return np.concatenate([np.asarray(part, float) for part in parts]).astype(np.float32)


@pytest.mark.parametrize("where", EVERY)
def test_observations_equal_a_recount(where: str) -> None:
    scenario = EVERY[where]
    environment: Any = gymnasium.make("idleband/Channels-v1", scenario=scenario, horizon=SLOTS).unwrapped
    by_hand, recount = ib.Environment(scenario, horizon=SLOTS, seed=4), Recount(scenario)
    row, info = environment.reset(seed=4)
    seen = by_hand.reset()
    environment.action_space.seed(0)
    for _ in range(SLOTS):
        assert np.array_equal(info["action_mask"], seen.available)
        assert np.array_equal(row, recount.row(seen))
        assert row in environment.observation_space
        row, _, _, _, info = environment.step(environment.action_space.sample())
        step = by_hand.step(np.flatnonzero(info["played"]))
        recount.add(seen, step)
        seen = step.observation
    assert np.array_equal(row, recount.row(seen))  # after the last slot, for the value of what follows


@pytest.mark.parametrize("where", EVERY)
def test_parts_cover_the_observation(where: str) -> None:
    scenario = EVERY[where]
    found = layout(scenario)
    low, high = limits(scenario)
    entries = np.concatenate([np.arange(low.size)[part] for part in found.values()])
    assert entries.tolist() == list(range(low.size))
    assert (low < high).all()
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert ("sensed" in found) == (scenario.sensing == "all")
    assert ("perturbation" in found) == (scenario.feedback == "perturbation")


def test_every_part_is_documented_in_its_order() -> None:
    documented = re.findall(r"^- `(\w+)`:", observation.__doc__ or "", re.MULTILINE)
    scenario = ib.scenario("S1", sensing="all", users={"coordination": "none", "control_bits": 1})
    assert documented == list(layout(scenario))


def test_nothing_is_observed_before_the_first_play() -> None:
    environment: Any = gymnasium.make("idleband/Channels-v1", scenario="S1").unwrapped
    for _ in range(2):  # also in an episode after another
        row, _ = environment.reset(seed=0)
        for name, value in {"played": 0, "perturbation": 0, "last_state": -1, "recency": 0, "mean_reward": -1}.items():
            assert (row[environment.layout[name]] == value).all(), name
        for _ in range(5):
            environment.step([1] * 10)


CODE = """
import gymnasium, idleband as ib
copies = gymnasium.make_vec("idleband/Channels-v1", num_envs=3, horizon=6, actions="scores",
                            scenario=ib.scenario("S4", perturbation={"noise": 0.1}, switching_cost=0.1))
copies.action_space.seed(0)
seen = [copies.reset(seed=5)[0].tobytes().hex()]
for _ in range(10):
    observations, rewards, *_ = copies.step(copies.action_space.sample())
    seen += [observations.tobytes().hex(), rewards.tobytes().hex()]
print(seen)
"""


def test_interpreted_equals_compiled() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, timeout=300,
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
        )
        for disabled in ("0", "1")
    ]  # fmt: skip
    assert [done.stderr for done in found] == ["", ""]
    assert found[0].stdout == found[1].stdout != ""
