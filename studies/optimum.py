"""Compare the upper bound, oracles and mp-belief with the exact optimum of small instances.

    python studies/optimum.py            # less than three minutes on one core
    python studies/optimum.py --quick    # a short run that checks that the study works; writes nothing

Two to four channels with and without contexts (linear model, P(n < 1) = 0.7, threshold reward), T = 10^5 slots, 24
replications, with a seed that was not used while the policies were developed. mp-belief starts without knowledge of the
chains, so that its shares include what learning costs.

The reward of the genie on the same slots is a control variate: its mean is known (`ib.optimum` with every channel
sensed), and its deviation in a replication explains most of the deviation of a policy's reward. The share is the value
of the regression line at the genie's mean.

Writes optimum.md beside this file.
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import idleband as ib
from idleband.arrays import Floats
from idleband.scenario.upper_bound import bound

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED, TOLERANCE = 100_000, 24, 23, 2e-5
POLICIES = ("oracle-whittle", "oracle-belief", "mp-belief", "mp-belief-lucb")
RUN = POLICIES

# p01 and p10 of the channels, by what they are like.
CHAINS = {
    "two, unequal": ([0.1, 0.2], [0.1, 0.3]),
    "two, alternating": ([0.8, 0.6], [0.9, 0.7]),
    "two, slow": ([0.01, 0.02], [0.02, 0.03]),
    "three, equal": ([0.1] * 3, [0.2] * 3),
    "three, unequal": ([0.1, 0.2, 0.05], [0.1, 0.3, 0.05]),
    "three, mixed": ([0.1, 0.8, 0.4], [0.2, 0.7, 0.6]),
    "four, unequal": ([0.1, 0.2, 0.3, 0.3], [0.1, 0.3, 0.2, 0.4]),
}
INSTANCES = (
    ("two, unequal", 1), ("two, alternating", 1), ("two, slow", 1), ("three, equal", 1), ("three, unequal", 2),
    ("three, mixed", 1), ("four, unequal", 2),
)  # fmt: skip
HEAD = ("channels", "M", "contexts", "optimum", "upper bound", *POLICIES, "states")


def instance(chains: str, users: int, contexts: bool) -> ib.Scenario:
    """Return the scenario of a row."""
    p01, p10 = CHAINS[chains]
    perturbation: Any = {"kind": "linear", "clear": 0.7} if contexts else "none"
    return ib.scenario(p01=p01, p10=p10, users=users, perturbation=perturbation)


def at_known_mean(values: Floats, control: Floats, mean: float) -> tuple[float, float]:
    """Return the value of the regression line of values on the control at its mean, and half the 95% interval."""
    R, centred = len(values), control - control.mean()
    slope = float(centred @ values / (centred @ centred))
    left = values - values.mean() - slope * centred
    spread = math.sqrt(float(left @ left) / (R - 2))
    error = spread * math.sqrt(1 / R + (control.mean() - mean) ** 2 / float(centred @ centred))
    return float(values.mean()) + slope * (mean - float(control.mean())), float(stdtrit(R - 2, 0.975)) * error


def row(chains: str, users: int, contexts: bool) -> list[str]:
    """Return the optimum, and everything else in percent of it, policies with half the width of the 95% interval."""
    scenario = instance(chains, users, contexts)
    found = ib.optimum(scenario, seed=SEED, tolerance=TOLERANCE)
    genie = ib.optimum(ib.scenario(scenario, sensing="all"), seed=SEED).value
    limit = bound(scenario, found.theta)
    assert limit is not None
    cells = [chains, str(users), "yes" if contexts else "no", f"{found.value:.4f}", f"{100 * limit / found.value:.1f}%"]
    for policy in POLICIES:
        if policy not in RUN or (policy == "mp-belief-lucb" and not contexts):
            cells.append("-")
            continue
        result = ib.simulate(scenario, policy, horizon=HORIZON, replications=REPLICATIONS, seed=SEED)
        reward = np.asarray(result.reward[:, -1]) / HORIZON
        control = reward + np.asarray(result.regret("genie")[:, -1]) / HORIZON
        share, half = at_known_mean(100 * reward / found.value, control, genie)
        cells.append(f"{share:.2f}% +-{half:.2f}")
    return [*cells, f"{found.states:,}"]


def main() -> None:
    global HORIZON, REPLICATIONS, RUN
    quick = sys.argv[1:] == ["--quick"]
    instances = INSTANCES
    if quick:
        HORIZON, REPLICATIONS, RUN, instances = 2000, 4, POLICIES[:2], INSTANCES[:1]
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    print("\n".join(lines))
    for contexts in (False, True):
        for chains, users in instances:
            lines.append("| " + " | ".join(row(chains, users, contexts)) + " |")
            print(lines[-1], flush=True)
    if not quick:
        (HERE / "optimum.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
