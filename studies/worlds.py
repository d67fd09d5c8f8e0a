"""Compare policies without contexts in scenarios whose channels are not independent, error-free Markov chains.

    python studies/worlds.py            # less than ten minutes on two cores
    python studies/worlds.py --quick    # a short run that checks that the study works; writes nothing

S1 and S4 without perturbation, T = 10^5 slots, 10 replications, with a seed that was not used while the policies were
developed. Each world changes one setting. All policies of the package run that use neither contexts nor knowledge of
the scenario, and mp-belief with forgetting. References: oracle-belief and oracle-whittle, which know only the long-run
p01 and p10 and assume independent Markov chains observed without errors; the genie, which knows the states of the slot;
and, where it holds, the upper bound for policies that observe played channels only.

Writes worlds.md beside this file.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

import idleband as ib
from idleband.arrays import Floats
from idleband.experiments.run import StudyRequest, run_experiments
from idleband.experiments.spec import every_policy, experiment
from idleband.experiments.study import Study
from idleband.policies.protocol import CONTEXTS_SEEN
from idleband.policies.registry import ConfiguredPolicy
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound
from idleband.simulation.statistics import interval

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED = 100_000, 10, 13
SCENARIOS = ("S1", "S4")
ORACLES = ("oracle-belief", "oracle-whittle")
REFERENCE = "oracle-whittle"
WORLDS = (
    "undisturbed", "regular", "bursty", "reversed at T/2", "random regimes", "shocks", "correlation",
    "sensing errors", "switching cost",
)  # fmt: skip


def world(name: str, kind: str) -> Scenario:
    """Return a scenario in a world."""
    plain = ib.scenario(name, perturbation="none", context={"dimension": 1})
    p01, p10 = ([float(P[i]) for P in plain.transition] for i in ((0, 1), (1, 0)))
    both = {"p01": [p01, p01[::-1]], "p10": [p10, p10[::-1]]}  # channel k gets the chain of channel K - 1 - k
    more_regular = {"kind": "negative-binomial", "shape": 4.0}
    more_variable = {"kind": "weibull", "shape": 0.6}
    settings: dict[str, dict[str, Any]] = {
        "undisturbed": {},
        "regular": {"dwell": {"good": more_regular, "bad": more_regular}},
        "bursty": {"dwell": {"good": more_variable, "bad": more_variable}},
        "reversed at T/2": {"regimes": {**both, "at": [HORIZON // 2 + 1]}},
        "random regimes": {"regimes": {**both, "transition": [[0.9998, 0.0002], [0.0002, 0.9998]]}},
        "shocks": {"shocks": {"start": 0.005, "end": 0.05, "share": 0.7}},
        "correlation": {"correlation": {"common": 0.5}},
        "sensing errors": {"sensing_errors": {"missed": 0.1, "false_alarm": 0.1}},
        "switching cost": {"switching_cost": 0.05},
    }
    return ib.scenario(plain, name=f"{name} {kind.replace('/', ' by ')}", **settings[kind])


def policies() -> list[ConfiguredPolicy]:
    """Return the policies that are compared, and the oracles."""
    learning = [one for one in every_policy() if not one.policy.knows and CONTEXTS_SEEN not in one.policy.knows]
    return [*learning, ib.policy("mp-belief", forget=5000.0), *map(ib.policy, ORACLES)]


def per_slot(study: Study, label: str) -> Floats:
    """Return the reward per slot of a policy, per replication."""
    return np.asarray(study[label].reward[:, -1] / study[label].t[-1])


def table(studies: dict[tuple[str, str], Study]) -> list[str]:
    """Return a table of rewards per slot, with the share of the reference in percent."""
    lines = ["| policy | scenario | " + " | ".join(WORLDS) + " |", "|---|---|" + "---|" * len(WORLDS)]
    labels = [label for label in studies[SCENARIOS[0], WORLDS[0]].labels if label not in ORACLES]
    for label, name in itertools.product((*labels, *ORACLES, "genie", "upper bound"), SCENARIOS):
        cells = [cell(studies[name, kind], label) for kind in WORLDS]
        lines.append(f"| {label} | {name} | " + " | ".join(cells) + " |")
    return lines


def cell(study: Study, label: str) -> str:
    """Return the reward per slot, and the share with half the width of its 95% interval."""
    reference = per_slot(study, REFERENCE)
    if label == "upper bound":
        limit = bound(study.scenario)
        return "-" if limit is None else f"{limit:.3f} ({100 * limit / reference.mean():.1f}%)"
    if label == "genie":
        result = study[REFERENCE]
        reward = np.asarray((result.regret("genie") + result.reward)[:, -1] / result.t[-1])
    else:
        reward = per_slot(study, label)
    if label == REFERENCE:
        return f"{reward.mean():.3f}"
    share = interval(100 * reward / reference)
    return f"{reward.mean():.3f} ({share.mean:.1f}% ±{share.high - share.mean:.1f})"


def main() -> None:
    global HORIZON, REPLICATIONS, SCENARIOS
    quick = sys.argv[1:] == ["--quick"]
    compared = policies()
    if quick:
        HORIZON, REPLICATIONS, SCENARIOS = 2000, 2, ("S4",)
        compared = [ib.policy(name) for name in ("mp-ucb", *ORACLES)]
    places = list(itertools.product(SCENARIOS, WORLDS))
    requests = [
        StudyRequest(experiment(world(name, kind), compared, HORIZON, REPLICATIONS, SEED)) for name, kind in places
    ]
    text = "\n".join(table(dict(zip(places, run_experiments(requests), strict=True)))) + "\n"
    print(text)
    if not quick:
        (HERE / "worlds.md").write_text(text)


if __name__ == "__main__":
    main()
