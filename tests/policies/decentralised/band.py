"""Bands for users without a base station: independent channels, and a single user who is called slot by slot."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import idleband as ib
from idleband.kernels.rng import USERS, stream
from idleband.policies.knowledge import setup_of_user
from idleband.policies.protocol import Feedback, Slot
from idleband.simulation.users_run import UsersRun, start_run

MEANS = tuple((k + 1) / 10 for k in range(9))  # those of published experiments


def independent(means: Sequence[float], M: int, *, availability: Any = None, **users: Any) -> ib.Scenario:
    """Return channels that pay 1 with the given probabilities, independently in every slot, and 0 otherwise."""
    means = [min(max(mean, 1e-12), 1 - 1e-12) for mean in means]  # all states must be possible
    return ib.scenario(
        transition=[[[1 - mean, mean]] * 2 for mean in means],
        rewards=[0.0, 1.0],
        reward="additive",
        perturbation="none",
        context={"dimension": 1},
        availability=availability,
        users={"count": M, "coordination": "none", **users},
    )


def started(
    scenario: ib.Scenario, name: str, slots: int, *, seed: int = 1, replication: int = 0, **parameters: Any
) -> UsersRun:
    found = start_run(scenario, ib.policy(name, **parameters), slots, seed, replication)
    assert isinstance(found, UsersRun)
    return found


def ran(scenario: ib.Scenario, name: str, slots: int, **settings: Any) -> UsersRun:
    """Return a run of that many slots, which are also its horizon."""
    found = started(scenario, name, slots, **settings)
    found.to(slots)
    return found


def picks_of(run: UsersRun, slots: int) -> np.ndarray:
    """Run slot by slot; return the channel of each user in each slot, shape (slots, users)."""
    rows = []
    for t in range(run.at + 1, run.at + slots + 1):
        run.to(t)
        rows.append(run.tally.picks.copy())
    return np.array(rows)


class User:
    """A user on a band of K channels, who receives the feedback that a test chooses. Rewards lie in [0, 1]."""

    def __init__(self, name: str, K: int, M: int = 1, horizon: int = 1000, **parameters: Any) -> None:
        self.configured = ib.policy(name, **parameters)
        scenario = independent([0.5] * K, M)
        policy = self.configured.policy
        self.setup = setup_of_user(scenario, self.configured.params, policy.knows, horizon)
        self.state = policy.init(self.setup)
        self.rng = stream(0, 0, USERS, 0, 0)
        self.t = 0
        self.slot: Slot

    def choose(self, available: Sequence[bool] | None = None) -> int | None:
        """Begin the next slot and return the channel of the user, None if it is silent."""
        K = self.setup.K
        self.t += 1
        usable = np.ones(K, np.bool_) if available is None else np.array(available, np.bool_)
        self.slot = Slot(
            self.t, np.zeros((K, 1)), usable, np.full(K, -1, np.int64), np.full(K, np.nan), np.zeros(K),
            np.zeros(2 * K), self.rng,
        )  # fmt: skip
        picks = np.zeros(K, np.int64)
        return int(picks[0]) if self.configured.policy.select(self.setup, self.state, self.slot, picks) else None

    def learn(self, channel: int, good: int, collides: bool = False) -> None:
        """Report whether the channel was good and whether others played it, in which case the reward is lost."""
        reward = 0.0 if collides else float(good)
        feedback = Feedback(channel, good, reward, 0.0, int(collides))
        self.configured.policy.update(self.setup, self.state, self.slot, feedback)
