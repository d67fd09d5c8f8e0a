"""A policy of single users that is stepped by hand in an environment."""

from typing import Any, NamedTuple

import numpy as np

import idleband as ib
from idleband.kernels import rng
from idleband.policies.knowledge import setup_of_user
from idleband.policies.protocol import Slot
from idleband.policies.registry import ConfiguredPolicy
from idleband.policies.state_template import copied


class Stepped(NamedTuple):
    environment: ib.UsersEnvironment
    states: dict[int, Any]  # of each user, at the end of its last stay


def step_policy(
    scenario: ib.Scenario, configured: ConfiguredPolicy, horizon: int, seed: int, replication: int, halves: bool = True
) -> Stepped:
    """Let an instance of a policy choose for each user; `halves`: call `play` and `send` instead of `step`."""
    functions = configured.policy
    select, update, signal, hear = (
        getattr(f, "dispatcher", f) for f in (functions.select, functions.update, functions.signal, functions.hear)
    )
    setup = setup_of_user(scenario, configured.params, functions.knows, horizon)
    environment = ib.UsersEnvironment(scenario, horizon=horizon, seed=seed, replication=replication)
    K, members, stays = scenario.K, dict[int, Any](), [0] * scenario.users
    hidden, indices, scratch = np.full(K, np.nan), np.zeros(K), np.zeros(2 * K)
    seen, done, heard = environment.reset(), False, np.zeros(0, np.int64)
    while not done:
        slots: dict[int, Slot] = {}
        channels: dict[int, int | str | None] = {}
        for j, own in seen.users.items():
            if own == 1:
                members[j] = copied(setup), rng.stream(seed, replication, rng.USERS, j, stays[j])
                members[j] = (*members[j], functions.init(members[j][0]))
                stays[j] += 1
            mine, stream, state = members[j]
            slots[j] = Slot(own, seen.contexts, seen.available, seen.sensed, hidden, indices, scratch, stream)
            picks = np.zeros(K, np.int64)
            channels[j] = int(picks[0]) if select(mine, state, slots[j], picks) else None
        if not halves:
            _, feedback, seen, done = environment.step(channels)
        else:
            feedback = environment.play(channels)
        for j, one in feedback.items():
            update(members[j][0], members[j][2], slots[j], one)
        if halves:
            sends = {}
            for j in slots if signal is not None and seen.heard.size else ():
                minislots = np.zeros(seen.heard.size, np.int64)
                signal(members[j][0], members[j][2], slots[j], minislots)
                sends[j] = np.flatnonzero(minislots)
            _, again, seen, done = environment.send(sends or None)
            assert again is feedback
        heard = seen.heard
        for j in slots if hear is not None and heard.size else ():
            hear(members[j][0], members[j][2], slots[j], heard)
    return Stepped(environment, {j: member[2] for j, member in members.items()})
