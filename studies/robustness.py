"""Measure the loss of policies in environments that violate their assumptions, and the effect of forgetting.

    python studies/robustness.py            # about ten minutes on two cores
    python studies/robustness.py --quick    # a short run that checks that the study works; writes nothing

Four disturbances of S1 and S4, T = 10^5 slots, 20 replications, with seeds that were not used while the policies were
developed:
    reversed    from the middle on channel k has the chain of channel K - 1 - k: the best channels become the worst
    regular     dwell times with the mean m of the chain, uniform on 1 to 2m - 1 instead of geometric
    bursty      the same means, nine of ten dwells a third as long on average (at least one slot)
    drifting    theta of the linear model moves in a straight line from one draw to another during the run
The first three are without perturbation. The share of a policy is its reward divided by that of an oracle on the same
draws: oracle-whittle, which assumes Markov chains; with drift oracle-belief, which observes every perturbation. The
loss is the share without disturbance minus the share with it. After the reversal only the second half counts, and the
oracle is that of the reversed channels.

Writes robustness.md beside this file and a figure into docs/figures.
"""

import itertools
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import idleband as ib
from idleband.arrays import Floats
from idleband.policies.registry import ConfiguredPolicy
from idleband.reporting.plots import COLOURS
from idleband.scenario.scenario import Scenario
from idleband.simulation.run import PolicyRun
from idleband.simulation.scheduler import cores
from idleband.simulation.statistics import interval

HERE = Path(__file__).parent
HORIZON, REPLICATIONS, SEED = 100_000, 20, 11
STEP = 1000  # slots between two points of the figure
SCENARIOS = ("S1", "S4")
POLICIES = [
    ib.policy(name, **parameters)
    for name, parameters in (
        ("mp-belief", {}),
        ("mp-belief", {"forget": 5000.0}),
        ("mp-belief-lucb", {}),
        ("mp-belief-lucb", {"forget": 5000.0}),
        ("mp-ts-episodes", {}),
        ("mp-whittle", {}),
        ("mp-lucb", {}),
        ("mp-ucb", {}),
        ("mp-klucb", {}),
        ("mp-ts", {}),
        ("mp-swucb", {}),
        ("mp-ducb", {}),
        ("rca-m", {}),
    )
]  # fmt: skip
DISTURBANCES = ("undisturbed", "reversed", "regular", "bursty", "undisturbed, linear model", "drifting")


# --- scenarios -------------------------------------------------------------------------------------------------------


def uniform_dwell(mean: float) -> dict[str, Any]:
    """Return dwell times uniform on 1 to 2m - 1; on one of the two neighbouring ranges if that is not whole."""
    longest = math.floor(2.0 * mean - 1.0)
    more = 2.0 * mean - 1.0 - longest
    ages = np.arange(1, longest + 2)
    ends = more / (longest + 1) + np.where(ages <= longest, (1.0 - more) / longest, 0.0)
    lasts = np.append(1.0, 1.0 - np.cumsum(ends))[:-1]  # P(dwell >= age)
    hazard = [min(1.0, end / last) for end, last in zip(ends, lasts, strict=True) if last > 1e-12]
    return {"kind": "empirical", "hazard": [*hazard[:-1], 1.0]}


def bursty_dwell(mean: float) -> dict[str, Any]:
    """Return dwell times of which nine of ten are a third as long on average."""
    short = max(1.0, mean / 3.0)
    return {"kind": "mixture", "weights": [0.9, 0.1], "means": [short, 10.0 * mean - 9.0 * short]}


def disturbed(name: str, kind: str) -> Scenario:
    """Return a scenario under a disturbance."""
    if "linear" in kind:
        return ib.scenario(name, perturbation="linear")
    if kind == "drifting":
        return ib.scenario(name, perturbation={"kind": "linear", "drift": HORIZON})
    plain = ib.scenario(name, perturbation="none")
    p01, p10 = ([float(P[i]) for P in plain.transition] for i in ((0, 1), (1, 0)))
    if kind == "reversed":
        rows = {"p01": [p01, p01[::-1]], "p10": [p10, p10[::-1]]}
        return ib.scenario(plain, regimes={**rows, "at": [HORIZON // 2 + 1]})
    if kind == "reversed from the start":
        return ib.scenario(plain, p01=p01[::-1], p10=p10[::-1])
    if kind in ("regular", "bursty"):
        make = uniform_dwell if kind == "regular" else bursty_dwell
        return ib.scenario(plain, dwell={"good": [make(1 / p) for p in p10], "bad": [make(1 / p) for p in p01]})
    return plain


# --- runs ------------------------------------------------------------------------------------------------------------


def rewards(scenario: Scenario, configured: ConfiguredPolicy, replication: int) -> Floats:
    """Return the reward of a policy in every STEP slots."""
    run = PolicyRun.start(scenario, configured, HORIZON, SEED, replication)
    totals = [0.0]
    for t in range(STEP, HORIZON + 1, STEP):
        run.to(t)
        totals.append(float(run.tally.now[0]))
    return np.diff(totals)


def table(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> list[str]:
    """Return a table of shares of the oracle reward without disturbance, and of the losses in percentage points."""
    lines = [
        "| policy | scenario | share | reversed | regular | bursty | share, linear model | drifting |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for configured, name in itertools.product(POLICIES, SCENARIOS):
        cells = [configured.label, name]
        for kind in DISTURBANCES:
            half = HORIZON // STEP // 2 if kind == "reversed" else 0
            base = "undisturbed, linear model" if kind == "drifting" else "undisturbed"
            share = ratio(paths(name, configured, kind)[:, half:], best(paths, name, kind)[:, half:])
            if kind.startswith("undisturbed"):
                found = interval(100 * share)
                cells.append(f"{found.mean:.2f}%")
            else:
                before = ratio(paths(name, configured, base)[:, half:], best(paths, name, base)[:, half:])
                found = interval(100 * (before - share))
                cells.append(f"{found.mean:.2f} ±{found.high - found.mean:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def ratio(reward: Floats, reference: Floats) -> Floats:
    """Return the reward as a share of that of the oracle, per replication."""
    return np.asarray(reward.sum(axis=1) / reference.sum(axis=1))


def best(paths: Callable[[str, ConfiguredPolicy, str], Floats], name: str, kind: str) -> Floats:
    """Return the reward of the oracle with which policies are compared; at a reversal it changes its parameters."""
    if kind != "reversed":
        return paths(name, oracle(kind), kind)
    before, after = (paths(name, oracle(one), one) for one in ("undisturbed", "reversed from the start"))
    half = HORIZON // STEP // 2
    return np.concatenate([before[:, :half], after[:, half:]], axis=1)


def oracle(kind: str) -> ConfiguredPolicy:
    """Return the oracle with which policies are compared under a disturbance."""
    return ib.policy("oracle-belief" if "linear" in kind or kind == "drifting" else "oracle-whittle")


def figure(paths: Callable[[str, ConfiguredPolicy, str], Floats]) -> Any:
    """Return the figure of shares over time."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(10.4, 6.4), dpi=150, layout="constrained")
    shown = {
        "reversed": [("mp-belief", {}), ("mp-belief", {"forget": 5000.0}), ("mp-ts-episodes", {}), ("mp-ducb", {})],
        "drifting": [("mp-belief-lucb", {}), ("mp-belief-lucb", {"forget": 5000.0}), ("mp-lucb", {})],
    }
    for i, (kind, name) in enumerate(itertools.product(shown, SCENARIOS)):
        axes = made.add_subplot(2, 2, i + 1)
        reference = best(paths, name, kind).mean(axis=0)
        t = np.arange(1, HORIZON // STEP + 1) * STEP
        for j, (policy, parameters) in enumerate(shown[kind]):
            configured = ib.policy(policy, **parameters)
            share = 100 * paths(name, configured, kind).mean(axis=0) / reference
            smooth = np.convolve(share, np.ones(3) / 3, "same")
            axes.plot(t[1:-1], smooth[1:-1], color=COLOURS[j], linewidth=1.6, label=configured.label)
        axes.axhline(100, color="0.6", linewidth=0.8, zorder=0)
        axes.set_title(f"{name}, {kind}", fontsize=10)
        axes.set(xlabel="slot", ylabel="% of the oracle's reward")
        axes.grid(True, color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="center left")
    return made


def main() -> None:
    global HORIZON, REPLICATIONS, POLICIES
    quick = sys.argv[1:] == ["--quick"]
    if quick:
        HORIZON, REPLICATIONS, POLICIES = 4 * STEP, 2, POLICIES[:1]
    found: dict[tuple[str, str, str], Floats] = {}
    work = [
        (name, configured, kind)
        for kind in DISTURBANCES
        for name in SCENARIOS
        for configured in (*POLICIES, *([] if kind == "reversed" else [oracle(kind)]))
    ]
    work += [(name, oracle("reversed"), "reversed from the start") for name in SCENARIOS]
    with ThreadPoolExecutor(cores()) as pool:
        for name, configured, kind in work:
            scenario = disturbed(name, kind)
            PolicyRun.start(scenario, configured, HORIZON, SEED, 0)  # compiled on this thread
            runs = pool.map(lambda i, one=(scenario, configured): rewards(*one, i), range(REPLICATIONS))
            found[name, configured.label, kind] = np.array(list(runs))
            print(f"{kind}: {configured.label} on {name}", flush=True)

    def paths(name: str, configured: ConfiguredPolicy, kind: str) -> Floats:
        return found[name, configured.label, kind]

    text = "\n".join(table(paths)) + "\n"
    print(text)
    if quick:
        return
    (HERE / "robustness.md").write_text(text)
    figure(paths).savefig(HERE.parent / "docs/figures/robustness.png")


if __name__ == "__main__":
    main()
