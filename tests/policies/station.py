"""A base station driven by hand: a policy's own functions, slot by slot, on states that the test writes down."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from idleband.kernels.rng import POLICY, stream
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import PARAMETERS, Feedback, Slot
from idleband.policies.registry import policy
from idleband.scenario.build import scenario
from idleband.scenario.reward import REWARDS, reward
from idleband.simulation.path import path_parameters


class Station:
    """K channels that are good half the time, unless `world` has its own; picks are channel numbers from 0."""

    def __init__(
        self, name: str, K: int = 0, M: int = 1, *, world: dict[str, Any] | None = None, **parameters: Any
    ) -> None:
        self.case = policy(name, **parameters)
        settings = {"context": {"dimension": 2}, "perturbation": {"theta": [0.0, 0.0]}, **(world or {})}
        if not {"transition", "p01"} & set(settings):
            settings |= {"p01": [0.5] * K, "p10": [0.5] * K}
        self.scenario = scenario(users=M, **settings)
        self.setup = setup_of(self.scenario, self.case.params)
        theta, means = path_parameters(self.scenario, 0, 0)
        truth = (truth_of(self.scenario, theta, means),) if PARAMETERS in self.case.policy.knows else ()
        self.state = self.case.policy.init(self.setup, *truth)
        self.rng = stream(0, 0, POLICY)
        self.t = 0
        self.slot: Slot

    def choose(self, *, x: Any = None, available: Any = None, sensed: Any = None, n: Any = None) -> list[int]:
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
        count = self.case.policy.select(self.setup, self.state, self.slot, picks)
        return [int(k) for k in picks[:count]]

    def learn(self, k: int, s: int, n: float = 0.0) -> None:
        kind = REWARDS.index(self.scenario.reward)
        r = reward(kind, self.setup.h[k, s], self.setup.good[k, s], n)
        measured = n if self.setup.measured else np.nan
        self.case.policy.update(self.setup, self.state, self.slot, Feedback(k, s, r, measured))

    def play(self, states: Sequence[int], n: Sequence[float] | None = None, **seen: Any) -> list[int]:
        """One slot in which channel k is in states[k]; the channels that were picked."""
        if PARAMETERS in self.case.policy.knows:  # an oracle is told beforehand
            seen["n"] = np.zeros(self.setup.K) if n is None else n
        picks = self.choose(**seen)
        for k in picks:
            self.learn(k, states[k], 0.0 if n is None else n[k])
        return picks


ADDITIVE = {"reward": "additive", "perturbation": {"theta": [0.6, 0.9]}}  # rewards in [0.1 - 1.5, 1]: no two means tie


class Recount:
    """Beside a station under the additive reward: all that was ever seen, from which a test makes indices anew."""

    def __init__(self, station: Station) -> None:
        self.station, self.values = station, station.case.values
        self.seen: list[tuple[int, int, float]] = []  # slot, channel, reward

    def learn(self, k: int, s: int, n: float) -> None:
        self.station.learn(k, s, n)
        self.seen.append((self.station.slot.t, k, float(self.station.setup.h[k, s]) - n))


def best(indices: np.ndarray, available: np.ndarray, M: int) -> list[int]:
    """The M available channels with the largest indices, by sorting."""
    order = [k for k in np.argsort(-indices, kind="stable").tolist() if available[k]]
    return sorted(order[:M])
