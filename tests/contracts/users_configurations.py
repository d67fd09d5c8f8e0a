"""Decentralised policies with variants that take other branches, and different bands without a base station."""

from typing import Any

import idleband as ib
from idleband.policies.protocol import ALL_AVAILABLE, COLLISIONS_SEEN, CONTROL_BITS, OWN_STATES_SEEN
from idleband.policies.registry import DECENTRALISED, ConfiguredPolicy, policy

# With stages that are short enough to be reached in a few hundred slots.
SHORT: dict[str, dict[str, Any]] = {
    "musical-chairs": {"learning": 40},
    "dynamic-musical-chairs": {"learning": 20, "epoch": 60},
    "game-of-thrones": {"c1": 10, "c2": 20, "c3": 5},
    "dsee-users": {"D": 1.0},
    "belief-beacons": {"rewards": 3},
    "belief-groups": {"look": 20},
}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mctopm": [{"collision_first": True}],
    "game-of-thrones": [{"c1": 5, "c2": 30, "c3": 2, "d": 0.5, "epsilon": 0.3, "c": 0.5}],
    "belief-groups": [{"look": 8, "guests": False, "redraw": 1, "forget": 50.0}],
    "lbt-sticky": [{"window": 1, "max_window": 1}],
}

USERS: dict[str, ConfiguredPolicy] = {
    configured.label: configured
    for name in DECENTRALISED
    if DECENTRALISED[name].source is None
    for configured in (
        policy(name, **SHORT.get(name, {})),
        *(policy(name, **variant) for variant in VARIANTS.get(name, [])),
    )
}


def _independent(means: list[float], count: int, **users: Any) -> dict[str, Any]:
    return {
        "transition": [[[1 - mean, mean]] * 2 for mean in means],
        "rewards": [0.0, 1.0],
        "reward": "additive",
        "perturbation": "none",
        "context": {"dimension": 1},
        "users": {"count": count, **users},
    }


MEANS = [0.2, 0.9, 0.5, 0.7]

SETTINGS: dict[str, dict[str, Any]] = {
    "independent": _independent(MEANS, 2),
    "as many users as channels": _independent(MEANS, 4),
    "one user": _independent(MEANS, 1),
    "one channel": _independent([0.6], 1),
    "channels come and go": {
        **_independent(MEANS, 3),
        "availability": [[1] * 4, [0, 1, 1, 1], [1] * 4, [1, 0, 0, 0], [0] * 4, [1] * 4, [1] * 4],
    },
    "one of the colliding users earns": _independent(MEANS, 3, collision="one"),
    "colliding users share": _independent(MEANS, 3, collision="split"),
    "unequal users": _independent(MEANS, 2, quality=[[0.1, 0.9, 0.5, 1.0], [1.0, 0.0, 0.3, 0.7]]),
    "users arrive and leave": _independent(MEANS, 3, arrive=[1, 40, 90], leave=[0, 150, 0]),
    "short stays": _independent(MEANS, 3, mean_stay=60, mean_absence=20),
    "without states": _independent(MEANS, 2, observes="collisions"),
    "rewards alone": _independent(MEANS, 2, observes="rewards"),
    "perturbed": {
        "p01": [0.1, 0.3, 0.6, 0.2],
        "p10": [0.4, 0.2, 0.3, 0.6],
        "context": {"dimension": 2},
        "perturbation": {"clear": 0.9, "noise": 0.1},
        "users": {"count": 2},
        "sensing_errors": {"missed": 0.1, "false_alarm": 0.2},
        "switching_cost": 0.1,
    },
}


def band(label: str, where: str) -> ib.Scenario:
    """Return a scenario, with the control minislots that the policy needs."""
    bits = 1 if CONTROL_BITS in USERS[label].policy.knows else 0
    settings = SETTINGS[where]
    return ib.scenario(
        {**settings, "name": where, "users": {"coordination": "none", "control_bits": bits, **settings["users"]}}
    )


def fits(label: str, where: str) -> bool:
    """Return whether users observe what the policy needs."""
    knows = USERS[label].policy.knows
    observes = SETTINGS[where]["users"].get("observes", "sensing")
    if ALL_AVAILABLE in knows and not any(all(row) for row in SETTINGS[where].get("availability", [[1]])):
        return False
    return not (
        (observes == "rewards" and COLLISIONS_SEEN in knows) or (observes != "sensing" and OWN_STATES_SEEN in knows)
    )


PAIRS = [(label, where) for label in USERS for where in SETTINGS if fits(label, where)]
