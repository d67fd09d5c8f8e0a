"""Built-in policies with variants that take other branches, scenarios of different kinds, and pairs of both."""

from typing import Any

import numpy as np

import idleband as ib
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mp-swucb": [{"window": 1}, {"window": 7}, {"window": 50, "L": 0.0}],
    "mp-ducb": [{"discount": 0.0}, {"discount": 0.6}, {"discount": 1.0, "L": 0.1}],
    "mp-klucb": [{"clock": "plays"}],
    "rca-m": [{"synchronous": True}],
    "glr-klucb": [{"slots": 50, "alpha": 1.0, "delta": 1.0, "restart": "global", "every": 1}],
    "exp3-m": [{"gamma": 0.3}, {"gamma": 1.0}],
    "dsee": [{"D": 0.5, "L": 1.0}],
    "restless-ucb": [{"slots": 60, "scale": 0.2}],
    "whittle-q": [{"ages": 2, "epsilon": 0.5}],
    "c2ucb": [{"beta": 0.2, "lambda_": 0.1}, {"width": "sampled"}],
    "neural-ucb": [{"D": 4}, {"D": 4, "shared": True, "gamma": 1.0}],
    "neural-ts": [{"D": 4}, {"D": 4, "shared": True, "covariance": "diagonal"}],
    "mp-lucb": [
        {"shared": True},
        {"base": "index", "explore_first": True},
        {"target": "reward", "width": "pessimistic", "replace": "off"},
        {"frame": "rca"},
        {"width": "sampled"},
    ],
    "mp-lucb-rca": [{"synchronous": True, "shared": True}, {"width": "sampled"}],
    "mp-lucb-printed": [{"replace": "indicator"}],
    "mp-nucb": [
        {"D": 4},
        {"D": 4, "covariance": "block", "memory": 20},
        {"D": 4, "covariance": "diagonal", "shared": True},
        {"L": 3, "D": 4, "dropout": 0.1, "batch": 5, "train_every": 2},
        {"D": 4, "frame": "rca"},
    ],
    "mp-nucb-rca": [{"D": 4, "synchronous": True, "shared": True}],
    "mp-nucb-printed": [{"D": 4, "target": "prediction"}],
    "mp-ts-episodes": [{"grid": 5}],
    "mp-lbt": [{"window": 1, "max_window": 1}, {"window": 9}],
    "mp-belief": [{"look_ahead": False}, {"redraw": 1}, {"forget": 50.0}],
    "mp-belief-lucb": [
        {"shared": True},
        {"look_ahead": False, "redraw": 1},
        {"forget": 50.0},
        {"forget": 5.0, "shared": True},
    ],
    "mp-adaptive": [{"redraw": 1}, {"look_ahead": False, "forget": 50.0}],
    "mp-adaptive-lucb": [{"shared": True}, {"look_ahead": False, "redraw": 1}, {"forget": 5.0, "shared": True}],
    "mp-belief-nucb": [
        {"D": 4},
        {"D": 4, "shared": True, "forget": 50.0},
        {"D": 4, "covariance": "block", "look_ahead": False, "redraw": 1},
    ],
}

CONFIGURED: dict[str, ConfiguredPolicy] = {
    configured.label: configured
    for name in list(POLICIES)
    if POLICIES[name].source is None
    for configured in (policy(name), *(policy(name, **variant) for variant in VARIANTS.get(name, [])))
}


def module_of(label: str) -> str:
    """Return the module of a configured policy's functions, which several policies share."""
    return CONFIGURED[label].policy.select.__module__.rpartition(".")[2]


LABELS_BY_MODULE: dict[str, list[str]] = {}
for _label in CONFIGURED:
    LABELS_BY_MODULE.setdefault(module_of(_label), []).append(_label)

ONE_PER_MODULE = [labels[0] for labels in LABELS_BY_MODULE.values()]

THREE_STATES: dict[str, Any] = {
    "name": "three states",
    "transition": [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]] * 3 + [[[0.2, 0.8], [0.7, 0.3]]] * 3,
    "good": [[2]] * 3 + [[1]] * 3,
    "users": 2,
    "context": {"dimension": 3},
    "perturbation": {"theta_norm": 0.8},
}

SCENARIOS: dict[str, ib.Scenario] = {
    **{name: ib.scenario(name) for name in ("S1", "S2", "S3", "S4")},
    "three states": ib.scenario(THREE_STATES),
    "three states, additive": ib.scenario(
        THREE_STATES, reward="additive", rewards=[[0.0, 0.6, 1.0]] * 3 + [[0.2, 0.9]] * 3
    ),
    "additive": ib.scenario("S4", reward="additive", perturbation={"clear": 0.8, "per_channel": True}),
    "reward feedback": ib.scenario("S2", feedback="reward", sensing="all"),
    "reward feedback, played": ib.scenario("S4", feedback="reward"),
    "additive reward feedback": ib.scenario("S3", feedback="reward", reward="additive"),
    "quadratic": ib.scenario("S1", perturbation="quadratic"),
    "cosine": ib.scenario("S4", perturbation={"kind": "cosine", "per_channel": True}),
    "channels come and go": ib.scenario(
        "S1",
        users=3,
        availability=[[1] * 10, [0, 1] * 5, [1, 0] * 5, [0] * 9 + [1], [0] * 10, [1] * 10],
        perturbation={"noise": 0.2},
    ),
    "all channels assigned": ib.scenario(p01=[0.3, 0.2], p10=[0.2, 0.9], users=2, perturbation="none"),
    "channels of different kinds": ib.scenario(
        transition=[[[1.0]], [[0.9, 0.1], [0.4, 0.6]], THREE_STATES["transition"][0]],
        good=[[0], [0], [2]],
        users=1,
        context={"dimension": 2},
        perturbation={"theta": [-0.7, 1.9]},
    ),
    "one channel": ib.scenario(p01=[0.3], p10=[0.2], users=1, context={"dimension": 1}, perturbation={"theta": [-0.5]}),
    "many": ib.scenario(
        p01=[0.01 + 0.9 * k / 40 for k in range(40)], p10=[0.5] * 40, users=7, context={"dimension": 5}
    ),
}

_TRACE = np.random.default_rng(0)

# Settings beyond independent Markov chains that are observed without errors and cost.
WORLDS: dict[str, ib.Scenario] = {
    "dwell times": ib.scenario(
        "S4", dwell={"good": {"kind": "weibull", "shape": 0.6}, "bad": {"kind": "negative-binomial", "shape": 3.0}}
    ),
    "random regimes": ib.scenario(
        regimes={
            "p01": [[0.1, 0.2, 0.3, 0.4, 0.9], [0.3, 0.3, 0.1, 0.1, 0.2]],
            "p10": [[0.1, 0.1, 0.5, 0.3, 0.9], [0.6, 0.2, 0.1, 0.2, 0.1]],
            "transition": [[0.95, 0.05], [0.1, 0.9]],
        },
        users=2,
        context={"kind": "ar1", "correlation": 0.8, "margin": "normal", "dimension": 3},
        perturbation={"clear": 0.8, "noise": 0.1},
    ),
    "regimes at given slots": ib.scenario(
        "S1",
        regimes={"p01": [[0.1] * 10, [0.5] * 10], "p10": [[0.05 * k for k in range(1, 11)], [0.2] * 10], "at": [20]},
        perturbation={"kind": "cosine", "drift": 100, "per_channel": True},
    ),
    "shocks, all sensed with errors": ib.scenario(
        "S1",
        shocks={"start": 0.05, "end": 0.2, "share": 0.6},
        sensing="all",
        sensing_errors={"missed": 0.1, "false_alarm": 0.2},
        feedback="reward",
        sensing_time=0.1,
    ),
    "correlated channels with costs": ib.scenario(
        "S4",
        users=3,
        correlation={"common": 0.4, "neighbours": 0.5},
        switching_cost=0.1,
        sensing_time=0.05,
        reward="additive",
        context={"kind": "ar1", "correlation": 0.5},
        perturbation={"clear": 0.8},
    ),
    "sensing errors": ib.scenario(
        "S4", sensing_errors={"missed": [0.05 * k for k in range(10)], "false_alarm": 0.1}, reward="additive"
    ),
    "replay": ib.scenario(
        name="replay",
        trace=ib.Trace.from_arrays(busy=_TRACE.random((90, 6)) < 0.5, contexts=_TRACE.random((90, 6, 3))),
        users=2,
        perturbation={"clear": 0.9},
        availability=[[1] * 6, [1, 0, 1, 1, 1, 1]],
    ),
    "replay of rewards": ib.scenario(
        trace=ib.Trace.from_arrays(reward=_TRACE.random((90, 6))), users=2, reward="additive", switching_cost=0.1
    ),
}

EVERY = SCENARIOS | WORLDS


def world_of(label: str) -> str:
    """Return the world in which a configured policy runs; worlds are assigned in turn."""
    return list(WORLDS)[list(CONFIGURED).index(label) % len(WORLDS)]


def _pairs() -> list[tuple[str, str]]:
    """Return pairs of configured policy and scenario in which every module meets every scenario.

    The scenarios are assigned in turn to the configured policies of a module; each policy also runs in one world.
    """
    pairs = []
    names = list(SCENARIOS)
    for offset, labels in enumerate(LABELS_BY_MODULE.values()):
        for i in range(max(len(names), len(labels))):
            pairs.append((labels[i % len(labels)], names[(i + offset) % len(names)]))
    return pairs + [(label, world_of(label)) for label in CONFIGURED]


PAIRS = _pairs()


def slots_interpreted(label: str) -> int:
    """Return the number of slots to run without compilation: few for networks, which are slow then."""
    values = CONFIGURED[label].values
    D, L = values.get("D", 0), values.get("L", 0)
    if D == 0:
        return max(60, 3 * values.get("window", 0) if values.get("window", 0) <= 50 else 0)
    return 3 if D > 4 else 40 if L <= 2 else 16


def scenario_interpreted(label: str) -> str:
    """Return the scenario on which compiled and interpreted runs are compared: one of two, or a world, in turn.

    The Whittle index of channels with long memory takes minutes to compute without compilation; the channels of S2 have
    none.
    """
    if CONFIGURED[label].values.get("value") == "whittle":
        return "S2"
    return ("S1", world_of(label), "channels come and go")[list(CONFIGURED).index(label) % 3]
