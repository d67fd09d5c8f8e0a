"""A base station that calls the functions of a policy slot by slot, on states that a test chooses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from idleband.kernels.rng import POLICY, stream
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import PARAMETERS, Feedback, Slot
from idleband.policies.registry import policy
from idleband.scenario import build
from idleband.scenario.reward import REWARDS, reward
from idleband.simulation.path import path_parameters


class Station:
    """A policy on a scenario of K channels that are good in half of the slots, unless `scenario` has other channels.

    `scenario` contains settings of `idleband.scenario`.
    """

    def __init__(
        self, name: str, K: int = 0, M: int = 1, *, scenario: dict[str, Any] | None = None, **parameters: Any
    ) -> None:
        self.configured = policy(name, **parameters)
        settings = {"context": {"dimension": 2}, "perturbation": {"theta": [0.0, 0.0]}, **(scenario or {})}
        if not {"transition", "p01"} & set(settings):
            settings |= {"p01": [0.5] * K, "p10": [0.5] * K}
        self.scenario = build.scenario(users=M, **settings)
        self.setup = setup_of(self.scenario, self.configured.params)
        theta, means = path_parameters(self.scenario, 0, 0)
        truth = (truth_of(self.scenario, theta, means),) if PARAMETERS in self.configured.policy.knows else ()
        self.state = self.configured.policy.init(self.setup, *truth)
        self.rng = stream(0, 0, POLICY)
        self.t = 0
        self.slot: Slot

    def choose(self, *, x: Any = None, available: Any = None, sensed: Any = None, n: Any = None) -> list[int]:
        """Begin the next slot and return the channels that the policy selects."""
        K, d = self.setup.K, self.setup.d
        self.t += 1
        self.slot = Slot(
            self.t,
            np.zeros((K, d)) if x is None else np.array(x, float),
            np.ones(K, np.bool_) if available is None else np.array(available, np.bool_),
            np.full(K, -1, np.int64) if sensed is None else np.array(sensed, np.int64),
            np.full(K, np.nan) if n is None else np.array(n, float),
            np.zeros(K),
            np.zeros(2 * K),
            self.rng,
        )
        picks = np.zeros(K, np.int64)
        count = self.configured.policy.select(self.setup, self.state, self.slot, picks)
        return [int(k) for k in picks[:count]]

    def learn(self, k: int, s: int, n: float = 0.0) -> None:
        """Report state s and perturbation n of channel k in the slot `self.slot`."""
        kind = REWARDS.index(self.scenario.reward)
        r = reward(kind, self.setup.h[k, s], self.setup.good[k, s], n)
        measured = n if self.setup.measured else np.nan
        self.configured.policy.update(self.setup, self.state, self.slot, Feedback(k, s, r, measured, 0))

    def play(self, states: Sequence[int], n: Sequence[float] | None = None, **slot: Any) -> list[int]:
        """Play one slot in which channel k is in states[k], report it, and return the selected channels."""
        if PARAMETERS in self.configured.policy.knows:  # oracles observe the perturbations before they select
            slot["n"] = np.zeros(self.setup.K) if n is None else n
        picks = self.choose(**slot)
        for k in picks:
            self.learn(k, states[k], 0.0 if n is None else n[k])
        return picks


ADDITIVE = {
    "reward": "additive",
    "perturbation": {"theta": [0.6, 0.9]},
}  # rewards in [0.1 - 1.5, 1]; no two means are equal


class Recount:
    """Record of all feedback to a station under the additive reward, from which a test recomputes indices."""

    def __init__(self, station: Station) -> None:
        self.station, self.values = station, station.configured.values
        self.feedback: list[tuple[int, int, float]] = []  # slot, channel, reward

    def learn(self, k: int, s: int, n: float) -> None:
        """Report to the station and record the reward."""
        self.station.learn(k, s, n)
        self.feedback.append((self.station.slot.t, k, float(self.station.setup.h[k, s]) - n))


def best(indices: np.ndarray, available: np.ndarray, M: int) -> list[int]:
    """Return the M available channels with the largest indices, found by sorting."""
    order = [k for k in np.argsort(-indices, kind="stable").tolist() if available[k]]
    return sorted(order[:M])
